//! The controller's connections: what it says on them, and what it hears.

use mind_common::{addr::Va, id::Connection};

use super::Ask;

/// Whom a connection of the controller's leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// This life of a compute blade, by its queue pair.
    Compute(u32),
    /// The memory blade with that number.
    Memory(u8),
}

impl Link {
    pub(super) fn of(life: Connection) -> Self {
        Self::Compute(life.to_qp())
    }

    /// The life of the compute blade that it leads to.
    pub const fn life(self) -> Option<Connection> {
        match self {
            Self::Compute(qp) => Connection::from_qp(qp),
            Self::Memory(_) => None,
        }
    }
}

/// What the controller says on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// A compute blade: this is your connection to the switch from now on.
    Registered,
    /// A compute blade: what you asked for under this number is done, or cannot be done.
    Reply {
        /// The number.
        id: u32,
        /// Whether it is done.
        done: bool,
    },
    /// A compute blade: write back what is modified of the range and drop it; answer then.
    Flush {
        /// The order's number.
        id: u32,
        /// The first address.
        start: Va,
        /// Bytes.
        length: u64,
    },
    /// A compute blade: nobody listens to this life of yours any more. Not answered.
    Leave,
    /// A memory blade: these pages are to be zeros; answer then.
    Zero {
        /// The order's number.
        id: u32,
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A memory blade: fence these pages; answer then.
    FencePages {
        /// The order's number.
        id: u32,
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A memory blade: fence atomic operations of this life; answer then.
    FenceBlade {
        /// The order's number.
        id: u32,
        /// The life.
        life: Connection,
    },
}

/// What the controller hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Somebody wants something.
    Ask(Ask),
    /// An order was carried out, or could not be.
    Answer {
        /// The order's number.
        id: u32,
        /// Whether it was.
        done: bool,
    },
    /// An order takes longer than it may.
    Overdue {
        /// The order's number.
        id: u32,
    },
    /// The connection to a life of a compute blade is gone.
    Broken(Connection),
}
