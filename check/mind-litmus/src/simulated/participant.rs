//! A participant: its part of a batch of copies, from the variables' initial values to their last ones, as
//! a script of the simulator.
//!
//! All run at once. First each sets the variables of the copies that it observes, then each brings pages into the state
//! that its assignment says, then the copies run, each behind a barrier of its participants; last the variables are
//! read. Between these steps is a barrier of all.

use fastrand::Rng;
use mind_sim::plan::Place;
use mind_sim::script::{Script, Step};

use super::assignment::{Assignment, Copy};
use super::code::Code;
use crate::{
    blades::plan::Touch,
    test::{Location, Test},
};

/// A step of a participant.
#[derive(Debug)]
enum Act<'t> {
    /// A step whose loaded value is not used.
    Take(Step),
    /// Runs that thread of that copy.
    Run(ThreadRun<'t>),
    /// Reads that variable of that copy.
    Read {
        copy: usize,
        variable: usize,
        place: Place,
    },
}

/// A thread of a copy.
#[derive(Clone, Debug)]
pub struct ThreadRun<'t> {
    /// The copy's number.
    pub copy: usize,
    /// Which thread.
    pub thread: usize,
    /// Its program, at the next instruction; in the end, at its end.
    pub code: Code<'t>,
    /// How long it waits at most before its next step, in nanoseconds.
    pause: u64,
    /// Whether it has waited for that.
    has_paused: bool,
    random: Rng,
}

/// What a participant saw.
#[derive(Debug, Default)]
pub struct Seen<'t> {
    /// The threads that it ran.
    pub ran: Vec<ThreadRun<'t>>,
    /// Copy, number and value of each variable that it read.
    pub read: Vec<(usize, usize, u64)>,
}

/// A participant.
#[derive(Debug)]
pub struct Participant<'t> {
    left: std::vec::IntoIter<Act<'t>>,
    current: Option<Act<'t>>,
    seen: Seen<'t>,
}

/// The barriers of all; those of copies are after them.
const SET: u64 = 0;
const TOUCHED: u64 = 1;
const RAN: u64 = 2;
const COPIES: u64 = 3;

impl<'t> Participant<'t> {
    /// The participant with that number, of so many.
    pub fn new(test: &'t Test, assignment: &Assignment, own: usize, participants: usize) -> Self {
        let all = |point| {
            let threads = participants;
            Act::Take(Step::Barrier { point, threads })
        };
        let copies = || assignment.copies.iter().enumerate();
        let own_copies = || copies().filter(|(_, copy)| copy.observer == own);
        let mut acts = Vec::new();
        for (_, copy) in own_copies() {
            for (cell, place) in test.memory().values().zip(&copy.places) {
                if cell.initial != 0 || copy.sets_zeros {
                    acts.push(Act::Take(Step::Store(*place, cell.initial)));
                }
            }
        }
        acts.extend([Act::Take(Step::Fence), all(SET)]);
        for (_, copy) in copies() {
            let touches = copy
                .touches
                .iter()
                .filter(|(participant, ..)| *participant == own);
            acts.extend(touches.map(|(_, place, touch)| {
                Act::Take(match touch {
                    Touch::Leave => Step::Pause(0),
                    Touch::Read => Step::Load(*place),
                    // The value stays.
                    Touch::Write => Step::Update(*place),
                })
            }));
        }
        acts.push(all(TOUCHED));
        for (number, copy) in copies() {
            if let Some(thread) = copy
                .participants
                .iter()
                .position(|participant| *participant == own)
            {
                acts.extend(part(test, number, copy, thread));
            }
        }
        acts.extend([Act::Take(Step::Fence), all(RAN)]);
        for (number, copy) in own_copies() {
            let variables = copy.places.iter().enumerate();
            acts.extend(variables.map(|(variable, place)| Act::Read {
                copy: number,
                variable,
                place: *place,
            }));
        }
        Self {
            left: acts.into_iter(),
            current: None,
            seen: Seen::default(),
        }
    }

    /// What it saw, when it has ended.
    pub fn into_seen(self) -> Seen<'t> {
        self.seen
    }
}

fn part<'t>(test: &'t Test, number: usize, copy: &Copy, thread: usize) -> [Act<'t>; 3] {
    let names: Vec<&Location> = test.memory().keys().collect();
    let place = |location: &Location| {
        // A test's memory has all that is accessed.
        let variable = names.binary_search(&location).unwrap_or(0);
        copy.places[variable]
    };
    let meet = Step::Barrier {
        point: COPIES + number as u64,
        threads: copy.participants.len(),
    };
    let code = Code::new(test, thread, place);
    [
        Act::Take(meet),
        Act::Take(Step::Pause(copy.delays[thread])),
        Act::Run(ThreadRun {
            copy: number,
            thread,
            code,
            pause: copy.pause,
            // Before the first step it has waited for its delay.
            has_paused: true,
            random: Rng::with_seed(copy.random.clone().u64(..).wrapping_add(thread as u64)),
        }),
    ]
}

impl Script for Participant<'_> {
    fn next(&mut self) -> Step {
        loop {
            if let Some(Act::Run(ran)) = &mut self.current {
                if ran.pause > 0 && !std::mem::replace(&mut ran.has_paused, true) {
                    return Step::Pause(ran.random.u64(..ran.pause));
                }
                ran.has_paused = false;
                if let Some(step) = ran.code.advance() {
                    return step;
                }
            }
            if let Some(Act::Run(ran)) = self.current.take() {
                self.seen.ran.push(ran);
            }
            self.current = self.left.next();
            match &self.current {
                Some(Act::Take(step)) => return *step,
                Some(Act::Read { place, .. }) => return Step::Load(*place),
                Some(Act::Run(_)) => {}
                None => return Step::End,
            }
        }
    }

    fn loaded(&mut self, value: u64) {
        match &mut self.current {
            Some(Act::Run(ran)) => ran.code.loaded(value),
            Some(Act::Read { copy, variable, .. }) => {
                self.seen.read.push((*copy, *variable, value));
            }
            Some(Act::Take(_)) | None => {}
        }
    }

    fn update(&mut self, old: u64) -> u64 {
        match &mut self.current {
            Some(Act::Run(ran)) => ran.code.update(old),
            Some(Act::Take(_) | Act::Read { .. }) | None => old,
        }
    }
}
