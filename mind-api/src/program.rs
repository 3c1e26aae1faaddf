//! The messages between a program and the agent of its blade, over a Unix socket of packets
//! (`SOCK_SEQPACKET`): each packet is one message in JSON, with at most one descriptor.
//!
//! ```text
//! program                              agent
//!    | Attach { domain } ------------->  |  asks the controller, makes the domain's memory
//!    | <------ Memory { .. } + memfd     |
//!    |   maps it, registers it           |
//!    | Userfault + descriptor -------->  |  resolves its faults from now on
//!    | <------------------- Attached     |
//!    | Call { .. } ------------------->  |
//!    | <---------------- Answer { .. }   |
//!    | <------ Denied, Unreachable, ..   |  at any time
//!    | Detach ---------------------->    |  closes the connection
//! ```
//!
//! The agent learns the program's process id from the socket (`SO_PEERCRED`). The end of the
//! connection means that the agent is gone, and faults are not resolved any more.

use serde::{Deserialize, Serialize};

use crate::{
    errno::Failure,
    message::{Access, OnLoss, Open},
};

/// The version of this protocol.
pub const VERSION: u32 = 3;

/// From a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToBlade {
    /// First: to run in a protection domain.
    Attach {
        /// The version that it speaks.
        version: u32,
        /// The domain's name; made if there is none of that name.
        domain: String,
        /// What its readers are to see when writes are lost; `None`: what the domain has chosen.
        #[serde(default)]
        on_loss: Option<OnLoss>,
    },
    /// Instead, by an operator: the agent's counters. Answered by [`FromBlade::Report`]; may be
    /// repeated.
    Report,
    /// Second, with a userfaultfd: the window is mapped and registered.
    Userfault,
    /// After that: a call.
    Call {
        /// Chosen by the program; the answer carries it.
        id: u64,
        /// The call.
        call: Call,
    },
    /// Last, if the process goes on without the window, of which nothing may be mapped in it any
    /// more. Answered by the end of the connection. Without this, a process is a member until it
    /// ends.
    Detach,
}

/// A program's call to the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Maps new zeroed memory.
    Map {
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with it.
        access: Access,
    },
    /// Unmaps a whole vma.
    Unmap {
        /// Where it begins.
        va: u64,
        /// Its length.
        length: u64,
    },
    /// Changes the permissions of whole pages.
    Protect {
        /// The first page.
        va: u64,
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with them from now on.
        access: Access,
    },
    /// Completes when all that this blade's programs wrote to a range is in memory (`msync` with
    /// `MS_SYNC`).
    Sync {
        /// Where it begins.
        va: u64,
        /// Its length.
        length: u64,
    },
    /// Opens an area of the domain by name, at the same address on every blade.
    OpenArea {
        /// The name, unique in the domain.
        name: String,
        /// Bytes, if it is made; otherwise at most the area's length. 0: the area's length.
        length: u64,
        /// What the domain may do with it, if it is made.
        access: Access,
        /// Whether it must be there.
        open: Open,
    },
    /// Removes the name of an area.
    UnlinkArea {
        /// The name.
        name: String,
    },
}

/// A range of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mapping {
    /// Where it begins.
    pub va: u64,
    /// Bytes.
    pub length: u64,
}

/// Upper bounds of the buckets that faults are sorted into by how long they took, in nanoseconds: 1 us to 10 s.
pub const BUCKETS_NS: [u64; 43] = {
    const STEPS: [u64; 6] = [1_000, 1_500, 2_000, 3_000, 5_000, 7_000];
    let mut bounds = [0; 43];
    let (mut index, mut decade) = (0, 1);
    while index < bounds.len() {
        bounds[index] = STEPS[index % STEPS.len()] * decade;
        index += 1;
        if index % STEPS.len() == 0 {
            decade *= 10;
        }
    }
    bounds
};

/// Faults that caused one transition of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransitionReport {
    /// The transition, as `I->S`.
    pub transition: String,
    /// How many.
    pub count: u64,
    /// From the fault to the page, in nanoseconds: half of them took less.
    pub p50_ns: u64,
    /// 99 in 100 took less.
    pub p99_ns: u64,
    /// All of them together, in nanoseconds.
    #[serde(default)]
    pub sum_ns: u64,
    /// Those in each bucket of [`BUCKETS_NS`]: not above its bound, above the one before. Those above all bounds are in
    /// none.
    #[serde(default)]
    pub buckets: Vec<u64>,
}

macro_rules! report {
    ($($(#[doc = $help:literal])+ $name:ident: $_metric:literal;)+) => {
        /// What a compute blade's agent counted since it began, and its present state.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(default)]
        pub struct BladeReport {
            /// Programs.
            pub programs: u64,
            /// Pages cached.
            pub pages: u64,
            /// Pages that may be cached.
            pub capacity: u64,
            $($(#[doc = $help])+ pub $name: u64,)+
            /// Datagrams that could not be parsed.
            pub malformed: u64,
            /// Datagrams that the kernel refused to send.
            pub unsent: u64,
            /// The smoothed round trip, in nanoseconds, once there is one.
            pub round_trip_ns: Option<u64>,
            /// Faults that took a request, by transition of the directory.
            pub transitions: Vec<TransitionReport>,
        }
    };
}

mind_common::blade_counters!(report);

/// Transitions that a report may have; there are fewer.
const MOST_TRANSITIONS: usize = 32;
/// Bytes that a transition's name may have; they have fewer.
const LONGEST_TRANSITION: usize = 64;

impl BladeReport {
    /// Whether it has no more parts than an agent's report has, so that a reply with 16 of them fits in a frame.
    pub fn is_bounded(&self) -> bool {
        let is_bounded = |it: &TransitionReport| {
            it.transition.len() <= LONGEST_TRANSITION && it.buckets.len() <= BUCKETS_NS.len()
        };
        self.transitions.len() <= MOST_TRANSITIONS && self.transitions.iter().all(is_bounded)
    }
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum FromBlade {
    /// What [`ToBlade::Report`] asks for.
    Report(Box<BladeReport>),
    /// With a memfd: the memory of the domain on this blade.
    Memory {
        /// The domain's number.
        domain: u32,
        /// The blade's number.
        blade: u8,
    },
    /// The program is attached and may use the window.
    Attached,
    /// The program is not attached.
    Refused {
        /// Why not. By a name: it has a field of its own that is called as the tag is.
        failure: Failure,
    },
    /// The answer to a call; a range, where the call makes one.
    Answer {
        /// The call's number.
        id: u64,
        /// The answer, or why not.
        result: Result<Option<Mapping>, Failure>,
    },
    /// Threads accessed a page without the domain's permission.
    Denied {
        /// First address of the page.
        page: u64,
        /// Whether the domain may read it.
        readable: bool,
    },
    /// Threads accessed a page that is lost, or that no memory blade serves.
    Unreachable {
        /// First address of the page.
        page: u64,
    },
    /// What was denied or unreachable in this range may have changed.
    Changed {
        /// The range.
        range: Mapping,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn every_message_of_an_agent_can_be_read() {
        let failure = || Failure::new(Errno::EINVAL, "the domain has chosen something else");
        let range = Mapping {
            va: 0x1000_0000_0000,
            length: 4096,
        };
        let messages = [
            FromBlade::Report(Box::default()),
            FromBlade::Memory {
                domain: 3,
                blade: 1,
            },
            FromBlade::Attached,
            FromBlade::Refused { failure: failure() },
            FromBlade::Answer {
                id: 1,
                result: Ok(Some(range)),
            },
            FromBlade::Answer {
                id: 2,
                result: Err(failure()),
            },
            FromBlade::Denied {
                page: range.va,
                readable: true,
            },
            FromBlade::Unreachable { page: range.va },
            FromBlade::Changed { range },
        ];
        for message in messages {
            let text = serde_json::to_string(&message).unwrap();
            let read = serde_json::from_str::<FromBlade>(&text);
            assert_eq!(read.ok(), Some(message), "{text}");
        }
    }
}
