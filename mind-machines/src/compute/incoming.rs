//! What a compute blade looks at of a datagram: the headers. The page in it is the agent's.

use mind_common::{
    addr::Va,
    serial::Version,
    wire::{Invalidation, Message, Syndrome},
};

/// A datagram without its page, which the agent puts into the cache if an
/// [`Action::Install`](super::Action::Install) comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Incoming {
    /// Give a region up, or give up writing it.
    Invalidate(Invalidation),
    /// A page.
    Page {
        /// The version that memory has of it.
        version: Version,
        /// Which page it is, where the datagram says so.
        about: Option<Va>,
    },
    /// A request is carried out or refused.
    Acknowledge(Syndrome),
    /// Not for a compute blade, or not in use by it.
    Other,
}

impl Incoming {
    /// The headers of a message.
    pub const fn of(message: &Message<'_>) -> Self {
        match *message {
            Message::Invalidate(invalidation) => Self::Invalidate(invalidation),
            Message::ReadResponse { version, .. } => Self::Page {
                version,
                about: None,
            },
            Message::Forward {
                invalidation,
                version,
                ..
            } => Self::Page {
                version,
                about: Some(invalidation.page),
            },
            Message::Acknowledge { syndrome, .. } => Self::Acknowledge(syndrome),
            Message::Read(_)
            | Message::Acquire(_)
            | Message::Upgrade(_)
            | Message::Write { .. }
            | Message::Atomic { .. }
            | Message::AtomicAcknowledge { .. }
            | Message::InvalidateAck { .. }
            | Message::InvalidateAckFetch { .. } => Self::Other,
        }
    }
}
