//! What follows when something happens, at a moment that it rarely meets by chance: a copy of a
//! packet that was held up on its way arrives, or the system is disturbed.

use mind_common::directory::{Target, Want};
use mind_machines::datagram::{Body, Datagram};

use crate::{coverage::Pair, plan::Disturbance, trace::Direction};

/// What packets have in common of which the last is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// A request of a compute blade's, for the first time or again.
    Request(Want, bool),
    /// A write-back.
    Write,
    /// The directory's wish that a compute blade gives a region up.
    Invalidate(Target),
    /// A compute blade's answer to such a wish, with the page or without.
    Answer,
}

impl Sort {
    pub(crate) const fn of<P>(packet: &Datagram<P>) -> Option<Self> {
        match &packet.body {
            Body::Request { want, .. } => Some(Self::Request(*want, packet.envelope.attempt > 0)),
            Body::Write { .. } => Some(Self::Write),
            Body::Answer { .. } | Body::Forward { .. } => Some(Self::Answer),
            Body::Invalidate(invalidation) => Some(Self::Invalidate(invalidation.target)),
            _ => None,
        }
    }

    pub(crate) const fn way(self) -> Direction {
        match self {
            Self::Invalidate(_) => Direction::Down,
            Self::Request(..) | Self::Write | Self::Answer => Direction::Up,
        }
    }
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The last packet of that sort arrives once more: those of every compute blade after what
    /// happens to a word, those of the one blade after what happens to its page.
    Arrives(Sort),
    /// This happens; if it is to a compute blade, not after what happens to a page of another.
    Happens(Disturbance),
}

/// When something happens, until the network's faults stop, something follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// After this.
    pub after: Pair,
    /// Once in so many times.
    pub one_in: u32,
    /// What follows.
    pub then: Then,
    /// Within how many nanoseconds.
    pub within: u64,
}

impl Echo {
    /// Once in so many times, within so many nanoseconds.
    pub const fn new(after: Pair, one_in: u32, then: Then, within: u64) -> Self {
        Self {
            after,
            one_in,
            then,
            within,
        }
    }
}
