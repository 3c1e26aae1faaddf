//! A compute blade's host: the real state machine of the blade, the pages that its programs see,
//! and what stands around it when it is down.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{
    addr::Va,
    id::{Connection, DomainId},
};
use mind_machines::compute::{Action, Blade, Config, page::Phase};

use crate::plan::Image;

/// A page in the cache, as programs see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) image: Image,
    pub(crate) is_writable: bool,
    /// Whose programs see it.
    pub(crate) domain: DomainId,
}

/// A life of a blade.
pub(crate) struct Host {
    pub(crate) life: Connection,
    pub(crate) blade: Blade,
    pub(crate) cache: BTreeMap<Va, Cached>,
    /// When [`Blade::poll`] is to be called, where that is arranged.
    pub(crate) poll_at: Option<u64>,
    /// Write-backs under way: of which page, and how often that had been written.
    pub(crate) writing: BTreeMap<u32, (Va, u64)>,
    /// Threads that are in their domains, or asked to be, by the tickets that they entered with.
    pub(crate) programs: BTreeSet<(DomainId, u32)>,
    /// Its connection to the controller is broken.
    pub(crate) is_severed: bool,
    /// The switch does not listen to it any more.
    pub(crate) is_cut: bool,
}

impl Host {
    pub(crate) fn new(life: Connection, capacity: usize, hold: u64) -> Self {
        let mut config = Config::new(life, capacity);
        config.is_watched = true;
        config.residency.least = hold;
        Self {
            life,
            blade: Blade::new(config),
            cache: BTreeMap::new(),
            poll_at: None,
            writing: BTreeMap::new(),
            programs: BTreeSet::new(),
            is_severed: false,
            is_cut: false,
        }
    }

    /// Pages with writes that memory may not have.
    pub(crate) fn dirty(&self) -> Vec<Va> {
        let is_dirty = |page: &Va| {
            matches!(
                self.blade.page(*page).0,
                Phase::Modified | Phase::Cleaning { .. }
            )
        };
        self.cache.keys().copied().filter(is_dirty).collect()
    }
}

/// Where a blade lives.
#[derive(Default)]
pub(crate) struct Machine {
    /// Its present life.
    pub(crate) host: Option<Host>,
    /// A life that is over without the switch knowing, and the pages that were dirty at its end.
    pub(crate) remains: Option<(Connection, Vec<Va>)>,
    /// Its daemon stands still until then.
    pub(crate) hung_until: u64,
    /// Of the action lists.
    pub(crate) actions: Vec<Action>,
}
