//! A compute blade's host: the real state machine of the blade, the pages that its programs have,
//! and what remains while it is down.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{
    addr::Va,
    id::{Connection, DomainId},
};
use mind_machines::{
    compute::{Action, Blade, Config, page::Phase},
    controller::Session,
};

use crate::{plan::Image, world::agent::Caller};

/// A page in the cache, as programs have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) image: Image,
    pub(crate) is_writable: bool,
    /// The domain whose programs have it.
    pub(crate) domain: DomainId,
}

/// What a flush is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flush {
    /// An order of the controller's, by the session that it came by and its number.
    Order(Session, u64),
    /// A thread's sync.
    Sync(Caller),
    /// A domain of which no program is left.
    Domain,
}

/// An incarnation of a blade.
pub(crate) struct Host {
    pub(crate) connection: Connection,
    pub(crate) blade: Blade,
    pub(crate) cache: BTreeMap<Va, Cached>,
    /// When [`Blade::poll`] is to be called, if that is scheduled.
    pub(crate) poll_at: Option<u64>,
    /// Write-backs under way: of which page, and how often that had been written.
    pub(crate) writing: BTreeMap<u32, (Va, u64)>,
    /// Flushes under way, by token, and how many there have been.
    pub(crate) flushes: BTreeMap<u64, Flush>,
    flushed: u64,
    /// Processes that have entered their domains.
    pub(crate) programs: BTreeSet<(DomainId, i32)>,
    /// The switch drops its packets.
    pub(crate) is_cut: bool,
}

impl Host {
    pub(crate) fn new(connection: Connection, capacity: usize, residency: u64) -> Self {
        let mut config = Config::new(connection, capacity);
        config.is_watched = true;
        config.residency.least = residency;
        Self {
            connection,
            blade: Blade::new(config),
            cache: BTreeMap::new(),
            poll_at: None,
            writing: BTreeMap::new(),
            flushes: BTreeMap::new(),
            flushed: 0,
            programs: BTreeSet::new(),
            is_cut: false,
        }
    }

    /// The token of a flush that begins.
    pub(crate) fn begin_flush(&mut self, flush: Flush) -> u64 {
        self.flushed += 1;
        self.flushes.insert(self.flushed, flush);
        self.flushed
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

/// The machine of a compute blade.
#[derive(Default)]
pub(crate) struct Machine {
    /// Its current incarnation.
    pub(crate) host: Option<Host>,
    /// An incarnation that has ended while the switch still accepts its packets, and the pages that
    /// were dirty at its end.
    pub(crate) remains: Option<(Connection, Vec<Va>)>,
    /// Its daemon hangs until then.
    pub(crate) hung_until: u64,
    /// A buffer for actions.
    pub(crate) actions: Vec<Action>,
}
