//! The replies for operators: blades, domains, ports, vmas, regions, discrepancies, packets.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::message::{Access, BladeKind, OnLoss};

/// The system at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Summary {
    /// Directory slots in use.
    pub slots_used: u32,
    /// Directory slots in all.
    pub slots: u32,
    /// How regions are split and merged, if the controller does that.
    pub splitting: Option<SplittingStatus>,
    /// What the controller copied for ports at which the switch does not copy.
    pub copied: CopyStatus,
    /// Blades that a controller still waits for after it took over from another. Empty once it carries requests out.
    pub awaited: Vec<String>,
}

/// The state of the system, put together from [`Summary`] and lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Status {
    /// Blades, compute before memory.
    pub blades: Vec<BladeStatus>,
    /// Protection domains.
    pub domains: Vec<DomainStatus>,
    /// Directory slots in use.
    pub slots_used: u32,
    /// Directory slots in all.
    pub slots: u32,
    /// How regions are split and merged, if the controller does that.
    #[serde(default)]
    pub splitting: Option<SplittingStatus>,
    /// The switch's ports.
    #[serde(default)]
    pub ports: Vec<PortStatus>,
    /// What the controller copied for ports at which the switch does not copy.
    #[serde(default)]
    pub copied: CopyStatus,
    /// Blades that a controller still waits for after it took over from another. Empty once it carries requests out.
    #[serde(default)]
    pub awaited: Vec<String>,
}

/// How regions are split and merged (Bounded Splitting: MIND, SOSP 2021, section 5). Counts are since the controller
/// began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SplittingStatus {
    /// How long an epoch is, in milliseconds.
    pub epoch: u32,
    /// Pages that may be falsely invalidated in a region in an epoch before it is split: the paper's t.
    pub threshold: u64,
    /// The paper's c, in thousandths.
    pub c_thousandths: u64,
    /// Regions that are split now.
    pub split: u32,
    /// Regions that were split.
    pub splits: u64,
    /// Halves that were merged.
    pub merges: u64,
    /// Pages that were falsely invalidated.
    pub false_invalidations: u64,
}

/// Packets for several blades that were handed over to the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyStatus {
    /// Packets that were handed over.
    pub packets: u64,
    /// Copies of them.
    pub copies: u64,
    /// Copies not sent because the blade was not present.
    pub missing: u64,
    /// Copies that the kernel refused to send.
    pub unsent: u64,
}

/// What copies a packet for several blades that comes in at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FanOut {
    /// Nothing: such packets are dropped.
    #[default]
    None,
    /// The switch, by its TC program.
    Switch,
    /// The controller.
    Controller,
}

impl FanOut {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Switch => "switch",
            Self::Controller => "controller",
        }
    }
}

/// A port of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its interface.
    pub interface: String,
    /// The interface's index.
    #[serde(default)]
    pub ifindex: u32,
    /// The name of the blade behind it, if one has registered.
    pub blade: Option<String>,
    /// What copies packets for several blades that come in there.
    #[serde(default)]
    pub fan_out: FanOut,
    /// Packets that came in there, by verdict.
    pub packets: BTreeMap<String, u64>,
}

/// A blade's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BladeStatus {
    /// What it is for.
    pub kind: BladeKind,
    /// Its number among those.
    pub number: u8,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The switch's port that it is behind.
    #[serde(default)]
    pub port: Option<String>,
    /// Its incarnation.
    pub incarnation: u16,
    /// Whether its connection is open.
    pub connected: bool,
    /// Whether the system counts on it. A blade that is here and not connected is cut off, or leaves.
    #[serde(default)]
    pub here: bool,
    /// Pages that it offers or caches at most.
    pub pages: u64,
    /// Pages of it that are allocated; 0 for a compute blade.
    pub allocated: u64,
}

/// A domain's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DomainStatus {
    /// Its number.
    pub domain: u32,
    /// Its name.
    pub name: String,
    /// Its processes on all blades.
    pub processes: u32,
    /// Its vmas.
    pub vmas: u32,
    /// Their bytes.
    pub bytes: u64,
    /// What its readers see when writes are lost.
    #[serde(default)]
    pub on_loss: OnLoss,
    /// Vmas of which writes were lost. Empty in the controller's answer, where they are a list of their own.
    #[serde(default)]
    pub losses: Vec<LossStatus>,
}

/// What a vma has lost with blades that are gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LossStatus {
    /// Where the vma begins.
    pub va: u64,
    /// Its bytes.
    pub length: u64,
    /// The name of the area that it is, if it has one.
    pub area: Option<String>,
    /// Regions with lost writes; a region that lost writes again counts again.
    pub regions: u64,
    /// The first address of the last one.
    pub last: u64,
    /// The name of the blade that was lost.
    pub blade: String,
}

/// What a vma of a domain has lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DomainLoss {
    /// The number of the domain.
    pub domain: u32,
    /// What is lost.
    #[serde(flatten)]
    pub loss: LossStatus,
}

/// A vma's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VmaStatus {
    /// Its first address.
    pub va: u64,
    /// Its bytes.
    pub length: u64,
    /// The number of its domain.
    pub domain: u32,
    /// That domain's name.
    pub domain_name: String,
    /// The names of the memory blades that store its pages, by number: one, or several if none had room for all.
    pub memory: Vec<String>,
    /// The name of the area that it is, if it has one.
    pub area: Option<String>,
    /// How often it was mapped or opened, less how often it was unmapped.
    pub users: u32,
    /// What its domain may do with it, from the first address to the last. Adjacent ranges differ.
    pub access: Vec<AccessRange>,
    /// Its regions.
    pub regions: u32,
    /// Its regions with lost writes; a region that lost writes again counts again.
    pub lost: u64,
}

/// What a domain may do with part of a vma.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccessRange {
    /// Its first address.
    pub va: u64,
    /// Its bytes.
    pub length: u64,
    /// What the domain may do.
    pub access: Access,
}

/// In which order regions are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionOrder {
    /// Lowest address first.
    Address,
    /// Most invalidations first.
    Invalidations,
    /// Most granted requests first.
    Accesses,
}

/// A region's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionStatus {
    /// Its first address.
    pub va: u64,
    /// Its bytes.
    pub length: u64,
    /// Its slot's index in the directory.
    pub slot: u32,
    /// The state of its directory word, as `shared` or `modified-to-shared`.
    pub state: String,
    /// The names of the blades in its directory word: sharers, the owner, or the blades that still owe an answer.
    pub blades: Vec<String>,
    /// While it is busy: the name of the blade that it will be given to.
    pub requester: Option<String>,
    /// The episode of its directory word.
    pub episode: u32,
    /// Requests that were granted without an invalidation; approximate, wraps at 2^32.
    pub accesses: u32,
    /// Invalidations begun; wraps at 2^32.
    pub invalidations: u32,
    /// Pages that were dropped though the requester did not ask for them (false invalidations);
    /// wraps at 2^32.
    pub dropped: u32,
    /// Pages that were written back because of an invalidation; wraps at 2^32.
    pub flushed: u32,
}

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Check {
    /// How many objects of each kind were compared.
    pub compared: BTreeMap<String, u64>,
    /// What does not agree; empty if all is well. Also empty in the controller's answer, where it is a list of its own.
    pub discrepancies: Vec<Discrepancy>,
    /// How many more there are than are kept.
    #[serde(default)]
    pub left_off: u64,
}

/// Two values that should agree and do not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Discrepancy {
    /// The object, such as `the region of 16K at 0x100000004000`.
    pub object: String,
    /// What it should be, by the controller's state.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// What to do about it.
    pub fix: String,
}

/// Which packets an operator traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceFilter {
    /// Only those of the connection of the compute blade of that name, memory's answers to it included.
    #[serde(default)]
    pub blade: Option<String>,
    /// Only those that name an address in one of these ranges; all if there are none.
    #[serde(default)]
    pub ranges: Vec<AddressRange>,
}

/// Addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressRange {
    /// The first.
    pub va: u64,
    /// Bytes.
    pub length: u64,
}

/// What the switch did with some packets, in the order of their records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Traced {
    /// The packets.
    pub packets: Vec<TracedPacket>,
    /// Records missing before these, because packets came faster than they could be read. Some of them may not match
    /// the filter.
    pub lost: u64,
}

/// What the switch did with a packet. Fields that the packet did not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TracedPacket {
    /// When it came in, in nanoseconds since 1970.
    pub when: u64,
    /// The index of the interface that it came in at.
    pub ifindex: u32,
    /// The verdict, as in [`PortStatus::packets`].
    pub verdict: String,
    /// The opcode in its BTH.
    pub opcode: Option<u8>,
    /// The queue pair that it was for.
    pub qp: Option<u32>,
    /// Its packet sequence number.
    pub psn: Option<u32>,
    /// The address that it named.
    pub va: Option<u64>,
    /// The directory word that it found.
    pub before: Option<u64>,
    /// The directory word that it left.
    pub after: Option<u64>,
}
