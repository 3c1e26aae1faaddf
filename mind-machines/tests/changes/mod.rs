//! A region (or two halves of one), the blades that use it, memory, and a controller that changes
//! it: which blades have copies is kept beside the words, and compared with them after every step.

use std::{
    collections::{HashSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use mind_common::{
    directory::{
        Answer, AnswerVerdict, Prior, Request, RequestVerdict, State, Want, Word,
        machine::{Loss, may_write_back, on_answer, on_loss, on_request},
    },
    id::{BladeId, BladeSet},
    serial::Episode,
};
use mind_machines::controller::procedure::{Change, Do, Outcome, Procedure, Which};

/// Blades of a setup.
const BLADES: u8 = 3;
const EVERY_BLADE: BladeSet = BladeSet::from_bits((1 << BLADES) - 1);
/// When the controller loses patience with a busy region, from 0.
const PATIENCE: u64 = 100;
const PAUSE: u64 = 10;

pub fn blade(number: u8) -> BladeId {
    BladeId::new(number).expect("tests use blades below 32")
}

pub fn set(blades: &[u8]) -> BladeSet {
    blades.iter().map(|&number| blade(number)).collect()
}

/// A settled word, or a busy one for c0, in episode 7.
pub fn word(state: State, blades: &[u8]) -> Word {
    Word::new(state, blade(0), Episode::new(7), set(blades))
}

/// What blades do between two steps of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A blade's request reaches a slot.
    Ask(usize, BladeId, Want),
    /// A blade answers the invalidation that a slot is busy with.
    Answer(usize, BladeId),
    /// A blade drops its clean copies, or writes back and then drops, without telling the switch.
    Drop(usize, BladeId),
    /// A blade is gone, and its bits are removed from the words.
    Lose(BladeId),
    /// A blade has flushed, as the controller demanded.
    Flushed(BladeId),
    /// The controller's time passes.
    Wait,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Not over.
    Open,
    /// Over.
    Over(Outcome),
}

/// A change among events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// The slots' words.
    pub words: [Word; 2],
    /// Blades that have pages of the region of each slot, as far as datagrams have arrived.
    copies: [BladeSet; 2],
    /// Whether packets find the slot.
    is_found: [bool; 2],
    /// Whether a write-back of a blade that is gone may still come, to the pages of each slot.
    is_late: [bool; 2],
    change: Change,
    /// Whether accesses fail after a loss.
    fails: bool,
    procedure: Procedure,
    /// What the controller is about to do, decided when the words were others.
    intent: Option<Do>,
    flushing: BladeSet,
    alive: BladeSet,
    now: u64,
    ending: Ending,
}

fn has_lost_owner(word: Word) -> bool {
    word.prior() == Some(Prior::Modified) && word.blades().is_empty()
}

impl Setup {
    /// The change, of these words: blades that are listed have copies.
    pub fn new(change: Change, first: Word, second: Word) -> Self {
        Self {
            words: [first, second],
            copies: [first.blades(), second.blades()],
            is_found: [true, change == Change::Merge],
            is_late: [has_lost_owner(first), has_lost_owner(second)],
            change,
            fails: false,
            procedure: Procedure::new(change, 0, PATIENCE, PAUSE, EVERY_BLADE),
            intent: None,
            flushing: BladeSet::EMPTY,
            alive: EVERY_BLADE,
            now: 0,
            ending: Ending::Open,
        }
    }

    /// Only if the region is stuck.
    #[must_use]
    pub fn for_stuck(mut self) -> Self {
        self.procedure = Procedure::for_stuck(0, PATIENCE, PAUSE, EVERY_BLADE);
        self
    }

    #[must_use]
    pub fn failing_on_loss(mut self) -> Self {
        self.fails = true;
        self.procedure = self.procedure.failing_on_loss();
        self
    }

    /// From every kind of word.
    pub fn all(change: Change) -> impl Iterator<Item = Self> {
        let mut words = vec![
            word(State::Free, &[]),
            word(State::Invalid, &[]),
            word(State::Shared, &[0]),
            word(State::Shared, &[1, 2]),
            word(State::Modified, &[1]),
            word(State::SharedToModified, &[1]),
            word(State::SharedToModified, &[1, 2]),
            word(State::ModifiedToShared, &[1]),
            word(State::ModifiedToModified, &[2]),
        ];
        words.push(word(State::Invalid, &[]).locked(Prior::Modified, BladeSet::EMPTY));
        words.push(word(State::Invalid, &[]).locked(Prior::Lost, BladeSet::EMPTY));
        let seconds = match change {
            Change::Merge => words.clone(),
            _ => vec![word(State::Free, &[])],
        };
        words.into_iter().flat_map(move |first| {
            let seconds = seconds.clone();
            seconds
                .into_iter()
                .map(move |second| Self::new(change, first, second))
        })
    }

    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// What others can do now.
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for slot in 0..2 {
            // A packet that looked the slot up before may come after it is found no more: so both.
            for from in self.alive.iter() {
                for want in [Want::Read, Want::Acquire, Want::Upgrade] {
                    events.push(Event::Ask(slot, from, want));
                }
                if self.words[slot].state().is_busy() && self.words[slot].blades().contains(from) {
                    events.push(Event::Answer(slot, from));
                }
                if self.copies[slot].contains(from) {
                    events.push(Event::Drop(slot, from));
                }
            }
        }
        events.extend(self.alive.iter().map(Event::Lose));
        events.extend(self.flushing.iter().map(Event::Flushed));
        if matches!(self.intent, Some(Do::Wait { .. })) {
            events.push(Event::Wait);
        }
        events
    }

    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Ask(slot, from, want) => self.ask(slot, from, want),
            Event::Answer(slot, from) => self.answer(slot, from),
            Event::Drop(slot, from) => self.copies[slot] = self.copies[slot].without(from),
            Event::Lose(blade) => self.lose(blade),
            Event::Flushed(blade) => {
                self.flushing = self.flushing.without(blade);
                self.drop_all(blade);
                self.procedure.flushed(blade);
            }
            Event::Wait => {
                if let Some(Do::Wait { until }) = self.intent.take() {
                    assert!(until > self.now, "it waits for what has been");
                    self.now = until;
                }
            }
        }
        self.check();
    }

    fn drop_all(&mut self, blade: BladeId) {
        for copies in &mut self.copies {
            *copies = copies.without(blade);
        }
    }

    fn ask(&mut self, slot: usize, from: BladeId, want: Want) {
        let step = on_request(
            self.words[slot],
            Request {
                from,
                want,
                repeated: false,
            },
        );
        match step.verdict {
            RequestVerdict::Fetch | RequestVerdict::Grant => {
                assert!(self.is_found[slot], "a page of a slot that covers nothing");
                assert!(!self.is_late[slot], "a page that may yet change by itself");
                if step.verdict == RequestVerdict::Grant {
                    assert!(self.words[slot].blades().contains(from));
                }
                self.copies[slot] = self.copies[slot].with(from);
            }
            RequestVerdict::Invalidate(_) => assert!(self.is_found[slot]),
            RequestVerdict::Refuse(_) => {}
        }
        self.words[slot] = step.next;
    }

    fn answer(&mut self, slot: usize, from: BladeId) {
        let word = self.words[slot];
        let number = slot as u32;
        let step = on_answer(
            number,
            word,
            Answer {
                from,
                slot: number,
                requester: word.requester(),
                episode: word.episode(),
            },
        );
        assert_ne!(
            step.verdict,
            AnswerVerdict::Stale,
            "what was asked is answered"
        );
        if word.state() != State::ModifiedToShared {
            self.copies[slot] = self.copies[slot].without(from);
        }
        if step.verdict == AnswerVerdict::Complete {
            self.copies[slot] = self.copies[slot].with(word.requester());
        }
        self.words[slot] = step.next;
    }

    fn lose(&mut self, blade: BladeId) {
        self.alive = self.alive.without(blade);
        self.flushing = self.flushing.without(blade);
        let mut loss = Loss::Nothing;
        for slot in 0..2 {
            if let Some(step) = on_loss(self.words[slot], blade) {
                self.words[slot] = step.next;
                if step.verdict == Loss::Writes {
                    loss = step.verdict;
                    self.is_late[slot] = true;
                }
            }
        }
        self.drop_all(blade);
        self.procedure.lost(blade, loss);
        // The controller does one thing at a time: it knew of the loss before it decided.
        if matches!(self.intent, Some(Do::Swap { .. })) {
            self.intent = None;
        }
    }

    /// The controller decides what to do and does it; between the decision and a swap, packets may
    /// come. Says whether it did anything.
    pub fn step(&mut self) -> bool {
        if self.ending != Ending::Open {
            return false;
        }
        let act = match self.intent.take() {
            Some(act) => act,
            None => {
                let act = self.procedure.next(self.now, self.words[0], self.words[1]);
                if matches!(act, Do::Swap { .. }) {
                    self.intent = Some(act);
                    return true;
                }
                act
            }
        };
        match act {
            Do::Swap { slot, old, new } => {
                let slot = slot as usize;
                if self.words[slot] == old {
                    // A domain that chose accesses to fail after a loss gets nothing of the region
                    // before it is freed.
                    let stays =
                        matches!(new.prior(), Some(Prior::Lost)) || new.state() == State::Free;
                    assert!(
                        old.prior() != Some(Prior::Lost) || stays,
                        "{new:?} in {self:?}"
                    );
                    self.words[slot] = new;
                }
            }
            Do::Wait { .. } => {
                self.intent = Some(act);
                return false;
            }
            Do::Flush { blades } => {
                let dead = blades.iter().filter(|blade| !self.alive.contains(*blade));
                let dead: Vec<_> = dead.collect();
                for blade in blades.iter() {
                    self.flushing = self.flushing.with(blade);
                }
                for blade in dead {
                    // It cannot flush, and its bits were removed from the words before.
                    self.flushing = self.flushing.without(blade);
                    self.procedure.lost(blade, Loss::Nothing);
                }
                if blades.is_empty() && !self.flushing.is_empty() {
                    return false;
                }
            }
            Do::Fence => {
                self.is_late = [false; 2];
                self.procedure.fenced();
            }
            Do::Rewire { second } => self.rewire(second),
            Do::Done(outcome) => {
                self.ending = Ending::Over(outcome);
                self.check_end(outcome);
            }
        }
        self.check();
        true
    }

    fn rewire(&mut self, second: Word) {
        assert_eq!(self.words[0].state(), State::Locked);
        match self.change {
            Change::Free => self.is_found[0] = false,
            Change::Reclaim => {
                assert!(self.copies[0].is_empty(), "{self:?}");
                self.is_found[0] = false;
            }
            Change::Split => {
                assert_eq!(self.words[1].state(), State::Free);
                assert_eq!(second.state(), State::Locked);
                self.words[1] = second;
                self.is_found[1] = true;
                // Blades that had pages of the whole may have some of each half.
                self.copies[1] = self.copies[0];
                self.is_late[1] = self.is_late[0];
            }
            Change::Merge => {
                assert_eq!(self.words[1].state(), State::Locked);
                // From now on the first word says which blade may write back, of the second half,
                // too; where accesses to all of it will fail, no blade may.
                let is_to_fail = self.fails && self.words.iter().any(|word| has_lost_owner(*word));
                if self.words[1].prior() == Some(Prior::Modified) && !is_to_fail {
                    for owner in self.copies[1].iter() {
                        assert!(may_write_back(self.words[0], owner), "{owner} in {self:?}");
                    }
                }
                self.is_found[1] = false;
                let both = self.copies[1].iter().fold(self.copies[0], BladeSet::with);
                self.copies = [both, BladeSet::EMPTY];
                self.is_late = [self.is_late[0] || self.is_late[1], false];
            }
            Change::Reset | Change::MarkLost => panic!("nothing is to be rewired"),
        }
        self.procedure.rewired();
    }

    /// Runs until the change can only wait for a blade: flushes are done at once. Returns the
    /// blades that flushed.
    pub fn run(&mut self) -> BladeSet {
        let mut asked = BladeSet::EMPTY;
        for _ in 0..1000 {
            if self.ending != Ending::Open {
                return asked;
            }
            if !self.step() {
                let flushing = self.flushing;
                asked = flushing.iter().fold(asked, BladeSet::with);
                flushing
                    .iter()
                    .for_each(|blade| self.happen(Event::Flushed(blade)));
                if matches!(self.intent, Some(Do::Wait { .. })) {
                    self.happen(Event::Wait);
                }
            }
        }
        panic!("it does not end: {self:?}");
    }

    /// It ends when the others let it, and then nothing is held that should not be.
    pub fn finish(&mut self) {
        self.run();
    }

    /// What holds after every step.
    fn check(&self) {
        for slot in 0..2 {
            let word = self.words[slot];
            let copies = self.copies[slot];
            let is_joining = self.change == Change::Merge && !self.is_found[1];
            let listed = match word.state() {
                // Both words together are the region's until the first is given back.
                State::Locked if slot == 0 && is_joining => self.words[1]
                    .blades()
                    .iter()
                    .fold(word.blades(), BladeSet::with),
                _ => word.blades(),
            };
            let has_unlisted = !copies.iter().all(|blade| listed.contains(blade));
            match word.state() {
                // A blade that has answered, and one that upgrades, is not listed.
                State::SharedToModified => {}
                _ => assert!(!has_unlisted, "{copies:?} of {word:?} in {self:?}"),
            }
            if word.state() == State::Modified {
                assert!(listed.is_single(), "{self:?}");
            }
            if self.is_late[slot] {
                let is_safe = matches!(word.state(), State::Locked | State::Free);
                assert!(is_safe && (word.state() == State::Locked || !self.is_found[slot]));
            }
        }
    }

    fn check_end(&self, outcome: Outcome) {
        let is_locked = |slot: usize| self.words[slot].state() == State::Locked;
        for slot in 0..2 {
            // A region without its owner waits to be marked lost, a lost one to be unmapped.
            let word = self.words[slot];
            let is_left = word.prior() == Some(Prior::Lost) || self.is_late[slot];
            assert!(!is_locked(slot) || is_left, "{self:?}");
            assert!(!self.is_late[slot] || is_locked(slot), "{self:?}");
        }
        if let Outcome::Changed(_) = outcome {
            match self.change {
                Change::Free | Change::Reclaim => {
                    assert_eq!(self.words[0].state(), State::Free);
                }
                Change::Merge => assert_eq!(self.words[1].state(), State::Free),
                Change::Split => assert!(self.is_found[1]),
                Change::Reset | Change::MarkLost => {}
            }
        }
    }
}

/// All ways that a setup can go with `events` of others; the outcomes that there are.
pub fn explore(start: Setup, events: u32) -> HashSet<Outcome> {
    let mut endings = HashSet::new();
    for start in [start.clone(), start.failing_on_loss()] {
        let mut seen = HashSet::new();
        // Where each came from, and by which event; `None` is the controller's step.
        let mut ways: Vec<(usize, Option<Event>)> = Vec::new();
        let mut queue = VecDeque::from([(start, events, 0, None)]);
        while let Some((setup, left, from, by)) = queue.pop_front() {
            if !seen.insert((setup.clone(), left)) {
                continue;
            }
            let here = ways.len();
            ways.push((from, by));
            if let Ending::Over(outcome) = setup.ending() {
                endings.insert(outcome);
                continue;
            }
            let mut go = |setup: &Setup, event: Option<Event>, left| {
                let mut next = setup.clone();
                let act = AssertUnwindSafe(|| match event {
                    None => next.step(),
                    Some(event) => {
                        next.happen(event);
                        true
                    }
                });
                let has_acted = catch_unwind(act).unwrap_or_else(|panic| {
                    tell(&ways, here, event);
                    resume_unwind(panic)
                });
                if has_acted {
                    queue.push_back((next, left, here, event));
                    return None;
                }
                Some(next)
            };
            if let Some(waiting) = go(&setup, None, left) {
                // The change waits for blades; their events come, however few are left.
                for event in waiting.events() {
                    if matches!(event, Event::Flushed(_) | Event::Wait) {
                        go(&waiting, Some(event), left);
                    }
                }
            }
            if left > 0 {
                for event in setup.events() {
                    go(&setup, Some(event), left - 1);
                }
            }
        }
        assert!(!endings.is_empty(), "it never ends");
    }
    endings
}

/// Prints what led to an event.
fn tell(ways: &[(usize, Option<Event>)], mut here: usize, last: Option<Event>) {
    let mut events = vec![last];
    while here != 0 {
        events.push(ways[here].1);
        here = ways[here].0;
    }
    for event in events.iter().rev() {
        match event {
            None => println!("the controller's next step"),
            Some(event) => println!("{event:?}"),
        }
    }
}

const _: () = assert!(Which::First as usize == 0 && Which::Second as usize == 1);
