//! The directory's state machine: pure functions from a word and an event to the next word and
//! what the switch does about it.
//!
//! The caller reads the word, stores [`Step::next`] by compare-and-swap, and starts over when the
//! swap fails; a transition that changes nothing needs no swap.
//!
//! A request that needs no invalidation settles the word at once, and the packet goes on to memory
//! (the fast transition). One that does makes the word busy; every blade listed in it answers, *to
//! the switch*, which removes it from the word, and the answer that removes the last one is what
//! goes to the requester. So the word alone says which blades owe an answer: a lost packet is made
//! good by the requester's retry, a requester that died leaves nothing behind, and only the switch
//! counts answers. An answer names the episode that it answers, so an old one removes no blade from
//! the word.
//!
//! A word may list a blade that caches nothing (it dropped clean pages without telling the switch,
//! or a late duplicate of an old request was recorded): such a blade answers an invalidation at
//! once. A word never fails to list a blade that caches a page.
//!
//! # Example
//!
//! ```
//! use mind_common::{
//! directory::{
//! machine::{Request, RequestVerdict, Want, on_request},
//! word::{State, Word},
//! },
//! id::{BladeId, BladeSet},
//! serial::Episode,
//! };
//!
//! // No blade has the region; blade 3 reads a page of it.
//! let blade = BladeId::from_low_bits(3);
//! let word = Word::new(State::Invalid, blade, Episode::default(), BladeSet::EMPTY);
//! let request = Request { from: blade, want: Want::Read, repeated: false };
//!
//! let step = on_request(word, request);
//! assert_eq!(step.verdict, RequestVerdict::Fetch);
//! assert_eq!(step.next.state(), State::Shared);
//! assert_eq!(step.next.blades(), BladeSet::only(blade));
//! ```

use super::word::{Prior, State, Word};
use crate::{
    id::{BladeId, BladeSet},
    refusal::Refusal,
    serial::Episode,
};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// A page, to read.
    Read,
    /// A page, to write.
    Acquire,
    /// To write a page of which the requester has a shared copy.
    Upgrade,
}

/// A request for a page of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The blade that sent it.
    pub from: BladeId,
    /// What it asks for.
    pub want: Want,
    /// Whether it is sent again because no answer came: the request, an invalidation or an answer
    /// may have been lost.
    pub repeated: bool,
}

/// What an invalidation leaves to the blade that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Target {
    /// Nothing: drop every page of the region.
    Invalid = 0,
    /// Shared copies: write modified pages back, keep them to read.
    Shared = 1,
}

impl Target {
    /// The target with that number.
    #[inline(always)]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Invalid),
            1 => Some(Self::Shared),
            _ => None,
        }
    }
}

/// How the requester gets the page when the last answer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Source {
    /// It has the page: the last answer becomes a bare acknowledgement.
    Grant = 0,
    /// From memory: the last answer, as long as a page request, becomes a READ in its name.
    Fetch = 1,
    /// From the blade that is invalidated: its answer carries the page.
    Forward = 2,
}

impl Source {
    /// The source with that number.
    #[inline(always)]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Grant),
            1 => Some(Self::Fetch),
            2 => Some(Self::Forward),
            _ => None,
        }
    }
}

/// Which transition of the directory a request caused (paper, figure 4). The answer to the request
/// carries its number in the field in which the request had its attempt count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Transition {
    /// No blade had the region.
    InvalidToShared = 0,
    /// Others share it.
    SharedToShared = 1,
    /// No blade had the region.
    InvalidToModified = 2,
    /// Sharers gave it up.
    SharedToModified = 3,
    /// The owner shares it from now on.
    ModifiedToShared = 4,
    /// The owner gave it up.
    ModifiedToModified = 5,
    /// The requester owned it already.
    Owned = 6,
}

impl Transition {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::InvalidToShared,
        Self::SharedToShared,
        Self::InvalidToModified,
        Self::SharedToModified,
        Self::ModifiedToShared,
        Self::ModifiedToModified,
        Self::Owned,
    ];

    /// The transition from `before` to the settled word `after`.
    #[inline(always)]
    pub const fn between(before: Word, after: Word) -> Self {
        let to_modified = matches!(after.state(), State::Modified);
        match before.state() {
            State::ModifiedToShared => Self::ModifiedToShared,
            State::ModifiedToModified => Self::ModifiedToModified,
            State::SharedToModified => Self::SharedToModified,
            State::Modified => Self::Owned,
            State::Shared if to_modified => Self::SharedToModified,
            State::Shared => Self::SharedToShared,
            State::Free | State::Invalid | State::Locked if to_modified => Self::InvalidToModified,
            State::Free | State::Invalid | State::Locked => Self::InvalidToShared,
        }
    }

    /// The transition with that number.
    pub const fn from_u8(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// Its name, as in the paper.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidToShared => "I->S",
            Self::SharedToShared => "S->S",
            Self::InvalidToModified => "I->M",
            Self::SharedToModified => "S->M",
            Self::ModifiedToShared => "M->S",
            Self::ModifiedToModified => "M->M",
            Self::Owned => "owned",
        }
    }
}

/// The next word, and what to do once it is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<V> {
    /// The word that takes the place of the one given.
    pub next: Word,
    /// What to do.
    pub verdict: V,
}

/// Invalidations to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidations {
    /// The blades to send them to; never empty.
    pub blades: BladeSet,
    /// What they may keep.
    pub target: Target,
    /// How the requester gets the page.
    pub source: Source,
    /// The blade that wants the region. Not always the sender of the packet at hand: a request that
    /// meets another blade's lost invalidation repeats it.
    pub requester: BladeId,
    /// Which invalidation of the region this is.
    pub episode: Episode,
    /// Whether it was sent before. Then the number of the request that began it is in the slot
    /// ([`Origin`](super::Origin)), not in this packet.
    pub repeated: bool,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestVerdict {
    /// On to memory, as a READ.
    Fetch,
    /// Acknowledge it: the requester may write the page it has.
    Grant,
    /// Send invalidations.
    Invalidate(Invalidations),
    /// Send it back.
    Refuse(Refusal),
}

/// A sharer's or owner's answer to an INVALIDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The blade that answers.
    pub from: BladeId,
    /// The blade that wants the region.
    pub requester: BladeId,
    /// The number of the slot that the invalidation was for.
    pub slot: u32,
    /// Which of its invalidations.
    pub episode: Episode,
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerVerdict {
    /// It answers an invalidation that is over, or comes from a blade that owes no answer: drop it.
    Stale,
    /// Others still owe theirs: drop it.
    Counted,
    /// It was the last: make it the requester's.
    Complete,
}

#[inline(always)]
const fn stay<V>(word: Word, verdict: V) -> Step<V> {
    Step {
        next: word,
        verdict,
    }
}

/// Begins an invalidation: the word becomes busy, every blade in `pending` gets an INVALIDATE.
#[inline(always)]
const fn begin(
    word: Word,
    state: State,
    requester: BladeId,
    pending: BladeSet,
    source: Source,
) -> Step<RequestVerdict> {
    let next = word.busy(state, requester, pending);
    Step {
        next,
        verdict: RequestVerdict::Invalidate(Invalidations {
            blades: pending,
            target: target_of(state),
            source,
            requester,
            episode: next.episode(),
            repeated: false,
        }),
    }
}

/// What a busy state leaves to the blades that are invalidated.
#[inline(always)]
const fn target_of(busy: State) -> Target {
    match busy {
        State::ModifiedToShared => Target::Shared,
        _ => Target::Invalid,
    }
}

/// A request for a page of the region with this word (paper, section 4.3, figure 4: the
/// transitions I->S, S->S, I->M, S->M, M->S, M->M).
#[inline(always)]
pub const fn on_request(word: Word, request: Request) -> Step<RequestVerdict> {
    let Request {
        from,
        want,
        repeated,
    } = request;
    let blades = word.blades();
    match (word.state(), want) {
        (State::Locked, _) if matches!(word.prior(), Some(Prior::Lost)) => {
            stay(word, RequestVerdict::Refuse(Refusal::Unreachable))
        }

        // The slot was freed or locked while this packet was on its way: the requester tries again
        // and finds the region's new slot or state.
        (State::Free | State::Locked, _) => stay(word, RequestVerdict::Refuse(Refusal::Busy)),

        (State::SharedToModified | State::ModifiedToShared | State::ModifiedToModified, _) => {
            if !repeated {
                return stay(word, RequestVerdict::Refuse(Refusal::Busy));
            }
            // A blade has waited for too long: an invalidation or its answer may be lost, and the
            // blade that began it may be dead. Every repeated request sends the outstanding
            // invalidations again and retries later. The word does not say whether the requester
            // has a copy; sending the page serves both cases.
            let source = match word.state() {
                State::SharedToModified => Source::Fetch,
                _ => Source::Forward,
            };
            stay(
                word,
                RequestVerdict::Invalidate(Invalidations {
                    blades,
                    target: target_of(word.state()),
                    source,
                    requester: word.requester(),
                    episode: word.episode(),
                    repeated: true,
                }),
            )
        }

        (State::Invalid | State::Shared, Want::Read) => Step {
            next: word.settled(State::Shared, blades.with(from)),
            verdict: RequestVerdict::Fetch,
        },

        (State::Invalid | State::Shared, Want::Acquire) => {
            let others = blades.without(from);
            if others.is_empty() {
                Step {
                    next: word.settled(State::Modified, BladeSet::only(from)),
                    verdict: RequestVerdict::Fetch,
                }
            } else {
                begin(word, State::SharedToModified, from, others, Source::Fetch)
            }
        }

        (State::Invalid, Want::Upgrade) => stay(word, RequestVerdict::Refuse(Refusal::NoCopy)),

        (State::Shared, Want::Upgrade) => {
            let others = blades.without(from);
            if !blades.contains(from) {
                stay(word, RequestVerdict::Refuse(Refusal::NoCopy))
            } else if others.is_empty() {
                Step {
                    next: word.settled(State::Modified, BladeSet::only(from)),
                    verdict: RequestVerdict::Grant,
                }
            } else {
                begin(word, State::SharedToModified, from, others, Source::Grant)
            }
        }

        (State::Modified, want) => {
            let mine = blades.contains(from);
            match want {
                Want::Read | Want::Acquire if mine => stay(word, RequestVerdict::Fetch),
                Want::Upgrade if mine => stay(word, RequestVerdict::Grant),
                Want::Read => begin(word, State::ModifiedToShared, from, blades, Source::Forward),
                Want::Acquire => begin(
                    word,
                    State::ModifiedToModified,
                    from,
                    blades,
                    Source::Forward,
                ),
                Want::Upgrade => stay(word, RequestVerdict::Refuse(Refusal::NoCopy)),
            }
        }
    }
}

/// A blade's answer to an INVALIDATE, where this is the page's slot now and its word. Episodes are a
/// slot's own: without its number, an answer from before a split or a merge could count for another
/// slot's invalidation.
#[inline(always)]
pub const fn on_answer(slot: u32, word: Word, answer: Answer) -> Step<AnswerVerdict> {
    let state = word.state();
    let pending = word.blades();
    let current = state.is_busy()
        && slot == answer.slot
        && word.requester().get() == answer.requester.get()
        && word.episode().get() == answer.episode.get()
        && pending.contains(answer.from);
    if !current {
        return stay(word, AnswerVerdict::Stale);
    }
    let rest = pending.without(answer.from);
    if !rest.is_empty() {
        return Step {
            next: word.with_blades(rest),
            verdict: AnswerVerdict::Counted,
        };
    }
    let requester = BladeSet::only(answer.requester);
    let next = match state {
        State::ModifiedToShared => word.settled(State::Shared, requester.with(answer.from)),
        _ => word.settled(State::Modified, requester),
    };
    Step {
        next,
        verdict: AnswerVerdict::Complete,
    }
}

/// Whether `from` may write a page of the region back: only the owner may, also while it is being
/// invalidated or the controller has the region locked. Any other write-back is a late duplicate.
#[inline(always)]
pub const fn may_write_back(word: Word, from: BladeId) -> bool {
    match word.state() {
        State::Modified | State::ModifiedToShared | State::ModifiedToModified => {
            word.blades().contains(from)
        }
        State::Locked => {
            matches!(word.prior(), Some(Prior::Modified)) && word.blades().contains(from)
        }
        State::Free | State::Invalid | State::Shared | State::SharedToModified => false,
    }
}

/// Whether an atomic operation of `from` may be carried out in memory: only the owner's, as with a
/// write-back. No other blade can fetch the page before the owner has answered an invalidation, and
/// the owner answers none while its own operation is under way; so no copy can miss what the
/// operation did. The owner itself drops its copy first.
///
/// # Errors
///
/// [`Refusal::NoCopy`] for any other blade; [`Refusal::Busy`] while the controller has the region
/// locked.
#[inline(always)]
pub const fn may_operate(word: Word, from: BladeId) -> Result<(), Refusal> {
    match word.state() {
        State::Modified | State::ModifiedToShared | State::ModifiedToModified
            if word.blades().contains(from) =>
        {
            Ok(())
        }
        State::Free | State::Locked => Err(Refusal::Busy),
        _ => Err(Refusal::NoCopy),
    }
}

/// What is lost with a blade that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Nothing: memory has all that the blade had.
    Nothing,
    /// What the blade wrote into the region since it last wrote back.
    Writes,
}

/// Blade `gone` will not answer any more, and the switch drops what it sends. `None` when the word
/// does not name it.
///
/// Its own request is withdrawn; that blades which are still listed may have given the region up
/// meanwhile does no harm. An answer that it owes counts as given. Where it was the owner, the
/// region is locked: a write-back of the blade's may still be on its way to memory, and the
/// controller has memory fenced against that ([`crate::memory::fenced`]) before any blade gets the
/// region.
pub const fn on_loss(word: Word, gone: BladeId) -> Option<Step<Loss>> {
    let blades = word.blades();
    let listed = blades.contains(gone);
    let rest = blades.without(gone);
    let asked = word.state().is_busy() && word.requester().get() == gone.get();
    if !listed && !asked {
        return None;
    }
    let (next, verdict) = match word.state() {
        State::Free => return None,
        State::Invalid => (word.settled(State::Invalid, BladeSet::EMPTY), Loss::Nothing),
        State::Locked if matches!(word.prior(), Some(Prior::Modified)) => {
            (word.with_blades(rest), Loss::Writes)
        }
        State::Locked => (word.with_blades(rest), Loss::Nothing),
        State::Shared | State::SharedToModified if rest.is_empty() && (asked || !is_busy(word)) => {
            (word.settled(State::Invalid, BladeSet::EMPTY), Loss::Nothing)
        }
        State::Shared => (word.settled(State::Shared, rest), Loss::Nothing),
        State::SharedToModified if asked => (word.settled(State::Shared, rest), Loss::Nothing),
        State::SharedToModified if rest.is_empty() => {
            let requester = BladeSet::only(word.requester());
            (word.settled(State::Modified, requester), Loss::Nothing)
        }
        State::SharedToModified => (word.with_blades(rest), Loss::Nothing),
        State::Modified | State::ModifiedToShared | State::ModifiedToModified if listed => {
            (word.locked(Prior::Modified, BladeSet::EMPTY), Loss::Writes)
        }
        State::Modified | State::ModifiedToShared | State::ModifiedToModified => {
            (word.settled(State::Modified, blades), Loss::Nothing)
        }
    };
    Some(Step { next, verdict })
}

const fn is_busy(word: Word) -> bool {
    word.state().is_busy()
}
