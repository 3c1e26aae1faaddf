//! The messages. Addresses are global virtual addresses and lengths are bytes, unless a name says pages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub use mind_common::permission::PermissionClass as Access;
use serde::{Deserialize, Serialize};

use crate::{
    errno::Failure,
    operator::{
        BladeStatus, Check, Discrepancy, DomainLoss, DomainStatus, PortStatus, RegionOrder,
        RegionStatus, Summary, TraceFilter, Traced, VmaStatus,
    },
    program::BladeReport,
};

/// The caller's first message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol that it speaks.
    pub version: u32,
    /// Its name, for the controller's log: the program and, for an agent, the blade.
    pub name: String,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that the controller speaks.
    pub version: u32,
}

/// What a blade is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BladeKind {
    /// Runs programs and caches pages.
    Compute,
    /// Holds pages.
    Memory,
}

/// A blade introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// What it is for.
    pub kind: BladeKind,
    /// Its name, for people.
    pub name: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
    /// The Ethernet address of its interface. The controller finds the switch's port by it: a blade is identified by
    /// its port, not by what it says.
    pub mac: [u8; 6],
    /// Pages that a memory blade offers, that a compute blade caches at most.
    pub pages: u64,
}

/// Whether an area must be there, or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Open {
    /// It must be there (`shm_open` without `O_CREAT`).
    Existing,
    /// It is made if it is not there (`O_CREAT`).
    OrCreate,
    /// It must not be there (`O_CREAT | O_EXCL`).
    New,
}

/// What readers of a region see when the blade that wrote to it is gone before it wrote back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLoss {
    /// What was written back last.
    #[default]
    LastWritten,
    /// Nothing: every access to the region is a SIGBUS until it is unmapped.
    Fail,
}

/// A change of a region by the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionChange {
    /// Every blade writes back and drops what it has of it (paper, section 4.4).
    Reset,
    /// Its two halves become regions of their own.
    Split,
    /// It becomes one region with the other half of the region twice its size.
    Merge,
}

/// A request of a blade, a program or an operator to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// This connection is a blade's agent; answered by [`Reply::Registered`].
    Register(Registration),
    /// This connection is that of a blade's agent that was registered before its connection to the controller ended;
    /// answered by [`Reply::Registered`]. The first request on its connection.
    Resume {
        /// What it is for.
        kind: BladeKind,
        /// Its number among the blades of its kind.
        number: u8,
        /// The blade's incarnation.
        incarnation: u16,
    },
    /// A process of the domain runs on this blade from now on; answered by [`Reply::Entered`].
    EnterProcess {
        /// The protection domain's name; it is made if there is none of that name.
        domain: String,
        /// The process, as its blade numbers it.
        pid: i32,
        /// The choice for the domain, if it is made; otherwise the choice that it must have. `None`: any, by default
        /// [`OnLoss::LastWritten`].
        #[serde(default)]
        on_loss: Option<OnLoss>,
    },
    /// The process of the domain has ended, or has left it.
    ExitProcess {
        /// The protection domain.
        domain: u32,
        /// The process, as its blade numbers it.
        pid: i32,
    },
    /// Maps new zeroed memory; answered by [`Reply::Mapped`].
    Map {
        /// The protection domain.
        domain: u32,
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with it.
        access: Access,
    },
    /// Unmaps a whole vma; an area without a name goes with the last process that has it open.
    Unmap {
        /// The protection domain.
        domain: u32,
        /// The process that unmaps it.
        pid: i32,
        /// Where it begins.
        va: u64,
        /// Its length.
        length: u64,
    },
    /// Changes the permissions of whole pages.
    Protect {
        /// The protection domain.
        domain: u32,
        /// The first page.
        va: u64,
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with them from now on.
        access: Access,
    },
    /// Opens an area of the domain by name, at the same address for every process; answered by [`Reply::Mapped`].
    OpenArea {
        /// The protection domain.
        domain: u32,
        /// The process that uses it, until it unmaps it or ends.
        pid: i32,
        /// The name, unique in the domain.
        name: String,
        /// Bytes, if it is made; otherwise at most the area's length. 0: the area's length.
        length: u64,
        /// What the domain may do with it, if it is made.
        access: Access,
        /// Whether it must be there.
        open: Open,
    },
    /// Removes the name of an area; its memory goes with the last unmap.
    UnlinkArea {
        /// The protection domain.
        domain: u32,
        /// The name.
        name: String,
    },
    /// Completes when all that this blade wrote to a range is in memory and the blade owns nothing of it: then the
    /// writes outlive the blade.
    Sync {
        /// The protection domain.
        domain: u32,
        /// Where it begins.
        va: u64,
        /// Bytes.
        length: u64,
    },
    /// Reports that a request of this blade for a page does not complete; the region may have to be
    /// reset.
    ReportStuck {
        /// The page's address.
        va: u64,
    },
    /// Reports that memory refused a write-back of this blade for good.
    ReportLoss {
        /// The page's address.
        va: u64,
    },
    /// By an operator on the switch: changes the region of a page; answered by [`Reply::Region`].
    ChangeRegion {
        /// An address in it.
        va: u64,
        /// The change.
        change: RegionChange,
    },
    /// The system at a glance; answered by [`Reply::Status`].
    Status,
    /// Blades, compute before memory; answered by [`Reply::Blades`].
    ListBlades {
        /// Where to go on, as the part before says; 0 at first. So in all lists.
        from: u64,
        /// At most so many; fewer, if one answer may not have as many. So in all lists.
        limit: u32,
    },
    /// The switch's ports; answered by [`Reply::Ports`].
    ListPorts {
        /// Where to go on.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// Protection domains with processes, by number; answered by [`Reply::Domains`].
    ListDomains {
        /// Where to go on: those of this number and above.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// What vmas have lost, by address; answered by [`Reply::Losses`].
    ListLosses {
        /// Where to go on: those at this address and above.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// Waits until a blade is ready behind every port of the switch.
    AwaitBlades,
    /// By an operator on the switch: vmas, by address; answered by [`Reply::Vmas`].
    ListVmas {
        /// Those with an address from this one on. Of one that begins before it, only what it has from there on is
        /// said: permissions and regions.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// By an operator on the switch: regions; answered by [`Reply::Regions`].
    ListRegions {
        /// Those in this range of addresses: its first.
        from: u64,
        /// And the one after its last.
        to: u64,
        /// In which order; only by address does a list go on beyond one answer.
        order: RegionOrder,
        /// At most so many.
        limit: u32,
    },
    /// By an operator on the switch: the counters of compute blades; answered by [`Reply::Caches`].
    ListCaches {
        /// Where to go on: those of blades of this number and above.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// By an operator on the switch: whether the controller's state, the switch's tables and the blades agree; answered
    /// by [`Reply::Checked`].
    Check,
    /// By the operator whose connection asked for a check last: what it found; answered by [`Reply::Discrepancies`].
    ListDiscrepancies {
        /// Where to go on.
        from: u64,
        /// At most so many.
        limit: u32,
    },
    /// By an operator on the switch: traces packets from now on until this connection ends. Replaces an earlier filter
    /// of this connection.
    Trace(TraceFilter),
    /// By an operator that traces: the packets since the last such request; answered by [`Reply::Traced`] when there
    /// are some.
    NextTraced,
}

impl Request {
    /// Its name, as in its JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Register(_) => "register",
            Self::Resume { .. } => "resume",
            Self::EnterProcess { .. } => "enter_process",
            Self::ExitProcess { .. } => "exit_process",
            Self::Map { .. } => "map",
            Self::Unmap { .. } => "unmap",
            Self::Protect { .. } => "protect",
            Self::OpenArea { .. } => "open_area",
            Self::UnlinkArea { .. } => "unlink_area",
            Self::Sync { .. } => "sync",
            Self::ReportStuck { .. } => "report_stuck",
            Self::ReportLoss { .. } => "report_loss",
            Self::ChangeRegion { .. } => "change_region",
            Self::Status => "status",
            Self::ListBlades { .. } => "list_blades",
            Self::ListPorts { .. } => "list_ports",
            Self::ListDomains { .. } => "list_domains",
            Self::ListLosses { .. } => "list_losses",
            Self::AwaitBlades => "await_blades",
            Self::ListVmas { .. } => "list_vmas",
            Self::ListRegions { .. } => "list_regions",
            Self::ListCaches { .. } => "list_caches",
            Self::Check => "check",
            Self::ListDiscrepancies { .. } => "list_discrepancies",
            Self::Trace(_) => "trace",
            Self::NextTraced => "next_traced",
        }
    }
}

/// The controller's answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done,
    /// The blade is registered.
    Registered {
        /// Its number among the blades of its kind.
        number: u8,
        /// The blade's incarnation.
        incarnation: u16,
        /// Where compute blades send their requests.
        switch: Ipv4Addr,
        /// First address of the window of global addresses.
        window_base: u64,
        /// Bytes of that window.
        window_size: u64,
    },
    /// The process belongs to the domain.
    Entered {
        /// The domain's number.
        domain: u32,
    },
    /// The memory is mapped.
    Mapped {
        /// Where it begins.
        va: u64,
        /// Bytes, whole pages.
        length: u64,
    },
    /// A region after a change.
    Region {
        /// Where it begins now.
        va: u64,
        /// Its bytes now.
        length: u64,
        /// Whether it was changed; otherwise it was busy for too long, or cannot be changed so.
        changed: bool,
    },
    /// The system at a glance.
    Status(Summary),
    /// Blades.
    Blades {
        /// As many as one answer may have. So in all lists.
        blades: Vec<BladeStatus>,
        /// Where the next part begins, if there may be more; always beyond where this one does. So in all lists.
        next: Option<u64>,
    },
    /// Ports.
    Ports {
        /// The ports.
        ports: Vec<PortStatus>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// Domains, by number. What their vmas have lost is a list of its own.
    Domains {
        /// The domains.
        domains: Vec<DomainStatus>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// What vmas have lost, by address.
    Losses {
        /// The losses.
        losses: Vec<DomainLoss>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// Vmas, by address.
    Vmas {
        /// The vmas. The next part may go on with the last one.
        vmas: Vec<VmaStatus>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// Regions, in the requested order.
    Regions {
        /// The regions.
        regions: Vec<RegionStatus>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// The counters of compute blades, by name.
    Caches {
        /// Those that answered.
        caches: BTreeMap<String, BladeReport>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// What a check looked at. What it found is a list of its own.
    Checked(Check),
    /// What a check found.
    Discrepancies {
        /// The discrepancies.
        discrepancies: Vec<Discrepancy>,
        /// Where the next part begins.
        next: Option<u64>,
    },
    /// Traced packets.
    Traced(Traced),
}

/// A command of the controller to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// A memory blade: fill these pages with zeros, each as its next version, or the first of them: as many as it can
    /// without letting other commands wait for long. The answer is [`Report::Zeroed`].
    ZeroPages {
        /// The first, counted from the start of the blade's memory.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A memory blade: refuse write-backs to these pages that a blade which is gone may still have
    /// on their way.
    FencePages {
        /// The first, counted from the start of the blade's memory.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A memory blade: refuse atomic operations of an incarnation of a compute blade that has
    /// ended.
    FenceBlade {
        /// The queue pair of that incarnation.
        qp: u32,
    },
    /// A compute blade: the switch drops the packets of this incarnation of the blade, and its programs' memory is out
    /// of date: end the programs and the agent. Not answered.
    Leave,
    /// A compute blade: write back what is modified of the range, then drop it; answer when memory has it.
    FlushRange {
        /// Where it begins.
        va: u64,
        /// Bytes.
        length: u64,
    },
    /// Answer with number, incarnation and processes: [`Report::Identity`].
    Identify,
    /// A compute blade: answer with the counters: [`Report::Cache`].
    CountCache,
}

/// An agent's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// It is done.
    Done,
    /// So many pages are zeroed, from the first one on.
    Zeroed {
        /// How many; not 0, unless none were to be.
        pages: u64,
    },
    /// The agent's identity.
    Identity(Identity),
    /// A compute blade's counters.
    Cache(Box<BladeReport>),
}

/// An agent's identity, as the agent has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Its number among the blades of its kind.
    pub number: u8,
    /// The blade's incarnation.
    pub incarnation: u16,
    /// Pages that it offers, that it caches at most.
    pub pages: u64,
    /// The processes that run on it, by domain; none on a memory blade.
    pub processes: BTreeSet<(u32, i32)>,
}

/// One frame on a connection, in either direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Frame {
    /// The caller's first frame.
    Hello(Hello),
    /// The controller's first frame, if it accepts the caller.
    Welcome(Welcome),
    /// The controller's first and last frame, if it does not.
    Refused(Failure),
    /// To the controller.
    Request {
        /// Chosen by the sender, higher each time; the answer has the same.
        id: u64,
        /// The sender waits for no answer to a request with a lower number.
        answered: u64,
        /// The request or command.
        body: Request,
    },
    /// The answer to a request.
    Reply {
        /// The request's number.
        id: u64,
        /// The answer, or why not.
        body: Result<Reply, Failure>,
    },
    /// To an agent.
    Command {
        /// Chosen by the sender; the answer has the same.
        id: u64,
        /// The request or command.
        body: Command,
    },
    /// The answer to a command.
    Carried {
        /// The command's number.
        id: u64,
        /// Done, or why not.
        body: Result<Report, Failure>,
    },
}
