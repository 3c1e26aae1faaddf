//! Threads with a script: they take its steps, with a store buffer between them and the cache.
//! Apart from that they run and wait like other threads.

use mind_machines::compute::Access;

use crate::{
    plan::Plan,
    script::{Script, Step},
    world::World,
    world::store_buffer::StoreBuffer,
};

/// The additional state of a thread with a script.
pub(crate) struct ScriptedThread<'a> {
    script: &'a mut (dyn Script + 'a),
    /// The step under way.
    step: Option<Step>,
    pub(crate) buffer: StoreBuffer,
    /// Its blade is up, or was.
    pub(crate) is_begun: bool,
}

/// Threads that wait for others, by the point where they wait.
pub(crate) type Barriers = std::collections::BTreeMap<u64, Vec<usize>>;

/// The scripted of the first programs of a plan.
pub(crate) fn scripted<'a>(
    plan: &Plan,
    scripts: Vec<&'a mut (dyn Script + 'a)>,
) -> Vec<ScriptedThread<'a>> {
    let mut seeds = crate::plan::generator(plan.seed, 4);
    let scripted_thread = |script| ScriptedThread {
        script,
        step: None,
        buffer: StoreBuffer::new(fastrand::Rng::with_seed(seeds.u64(..))),
        is_begun: false,
    };
    scripts.into_iter().map(scripted_thread).collect()
}

impl World<'_> {
    /// A thread with a script runs on.
    pub(crate) fn run_script(&mut self, number: usize) {
        let ScriptedThread {
            script,
            step,
            buffer,
            ..
        } = &mut self.scripted[number];
        let step = *step.get_or_insert_with(|| script.next());
        let is_drained = buffer.is_empty();
        match step {
            Step::Load(place) => {
                let cell = self.mapped.fixed(place);
                let own = buffer.newest(cell);
                let found = own.or_else(|| self.find(number, cell, Access::Read));
                let Some(found) = found else {
                    return self.wait_for(number, cell.page, Access::Read);
                };
                if own.is_none() {
                    self.loaded(number, cell, found);
                }
                self.scripted[number].script.loaded(found);
                self.stepped(number);
            }
            Step::Store(place, value) => {
                let cell = self.mapped.fixed(place);
                self.buffer(number, cell, value);
                self.stepped(number);
            }
            Step::Update(_) | Step::Fence | Step::End if !is_drained => self.rest(number),
            Step::Update(place) => {
                let cell = self.mapped.fixed(place);
                let Some(found) = self.find(number, cell, Access::Write) else {
                    return self.wait_for(number, cell.page, Access::Write);
                };
                self.loaded(number, cell, found);
                let value = self.scripted[number].script.update(found);
                self.stored(number, cell, value);
                self.stepped(number);
            }
            Step::Fence => self.stepped(number),
            Step::Pause(nanos) => {
                self.scripted[number].step = None;
                self.go_on_after(number, nanos);
            }
            Step::Barrier { point, threads } => {
                let here = self.barriers.entry(point).or_default();
                here.push(number);
                if here.len() < threads {
                    return self.rest(number);
                }
                for number in self.barriers.remove(&point).unwrap_or_default() {
                    self.stepped(number);
                }
            }
            Step::End => self.finish(number),
        }
    }

    fn stepped(&mut self, number: usize) {
        self.scripted[number].step = None;
        self.go_on(number);
    }

    /// A thread's store buffer is empty; the thread may be waiting for that.
    pub(crate) fn drained(&mut self, number: usize) {
        let step = self.scripted[number].step;
        if let Some(Step::Update(_) | Step::Fence | Step::End) = step
            && self.rests(number)
        {
            self.go_on(number);
        }
    }
}
