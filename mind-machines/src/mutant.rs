//! Bugs in the protocol, seeded to check that the model or the simulator finds each (feature
//! `mutants`, which only `mind-mutants` enables). One is active at a time, in the whole process.

mod decisions;

use core::sync::atomic::{AtomicUsize, Ordering};

pub use decisions::{admitted, answered, lost, stepped};

/// The active bug's place in [`Mutant::ALL`], from 1 on; 0 for none.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

macro_rules! mutants {
    ($($name:ident: $sentence:literal,)*) => {
        /// A bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $(#[doc = $sentence] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What is wrong.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

mutants! {
    // The directory.
    SharersForgotten: "the directory forgets the sharers when another blade reads",
    WriterNotAlone: "a blade gets a shared page to write, and no sharer is told",
    OwnerNotAsked: "a page that another blade owns is read from memory at once",
    CopyNotChecked: "an upgrade is granted to a blade that is not listed",
    BusyClearedEarly: "the first of several answers completes the request",
    OldAnswersCount: "an answer to an earlier invalidation counts for this one",
    AnySlotsAnswerCounts: "an answer counts whichever slot it names",
    EpisodeStays: "an invalidation does not begin an episode of its own",
    PastOwnerForgotten: "the owner that shares its page is not listed as a sharer",
    DomainNotChecked: "the switch checks neither domain nor protection",
    // Memory.
    OldWriteStored: "memory stores an older version over a newer one",
    WriteStoredTwice: "memory stores a write-back of the version that it has",
    OperatedTwice: "memory carries a repeated atomic operation out again",
    PagesNotFenced: "memory does not fence the pages of a blade that is gone",
    BladeNotFenced: "memory does not refuse atomic operations of an incarnation that has ended",
    // The controller.
    LostOwnerNotMarked: "what a blade that is gone owned is given away without being marked lost",
    LostRequesterKept: "a region stays busy for a blade that is gone",
    FlushNotAwaited: "the controller takes a region back and has no blade flush it",
    OnlyListedFlushed: "only blades listed in a busy word are told to flush, not those that answered",
    SplitForgetsSharers: "a split's upper half begins as if no blade had it",
    MergeForgetsSharers: "the region that two become lists the sharers of the lower one only",
    OwnerNotNamed: "a merge has pages lead to the first half before that names the second one's owner",
    SecondNotLocked: "a merge locks the first half only",
    ClaimTooSmall: "a change of a region does not wait for another change of it",
    UnmapClaimsNothing: "an unmap does not wait for changes of its regions",
    LateNotFenced: "a blade that does not flush in time is taken for one that did",
    LossNotFenced: "a region that lost writes is given out before memory fences its pages",
    PacketsNotAwaited: "words forget a blade, and freed memory is given out, while packets are in the switch that found them",
    NotForgotten: "words name a blade that is gone",
    PortLeftOpen: "the switch goes on accepting what a blade sends that is fenced",
    JoinedEarly: "a blade is let in again before words forget its earlier incarnation",
    ProcessesKept: "processes of a blade that is gone stay in their domains",
    ProtectedUnflushed: "blades keep what they have when protection changes",
    FreedUnflushed: "blades keep what they have when memory is unmapped",
    ZeroingNotAwaited: "memory that was freed is given out again before it is zeroed",
    AnsweredBeforeTables: "a map is answered before the tables allow accesses",
    AnsweredBeforeRecord: "a request is answered before what it changed is recorded",
    CarriedOutTwice: "a request that is made again is carried out again",
    DepartureNotRecorded: "that a blade is fenced is not recorded",
    DepartureNotResumed: "a controller that takes over does not finish the departure of a blade",
    ReclaimedInUse: "a region does without its slot though blades have it",
    OpenedWhileRepaired: "packets open slots while a controller that takes over reads them",
    FreedOnce: "memory that was freed is zeroed while packets may open regions of it",
    LostStaysAllowed: "regions of lost memory that no blade has touched can be touched",
    LostAfterGone: "the tables do not name a memory blade any more before they say that what it kept is lost",
    LossForgotten: "a region that is lost does without its slot, and its vma does not say that it is lost",
    ClosingNotResumed: "a controller that takes over leaves a vma that was being unmapped as it is",
    // The compute blade.
    AnsweredBeforeStored: "an invalidation is answered before the write-back is acknowledged",
    InvalidationForgotten: "an invalidation that a request has to wait for is answered and forgotten",
    WrittenWhileCleaned: "programs may write on while the page is written back",
    CopyKept: "programs keep a copy that an invalidation took",
    DirtyDropped: "a modified page is evicted without a write-back",
    BusyNotGivenUp: "a request that was told busy is kept while its region is wanted by another",
    DeniedToLater: "a denial is for threads, too, that faulted after it was asked for",
    SameVersionWritten: "a write-back does not move the version on",
    NumberUsedAgain: "every request has the same number",
}

impl Mutant {
    /// Makes it the active one, or none; of the whole process.
    pub fn activate(mutant: Option<Self>) {
        let number = mutant.map_or(0, |mutant| mutant as usize + 1);
        ACTIVE.store(number, Ordering::SeqCst);
    }

    /// Whether it is the active one.
    pub fn is_active(self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self as usize + 1
    }
}
