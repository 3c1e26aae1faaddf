//! Triggers: an effect that follows an event, since the two rarely coincide by chance: a copy of a
//! delayed packet arrives, or the system is disturbed.

use mind_common::directory::{Target, Want};
use mind_machines::datagram::{Body, Datagram};

use crate::{coverage::Pair, plan::Disturbance, trace::Direction};

/// A kind of packet; the last one of each kind is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// A request of a compute blade's, for the first time or again.
    Request(Want, bool),
    /// A write-back.
    Write,
    /// An INVALIDATE to a compute blade.
    Invalidate(Target),
    /// A compute blade's answer to an INVALIDATE, with the page or without.
    Answer,
}

impl PacketKind {
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

/// The effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The last packet of that kind arrives once more: those of every compute blade after an event
    /// of a word, those of the one blade after an event of its page.
    Arrives(PacketKind),
    /// This disturbance; if it is of a compute blade, not after an event of another blade's page.
    Happens(Disturbance),
}

/// A trigger, until the network's faults stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The event.
    pub after: Pair,
    /// It takes effect once in so many times.
    pub one_in: u32,
    /// The effect.
    pub effect: Effect,
    /// Within how many nanoseconds it takes effect.
    pub within: u64,
}

impl Trigger {
    /// Once in so many times, within so many nanoseconds.
    pub const fn new(after: Pair, one_in: u32, effect: Effect, within: u64) -> Self {
        Self {
            after,
            one_in,
            effect,
            within,
        }
    }
}
