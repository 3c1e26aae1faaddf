//! What goes into the controller's machine and what comes out of it.

use mind_api::{
    errno::Failure,
    message::{BladeKind, Command, Registration, Reply, Report, Request},
};
use mind_common::{
    addr::{Region, Va},
    directory::Word,
    id::BladeId,
};

use super::{
    books::{
        blades::{Incarnation, Port},
        records, tables,
    },
    procedure::{Change, Outcome},
};

/// A connection to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// An operation of the controller's: all that is done for one request, or because of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What the controller gets to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A blade's agent, or an operator, asks for something. Which of them a session is the agent of, the controller
    /// knows; whether it may ask what only operators may is for whoever hands it in to check.
    Request {
        /// By whom.
        session: Session,
        /// The request's number on it; higher each time for an agent, whatever connections it had.
        id: u64,
        /// No answers to requests of lower numbers are waited for any more.
        answered: u64,
        /// What is asked.
        body: Request,
    },
    /// An agent's first request in a new incarnation of its blade, of which it has been checked that the addresses and
    /// the port belong together.
    Register {
        /// The agent's.
        session: Session,
        /// The request's number on it.
        id: u64,
        /// What it says.
        registration: Registration,
        /// The port that the blade is behind.
        port: Port,
    },
    /// An agent whose controller has died is back, from an address of which it has been checked that it is the blade's.
    Resume {
        /// The agent's.
        session: Session,
        /// The request's number on it.
        id: u64,
        /// What it says.
        incarnation: Incarnation,
    },
    /// An agent has carried out an order, or could not.
    Report {
        /// The order's number.
        order: u64,
        /// What came of it.
        result: Result<Report, Failure>,
    },
    /// A session has ended.
    Closed(Session),
    /// Little is left of slots, or of tables of the directory's index.
    Short,
    /// An epoch is over. Regions are split and merged because of it, if the controller has a policy for that
    /// ([`Config::splitting`](super::Config::splitting)).
    Epoch {
        /// Pages that were falsely invalidated in it, by region; of regions that had none nothing is said.
        counts: Vec<(Region, u32)>,
        /// Slots in use.
        used: u32,
    },
    /// What came of an [`Act`].
    Done {
        /// Of which operation.
        operation: OperationId,
        /// What came of it.
        result: Seen,
    },
}

/// What the controller wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Something is to be done at once; what came of it is told by [`Input::Done`] before anything else.
    Act {
        /// Of which operation.
        operation: OperationId,
        /// What.
        act: Act,
    },
    /// The packets that are in the switch are to leave it; that they have is told by [`Input::Done`] with
    /// [`Seen::Done`], while others come between.
    WaitForPackets {
        /// Of which operation.
        operation: OperationId,
    },
    /// An agent is to be told something; its answer comes by [`Input::Report`].
    Order {
        /// Of which operation.
        operation: OperationId,
        /// The agent's session.
        session: Session,
        /// The order's number.
        order: u64,
        /// What.
        command: Command,
    },
    /// A session is to get an answer.
    Reply {
        /// Of which operation.
        operation: OperationId,
        /// Which session.
        session: Session,
        /// The request's number on it.
        id: u64,
        /// The answer, or why not.
        body: Result<Reply, Failure>,
    },
    /// Records are to be kept with those that are kept next ([`Act::Keep`]), before them, and soon if there are none. A
    /// controller that follows may find what was recorded before, and does again what they say.
    KeepSoon {
        /// What has changed.
        changes: Vec<records::Change>,
    },
    /// Something that operators are told, by the log and by metrics.
    Event(Event),
}

/// Something to be done to tables, words or records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Look at a slot's word. [`Seen::Word`].
    Look {
        /// Which slot.
        slot: u32,
    },
    /// Put a word in the place of another, if that is still there. [`Seen::Word`]: what is there then.
    Swap {
        /// In which slot.
        slot: u32,
        /// The word that was there.
        old: Word,
        /// The word to put there.
        new: Word,
    },
    /// Make a free slot a region's, with that word, in its next episode; only then may packets find it. [`Seen::Done`].
    Open {
        /// Which slot.
        slot: u32,
        /// Whose it is to be.
        region: Region,
        /// Its state, prior state and blades.
        word: Word,
    },
    /// Change what a slot covers; its word is locked. [`Seen::Done`].
    Cover {
        /// Which slot.
        slot: u32,
        /// What it is to cover.
        region: Option<Region>,
    },
    /// Make the pages of a region find this slot, or none. [`Seen::Done`].
    Assign {
        /// Which pages.
        region: Region,
        /// The slot.
        slot: Option<u32>,
    },
    /// Take a slot that is in no use. [`Seen::Slot`].
    TakeSlot,
    /// Give slots for further use that were taken, or that the index does not lead to any more; their words are free.
    /// They are used when the packets have left the switch that are in it. [`Seen::Done`].
    GiveSlots {
        /// Which.
        slots: Vec<u32>,
    },
    /// From here on packets find no slot to open for a region that they touch first. [`Seen::Done`].
    StopOpening,
    /// All free slots, none of which a packet knows, may be opened by packets again. [`Seen::Done`].
    StartOpening,
    /// Say again that little is left when a region is touched first the next time, if it still is. [`Seen::Done`].
    TellAgain,
    /// Look at some slots, for which of them can be done without. [`Seen::Uses`].
    LookForUses {
        /// From which slot on.
        from: u32,
        /// How many slots at most.
        most: u32,
    },
    /// Look at all slots of some blocks, for which of these can be done without: a block of which no page has a slot needs
    /// no table. [`Seen::Uses`], those of a block one after the other.
    LookIntoBlocks {
        /// From which slot on; a block is looked into when the first slot of its pages comes.
        from: u32,
        /// How many slots are gone through at most.
        most: u32,
        /// How many are found at least, if there are as many.
        enough: usize,
    },
    /// Find regions in a range, by address. [`Seen::Regions`].
    Find {
        /// The first address.
        from: Va,
        /// The address after the last.
        to: Va,
        /// How many at most.
        most: usize,
    },
    /// Take a compute blade that is gone out of the words of some slots ([`on_loss`]). [`Seen::Swept`].
    ///
    /// [`on_loss`]: mind_common::directory::machine::on_loss
    Forget {
        /// The blade.
        blade: BladeId,
        /// From which slot on.
        from: u32,
        /// How many slots at most.
        most: u32,
    },
    /// Make the regions of some slots lost, as far as a memory blade kept them that is gone
    /// ([`lose`](super::procedure::lose)). [`Seen::Swept`].
    Lose {
        /// What it kept: first addresses, and the addresses after the last, by address.
        kept: Vec<(u64, u64)>,
        /// From which slot on.
        from: u32,
        /// How many slots at most.
        most: u32,
    },
    /// Make an entry of a table say something, or take it out. [`Seen::Done`].
    Install {
        /// Which.
        key: tables::Key,
        /// What it is to say.
        value: Option<tables::Value>,
    },
    /// Read all tables but the directory. [`Seen::Tables`].
    ReadTables,
    /// Read some slots. [`Seen::Slots`].
    ReadSlots {
        /// From which slot on.
        from: u32,
        /// How many slots at most.
        most: u32,
    },
    /// Make all pages find exactly these slots, while packets open none. [`Seen::Done`].
    Reindex {
        /// Each region and its slot.
        regions: Vec<(Region, u32)>,
    },
    /// Keep records, all or none, so that they outlive the controller. [`Seen::Done`].
    Keep {
        /// What has changed.
        changes: Vec<records::Change>,
    },
}

/// Whether an address is in one of some ranges, by address.
pub fn is_within(ranges: &[(u64, u64)], va: Va) -> bool {
    let after = ranges.partition_point(|(from, _)| *from <= va.0);
    let before = after.checked_sub(1).map(|at| ranges[at]);
    before.is_some_and(|(_, to)| va.0 < to)
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It is done, or cannot be done.
    Done(Result<(), Failure>),
    /// The word that is there.
    Word(Word),
    /// A slot that was in no use; none if none is left.
    Slot(Option<u32>),
    /// What slots are used for.
    Uses {
        /// Those that are not free.
        found: Vec<Use>,
        /// Where to go on, if there are more slots.
        next: Option<u32>,
        /// How much is left.
        left: Left,
    },
    /// Regions with their slots, by address.
    Regions {
        /// Those that were found.
        found: Vec<Entry>,
        /// Where to go on, if there may be more.
        next: Option<Va>,
    },
    /// Words of slots were changed.
    Swept {
        /// The regions of which writes, or memory, were lost by that.
        lost: Vec<Entry>,
        /// Where to go on, if there are more slots.
        next: Option<u32>,
    },
    /// All entries of all tables but the directory.
    Tables(Vec<(tables::Key, tables::Value)>),
    /// Slots that are not free.
    Slots {
        /// Those that were read.
        found: Vec<FoundSlot>,
        /// Where to go on, if there are more slots.
        next: Option<u32>,
    },
}

/// A region and its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The region.
    pub region: Region,
    /// Its slot.
    pub slot: u32,
}

/// A slot that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FoundSlot {
    /// Which.
    pub slot: u32,
    /// What it covers, if that is a region.
    pub region: Option<Region>,
    /// Its word.
    pub word: Word,
    /// The region that the pages are which find it, where it covers none itself.
    pub pages: Option<Region>,
    /// Whether the first page of its region finds it.
    pub is_found: bool,
    /// The slot that the page after its region finds; 0 for none.
    pub neighbour: u32,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Use {
    /// The region and its slot.
    pub entry: Entry,
    /// Its word.
    pub word: Word,
    /// Requests and invalidations that the slot has seen. Wraps.
    pub accesses: u32,
}

/// How much of the directory is in no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Left {
    /// Slots that packets can open.
    pub slots: u32,
    /// Slots below which the controller takes some back.
    pub low_slots: u32,
    /// Tables that packets can take.
    pub tables: u32,
    /// The same for these.
    pub low_tables: u32,
}

impl Left {
    /// Whether as much is left as is kept ahead of need: twice as much as that below which some is taken back.
    pub const fn is_enough(self) -> bool {
        self.has_slots() && self.tables >= 2 * self.low_tables
    }

    /// The same for slots alone.
    pub const fn has_slots(self) -> bool {
        self.slots >= 2 * self.low_slots
    }
}

/// What operators are told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A blade has joined.
    Joined(Incarnation),
    /// A blade whose controller had died is back.
    Resumed(Incarnation),
    /// A blade is fenced: it has gone, or did not do as it was told.
    Fenced {
        /// Which.
        incarnation: Incarnation,
        /// Its name.
        name: String,
        /// Why, if its connection still stood.
        why: Option<Failure>,
    },
    /// Writes are lost, or memory.
    Lost {
        /// Of which region.
        region: Region,
        /// Of which domain, and the first address of the vma, if there is one.
        vma: Option<(u32, Va)>,
        /// With which blade.
        blade: String,
    },
    /// All regions of a vma are lost with its memory blade.
    VmaLost {
        /// The domain.
        domain: u32,
        /// The vma's first address.
        va: Va,
        /// The memory blade.
        blade: String,
    },
    /// Memory refused a write-back for good.
    Refused {
        /// The page.
        page: Va,
        /// Of which domain, and the first address of the vma, if there is one.
        vma: Option<(u32, Va)>,
        /// Which compute blade wrote it.
        blade: String,
    },
    /// A change of a region is over.
    Changed(Change, Outcome),
    /// Blades did not come back to a controller that took over.
    Missed(BladeKind, String),
    /// The controller has taken over, and carries requests out from now on.
    TakenOver,
    /// Something that had to be done could not be.
    Failed {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        failure: Failure,
    },
}
