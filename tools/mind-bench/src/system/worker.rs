//! The bench's side of a worker: it sends tasks one by one. Dropping it kills the worker.

use std::{
    process::{Child, Command},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use mind_cli::{Interrupt, Interrupted};
use mind_workers::{Heard, Member, lines, member};

use super::task::{Answer, Task, WORKER};

/// How long a task may take before the bench gives up. Not a bound on performance.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the bench waits for.
#[derive(Debug)]
enum Event {
    /// The worker answered, or its output ended.
    Heard(Heard<Answer>),
    /// The bench was interrupted.
    Interrupted,
}

/// A running worker.
#[derive(Debug)]
pub(crate) struct Worker {
    member: Member,
    events: Receiver<Event>,
}

impl Worker {
    /// Starts this program as a worker with these arguments, by `spawn`, which decides where, and
    /// waits until it is ready.
    pub(crate) fn start(
        name: &str,
        args: impl IntoIterator<Item = String>,
        interrupt: &Interrupt,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let mut command =
            member::own_program(WORKER).context("cannot tell where this program lies")?;
        command.args(args);
        let mut worker = Self::of(name, command, interrupt, spawn)?;
        match worker.answer()? {
            Answer::Ready => Ok(worker),
            other => bail!("{name} is not ready but sent {other:?}"),
        }
    }

    fn of(
        name: &str,
        command: Command,
        interrupt: &Interrupt,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let (sender, events) = mpsc::channel();
        let to = sender.clone();
        // It may have ended.
        interrupt.on_interrupt(move || drop(to.send(Event::Interrupted)));
        let pass = move |heard| sender.send(Event::Heard(heard)).is_ok();
        let member = Member::start(name, command, spawn, lines::receive, pass)?;
        Ok(Self { member, events })
    }

    /// Sends a task and waits for the answer.
    pub(crate) fn ask(&mut self, task: &Task) -> Result<Answer> {
        self.begin(task)?;
        self.answer()
    }

    /// Sends a task, whose answer is [waited for](Self::answer) later.
    pub(crate) fn begin(&mut self, task: &Task) -> Result<()> {
        self.member
            .send(task)
            .with_context(|| format!("cannot send a task to {}", self.member.name()))
    }

    /// Sends a task that is answered with times.
    pub(crate) fn times(&mut self, task: &Task) -> Result<Vec<u64>> {
        match self.ask(task)? {
            Answer::Times { nanos } => Ok(nanos),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The error about an answer to something else.
    pub(crate) fn unexpected(&self, answer: &Answer) -> anyhow::Error {
        anyhow::anyhow!("{} answers something else: {answer:?}", self.member.name())
    }

    /// Waits for the answer to a task.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        match self.events.recv_timeout(PATIENCE) {
            Ok(Event::Heard(Heard::Said(answer))) => Ok(answer),
            Ok(Event::Heard(Heard::Silent(error))) => {
                Err(self.member.silent(error.as_ref()).into())
            }
            Ok(Event::Interrupted) => Err(Interrupted.into()),
            Err(RecvTimeoutError::Timeout) => bail!(
                "{} has not answered for {} s",
                self.member.name(),
                PATIENCE.as_secs()
            ),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the output of {} is not read", self.member.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(script: &str, interrupt: &Interrupt) -> Worker {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let spawn = |command: &mut Command| Ok(command.spawn()?);
        Worker::of("the worker on c7", command, interrupt, spawn).expect("there is a shell")
    }

    #[test]
    fn an_order_is_answered() {
        let script = r#"read task; echo '{"answer":"times","nanos":[3,4]}'; read more"#;
        let mut worker = worker(script, &Interrupt::default());
        let times = worker.times(&Task::Measure { count: 2 });
        assert_eq!(times.expect("it answers"), [3, 4]);
    }

    #[test]
    fn a_worker_that_dies_or_talks_nonsense_is_named() {
        let interrupt = Interrupt::default();
        let mut dead = worker("read task; kill -BUS $$", &interrupt);
        let error = dead.ask(&Task::Unmap).expect_err("it is dead");
        let text = error.to_string();
        assert!(
            text.starts_with("the worker on c7 died of SIGBUS"),
            "{text}"
        );
        let mut strange = worker("read task; echo nonsense; read more", &interrupt);
        let error = strange.ask(&Task::Unmap).expect_err("that is no answer");
        let text = format!("{error:#}");
        assert!(text.contains("c7 has invalid output") && text.contains("`nonsense`"));
        let mut other = worker(r#"echo '{"answer":"ready"}'; read more"#, &interrupt);
        let error = other.times(&Task::Unmap).expect_err("those are no times");
        assert!(error.to_string().contains("answers something else: Ready"));
    }
}
