//! What the controller knows: pure state and its changes, without the order in which tables and blades follow.
//!
//! * [`blades`]: blades and their incarnations,
//! * [`domains`]: protection domains, processes, vmas, areas; [`protection`]: what they may do,
//! * [`memory`]: what memory is given out,
//! * [`tables`]: what the switch's tables should hold, as a function of all that,
//! * [`records`]: what of it outlives the controller.
//!
//! The directory is not here: slots and words are in the switch's tables only, and change under traffic.

pub mod blades;
pub mod domains;
pub mod memory;
pub mod protection;
pub mod records;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet};

use mind_api::{errno::Failure, message::Reply};
use mind_common::addr::{PAGE_SIZE, Region};

use blades::{Blades, Incarnation, slice_of};
use domains::Domains;
use memory::{Extent, Memory};

/// Bytes of a page.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// The answer to a request.
pub type Answer = Result<Reply, Failure>;

/// All that the controller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Books {
    /// Blades.
    pub blades: Blades,
    /// Domains and vmas.
    pub domains: Domains,
    /// Memory blades' memory.
    pub memory: Memory,
    /// Memory that was freed and is not zeroed yet, by its first address.
    pub unclean: BTreeMap<u64, Extent>,
    /// Answers that their blades may ask for again, by incarnation and request.
    pub answers: BTreeMap<(Incarnation, u64), Answer>,
    /// What has changed since it was last recorded.
    changed: BTreeSet<records::Key>,
}

impl Books {
    /// Notes that what has that key has changed: it is to be recorded.
    pub fn touch(&mut self, key: records::Key) {
        self.changed.insert(key);
    }

    /// Whether a region is within a vma, or within memory that was freed and is not zeroed yet.
    pub fn has_memory_for(&self, region: Region) -> bool {
        let base = region.base().0;
        let end = base + region.size();
        let vma = self.domains.vma_with(region.base());
        let unclean = self.unclean.range(..=base).next_back();
        vma.is_some_and(|vma| end <= vma.va().0 + vma.extent.length)
            || unclean.is_some_and(|(from, extent)| end <= from + extent.length)
    }

    /// Memory of a blade that was freed and is not zeroed yet, by address.
    pub fn unclean_of(&self, blade: u8) -> impl Iterator<Item = Extent> {
        let (slice, _) = slice_of(blade);
        let its = slice.base.0..slice.base.0 + slice.size();
        self.unclean.range(its).map(|(_, extent)| *extent)
    }

    /// Forgets what has no effect but on controllers that follow and on requests that are made twice, for a model
    /// checker.
    #[cfg(feature = "model")]
    pub fn forget_history(&mut self) {
        self.answers.clear();
        self.changed.clear();
        self.domains.forget_losses();
    }

    /// What has changed since this was last asked.
    pub fn take_changes(&mut self) -> Vec<records::Change> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|key| (key, self.record(key))).collect()
    }
}
