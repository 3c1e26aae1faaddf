//! The tool's side of a worker: a child process, its output, and how it ends. Dropping it kills the
//! worker.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::lines;

/// Lines of a failed worker's stderr that its error shows.
const TAIL: usize = 20;

/// How long a worker may take to end after its stdin was closed, or it was killed.
pub const GRACE: Duration = Duration::from_secs(5);

/// What a worker's stdout is read from.
pub type Output = BufReader<ChildStdout>;

/// What is read from a worker.
#[derive(Debug)]
pub enum Heard<E> {
    /// A message.
    Said(E),
    /// The end of its output, or output that cannot be parsed.
    Silent(Option<io::Error>),
}

/// A worker that cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {name}")]
pub struct NotStarted {
    /// What it is called.
    pub name: String,
    /// Why.
    pub source: Box<dyn Error + Send + Sync>,
}

/// A worker that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {how}{}", shown(tail))]
pub struct Failed {
    /// What it is called.
    pub name: String,
    /// How it failed.
    pub how: String,
    /// The last lines of its stderr.
    pub tail: Vec<String>,
}

fn shown(tail: &[String]) -> String {
    if tail.is_empty() {
        return "; it wrote nothing to stderr".to_owned();
    }
    format!("; its stderr ends:\n  {}", tail.join("\n  "))
}

/// The command that starts this program once more, as the worker that `verb` stands for.
///
/// # Errors
///
/// When the path of this program cannot be found out.
pub fn own_program(verb: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(verb);
    Ok(command)
}

/// A running worker.
#[derive(Debug)]
pub struct Member {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: Option<JoinHandle<()>>,
    tail: Arc<Mutex<VecDeque<String>>>,
}

impl Member {
    /// Starts `command` by `spawn`, which decides where. `name` is for errors: `the worker on c1`.
    /// A thread reads its output by `read`, which returns `None` at the end, and passes it on by
    /// `pass` until that returns false.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start<E, S: Into<Box<dyn Error + Send + Sync>>>(
        name: &str,
        mut command: Command,
        spawn: impl FnOnce(&mut Command) -> Result<Child, S>,
        read: impl FnMut(&mut Output) -> io::Result<Option<E>> + Send + 'static,
        pass: impl FnMut(Heard<E>) -> bool + Send + 'static,
    ) -> Result<Self, NotStarted> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal is for the tool, which ends its workers.
            .process_group(0);
        let failed = |source| NotStarted {
            name: name.to_owned(),
            source,
        };
        let mut child = spawn(&mut command).map_err(|error| failed(error.into()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut member = Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            child,
            stderr: None,
            tail: Arc::default(),
        };
        match (stdout, stderr) {
            (Some(stdout), Some(stderr)) => member
                .listen(stdout, stderr, read, pass)
                .map_err(|error| failed(error.into()))?,
            _ => return Err(failed("it has no pipes".into())),
        }
        Ok(member)
    }

    fn listen<E>(
        &mut self,
        stdout: ChildStdout,
        stderr: ChildStderr,
        mut read: impl FnMut(&mut Output) -> io::Result<Option<E>> + Send + 'static,
        mut pass: impl FnMut(Heard<E>) -> bool + Send + 'static,
    ) -> io::Result<()> {
        std::thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                let mut from = BufReader::with_capacity(1 << 16, stdout);
                loop {
                    let heard = match read(&mut from) {
                        Ok(Some(said)) => Heard::Said(said),
                        Ok(None) => Heard::Silent(None),
                        Err(error) => Heard::Silent(Some(error)),
                    };
                    let is_last = matches!(heard, Heard::Silent(_));
                    if !pass(heard) || is_last {
                        return;
                    }
                }
            })?;
        let tail = Arc::clone(&self.tail);
        let thread = std::thread::Builder::new()
            .name("stderr".into())
            .spawn(move || keep_tail(BufReader::new(stderr), &tail))?;
        self.stderr = Some(thread);
        Ok(())
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends it a message, as a line of JSON.
    ///
    /// # Errors
    ///
    /// When it cannot be written. That the worker has ended is no error here: its end is read from
    /// its output.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.write(|stdin| lines::send(stdin, message))
    }

    /// Writes to its stdin.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn write(
        &mut self,
        what: impl FnOnce(&mut ChildStdin) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Ok(());
        };
        match what(stdin) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }

    /// The error about a worker whose output has ended: how it ended, and the end of its stderr.
    pub fn silent(&mut self, error: Option<&io::Error>) -> Failed {
        // One with invalid output may go on running.
        let limit = match error {
            Some(_) => Duration::from_millis(100),
            None => GRACE,
        };
        let how = match (self.wait(limit), error) {
            (Some(status), None) => Ended(status).to_string(),
            (Some(status), Some(error)) => {
                format!("has invalid output ({error}) and {}", Ended(status))
            }
            (None, Some(error)) => format!("has invalid output ({error})"),
            (None, None) => "closed its stdout and runs on".to_owned(),
        };
        self.failed(how)
    }

    /// Closes its stdin, at which it ends.
    pub fn dismiss(&mut self) {
        self.stdin.take();
    }

    /// Waits until it has ended after its stdin was closed.
    ///
    /// # Errors
    ///
    /// [`Failed`] if it does not, or not successfully.
    pub fn leave(mut self) -> Result<(), Failed> {
        self.dismiss();
        match self.wait(GRACE) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failed(Ended(status).to_string())),
            None => Err(self.failed("does not end when its stdin is closed".to_owned())),
        }
    }

    /// Kills it, without waiting for its end.
    pub fn kill(&mut self) {
        // It may have ended.
        self.child.kill().ok();
    }

    /// Waits for its end.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn failed(&mut self, how: String) -> Failed {
        // With the process, its end of the pipe is closed, and all it wrote has been read.
        if let Some(thread) = self
            .stderr
            .take_if(|_| matches!(self.child.try_wait(), Ok(Some(_))))
        {
            thread.join().ok();
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        Failed {
            name: self.name.clone(),
            how,
            tail: tail.iter().cloned().collect(),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
        if self.wait(GRACE).is_none() {
            tracing::error!("{} does not end by SIGKILL", self.name);
        }
    }
}

/// Closes all workers' stdin, and waits until they have ended.
///
/// # Errors
///
/// [`Failed`] for one that does not, or not successfully.
pub fn dismiss(mut members: Vec<Member>) -> Result<(), Failed> {
    members.iter_mut().for_each(Member::dismiss);
    members.into_iter().try_for_each(Member::leave)
}

fn keep_tail(from: impl BufRead, tail: &Mutex<VecDeque<String>>) {
    for line in from.split(b'\n').map_while(Result::ok) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(String::from_utf8_lossy(&line).into_owned());
    }
}

/// How a process ended, in words.
struct Ended(ExitStatus);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SIGBUS: i32 = 7;
        const SIGKILL: i32 = 9;
        const SIGSEGV: i32 = 11;
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "ended with code {code}"),
            (None, Some(SIGBUS)) => write!(f, "died of SIGBUS: its memory could not be reached"),
            (None, Some(SIGSEGV)) => write!(f, "died of SIGSEGV: it may not access that memory"),
            (None, Some(SIGKILL)) => write!(f, "died of SIGKILL"),
            (None, Some(signal)) => write!(f, "died of signal {signal}"),
            (None, None) => write!(f, "ended: {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver};

    /// A worker that is a shell script, and its output.
    fn member(script: &str) -> (Member, Receiver<Heard<String>>) {
        let (sender, heard) = mpsc::channel();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let pass = move |heard| sender.send(heard).is_ok();
        let member = Member::start(
            "the worker on c7",
            command,
            Command::spawn,
            lines::receive,
            pass,
        );
        (member.unwrap(), heard)
    }

    fn failure(script: &str) -> String {
        let (mut member, heard) = member(script);
        loop {
            if let Heard::Silent(error) = heard.recv().unwrap() {
                return member.silent(error.as_ref()).to_string();
            }
        }
    }

    #[test]
    fn a_failed_workers_error_names_blade_end_and_last_words() {
        assert_eq!(
            failure("echo one >&2; echo two >&2; exit 5"),
            "the worker on c7 ended with code 5; its stderr ends:\n  one\n  two"
        );
        assert_eq!(
            failure("kill -BUS $$"),
            "the worker on c7 died of SIGBUS: its memory could not be reached; it wrote nothing \
             to stderr"
        );
        let text =
            failure("i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; exit 1");
        assert!(
            text.ends_with("\n  line 48\n  line 49") && !text.contains("line 29"),
            "{text}"
        );
    }

    #[test]
    fn a_worker_that_talks_nonsense_is_quoted() {
        let text = failure("echo nonsense; exit 0");
        assert!(
            text.contains("has invalid output (unexpected message `nonsense`"),
            "{text}"
        );
    }

    #[test]
    fn a_worker_answers_and_leaves_with_the_end_of_its_stdin() {
        let (mut member, heard) = member("read order; echo $order; cat");
        member.send(&"hello").unwrap();
        let answer = heard.recv().unwrap();
        assert!(
            matches!(&answer, Heard::Said(said) if said == "hello"),
            "{answer:?}"
        );
        dismiss(vec![member]).expect("it ends with its stdin");
    }

    #[test]
    fn a_worker_that_is_gone_when_it_is_told_something_is_heard_of() {
        let (mut member, heard) = member("exit 4");
        assert!(matches!(heard.recv().unwrap(), Heard::Silent(None)));
        member.send(&"too late").unwrap();
        assert!(member.silent(None).to_string().contains("code 4"));
    }

    #[test]
    fn a_dropped_worker_is_dead() {
        let (member, heard) = member("exec sleep 1000");
        drop(member);
        let last = heard.recv_timeout(GRACE).unwrap();
        assert!(matches!(last, Heard::Silent(None)), "{last:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let command = Command::new("/nonexistent");
        let read = |_: &mut Output| Ok(None::<()>);
        let error = Member::start("the worker on c7", command, Command::spawn, read, |_| true)
            .expect_err("there is no such program");
        assert_eq!(error.to_string(), "cannot start the worker on c7");
        assert!(error.source().is_some());
    }
}
