//! Requests: from a fault until the page is there. What a request does to the directory's word, and what an answer to an
//! invalidation does, is decided by the live switch's functions ([`admit`], [`on_answer`]).

use mind_common::{
    directory::{
        Answer, Invalidations, RequestVerdict, State, Transition, Want, admit,
        machine::{self, on_answer},
    },
    id::{BladeId, BladeSet},
    refusal::Refusal,
};

use super::System;
use crate::modes::Protocol;

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) blade: BladeId,
    pub(super) page: u32,
    pub(super) is_write: bool,
    pub(super) want: Want,
    pub(super) stage: Stage,
    /// How often it was told "busy".
    refusals: u32,
    began: u64,
    /// The thread that faulted.
    thread: u32,
    /// Whether that waits for it.
    pub(super) is_waited_for: bool,
    /// Threads that wait for it as well.
    pub(super) joined: Vec<u32>,
    /// The slot of which it began an invalidation.
    slot: u32,
}

/// How far a request is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// It asks, for the first time or after a pause.
    Asks,
    /// It is granted; the page comes at that time.
    Granted(u64),
    /// Blades give up what they have as soon as it has been there for long enough.
    Yielding(Invalidations),
    /// They have, and their answers come.
    Answered(Invalidations),
}

impl System {
    /// Begins a request for a page of which the blade has nothing, or a copy to read; its number.
    pub(super) fn begin(
        &mut self,
        now: u64,
        blade: BladeId,
        page: u32,
        is_write: bool,
        thread: u32,
    ) -> u32 {
        let number = match self.over.pop() {
            Some(number) => number,
            None => self.requests.len() as u32,
        };
        let want = self.blades[usize::from(blade.get())].fault(page, is_write, number);
        let request = Request {
            blade,
            page,
            is_write,
            // It is asked for only where the blade's machine says so.
            want: want.unwrap_or(Want::Read),
            stage: Stage::Asks,
            refusals: 0,
            began: now,
            thread,
            is_waited_for: true,
            joined: Vec::new(),
            slot: 0,
        };
        match self.requests.get_mut(number as usize) {
            Some(slot) => {
                *slot = Request {
                    joined: std::mem::take(&mut slot.joined),
                    ..request
                }
            }
            None => self.requests.push(request),
        }
        self.counters.requests += 1;
        self.ask(now, number);
        number
    }

    /// A request has its turn.
    pub(super) fn on_request(&mut self, now: u64, number: u32) {
        match self.requests[number as usize].stage {
            Stage::Asks => self.ask(now, number),
            Stage::Granted(_) => self.complete(now, number),
            Stage::Yielding(invalidations) => self.yield_to(now, number, invalidations),
            Stage::Answered(invalidations) => {
                let slot = self.requests[number as usize].slot;
                self.answer(slot, &invalidations);
                self.complete(now, number);
                self.after_busy(now, slot);
            }
        }
    }

    fn ask(&mut self, now: u64, number: u32) {
        let &Request {
            blade, page, want, ..
        } = &self.requests[number as usize];
        if self.mode.protocol() == Protocol::None {
            let transition = match want {
                Want::Read => Transition::InvalidToShared,
                Want::Acquire | Want::Upgrade => Transition::InvalidToModified,
            };
            return self.grant(now, number, transition, self.nanos.fetch(transition));
        }
        let slot = match self.directory.find(page) {
            0 => self.open(now, page),
            slot => Some(slot),
        };
        let Some(slot) = slot else {
            self.counters.no_slot += 1;
            return self.pause(now, number);
        };
        let is_moesi = self.mode.protocol() == Protocol::Moesi;
        let before = *self.directory.slot(slot);
        let want = match before.word.state() {
            // What no blade has is its own.
            State::Invalid if is_moesi && want == Want::Read => Want::Acquire,
            _ => want,
        };
        let asked = machine::Request {
            from: blade,
            want,
            repeated: false,
        };
        let step = admit(before.word, before.queue, asked);
        let transition = Transition::between(before.word, step.next);
        let entry = self.directory.slot_mut(slot);
        (entry.word, entry.queue) = (step.next, step.queue);
        match step.verdict {
            RequestVerdict::Fetch => {
                entry.touches = entry.touches.wrapping_add(1);
                let is_forwarded =
                    is_moesi && self.has_dirty(before.word.blades().without(blade), page);
                let nanos = match is_forwarded {
                    true => self.forward(Transition::ModifiedToShared),
                    false => self.nanos.fetch(transition),
                };
                self.grant(now, number, transition, nanos + self.to_home(blade, page));
            }
            RequestVerdict::Grant => {
                entry.touches = entry.touches.wrapping_add(1);
                let nanos = self.nanos.granted + self.to_home(blade, page);
                self.grant(now, number, transition, nanos);
            }
            RequestVerdict::Invalidate(invalidations) => {
                entry.touches = entry.touches.wrapping_add(1);
                self.requests[number as usize].slot = slot;
                self.yield_to(now, number, invalidations);
            }
            RequestVerdict::Refuse(Refusal::NoCopy) => {
                // The copy went while the request waited, and the region is another one by now: it needs the page.
                self.retake(now, number);
                self.ask(now, number);
            }
            RequestVerdict::Refuse(_) => {
                self.counters.busy += 1;
                self.pause(now, number);
            }
        }
    }

    /// What a request takes more because its word is at another blade.
    fn to_home(&self, blade: BladeId, page: u32) -> u64 {
        let home = page as usize % self.blades.len();
        match self.mode.is_at_home() && home != usize::from(blade.get()) {
            true => self.nanos.exchange,
            false => 0,
        }
    }

    /// What a transition takes if the owner sends the page without writing it back.
    const fn forward(&self, transition: Transition) -> u64 {
        let full = self.nanos.invalidation(transition, 1);
        full.saturating_sub(self.nanos.exchange)
    }

    /// Whether memory lacks what one of these blades wrote to the page.
    fn has_dirty(&self, blades: BladeSet, page: u32) -> bool {
        let mut blades = blades
            .iter()
            .map(|blade| &self.blades[usize::from(blade.get())]);
        blades.any(|blade| blade.pages.get(page).is_dirty())
    }

    fn pause(&mut self, now: u64, number: u32) {
        let request = &mut self.requests[number as usize];
        request.refusals = request.refusals.saturating_add(1);
        let blade = &mut self.blades[usize::from(request.blade.get())];
        let pause = blade.trip.pause(request.refusals);
        self.come_back(now.saturating_add(pause), number);
    }

    fn grant(&mut self, now: u64, number: u32, transition: Transition, nanos: u64) {
        self.counters.transitions[transition as usize] += 1;
        let at = now.saturating_add(nanos);
        self.requests[number as usize].stage = Stage::Granted(at);
        self.come_back(at, number);
    }

    /// Blades give up what the request takes from them, if it has been there for long enough.
    fn yield_to(&mut self, now: u64, number: u32, invalidations: Invalidations) {
        let &Request {
            page, blade, slot, ..
        } = &self.requests[number as usize];
        let entry = *self.directory.slot(slot);
        let Some(region) = entry.region else {
            return;
        };
        let Invalidations { blades, target, .. } = invalidations;
        let ready = blades
            .iter()
            .map(|blade| self.ready_at(blade, region, target))
            .max();
        if let Some(ready) = ready.filter(|ready| *ready > now) {
            self.requests[number as usize].stage = Stage::Yielding(invalidations);
            return self.come_back(ready, number);
        }
        let is_forwarded = self.mode.protocol() == Protocol::Moesi && self.has_dirty(blades, page);
        let (mut falsely, mut most) = (0, 0);
        for blade in blades.iter() {
            let cost = self.give_up(now, blade, region, target, Some(page));
            falsely += cost.falsely;
            most = most.max(cost.flushed);
            self.counters.flushed += u64::from(cost.flushed);
        }
        self.counters.invalidations += u64::from(blades.len());
        self.counters.falsely += u64::from(falsely);
        self.directory.mark(slot, falsely);
        let transition = Transition::between(entry.word, entry.word);
        self.counters.transitions[transition as usize] += 1;
        let nanos = match (transition, is_forwarded) {
            (Transition::ModifiedToShared | Transition::ModifiedToModified, true) => {
                self.forward(transition)
            }
            _ => self.nanos.invalidation(transition, blades.len()),
        };
        // One page that is written back is among what was measured.
        let further = u64::from(most.saturating_sub(1)) * self.nanos.exchange;
        let at = now + nanos + further + self.to_home(blade, page);
        self.requests[number as usize].stage = Stage::Answered(invalidations);
        self.come_back(at, number);
    }

    /// The answers to an invalidation come.
    fn answer(&mut self, slot: u32, invalidations: &Invalidations) {
        let entry = self.directory.slot_mut(slot);
        for from in invalidations.blades.iter() {
            let answer = Answer {
                from,
                requester: invalidations.requester,
                slot,
                episode: invalidations.episode,
            };
            entry.word = on_answer(slot, entry.word, answer).next;
        }
    }

    /// The page is there: threads go on.
    fn complete(&mut self, now: u64, number: u32) {
        let request = &mut self.requests[number as usize];
        let mut joined = std::mem::take(&mut request.joined);
        let &mut Request {
            blade,
            page,
            thread,
            is_waited_for,
            began,
            refusals,
            ..
        } = request;
        request.stage = Stage::Asks;
        let took = now - began;
        self.counters.waited += took;
        let at = &mut self.blades[usize::from(blade.get())];
        at.install(page, now);
        // Karn's rule, as the live blade: only of requests that were sent once.
        if refusals == 0 {
            at.trip.sample(took);
        }
        let state = &mut self.threads[thread as usize];
        if is_waited_for {
            if let Some(access) = state.access.take() {
                self.counters.hits += u64::from(access.count) - 1;
                let local = self.local(access);
                self.wake(now.saturating_add(local), thread);
            }
        } else {
            state.writes -= 1;
            if std::mem::take(&mut state.is_full) {
                self.wake(now, thread);
            }
        }
        for thread in joined.drain(..) {
            self.wake(now, thread);
        }
        self.requests[number as usize].joined = joined;
        self.over.push(number);
        self.end = self.end.max(now);
    }
}
