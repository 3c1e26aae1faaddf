//! A player: its part of a batch of copies, from the variables' initial values to their last ones, as
//! a script of the simulator.
//!
//! All play at once. First each sets the variables of the copies that it keeps, then each has pages as
//! its lot says, then the copies run, each when those who play it have met; last the variables are
//! read. Between these all meet.

use fastrand::Rng;
use mind_sim::plan::Place;
use mind_sim::script::{Script, Step};

use super::cast::{Cast, Copy};
use super::code::Code;
use crate::{
    blades::plan::Touch,
    test::{Location, Test},
};

/// Part of what a player does.
#[derive(Debug)]
enum Act<'t> {
    /// A step of which nobody wants to know what it finds.
    Take(Step),
    /// Plays that thread of that copy.
    Play(Played<'t>),
    /// Reads that variable of that copy.
    Read {
        copy: usize,
        variable: usize,
        place: Place,
    },
}

/// A thread of a copy.
#[derive(Clone, Debug)]
pub struct Played<'t> {
    /// The copy's number.
    pub copy: usize,
    /// Which thread.
    pub thread: usize,
    /// Where it is; in the end, at its end.
    pub code: Code<'t>,
    /// How long it waits at most before its next step, in nanoseconds.
    pause: u64,
    /// Whether it has waited for that.
    has_paused: bool,
    dice: Rng,
}

/// What a player saw.
#[derive(Debug, Default)]
pub struct Seen<'t> {
    /// The threads that it played.
    pub played: Vec<Played<'t>>,
    /// Copy, number and value of each variable that it read.
    pub read: Vec<(usize, usize, u64)>,
}

/// A player.
#[derive(Debug)]
pub struct Actor<'t> {
    left: std::vec::IntoIter<Act<'t>>,
    current: Option<Act<'t>>,
    seen: Seen<'t>,
}

/// The points where all meet; those of copies are after them.
const SET: u64 = 0;
const TOUCHED: u64 = 1;
const PLAYED: u64 = 2;
const COPIES: u64 = 3;

impl<'t> Actor<'t> {
    /// The player with that number, of so many.
    pub fn new(test: &'t Test, cast: &Cast, own: usize, players: usize) -> Self {
        let all = |point| {
            let threads = players;
            Act::Take(Step::Meet { point, threads })
        };
        let copies = || cast.copies.iter().enumerate();
        let kept = || copies().filter(|(_, copy)| copy.keeper == own);
        let mut acts = Vec::new();
        for (_, copy) in kept() {
            for (cell, place) in test.memory().values().zip(&copy.places) {
                if cell.initial != 0 || copy.sets_zeros {
                    acts.push(Act::Take(Step::Store(*place, cell.initial)));
                }
            }
        }
        acts.extend([Act::Take(Step::Fence), all(SET)]);
        for (_, copy) in copies() {
            let touches = copy.touches.iter().filter(|(player, ..)| *player == own);
            acts.extend(touches.map(|(_, place, touch)| {
                Act::Take(match touch {
                    Touch::Leave => Step::Pause(0),
                    Touch::Read => Step::Load(*place),
                    // What is there stays.
                    Touch::Write => Step::Update(*place),
                })
            }));
        }
        acts.push(all(TOUCHED));
        for (number, copy) in copies() {
            if let Some(thread) = copy.players.iter().position(|player| *player == own) {
                acts.extend(part(test, number, copy, thread));
            }
        }
        acts.extend([Act::Take(Step::Fence), all(PLAYED)]);
        for (number, copy) in kept() {
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

    /// What it saw, when it is at its end.
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
    let meet = Step::Meet {
        point: COPIES + number as u64,
        threads: copy.players.len(),
    };
    let code = Code::new(test, thread, place);
    [
        Act::Take(meet),
        Act::Take(Step::Pause(copy.delays[thread])),
        Act::Play(Played {
            copy: number,
            thread,
            code,
            pause: copy.pause,
            // Before the first step it has waited in its own way.
            has_paused: true,
            dice: Rng::with_seed(copy.dice.clone().u64(..).wrapping_add(thread as u64)),
        }),
    ]
}

impl Script for Actor<'_> {
    fn next(&mut self) -> Step {
        loop {
            if let Some(Act::Play(played)) = &mut self.current {
                if played.pause > 0 && !std::mem::replace(&mut played.has_paused, true) {
                    return Step::Pause(played.dice.u64(..played.pause));
                }
                played.has_paused = false;
                if let Some(step) = played.code.advance() {
                    return step;
                }
            }
            if let Some(Act::Play(played)) = self.current.take() {
                self.seen.played.push(played);
            }
            self.current = self.left.next();
            match &self.current {
                Some(Act::Take(step)) => return *step,
                Some(Act::Read { place, .. }) => return Step::Load(*place),
                Some(Act::Play(_)) => {}
                None => return Step::End,
            }
        }
    }

    fn loaded(&mut self, value: u64) {
        match &mut self.current {
            Some(Act::Play(played)) => played.code.loaded(value),
            Some(Act::Read { copy, variable, .. }) => {
                self.seen.read.push((*copy, *variable, value));
            }
            Some(Act::Take(_)) | None => {}
        }
    }

    fn update(&mut self, old: u64) -> u64 {
        match &mut self.current {
            Some(Act::Play(played)) => played.code.update(old),
            Some(Act::Take(_) | Act::Read { .. }) | None => old,
        }
    }
}
