//! What is said. Addresses are global virtual addresses and lengths are bytes, unless a name says pages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{
    errno::Failure,
    operator::{Check, RegionOrder, RegionStatus, Status, TraceFilter, Traced, VmaStatus},
    program::BladeReport,
};

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol that it speaks.
    pub version: u32,
    /// Its name, for the controller's log: the program and, for an agent, the blade.
    pub name: String,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// What a program may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Nothing (`PROT_NONE`).
    None,
    /// Read (`PROT_READ`).
    Read,
    /// Read and write (`PROT_READ | PROT_WRITE`).
    Write,
}

/// A blade introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// What it is for.
    pub kind: BladeKind,
    /// Its name, for people.
    pub name: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
    /// The Ethernet address of its interface. The controller finds the switch's port by it: a blade is whoever is
    /// behind that port, whatever it says of itself.
    pub mac: [u8; 6],
    /// Pages that a memory blade offers, that a compute blade caches at most.
    pub pages: u64,
}

/// Whether an area must be there, or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Open {
    /// It must be there (`shm_open` without `O_CREAT`).
    Existing,
    /// It is made if it is not there (`O_CREAT`).
    OrCreate,
    /// It must not be there (`O_CREAT | O_EXCL`).
    New,
}

/// What readers of a region see when the blade that wrote into it is gone, and with it what it had not written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLoss {
    /// What was written back last.
    #[default]
    LastWritten,
    /// Nothing: every access to the region is a SIGBUS until it is unmapped.
    Fail,
}

/// What the controller can do to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionChange {
    /// Every blade writes back and drops what it has of it (paper, section 4.4).
    Reset,
    /// Its two halves become regions of their own.
    Split,
    /// It becomes one region with the other half of the region twice its size.
    Merge,
}

/// What a blade, a program or an operator asks of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// This connection is a blade's agent; answered by [`Reply::Registered`].
    Register(Registration),
    /// This connection is that of a blade's agent whose controller went, and which goes on; answered by
    /// [`Reply::Registered`]. The first request on its connection.
    Resume {
        /// What it is for.
        kind: BladeKind,
        /// Its number among the blades of its kind.
        number: u8,
        /// Which life of it this is.
        incarnation: u16,
    },
    /// A process of the domain runs on this blade from now on; answered by [`Reply::Entered`].
    EnterProcess {
        /// The protection domain's name; it is made if there is none of that name.
        domain: String,
        /// The process, as its blade numbers it.
        pid: i32,
        /// What the domain chooses, if it is made; otherwise what it must have chosen. `None`: whatever it has, by
        /// default [`OnLoss::LastWritten`].
        #[serde(default)]
        on_loss: Option<OnLoss>,
    },
    /// It no longer does.
    ExitProcess {
        /// The protection domain.
        domain: u32,
        /// The process, as its blade numbers it.
        pid: i32,
    },
    /// Zeroed memory that nobody else has; answered by [`Reply::Mapped`].
    Map {
        /// The protection domain.
        domain: u32,
        /// Bytes, rounded up to whole pages.
        length: u64,
        /// What the domain may do with it.
        access: Access,
    },
    /// A whole vma goes; an area with the last process that has it open, if it has no name.
    Unmap {
        /// The protection domain.
        domain: u32,
        /// The process that gives it up.
        pid: i32,
        /// Where it begins.
        va: u64,
        /// Its length.
        length: u64,
    },
    /// Other permissions for whole pages.
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
    /// An area of the domain with a name, at the same address for all who open it; answered by [`Reply::Mapped`].
    OpenArea {
        /// The protection domain.
        domain: u32,
        /// The process that uses it, until it unmaps it or ends.
        pid: i32,
        /// The name, unique in the domain.
        name: String,
        /// Bytes, if it is made; otherwise it must not be longer than the area is. 0: whatever it is.
        length: u64,
        /// What the domain may do with it, if it is made.
        access: Access,
        /// Whether it must be there.
        open: Open,
    },
    /// The name goes now, the memory with the last unmap.
    UnlinkArea {
        /// The protection domain.
        domain: u32,
        /// The name.
        name: String,
    },
    /// What this blade wrote to a range is to be in memory, and the blade to own nothing of it: then what it wrote
    /// outlives it.
    Sync {
        /// The protection domain.
        domain: u32,
        /// Where it begins.
        va: u64,
        /// Bytes.
        length: u64,
    },
    /// A request of this blade for a page does not complete; the region may have to be reset.
    ReportStuck {
        /// The page's address.
        va: u64,
    },
    /// Memory refused for good what this blade had to write back to a page.
    ReportLoss {
        /// The page's address.
        va: u64,
    },
    /// By an operator on the switch: something is done to the region of a page; answered by [`Reply::Region`].
    ChangeRegion {
        /// An address in it.
        va: u64,
        /// What.
        change: RegionChange,
    },
    /// Blades, domains and ports; answered by [`Reply::Status`].
    Status,
    /// Waits until a blade is ready behind every port of the switch.
    AwaitBlades,
    /// By an operator on the switch: vmas; answered by [`Reply::Vmas`].
    ListVmas {
        /// Those at this address and above.
        from: u64,
    },
    /// By an operator on the switch: regions; answered by [`Reply::Regions`].
    ListRegions {
        /// Those in this range of addresses: its first.
        from: u64,
        /// And the one after its last.
        to: u64,
        /// In which order; only by address are there more after those that one answer has.
        order: RegionOrder,
        /// At most so many.
        limit: u32,
    },
    /// By an operator on the switch: what compute blades count; answered by [`Reply::Caches`].
    ListCaches,
    /// By an operator on the switch: whether books, tables and blades agree; answered by [`Reply::Checked`].
    Check,
    /// By an operator on the switch: from now on and until this connection ends, note what becomes of packets. What
    /// this connection asked for before is over.
    Trace(TraceFilter),
    /// By an operator that traces: what was noted and not told yet; answered by [`Reply::Traced`] when there is
    /// something.
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
            Self::AwaitBlades => "await_blades",
            Self::ListVmas { .. } => "list_vmas",
            Self::ListRegions { .. } => "list_regions",
            Self::ListCaches => "list_caches",
            Self::Check => "check",
            Self::Trace(_) => "trace",
            Self::NextTraced => "next_traced",
        }
    }
}

/// The controller's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done,
    /// The blade is one of us.
    Registered {
        /// Its number among the blades of its kind.
        number: u8,
        /// Which life of it this is.
        incarnation: u16,
        /// Where compute blades send their requests.
        switch: Ipv4Addr,
        /// First address of the window of global addresses.
        window_base: u64,
        /// Bytes of that window.
        window_size: u64,
    },
    /// The process is the domain's.
    Entered {
        /// The domain's number.
        domain: u32,
    },
    /// The memory is there.
    Mapped {
        /// Where it begins.
        va: u64,
        /// Bytes, whole pages.
        length: u64,
    },
    /// What became of a region.
    Region {
        /// Where it begins now.
        va: u64,
        /// Its bytes now.
        length: u64,
        /// Whether it was changed; otherwise it was busy for too long, or not the controller's to change.
        changed: bool,
    },
    /// What there is.
    Status(Status),
    /// Vmas, by address.
    Vmas {
        /// As many as one answer takes.
        vmas: Vec<VmaStatus>,
        /// Where the rest begins, if there is more.
        next: Option<u64>,
    },
    /// Regions, in the order that was asked for.
    Regions {
        /// As many as one answer takes.
        regions: Vec<RegionStatus>,
        /// Where the rest begins, if there is more.
        next: Option<u64>,
    },
    /// What compute blades count, by their names.
    Caches {
        /// Those that answered.
        caches: BTreeMap<String, BladeReport>,
    },
    /// What a check found.
    Checked(Check),
    /// What became of packets.
    Traced(Traced),
}

/// What the controller asks of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// A memory blade: these pages are to be zeros, each as a next version.
    ZeroPages {
        /// The first, counted from the start of the blade's memory.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A memory blade: refuse what a blade that is gone may still have sent for these pages.
    FencePages {
        /// The first, counted from the start of the blade's memory.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A memory blade: refuse atomic operations of a life of a compute blade that is over.
    FenceBlade {
        /// The queue pair of that life.
        qp: u32,
    },
    /// A compute blade: the switch does not listen to this life of yours any more. What your programs see is out of
    /// date: end, and them with you. Not answered.
    Leave,
    /// A compute blade: write back what is modified of the range, then drop it; answer when memory has it.
    FlushRange {
        /// Where it begins.
        va: u64,
        /// Bytes.
        length: u64,
    },
    /// Answer with who you think you are: [`Report::Identity`].
    Identify,
    /// A compute blade: answer with what you count: [`Report::Cache`].
    CountCache,
}

/// What an agent answers to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// It is done.
    Done,
    /// Who it is.
    Identity(Identity),
    /// What a compute blade counts.
    Cache(Box<BladeReport>),
}

/// Who an agent thinks it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number among the blades of its kind.
    pub number: u8,
    /// Which life of it this is.
    pub incarnation: u16,
    /// Pages that it offers, that it caches at most.
    pub pages: u64,
    /// The processes that run on it, by domain; none on a memory blade.
    pub processes: BTreeSet<(u32, i32)>,
}

/// One frame on a connection, in either direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Frame {
    /// The first of the caller.
    Hello(Hello),
    /// The first of the controller, if it takes the caller.
    Welcome(Welcome),
    /// The first and last of the controller, if it does not.
    Refused(Failure),
    /// To the controller.
    Request {
        /// Chosen by the sender, higher each time; the answer carries it.
        id: u64,
        /// No answer to a request of a lower number is waited for.
        answered: u64,
        /// What is asked.
        body: Request,
    },
    /// The answer to a request.
    Reply {
        /// The request's.
        id: u64,
        /// The answer, or why not.
        body: Result<Reply, Failure>,
    },
    /// To an agent.
    Command {
        /// Chosen by the sender; the answer carries it.
        id: u64,
        /// What is asked.
        body: Command,
    },
    /// The answer to a command.
    Carried {
        /// The command's.
        id: u64,
        /// Done, or why not.
        body: Result<Report, Failure>,
    },
}
