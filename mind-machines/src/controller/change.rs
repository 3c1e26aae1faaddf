//! Changes of regions: shows each [`Procedure`] its words, and does what it says, of many at once.

mod books;
mod run;
mod words;

use std::collections::VecDeque;

use crate::controller::procedure::{Change, Do, Jointly, Procedure, jointly};
#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use mind_common::{
    addr::{Region, Va},
    directory::machine::Loss,
    id::{BladeId, BladeSet, Connection},
};

use super::{Command, Controller, Entry, Link, Out, Progress, Step, Task};
use crate::switch::Switch;
use books::rewiring;
use run::Run;

/// Where a change is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Words are looked at and changed: of this run.
    Words(usize),
    /// Blades were told to flush, and the answers are there.
    Flushed,
    /// This blade did not flush, and has been sent away.
    Expelled(BladeId),
    /// Memory fences these, one after the other.
    Fencing(VecDeque<Region>),
    /// The tables follow.
    Rewiring(VecDeque<Step>),
    /// Until a time.
    Waiting(u64),
}

/// A change under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Changing {
    change: Change,
    runs: Vec<Run>,
    stage: Stage,
    /// With whom writes went, where that is known before.
    gone: Option<Connection>,
}

impl Changing {
    /// The same, because a life is over.
    pub(super) fn because_of(self, life: Connection) -> Self {
        Self {
            gone: Some(life),
            ..self
        }
    }

    /// Whether it is about the answers to what was ordered last.
    pub(super) fn hears(&self) -> bool {
        matches!(self.stage, Stage::Flushed | Stage::Expelled(_))
    }
}

impl Controller {
    /// A change of regions, of two with the upper half; if `is_appeal`, only of one that is stuck.
    pub(super) fn changing(
        &self,
        change: Change,
        entries: impl IntoIterator<Item = (Entry, Option<Entry>)>,
        now: u64,
        is_appeal: bool,
    ) -> Changing {
        let everybody = self.everybody();
        let patience = self.patience;
        let procedure = if is_appeal {
            Procedure::for_stuck(now, patience.stuck, patience.pause, everybody)
        } else if change.is_of_two() {
            Procedure::new(change, now, patience.optional, patience.pause, everybody)
        } else {
            Procedure::new(change, now, patience.full, patience.pause, everybody)
        };
        let run = |(entry, upper): (Entry, Option<Entry>)| Run {
            procedure: if entry.fails {
                procedure.failing_on_loss()
            } else {
                procedure
            },
            entry,
            upper,
            next: None,
            lost_with: None,
        };
        Changing {
            change,
            runs: entries.into_iter().map(run).collect(),
            stage: Stage::Words(0),
            gone: None,
        }
    }

    /// Does the next thing of a change.
    pub(super) fn proceed(
        &mut self,
        mut changing: Changing,
        now: u64,
        switch: &mut Switch,
        out: &mut Out,
    ) -> Progress {
        let mut progress = Progress::Acted;
        let mut next = Vec::new();
        match &mut changing.stage {
            Stage::Words(number) if *number < changing.runs.len() => {
                if !changing.runs[*number].ask_or_swap(now, switch) {
                    *number += 1;
                }
            }
            Stage::Words(_) if changing.runs.iter().all(Run::is_over) => {
                self.end(&changing);
                return Progress::Acted;
            }
            Stage::Words(_) => next = self.decide(&mut changing, out),
            Stage::Flushed => next.extend(self.hear(&mut changing)),
            Stage::Expelled(blade) => {
                let blade = *blade;
                self.tell_of_departure(&mut changing, blade);
                changing.stage = Stage::Flushed;
            }
            Stage::Fencing(regions) => match regions.pop_front() {
                Some(region) => {
                    let fence = |id, first, count| Command::FencePages { id, first, count };
                    self.order_pages(region, fence, out);
                }
                None => {
                    let runs = changing.runs.iter_mut();
                    runs.filter(|run| run.next == Some(Do::Fence))
                        .for_each(|run| run.procedure.fenced());
                    restart(&mut changing);
                }
            },
            Stage::Rewiring(steps) => match steps.pop_front() {
                Some(step) => self.carry_out(step, switch, out),
                None => {
                    for run in &mut changing.runs {
                        run.procedure.rewired();
                    }
                    restart(&mut changing);
                }
            },
            Stage::Waiting(until) if now < *until => progress = Progress::Waits { until: *until },
            Stage::Waiting(_) => restart(&mut changing),
        }
        self.tasks.push(Task::Change(changing));
        self.tasks.extend(next);
        progress
    }

    /// Every run says something that needs more than words. What is to be done first.
    fn decide(&mut self, changing: &mut Changing, out: &mut Out) -> Vec<Task> {
        let runs = &changing.runs;
        let entries = |says: fn(&Do) -> bool| {
            let runs = runs
                .iter()
                .filter(move |run| run.next.as_ref().is_some_and(says));
            runs.flat_map(Run::entries)
        };
        let mut first = Vec::new();
        changing.stage = match jointly(runs.iter().filter_map(|run| run.next)) {
            Jointly::Flush { blades } => {
                let regions: Vec<_> = entries(|says| matches!(says, Do::Flush { .. })).collect();
                self.flush(blades, &regions, out);
                Stage::Flushed
            }
            Jointly::Fence => {
                // Buried after this change; nobody gets the regions before its operations are
                // refused.
                let gone = self.departed.iter().rev().map(|departed| departed.life);
                first.extend(gone.map(Task::FenceBlade));
                let fencing = entries(|says| *says == Do::Fence);
                let mut regions: Vec<_> = fencing.map(|entry| entry.region).collect();
                regions.sort_unstable();
                Stage::Fencing(regions.into())
            }
            Jointly::Rewire { second } => Stage::Rewiring(rewiring(changing, second)),
            Jointly::Wait { until } => Stage::Waiting(until),
            Jointly::Over => return first,
        };
        first
    }

    /// Has blades write back and drop what they have from the first of the regions to the last.
    fn flush(&mut self, blades: BladeSet, regions: &[Entry], out: &mut Out) {
        let start = regions.iter().map(|entry| entry.region.base().0).min();
        let end = regions
            .iter()
            .map(|entry| entry.region.base().0 + entry.region.size())
            .max();
        let (start, end) = (start.unwrap_or(0), end.unwrap_or(0));
        let (start, length) = (Va(start), end - start);
        for blade in blades.iter() {
            let latest = Connection {
                blade,
                incarnation: self.blades.get(&blade).map_or(0, |known| known.incarnation),
            };
            match self.life(blade) {
                #[cfg(feature = "mutants")]
                Some(life) if Mutant::FlushNotAwaited.is_active() => {
                    self.results.insert(Link::of(life), true);
                }
                Some(life) => {
                    let flush = |id| Command::Flush { id, start, length };
                    self.order(Link::of(life), flush, out);
                }
                None => {
                    self.results.insert(Link::of(latest), false);
                }
            }
        }
    }

    /// What the next of the blades said that were told to flush; what is to be done first because
    /// of it.
    fn hear(&mut self, changing: &mut Changing) -> Option<Task> {
        let Some((link, done)) = self.results.pop_first() else {
            restart(changing);
            return None;
        };
        let life = link.life()?;
        let blade = life.blade;
        if !done && self.life(blade).is_some() {
            changing.stage = Stage::Expelled(blade);
            return Some(Task::Silence(life, self.is_up(link)));
        }
        for run in &mut changing.runs {
            if done {
                run.procedure.flushed(blade);
            } else {
                // Its departure was dealt with before.
                run.procedure.lost(blade, Loss::Nothing);
            }
        }
        None
    }

    fn tell_of_departure(&self, changing: &mut Changing, blade: BladeId) {
        let Some(departed) = self.departed.last() else {
            return;
        };
        for run in &mut changing.runs {
            let is_orphan = |entry: Entry| departed.orphans.iter().any(|o| o.slot == entry.slot);
            let is_hit = run.entries().any(is_orphan);
            let loss = if is_hit {
                run.lost_with = Some(departed.life);
                Loss::Writes
            } else {
                Loss::Nothing
            };
            run.procedure.lost(blade, loss);
        }
    }
}

/// All runs are asked again.
fn restart(changing: &mut Changing) {
    for run in &mut changing.runs {
        run.next = None;
    }
    changing.stage = Stage::Words(0);
}
