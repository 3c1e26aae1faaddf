//! The records of a run, in order: a hash of all, and the records themselves if they are to be
//! kept.

use std::hash::{Hash as _, Hasher as _};

use mind_common::{
    addr::{Region, Va},
    directory::Word,
    id::BladeId,
    refusal::Refusal,
    verdict::Verdict,
};
use mind_machines::{
    Node,
    compute::Access,
    controller::{Input, Output},
    datagram::Datagram,
};
use rustc_hash::FxHasher;

use crate::plan::{Disturbance, Image};

/// A word at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The address of its page.
    pub page: Va,
    /// Which of the page's words.
    pub word: usize,
}

/// In which direction a packet goes on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host to the switch.
    Up,
    /// From the switch to the host.
    Down,
}

/// A change of a blade's copy of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// It is installed, to write or only to read.
    Installed(bool),
    /// Programs may use the copy, to write or only to read.
    Mapped(bool),
    /// They may only read it.
    Protected,
    /// It is dropped.
    Dropped,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A host sent a packet, of which so many copies arrive.
    Sent(Node, Datagram<Image>, usize),
    /// The switch handled a packet that came from a host.
    Switched(Node, Datagram<Image>, Verdict),
    /// The switch sent a packet, of which so many copies arrive.
    Forwarded(Node, Datagram<Image>, usize),
    /// A host got a packet.
    Arrived(Node, Datagram<Image>),
    /// The word of a region's slot changed, from this to that.
    Word(Region, Word, Word),
    /// A blade's copy changed.
    Cache(BladeId, Va, Cache),
    /// A thread faulted.
    Fault(usize, Va, Access),
    /// A thread's access failed.
    Failed(usize, Va, Refusal),
    /// A thread loaded a value.
    Loaded(usize, Cell, u64),
    /// A thread stored a value.
    Stored(usize, Cell, u64),
    /// The controller gets to know something. What comes of its acts is left out.
    Input(Input),
    /// The controller wants something done, for one of its operations.
    Output(Output),
    /// The controller died.
    Died,
    /// A switch with so many slots took the place of the one that was there; or not, as more are in use.
    Replaced(usize, bool),
    /// The switch drops a host's packets from now on.
    Cut(Node),
    /// A disturbance.
    Disturbed(Disturbance),
}

/// A record: what happened, and when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// In nanoseconds of virtual time.
    pub at: u64,
    /// What.
    pub what: What,
}

/// The log of a run.
#[derive(Default)]
pub(crate) struct Log {
    hasher: FxHasher,
    is_kept: bool,
    records: Vec<Record>,
}

impl Log {
    /// A log of which the records are kept, or only the hash.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self {
            is_kept,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, at: u64, what: What) {
        let record = Record { at, what };
        record.hash(&mut self.hasher);
        if self.is_kept {
            self.records.push(record);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    pub(crate) fn into_records(self) -> Vec<Record> {
        self.records
    }
}
