//! Changes of regions: shows each [`Procedure`] its words, and does what it says, of many at once.

use std::{collections::BTreeSet, time::Duration};

use mind_api::{
    Command, Errno, Failure,
    message::{BladeKind, OnLoss},
};
use mind_common::{
    addr::{PAGE_SHIFT, PAGE_SIZE, SLICE_SHIFT, Va},
    directory::{Word, machine::Loss},
    id::{BladeId, BladeSet, Connection},
};
use mind_controller::directory::{Entry, Regions, Slot, Step};
use mind_machines::controller::procedure::{
    Change, Do, Jointly, Outcome, Procedure, Which, jointly,
};

use super::{Core, broken, index};

/// How often to look at a word that is busy: the answers of blades make it otherwise, of which nobody tells us.
const PAUSE: Duration = Duration::from_micros(200);
/// How long a blade may take to flush something, and how much longer for each of its pages.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);
const FLUSH_LIMIT_PER_PAGE: Duration = Duration::from_micros(40);
/// A reset is asked for again and again until the request that waits for it fails.
const FLUSH_LIMIT_OF_ALL: Duration = Duration::from_secs(30);

/// How long to wait for a region that stays busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as its blades may need.
    Full,
    /// A moment; and it is left alone unless it is stuck.
    Stuck,
}

impl Patience {
    fn procedure(self, change: Change, now: u64, everybody: BladeSet) -> Procedure {
        let nanos = |time: Duration| time.as_nanos() as u64;
        let pause = nanos(PAUSE);
        match self {
            Self::Full if change.is_of_two() => {
                let patience = nanos(Duration::from_millis(100));
                Procedure::new(change, now, patience, pause, everybody)
            }
            Self::Full => {
                let patience = nanos(Duration::from_secs(2));
                Procedure::new(change, now, patience, pause, everybody)
            }
            Self::Stuck => {
                let patience = nanos(Duration::from_millis(200));
                Procedure::for_stuck(now, patience, pause, everybody)
            }
        }
    }
}

/// A change under way.
struct Run {
    procedure: Procedure,
    entry: Entry,
    upper: Option<Entry>,
    next: Do,
    /// Who took writes along.
    lost_with: Option<String>,
}

impl Run {
    fn entries(&self) -> impl Iterator<Item = Entry> {
        [Some(self.entry), self.upper].into_iter().flatten()
    }
}

/// The addresses of regions, and what is between them.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    fn of(entries: impl Iterator<Item = Entry>) -> Option<Self> {
        let spans = entries.map(|entry| Self {
            start: entry.region.base().0,
            end: entry.region.base().0 + entry.region.size(),
        });
        spans.reduce(|a, b| Self {
            start: a.start.min(b.start),
            end: a.end.max(b.end),
        })
    }
}

impl Core {
    /// Changes regions. How each ended, in their order; what was lost with the blade `gone`, or with one that does not
    /// do as it is told, is reported.
    ///
    /// # Errors
    ///
    /// If the maps cannot be changed. Regions may stay held then; a blade that wants them appeals.
    pub(super) async fn change(
        &mut self,
        regions: &Regions,
        patience: Patience,
        gone: Option<&str>,
    ) -> Result<Vec<Outcome>, Failure> {
        let everybody = self.compute_blades();
        let now = self.now();
        let mut runs: Vec<_> = regions
            .entries
            .iter()
            .map(|(entry, upper)| {
                let procedure = patience.procedure(regions.change, now, everybody);
                let fails = self.policy.on_loss(entry.region) == OnLoss::Fail;
                Run {
                    procedure: if fails {
                        procedure.failing_on_loss()
                    } else {
                        procedure
                    },
                    entry: *entry,
                    upper: *upper,
                    next: Do::Wait { until: now },
                    lost_with: gone.map(str::to_owned),
                }
            })
            .collect();
        loop {
            for run in &mut runs {
                run.next = self.proceed(run)?;
            }
            match jointly(runs.iter().map(|run| run.next)) {
                Jointly::Flush { blades } => self.flush_runs(&mut runs, blades).await,
                Jointly::Fence => self.fence_runs(&mut runs).await,
                Jointly::Rewire { second } => self.rewire_runs(regions, &mut runs, second)?,
                Jointly::Wait { until } => {
                    let pause = Duration::from_nanos(until.saturating_sub(self.now()));
                    tokio::time::sleep(pause).await;
                }
                Jointly::Over => break,
            }
        }
        Ok(runs
            .iter()
            .map(|run| self.ended(regions.change, run))
            .collect())
    }

    /// Does what needs only words.
    fn proceed(&self, run: &mut Run) -> Result<Do, Failure> {
        let directory = self.switch.directory();
        let slot = |entry: &Entry| directory.slot(index(entry)).map_err(|error| broken(&error));
        let first = slot(&run.entry)?;
        let second = run.upper.as_ref().map(slot).transpose()?;
        loop {
            let upper = second
                .as_ref()
                .map_or_else(Word::default, |slot| slot.word());
            match run.procedure.next(self.now(), first.word(), upper) {
                Do::Swap { slot, old, new } => {
                    let slot = match slot {
                        Which::First => Some(&first),
                        Which::Second => second.as_ref(),
                    };
                    self.pass();
                    // Whether it was still there shows in the next word.
                    let _ = slot.map(|slot| slot.swap_word(old, new));
                }
                next => return Ok(next),
            }
        }
    }

    /// Has blades flush what runs wait for.
    async fn flush_runs(&mut self, runs: &mut [Run], blades: BladeSet) {
        let waiting = runs
            .iter()
            .filter(|run| matches!(run.next, Do::Flush { .. }))
            .flat_map(Run::entries);
        let Some(Span { start, end }) = Span::of(waiting) else {
            return;
        };
        for (blade, flushed) in self.flush(blades, start, end).await {
            let orphans = match flushed {
                Ok(()) => None,
                Err(failure) => Some(self.expel(blade, &failure)),
            };
            for run in runs.iter_mut() {
                match &orphans {
                    None => run.procedure.flushed(blade),
                    Some((name, slots)) => {
                        let is_hit = run.entries().any(|entry| slots.contains(&entry.slot));
                        let loss = if is_hit { Loss::Writes } else { Loss::Nothing };
                        if is_hit {
                            run.lost_with = Some(name.clone());
                        }
                        run.procedure.lost(blade, loss);
                    }
                }
            }
        }
    }

    /// Has blades write back and drop what they have of a range; what each says.
    async fn flush(
        &self,
        blades: BladeSet,
        start: u64,
        end: u64,
    ) -> Vec<(BladeId, Result<(), Failure>)> {
        let length = end.saturating_sub(start);
        let pages = u32::try_from(length >> PAGE_SHIFT).unwrap_or(u32::MAX);
        let limit = FLUSH_LIMIT
            .saturating_add(FLUSH_LIMIT_PER_PAGE.saturating_mul(pages))
            .min(FLUSH_LIMIT_OF_ALL);
        let orders = blades.iter().map(|blade| async move {
            let order = Command::FlushRange { va: start, length };
            let result = match self.agent(BladeKind::Compute, blade.get()) {
                Ok(agent) => agent.order_within(order, limit).await,
                Err(failure) => Err(failure),
            };
            (blade, result)
        });
        futures_util::future::join_all(orders).await
    }

    /// Has blades write back and drop what they have of a range, and sends those away that do not.
    pub(super) async fn flush_or_expel(&mut self, blades: BladeSet, start: u64, end: u64) {
        for (blade, flushed) in self.flush(blades, start, end).await {
            if let Err(failure) = flushed {
                self.expel(blade, &failure);
            }
        }
    }

    /// A blade does not give up what it was told to: it is not one of us any more. Its name, and the slots with writes
    /// of its own.
    fn expel(&mut self, blade: BladeId, why: &Failure) -> (String, BTreeSet<Slot>) {
        let known = self
            .policy
            .registry()
            .blade(BladeKind::Compute, blade.get());
        let Some(known) = known.filter(|known| known.connected) else {
            // Its departure was dealt with before.
            return (blade.to_string(), BTreeSet::new());
        };
        let (name, incarnation) = (known.name.clone(), known.incarnation);
        tracing::error!(%blade, name, %why, "a blade that does not flush is sent away");
        (name, self.depart(Connection { blade, incarnation }))
    }

    /// Has memory fence what runs wait for.
    async fn fence_runs(&mut self, runs: &mut [Run]) {
        let mut regions: Vec<_> = runs
            .iter()
            .filter(|run| run.next == Do::Fence)
            .flat_map(Run::entries)
            .map(|entry| entry.region)
            .collect();
        // A blade that was sent away because of this change is buried after it; nobody gets the regions before its
        // operations are refused.
        self.fence_departed().await;
        regions.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for region in regions {
            let (start, end) = (region.base().0, region.base().0 + region.size());
            match ranges.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => ranges.push((start, end)),
            }
        }
        for (start, end) in ranges {
            if let Err(failure) = self.fence(Va(start), end - start).await {
                // Without its memory blade a page cannot be had, fenced or not.
                tracing::error!(va = %Va(start), %failure, "pages are not fenced");
            }
        }
        for run in runs.iter_mut().filter(|run| run.next == Do::Fence) {
            run.procedure.fenced();
        }
    }

    async fn fence(&self, va: Va, length: u64) -> Result<(), Failure> {
        let blade = va
            .slice()
            .ok_or_else(|| broken(&"an address outside of the window"))?;
        let first = (va.0 & ((1 << SLICE_SHIFT) - 1)) >> PAGE_SHIFT;
        let count = length / PAGE_SIZE as u64;
        let agent = self.agent(BladeKind::Memory, blade)?;
        agent.order(Command::FencePages { first, count }).await
    }

    /// Changes what slots cover: all words are held.
    fn rewire_runs(
        &mut self,
        regions: &Regions,
        runs: &mut [Run],
        second: Word,
    ) -> Result<(), Failure> {
        for step in &regions.rewire {
            self.pass();
            match step {
                Step::Open(entry) => self.open(entry, second)?,
                step => self.rewire(step)?,
            }
        }
        for run in runs {
            run.procedure.rewired();
        }
        Ok(())
    }

    /// Reports what was lost. How a change ended.
    fn ended(&mut self, change: Change, run: &Run) -> Outcome {
        let Do::Done(outcome) = run.next else {
            unreachable!("the loop ends when all are done");
        };
        self.events.changed(change, outcome);
        let is_told = outcome == Outcome::Changed(Loss::Writes) && change != Change::Free;
        if is_told {
            let blade = run.lost_with.as_deref().unwrap_or("a blade that is gone");
            let region = run.entry.region;
            // Either half may be the one.
            let joined = region.whole().filter(|_| change == Change::Merge);
            let region = joined.unwrap_or(region);
            match self.policy.note_loss(region, blade) {
                Some((domain, vma)) => tracing::error!(
                    %region, domain, vma = %vma.va(), area = vma.area, blade,
                    "what was written into a region and not yet written back is lost"
                ),
                None => tracing::warn!(%region, blade, "a region that nobody maps has lost writes"),
            }
        }
        outcome
    }
}

/// Whether all were changed.
pub(super) fn all_changed(outcomes: &[Outcome]) -> bool {
    outcomes
        .iter()
        .all(|outcome| matches!(outcome, Outcome::Changed(_)))
}

/// What an operator is told who wants a region changed that is not there.
pub(super) fn unchangeable(va: Va) -> Failure {
    let message = format!("the region at {va} has no halves, or no other half in its vma");
    Failure::new(Errno::EINVAL, message)
}
