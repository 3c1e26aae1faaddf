//! A worker as the bench sees it: a child process that is given orders one by one. One that is
//! dropped is killed.

use std::{
    io::{self, BufReader},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    interrupt::{Interrupt, Interrupted},
    order::{self, Answer, Order},
};

/// How long an order may take before the bench gives up. Not a bound on performance.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the bench waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// The worker answers.
    Answer(Answer),
    /// It says no more: it has ended, or what it said is not understood.
    Silent(Option<io::Error>),
    /// Somebody wants the bench to end.
    Interrupted,
}

/// A running worker.
#[derive(Debug)]
pub(super) struct Worker {
    /// For errors.
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<Event>,
}

impl Worker {
    /// Starts this program as a worker with these arguments, by `spawn`, which says where, and
    /// waits until it is ready.
    pub(super) fn start(
        name: &str,
        args: impl IntoIterator<Item = String>,
        interrupt: &Interrupt,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut command = Command::new(program);
        command
            .arg(super::WORKER)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // Ctrl-C at the terminal is for the bench, which ends its workers.
            .process_group(0);
        let child = spawn(&mut command).with_context(|| format!("cannot start {name}"))?;
        let mut worker = Self::of(name, child, interrupt)?;
        match worker.wait()? {
            Answer::Ready => Ok(worker),
            other => bail!("{name} is not ready but says {other:?}"),
        }
    }

    fn of(name: &str, mut child: Child, interrupt: &Interrupt) -> Result<Self> {
        let (sender, events) = mpsc::channel();
        interrupt.tell(sender.clone());
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let worker = Self {
            name: name.to_owned(),
            child,
            stdin,
            events,
        };
        let mut from = BufReader::new(stdout.context("a worker has no stdout")?);
        std::thread::Builder::new()
            .name("listener".into())
            .spawn(move || {
                loop {
                    let event = match order::receive(&mut from) {
                        Ok(Some(answer)) => Event::Answer(answer),
                        Ok(None) => Event::Silent(None),
                        Err(error) => Event::Silent(Some(error)),
                    };
                    let is_last = matches!(event, Event::Silent(_));
                    if sender.send(event).is_err() || is_last {
                        return;
                    }
                }
            })
            .context("cannot start a thread that listens to a worker")?;
        Ok(worker)
    }

    /// Gives an order and waits for the answer.
    pub(super) fn ask(&mut self, order: &Order) -> Result<Answer> {
        let stdin = self.stdin.as_mut().context("a worker has no stdin")?;
        match order::send(stdin, order) {
            // It has ended, and how says more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            result => result.with_context(|| format!("cannot tell {} what to do", self.name))?,
        }
        self.wait()
    }

    /// Gives an order that is answered with times.
    pub(super) fn times(&mut self, order: &Order) -> Result<Vec<u64>> {
        match self.ask(order)? {
            Answer::Times { nanos } => Ok(nanos),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The error about an answer to something else.
    pub(super) fn unexpected(&self, answer: &Answer) -> anyhow::Error {
        anyhow::anyhow!("{} answers something else: {answer:?}", self.name)
    }

    fn wait(&mut self) -> Result<Answer> {
        match self.events.recv_timeout(PATIENCE) {
            Ok(Event::Answer(answer)) => Ok(answer),
            Ok(Event::Interrupted) => Err(Interrupted.into()),
            Ok(Event::Silent(Some(error))) => {
                Err(error).with_context(|| format!("{} cannot be understood", self.name))
            }
            // Its stdout ends with it.
            Ok(Event::Silent(None)) => {
                let status = self.child.wait()?;
                bail!("{} ended ({status}) instead of an answer", self.name)
            }
            Err(RecvTimeoutError::Timeout) => bail!(
                "{} has not answered for {} s",
                self.name,
                PATIENCE.as_secs()
            ),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody listens to {}", self.name),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(script: &str, interrupt: &Interrupt) -> Worker {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        Worker::of("the worker on c7", child, interrupt).expect("it can be listened to")
    }

    #[test]
    fn an_order_is_answered() {
        let script = r#"read order; echo '{"answer":"times","nanos":[3,4]}'; read more"#;
        let mut worker = worker(script, &Interrupt::default());
        let times = worker.times(&Order::Measure { count: 2 });
        assert_eq!(times.expect("it answers"), [3, 4]);
    }

    #[test]
    fn a_worker_that_dies_or_talks_nonsense_is_named() {
        let interrupt = Interrupt::default();
        let mut dead = worker("read order; kill -BUS $$", &interrupt);
        let error = dead.ask(&Order::Unmap).expect_err("it is dead");
        let text = error.to_string();
        assert!(
            text.starts_with("the worker on c7 ended (signal: 7"),
            "{text}"
        );
        let mut strange = worker("read order; echo nonsense; read more", &interrupt);
        let error = strange.ask(&Order::Unmap).expect_err("that is no answer");
        let text = format!("{error:#}");
        assert!(text.contains("c7 cannot be understood") && text.contains("`nonsense`"));
        let mut other = worker(r#"echo '{"answer":"ready"}'; read more"#, &interrupt);
        let error = other.times(&Order::Unmap).expect_err("those are no times");
        assert!(error.to_string().contains("answers something else: Ready"));
    }
}
