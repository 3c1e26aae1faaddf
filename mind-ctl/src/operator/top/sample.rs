//! What the controller says at one moment.

use std::{collections::BTreeMap, time::Instant};

use anyhow::Result;
use mind_api::{
    operator::{RegionOrder, RegionStatus, Status},
    program::BladeReport,
};

use crate::operator::Controller;

/// Regions that are looked at, in each order: those that were busiest since they were mapped.
const REGIONS: usize = 500;

/// What there is, and what was counted by now.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Status,
    /// Of each compute blade that answers.
    pub(super) caches: BTreeMap<String, BladeReport>,
    /// By first address.
    pub(super) regions: BTreeMap<u64, RegionStatus>,
}

impl Sample {
    pub(super) async fn take(controller: &Controller) -> Result<Self> {
        let at = Instant::now();
        let status = controller.status().await?;
        let caches = controller.0.caches().await?;
        let mut regions = BTreeMap::new();
        for order in [RegionOrder::Accesses, RegionOrder::Invalidations] {
            let busiest = controller.0.regions((0, u64::MAX), order, REGIONS).await?;
            regions.extend(busiest.into_iter().map(|region| (region.va, region)));
        }
        Ok(Self {
            at,
            status,
            caches,
            regions,
        })
    }
}
