//! The crate's errors, and what to do about each.

use std::{io, path::PathBuf};

use mind_common::addr::Region;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. Each message names the object, what was tried, and what helps
/// where something does.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused the object as a whole: a map or the type information.
    #[error("cannot load the eBPF object (it takes root, or CAP_BPF and CAP_NET_ADMIN): {0}")]
    Load(#[source] Box<aya::EbpfError>),
    /// The kernel refused a program.
    #[error("cannot load the program {name}: {source}")]
    Program {
        /// The program.
        name: &'static str,
        /// The kernel's reason, with the verifier's log.
        source: Box<aya::programs::ProgramError>,
    },
    /// The object has no such program or map: it is of another version than this library.
    #[error("the eBPF object has no {name}; build it again with `cargo xtask build`")]
    Missing {
        /// The program or map.
        name: &'static str,
    },
    /// A map is of another shape than expected, or the kernel refused an operation on it.
    #[error("cannot use the map {name}: {source}")]
    Map {
        /// The map.
        name: &'static str,
        /// The reason.
        source: Box<aya::maps::MapError>,
    },
    /// An entry could not be read or written.
    #[error("cannot {action} entry {key} of the map {name}: {source}")]
    Entry {
        /// The map.
        name: &'static str,
        /// Read, write or remove.
        action: &'static str,
        /// Which entry.
        key: String,
        /// The kernel's reason.
        source: Box<aya::maps::MapError>,
    },
    /// An index is beyond a map that was sized too small.
    #[error("{what} {index} is beyond the limit of {limit}; load with a higher limit")]
    Limit {
        /// What the index numbers.
        what: &'static str,
        /// The index.
        index: u64,
        /// The first index beyond the map.
        limit: u64,
    },
    /// Nothing is left of something that there is a fixed number of.
    #[error("all {number} {what} are in use; load with more slots")]
    UsedUp {
        /// What they are.
        what: &'static str,
        /// How many there are.
        number: usize,
    },
    /// Packets came in the way of a change again and again.
    #[error(
        "the slots of the pages at {region} cannot be changed: packets come in the way again and again"
    )]
    Contended {
        /// Which pages.
        region: Region,
    },
    /// Packets cannot be waited for.
    #[error(
        "cannot wait until packets have left the switch (membarrier): {source}; start the host without nohz_full"
    )]
    Grace {
        /// The kernel's reason.
        source: io::Error,
    },
    /// A map could not be mapped into memory.
    #[error("cannot map {name} into memory ({len} bytes): {source}")]
    MapMemory {
        /// The map.
        name: &'static str,
        /// Bytes.
        len: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Something could not be pinned, or opened where it was pinned.
    #[error("cannot {action} {}: {reason}; is it in a BPF file system (`mount -t bpf bpf /sys/fs/bpf`)?", path.display())]
    Pin {
        /// Pin, open or remove.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is no such interface.
    #[error("there is no interface {name} in this network namespace: {source}")]
    Interface {
        /// The interface.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A program could not be attached or detached.
    #[error("cannot attach {program} to {interface}: {reason}{hint}")]
    Attach {
        /// The program.
        program: &'static str,
        /// The interface.
        interface: String,
        /// The reason.
        reason: String,
        /// What may help.
        hint: &'static str,
    },
}

impl Error {
    /// Whether it is the TC program that could not be attached.
    pub fn is_of_fan_out(&self) -> bool {
        matches!(self, Self::Attach { program, .. } if *program == crate::object::program::FAN_OUT)
    }
}
