//! The workers as the demo sees them: child processes in the blades' namespaces, what they say, and
//! how they end. A crew that is dropped is killed.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufReader, BufWriter};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use netns_setup::Testbed;

use crate::graph::Graph;
use crate::job::{self, Event, Job, LOADER};

/// Lines of a failed worker's stderr that its error shows.
const TAIL: usize = 20;

/// How long a worker may take to end once it was told to, or killed.
const GRACE: Duration = Duration::from_secs(5);

/// What the demo waits for.
#[derive(Debug)]
pub enum Happening {
    /// A worker reports, with the ranks if it is done and tells them.
    Event(usize, Event, Vec<f64>),
    /// A worker says no more: it has ended, or what it said is not understood.
    Silent(usize, Option<io::Error>),
    /// Somebody wants the demo to end.
    Interrupted,
}

/// A worker that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker on {blade} {how}{}", shown(tail))]
pub struct Failed {
    /// The blade.
    pub blade: String,
    /// What became of it.
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

/// One worker.
struct Member {
    blade: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: Option<JoinHandle<()>>,
    tail: Arc<Mutex<VecDeque<String>>>,
}

/// All workers.
pub struct Crew {
    members: Vec<Member>,
}

impl Crew {
    /// Starts a worker on each of `blades`, all with the same job but for their number, and lets
    /// them report to `to`.
    ///
    /// # Errors
    ///
    /// When a worker can't be started.
    pub fn start(
        testbed: &Testbed,
        blades: &[String],
        job: &Job,
        graph: &Graph,
        to: &Sender<Happening>,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut crew = Self {
            members: Vec::new(),
        };
        for (worker, blade) in blades.iter().enumerate() {
            let mut command = Command::new(&program);
            command
                .arg("worker")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Ctrl-C at the terminal is for the demo, which ends its workers.
                .process_group(0);
            let child = testbed
                .spawn(blade, &mut command)
                .with_context(|| format!("cannot start the worker on {blade}"))?;
            let member = Member::new(blade.clone(), child);
            crew.members.push(member);
            let member = &mut crew.members[worker];
            member.listen(worker, to.clone())?;
            let job = Job {
                worker,
                ..job.clone()
            };
            match member.brief(&job, graph) {
                // It has ended before it read everything, and how it ended says more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                result => {
                    result.with_context(|| format!("cannot tell the worker on {blade} its job"))?;
                }
            }
        }
        Ok(crew)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The error about a worker that says no more: how it ended, and its last words.
    pub fn silent(&mut self, worker: usize, error: Option<&io::Error>) -> Failed {
        let member = &mut self.members[worker];
        let how = match (member.wait(GRACE), error) {
            (Some(status), None) => Ended(status).to_string(),
            (Some(status), Some(error)) => {
                format!("cannot be understood ({error}) and {}", Ended(status))
            }
            (None, Some(error)) => format!("cannot be understood ({error})"),
            (None, None) => "closed its stdout and runs on".to_owned(),
        };
        member.failed(how)
    }

    /// The error about workers that have shown no life for `patience`: those that are not `done`.
    pub fn late(&self, done: impl Fn(usize) -> bool, patience: Duration) -> anyhow::Error {
        let members = self.members.iter().enumerate();
        let late = members.filter(|(worker, _)| !done(*worker));
        let names: Vec<_> = late.map(|(_, member)| member.blade.as_str()).collect();
        anyhow::anyhow!(
            "no worker has shown life for {} s; unfinished: {}; --patience SECONDS waits longer",
            patience.as_secs_f64(),
            names.join(", ")
        )
    }

    /// Tells all workers to leave, and waits until they have.
    ///
    /// # Errors
    ///
    /// [`Failed`] for one that does not, or not well.
    pub fn dismiss(mut self) -> Result<(), Failed> {
        for member in &mut self.members {
            member.stdin.take();
        }
        for member in &mut self.members {
            match member.wait(GRACE) {
                Some(status) if status.success() => {}
                Some(status) => return Err(member.failed(Ended(status).to_string())),
                None => return Err(member.failed("does not leave when it is told to".to_owned())),
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may have ended, which is what is wanted.
            member.child.kill().ok();
        }
        for member in &mut self.members {
            if member.wait(GRACE).is_none() {
                tracing::error!(blade = member.blade, "a worker does not end by SIGKILL");
            }
        }
    }
}

impl Member {
    fn new(blade: String, mut child: Child) -> Self {
        Self {
            stdin: child.stdin.take(),
            blade,
            child,
            stderr: None,
            tail: Arc::default(),
        }
    }

    /// Starts the threads that listen to it.
    fn listen(&mut self, worker: usize, to: Sender<Happening>) -> Result<()> {
        let (Some(stdout), Some(stderr)) = (self.child.stdout.take(), self.child.stderr.take())
        else {
            anyhow::bail!("the worker on {} has no pipes", self.blade);
        };
        std::thread::Builder::new()
            .name(format!("stdout-{}", self.blade))
            .spawn(move || {
                let mut from = BufReader::with_capacity(1 << 16, stdout);
                let end = events(&mut from, |event, ranks| {
                    // Nobody listens once the demo is over.
                    to.send(Happening::Event(worker, event, ranks)).is_ok()
                });
                to.send(Happening::Silent(worker, end.err())).ok();
            })
            .context("cannot start a thread for a worker's stdout")?;
        let tail = Arc::clone(&self.tail);
        let thread = std::thread::Builder::new()
            .name(format!("stderr-{}", self.blade))
            .spawn(move || keep_tail(BufReader::new(stderr), &tail))
            .context("cannot start a thread for a worker's stderr")?;
        self.stderr = Some(thread);
        Ok(())
    }

    fn brief(&mut self, job: &Job, graph: &Graph) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut to = BufWriter::with_capacity(1 << 16, stdin);
        job::send(&mut to, job)?;
        if job.worker == LOADER {
            graph.write_to(&mut to)?;
        }
        Ok(())
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
            blade: self.blade.clone(),
            how,
            tail: tail.iter().cloned().collect(),
        }
    }
}

/// Passes a worker's events on until there are no more, or `pass` has enough.
fn events(
    from: &mut BufReader<impl io::Read>,
    mut pass: impl FnMut(Event, Vec<f64>) -> bool,
) -> io::Result<()> {
    while let Some(event) = job::receive::<Event>(from)? {
        let ranks = match &event {
            Event::Done(done) => job::receive_ranks(from, done.ranks)?,
            _ => Vec::new(),
        };
        if !pass(event, ranks) {
            break;
        }
    }
    Ok(())
}

fn keep_tail(from: impl io::BufRead, tail: &Mutex<VecDeque<String>>) {
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
    use std::sync::mpsc;

    /// A crew of one that runs a shell script.
    fn crew(script: &str, to: &Sender<Happening>) -> Crew {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut member = Member::new("c7".to_owned(), child);
        member.listen(0, to.clone()).unwrap();
        Crew {
            members: vec![member],
        }
    }

    fn failure(script: &str) -> String {
        let (to, happenings) = mpsc::channel();
        let mut crew = crew(script, &to);
        loop {
            if let Happening::Silent(0, error) = happenings.recv().unwrap() {
                return crew.silent(0, error.as_ref()).to_string();
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
            text.contains("cannot be understood (unexpected message `nonsense`"),
            "{text}"
        );
    }

    #[test]
    fn events_arrive_in_order() {
        let (to, happenings) = mpsc::channel();
        let crew = crew(r#"echo '{"event":"attached"}'; cat"#, &to);
        let first = happenings.recv().unwrap();
        assert!(
            matches!(first, Happening::Event(0, Event::Attached, _)),
            "{first:?}"
        );
        assert_eq!(crew.len(), 1);
        crew.dismiss().expect("it leaves with the end of its stdin");
    }

    #[test]
    fn a_dropped_crew_is_dead() {
        let (to, happenings) = mpsc::channel();
        drop(crew("exec sleep 1000", &to));
        let last = happenings.recv_timeout(GRACE).unwrap();
        assert!(matches!(last, Happening::Silent(0, None)), "{last:?}");
    }
}
