//! The workers of a run: one on each blade, all of which run each batch, and the outcomes of their answers.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::process::Command;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use fastrand::Rng;
use mind_cli::{Interrupt, Interrupted};
use mind_workers::{Failed, Heard, Member, NotStarted, lines, member};
use netns_setup::{Kind, Testbed};

use super::barrier::{Shared, StepCounter};
use super::gather::{self, Mismatch};
use super::job::{Answer, Job, JobError, Seen};
use super::layout::{ARENA_BYTES, Layout, TooManyVariables};
use super::worker::{PATIENCE, VERB};
use crate::{
    histogram::Histogram,
    runner::{Runner, Unable},
    test::Test,
};

/// Added to the workers' own patience, so that they can name the participant that they wait for.
const AFTER_PATIENCE: Duration = Duration::from_secs(10);

/// Where participants run.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'t> {
    /// On all compute blades of a testbed, in memory of a protection domain.
    Blades(&'t Testbed),
    /// So many on this machine, in its own memory: what MIND is to be like.
    Machine(usize),
}

impl Stage<'_> {
    const fn name(self) -> &'static str {
        match self {
            Self::Blades(_) => "blades",
            Self::Machine(_) => "this machine",
        }
    }

    /// The participants' names.
    pub fn participants(self) -> Vec<String> {
        match self {
            Self::Blades(testbed) => {
                let blades = testbed.plan().of_kind(Kind::Compute);
                blades.map(|blade| blade.name.clone()).collect()
            }
            Self::Machine(count) => (0..count).map(|number| format!("p{number}")).collect(),
        }
    }
}

/// A test that needs more blades than there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the test `{test}` has {threads} threads, each for another compute blade; the testbed has \
     {blades}: `netns-setup down` and `netns-setup up --compute {threads}` make one that has enough"
)]
pub struct TooFewBlades {
    /// Its name.
    pub test: String,
    /// How many it has.
    pub threads: usize,
    /// How many there are.
    pub blades: usize,
}

/// Whether there is a blade for each thread.
fn enough(test: &Test, blades: usize) -> Result<(), TooFewBlades> {
    let threads = test.threads().len();
    if threads <= blades {
        return Ok(());
    }
    Err(TooFewBlades {
        test: test.name().to_owned(),
        threads,
        blades,
    })
}

/// Why a batch was not run.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// The memory of the step counters cannot be made.
    #[error("cannot make the memory of the step counters")]
    Memory(#[source] io::Error),
    /// A worker does not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// A worker has ended.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// A job cannot be sent to a worker.
    #[error("cannot send a job to {name}")]
    Tell {
        /// Which.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A worker sent an unexpected message.
    #[error("{name} sent {said:?}, which is not expected")]
    Unexpected {
        /// Which.
        name: String,
        /// What.
        said: Answer,
    },
    /// A worker did not answer.
    #[error("no answer for {} s from {}", patience.as_secs(), names.join(", "))]
    Late {
        /// Those that have not answered.
        names: Vec<String>,
        /// How long they had.
        patience: Duration,
    },
    /// The run was interrupted.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The test does not fit.
    #[error(transparent)]
    Variables(#[from] TooManyVariables),
    /// The job is invalid.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The answers do not fit together.
    #[error("{name} does not fit the plan")]
    Mismatch {
        /// Whose.
        name: String,
        /// What does not fit.
        source: Mismatch,
    },
}

/// An event that is waited for.
#[derive(Debug)]
enum Happening {
    Heard(usize, Heard<Answer>),
    Interrupted,
}

/// All workers. They are killed with this value.
#[derive(Debug)]
pub struct Workers {
    stage: &'static str,
    names: Vec<String>,
    members: Vec<Member>,
    happenings: Receiver<Happening>,
    interrupt: Interrupt,
    random: Rng,
    /// The last step to which participants have come.
    step: u64,
    /// Memory that workers open by a path of this process.
    shared: Vec<Shared>,
}

impl Workers {
    /// Starts a worker for each participant of `stage`, and waits until all have their memory. Random choices are drawn
    /// from `seed`.
    ///
    /// # Errors
    ///
    /// If a worker does not start or has no memory.
    pub fn start(stage: Stage<'_>, seed: u64, interrupt: &Interrupt) -> Result<Self, WorkersError> {
        let names = stage.participants();
        let step_counters = Shared::new(
            "litmus-step_counters",
            names.len() * size_of::<StepCounter>(),
        )
        .map_err(WorkersError::Memory)?;
        let mut shared = vec![step_counters];
        let tested = match stage {
            // A name that no other run has.
            Stage::Blades(_) => format!("--domain=litmus-{}", std::process::id()),
            Stage::Machine(_) => {
                let own = Shared::new("litmus", ARENA_BYTES).map_err(WorkersError::Memory)?;
                let argument = format!("--own={}", own.path().display());
                shared.push(own);
                argument
            }
        };
        let (sender, happenings) = mpsc::channel();
        let to = sender.clone();
        // The receiver is gone if there is an error.
        interrupt.on_interrupt(move || drop(to.send(Happening::Interrupted)));
        let mut workers = Self {
            stage: stage.name(),
            members: Vec::new(),
            happenings,
            interrupt: interrupt.clone(),
            random: Rng::with_seed(seed),
            step: 0,
            names,
            shared,
        };
        for (number, participant) in workers.names.iter().enumerate() {
            let name = format!("the worker on {participant}");
            let mut command = member::own_program(VERB).map_err(|source| NotStarted {
                name: name.clone(),
                source: source.into(),
            })?;
            command
                .arg(format!("--number={number}"))
                .arg(format!("--names={}", workers.names.join(",")))
                .arg(format!(
                    "--step-counters={}",
                    workers.shared[0].path().display()
                ))
                .arg(&tested);
            let spawn = |command: &mut Command| -> Result<_, Box<dyn Error + Send + Sync>> {
                Ok(match stage {
                    Stage::Blades(testbed) => testbed.spawn(participant, command)?,
                    Stage::Machine(_) => command.spawn()?,
                })
            };
            let to = sender.clone();
            let pass = move |heard| to.send(Happening::Heard(number, heard)).is_ok();
            let member = Member::start(&name, command, spawn, lines::receive, pass)?;
            workers.members.push(member);
        }
        for (member, answer) in workers.answers()? {
            if answer != Answer::Ready {
                return Err(workers.unexpected(member, answer));
            }
        }
        Ok(workers)
    }

    /// Checks that there are enough participants and room for a test.
    fn check(&self, test: &Test, layout: Layout) -> Result<(), Unable> {
        self.interrupt.check()?;
        enough(test, self.names.len()).map_err(|error| Unable::Test(error.into()))?;
        let copies = layout.copies(test.name(), test.memory().len());
        copies.map_err(|error| Unable::Test(error.into()))?;
        Ok(())
    }

    /// Runs copies of a test, batch by batch.
    ///
    /// # Errors
    ///
    /// If not all were run to their end.
    pub fn run(
        &mut self,
        test: &Test,
        layout: Layout,
        copies: u64,
    ) -> Result<Histogram, WorkersError> {
        let most = layout.copies(test.name(), test.memory().len())?;
        let mut histogram = Histogram::default();
        let mut left = copies;
        while left > 0 {
            let batch = usize::try_from(left).unwrap_or(most).min(most);
            let seen = self.run_batch(test, layout, batch)?;
            for (outcome, count) in seen.iter() {
                histogram.add(outcome.clone(), count);
            }
            left -= batch as u64;
        }
        Ok(histogram)
    }

    /// Runs a batch.
    fn run_batch(
        &mut self,
        test: &Test,
        layout: Layout,
        copies: usize,
    ) -> Result<Histogram, WorkersError> {
        let job = Job {
            test: test.to_string(),
            layout,
            copies,
            seed: self.random.u64(..),
            step: self.step,
        };
        let (_, plan) = job.plan(self.names.len())?;
        for member in &mut self.members {
            member.send(&job).map_err(|source| WorkersError::Tell {
                name: member.name().to_owned(),
                source,
            })?;
        }
        self.step = job.last_step();
        let mut seen = vec![Seen::default(); self.members.len()];
        for (member, answer) in self.answers()? {
            match answer {
                Answer::ThreadRun(ran) => seen[member] = ran,
                other @ Answer::Ready => return Err(self.unexpected(member, other)),
            }
        }
        gather::gather(test, &plan, &seen).map_err(|source| WorkersError::Mismatch {
            name: self.members[source.participant].name().to_owned(),
            source,
        })
    }

    /// Waits until each worker has answered.
    fn answers(&mut self) -> Result<Vec<(usize, Answer)>, WorkersError> {
        let patience = PATIENCE + AFTER_PATIENCE;
        let mut answers: Vec<Option<Answer>> = vec![None; self.members.len()];
        while answers.iter().any(Option::is_none) {
            match self.happenings.recv_timeout(patience) {
                Ok(Happening::Heard(member, Heard::Said(answer))) => {
                    if let Some(first) = answers[member].replace(answer) {
                        return Err(self.unexpected(member, first));
                    }
                }
                Ok(Happening::Heard(member, Heard::Silent(error))) => {
                    return Err(self.members[member].silent(error.as_ref()).into());
                }
                Ok(Happening::Interrupted) => return Err(Interrupted.into()),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let members = self.members.iter().zip(&answers);
                    let late = members.filter(|(_, answer)| answer.is_none());
                    return Err(WorkersError::Late {
                        names: late.map(|(member, _)| member.name().to_owned()).collect(),
                        patience,
                    });
                }
            }
        }
        Ok(answers.into_iter().flatten().enumerate().collect())
    }

    fn unexpected(&self, member: usize, said: Answer) -> WorkersError {
        WorkersError::Unexpected {
            name: self.members[member].name().to_owned(),
            said,
        }
    }

    /// Ends all workers, and waits until they have ended.
    ///
    /// # Errors
    ///
    /// [`Failed`] for one that does not, or not well.
    pub fn dismiss(mut self) -> Result<(), Failed> {
        member::dismiss(std::mem::take(&mut self.members))
    }
}

/// Runs tests on workers, with one layout.
#[derive(Clone, Debug)]
pub struct Blades {
    workers: Rc<RefCell<Workers>>,
    stage: &'static str,
    layout: Layout,
}

impl Blades {
    /// A runner with that layout.
    pub fn new(workers: &Rc<RefCell<Workers>>, layout: Layout) -> Self {
        Self {
            workers: Rc::clone(workers),
            stage: workers.borrow().stage,
            layout,
        }
    }
}

impl Runner for Blades {
    fn setting(&self) -> String {
        format!("{}, {}", self.stage, self.layout)
    }

    fn check(&self, test: &Test) -> Result<(), Unable> {
        self.workers.borrow().check(test, self.layout)
    }

    fn run(&mut self, test: &Test, copies: u64) -> Result<Histogram, Unable> {
        let mut workers = self.workers.borrow_mut();
        Ok(workers.run(test, self.layout, copies)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family;

    #[test]
    fn a_test_with_too_many_threads_is_named() {
        let named = |name: &str| family::test(&family::named(name).unwrap()).unwrap();
        assert_eq!(enough(&named("IRIW"), 4), Ok(()));
        assert_eq!(enough(&named("SB"), 2), Ok(()));
        let error = enough(&named("IRIW"), 2).unwrap_err().to_string();
        assert!(
            error.contains("`IRIW` has 4 threads") && error.contains("up --compute 4`"),
            "{error}"
        );
    }
}
