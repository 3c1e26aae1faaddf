//! Threads that have a script: they take its steps, with a store buffer between them and the cache.
//! When they go on and what they wait for is as with other threads.

use mind_machines::compute::Access;

use crate::{
    plan::Plan,
    script::{Script, Step},
    world::World,
    world::store_buffer::StoreBuffer,
};

/// What a thread with a script has more than others.
pub(crate) struct Player<'a> {
    script: &'a mut (dyn Script + 'a),
    /// The step that is being taken.
    step: Option<Step>,
    pub(crate) buffer: StoreBuffer,
    /// Its blade lives, or did.
    pub(crate) is_begun: bool,
}

/// Threads that wait for others, by the point where they are.
pub(crate) type Meetings = std::collections::BTreeMap<u64, Vec<usize>>;

/// The players of the first programs of a plan.
pub(crate) fn players<'a>(plan: &Plan, scripts: Vec<&'a mut (dyn Script + 'a)>) -> Vec<Player<'a>> {
    let mut seeds = crate::plan::dice(plan.seed, 4);
    let player = |script| Player {
        script,
        step: None,
        buffer: StoreBuffer::new(fastrand::Rng::with_seed(seeds.u64(..))),
        is_begun: false,
    };
    scripts.into_iter().map(player).collect()
}

impl World<'_> {
    /// A thread with a script goes on.
    pub(crate) fn play(&mut self, number: usize) {
        let Player {
            script,
            step,
            buffer,
            ..
        } = &mut self.players[number];
        let step = *step.get_or_insert_with(|| script.next());
        let is_drained = buffer.is_empty();
        match step {
            Step::Load(place) => {
                let own = buffer.newest(place);
                let found = own.or_else(|| self.find(number, place, Access::Read));
                let Some(found) = found else {
                    return self.wait_for(number, place.page, Access::Read);
                };
                if own.is_none() {
                    self.loaded(number, place, found);
                }
                self.players[number].script.loaded(found);
                self.stepped(number);
            }
            Step::Store(place, value) => {
                self.buffer(number, place, value);
                self.stepped(number);
            }
            Step::Update(_) | Step::Fence | Step::End if !is_drained => self.rest(number),
            Step::Update(place) => {
                let Some(found) = self.find(number, place, Access::Write) else {
                    return self.wait_for(number, place.page, Access::Write);
                };
                self.loaded(number, place, found);
                let value = self.players[number].script.update(found);
                self.stored(number, place, value);
                self.stepped(number);
            }
            Step::Fence => self.stepped(number),
            Step::Pause(nanos) => {
                self.players[number].step = None;
                self.go_on_after(number, nanos);
            }
            Step::Meet { point, threads } => {
                let here = self.meetings.entry(point).or_default();
                here.push(number);
                if here.len() < threads {
                    return self.rest(number);
                }
                for number in self.meetings.remove(&point).unwrap_or_default() {
                    self.stepped(number);
                }
            }
            Step::End => self.finish(number),
        }
    }

    fn stepped(&mut self, number: usize) {
        self.players[number].step = None;
        self.go_on(number);
    }

    /// A thread's store buffer is empty, for which it may be waiting.
    pub(crate) fn drained(&mut self, number: usize) {
        let step = self.players[number].step;
        if let Some(Step::Update(_) | Step::Fence | Step::End) = step
            && self.rests(number)
        {
            self.go_on(number);
        }
    }
}
