//! What follows when something happens, at a moment that it rarely meets by chance: a copy of a
//! packet that was held up on its way arrives, or the system is disturbed.

use mind_common::{
    directory::{Target, Want},
    id::BladeId,
};
use mind_nodes::{
    Node,
    packet::{Body, Packet},
};

use crate::{
    coverage::Pair,
    plan::{Disturbance, Image, MILLISECOND},
    world::{Event, World},
};

/// The oldest copy that arrives, in nanoseconds.
const OLDEST: u64 = 5 * MILLISECOND;

/// What packets have in common of which the last is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// A request of a compute blade's, for the first time or again.
    Request(Want, bool),
    /// A write-back.
    Write,
    /// The directory's wish that a compute blade gives a region up.
    Invalidate(Target),
    /// A compute blade's answer to such a wish, with the page or without.
    Answer,
}

impl Sort {
    const fn of<P>(packet: &Packet<P>) -> Option<Self> {
        match &packet.body {
            Body::Request { want, .. } => Some(Self::Request(*want, packet.envelope.attempt > 0)),
            Body::Write { .. } => Some(Self::Write),
            Body::Answer { .. } | Body::Forward { .. } => Some(Self::Answer),
            Body::Invalidate(invalidation) => Some(Self::Invalidate(invalidation.target)),
            _ => None,
        }
    }
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The last packet of that sort arrives once more: those of every compute blade after what
    /// happens to a word, those of the one blade after what happens to its page.
    Arrives(Sort),
    /// This happens; if it is to a compute blade, not after what happens to a page of another.
    Happens(Disturbance),
}

/// When something happens, until the network's faults stop, something follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// After this.
    pub after: Pair,
    /// Once in so many times.
    pub one_in: u32,
    /// What follows.
    pub then: Then,
    /// Within how many nanoseconds.
    pub within: u64,
}

/// The last packets of each sort, from or to each compute blade, and when they were sent.
pub(crate) type Kept = Vec<(BladeId, Sort, u64, Packet<Image>)>;

impl World<'_> {
    /// A packet is sent by a compute blade, or to it.
    pub(crate) fn keep(&mut self, node: Node, packet: &Packet<Image>) {
        if let Node::Compute(blade) = node
            && let Some(sort) = Sort::of(packet)
            && self
                .plan
                .echoes
                .iter()
                .any(|echo| echo.then == Then::Arrives(sort))
        {
            let is_that = |(of, what, ..): &(BladeId, Sort, u64, _)| *of == blade && *what == sort;
            self.kept.retain(|kept| !is_that(kept));
            self.kept.push((blade, sort, self.queue.now(), *packet));
        }
    }

    /// Something happened, to a page on that blade or to a word.
    pub(crate) fn happened(&mut self, pair: Pair, blade: Option<BladeId>) {
        self.coverage.count(pair);
        let now = self.queue.now();
        if now >= self.plan.weather.until {
            return;
        }
        for echo in &self.plan.echoes {
            if echo.after.is_like(pair) && self.random.u32(0..echo.one_in) == 0 {
                self.follow(*echo, blade);
            }
        }
    }

    fn follow(&mut self, echo: Echo, at: Option<BladeId>) {
        let is_meant = |blade| at.is_none_or(|at| at == blade);
        match echo.then {
            Then::Arrives(sort) => {
                let now = self.queue.now();
                for &(blade, of, sent, packet) in &self.kept {
                    if of != sort || !is_meant(blade) || now - sent > OLDEST {
                        continue;
                    }
                    let delay = self.random.u64(0..=echo.within);
                    let node = Node::Compute(blade);
                    let arrives = match sort {
                        Sort::Invalidate(_) => Event::Down(node, packet),
                        Sort::Request(..) | Sort::Write | Sort::Answer => Event::Up(node, packet),
                    };
                    self.queue.after(delay, arrives);
                }
            }
            Then::Happens(disturbance) => {
                if disturbance.blade().is_none_or(is_meant) {
                    let delay = self.random.u64(0..=echo.within);
                    self.queue.after(delay, Event::Follow(disturbance));
                }
            }
        }
    }
}
