//! A program's script, run in a folder of its own.

use std::{
    ffi::OsString,
    fs::File,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_cli::Interrupt;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use tempfile::TempDir;

use crate::{catalogue::Program, memory::Watch};

/// How often the memory of a run is looked at; there is no event for its growth.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// The variable that names a folder of more programs: `cargo xtask test` and `cargo xtask programs` set it.
const UNPACKED: &str = "MIND_COMPANIONS";

/// The end of what a run has complained about that an error shows, in bytes.
const LAST_WORDS: usize = 2_000;

/// A program with its input, in a folder that goes with it.
#[derive(Debug)]
pub struct Prepared<'a> {
    program: &'a Program,
    scale: u32,
    watch: Watch,
    folder: TempDir,
}

/// What a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What it has printed.
    pub answer: Vec<u8>,
    /// How long it took.
    pub took: Duration,
    /// The most memory of this machine, in bytes without a file, that programs after `$RUN` and what they started had at
    /// one time, as far as looks at it have seen.
    pub memory: u64,
}

/// How a run is started, and until when it may go on.
#[derive(Clone, Debug)]
pub struct Limits<'a> {
    /// How long it may take.
    pub patience: Duration,
    /// What ends it early.
    pub interrupt: &'a Interrupt,
}

impl<'a> Prepared<'a> {
    /// Makes the input of a program that is to do so much.
    ///
    /// # Errors
    ///
    /// When the script fails, as where something that it needs is not on the machine.
    pub fn new(program: &'a Program, scale: u32, limits: &Limits<'_>) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let watch = Watch::new(folder.path().join("watched"));
        let prepared = Self {
            program,
            scale,
            watch: watch.context("cannot write a script")?,
            folder,
        };
        prepared
            .call("prepare", "", limits, Command::spawn)
            .with_context(|| format!("cannot prepare {}", program.name))?;
        Ok(prepared)
    }

    /// Runs it in local memory.
    ///
    /// # Errors
    ///
    /// When it fails, or takes too long.
    pub fn run(&self, limits: &Limits<'_>) -> Result<Outcome> {
        self.call("run", self.watch.path(), limits, Command::spawn)
            .with_context(|| format!("{} in local memory", self.program.name))
    }

    /// Runs it by `mind run`, whose file is `mind` and whose options are `options`; `spawn` starts it on a blade.
    ///
    /// # Errors
    ///
    /// When it fails, or takes too long.
    pub fn run_on_blade<E>(
        &self,
        mind: &Path,
        options: &str,
        limits: &Limits<'_>,
        spawn: impl FnOnce(&mut Command) -> Result<Child, E>,
    ) -> Result<Outcome>
    where
        anyhow::Error: From<E>,
    {
        let run = format!("{} {} run {options} --", self.watch.path(), mind.display());
        self.call("run", &run, limits, spawn)
            .with_context(|| format!("{} by `mind run`", self.program.name))
    }

    fn call<E>(
        &self,
        function: &str,
        run: &str,
        limits: &Limits<'_>,
        spawn: impl FnOnce(&mut Command) -> Result<Child, E>,
    ) -> Result<Outcome>
    where
        anyhow::Error: From<E>,
    {
        let folder = self.folder.path();
        let [answer, complaints] = ["answer", "complaints"].map(|name| folder.join(name));
        let script = format!("{}\n{function}\n", self.program.script);
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(folder)
            .env("SCALE", self.scale.to_string())
            .env("LC_ALL", "C")
            .env("PATH", path()?)
            .env("RUN", run)
            .stdin(Stdio::null())
            .stdout(create(&answer)?)
            .stderr(create(&complaints)?)
            .process_group(0);
        self.watch.forget();
        let start = Instant::now();
        let child = spawn(&mut command).map_err(anyhow::Error::from)?;
        let memory = Running(child).wait(&self.watch, limits, &complaints)?;
        let took = start.elapsed();
        let answer = std::fs::read(&answer).context("cannot read what it has printed")?;
        Ok(Outcome {
            answer,
            took,
            memory,
        })
    }
}

/// Where programs are found: last, in the folder of those that are not installed, as it may have no more than a part of
/// what belongs to them.
fn path() -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = std::env::var_os(UNPACKED).map(PathBuf::from);
    let all = std::env::split_paths(&path).chain(unpacked);
    std::env::join_paths(all).with_context(|| format!("{UNPACKED} has a colon in it"))
}

fn create(path: &PathBuf) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// A running script; whatever it has started ends with it.
struct Running(Child);

impl Running {
    fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        pid.context("a process has no number")
    }

    /// Waits for its end. The most memory that its processes had.
    fn wait(mut self, watch: &Watch, limits: &Limits<'_>, complaints: &Path) -> Result<u64> {
        let pid = self.pid()?;
        let end = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process")?;
        let start = Instant::now();
        let mut most = 0;
        loop {
            let mut fds = [PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
            if poll(&mut fds, Some(&LOOK)).context("cannot wait for a process")? > 0 {
                break;
            }
            most = most.max(watch.anonymous());
            limits.interrupt.check()?;
            if start.elapsed() > limits.patience {
                bail!(
                    "has not ended after {:.0} s{}",
                    limits.patience.as_secs_f64(),
                    last_words(complaints)
                );
            }
        }
        let status = self.0.wait().context("cannot wait for a process")?;
        ensure!(
            status.success(),
            "ends with {status}{}",
            last_words(complaints)
        );
        Ok(most)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(pid) = self.pid() {
            // What the script has left in the background is in its group.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// The end of what a run has complained about.
fn last_words(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]);
    match text.trim() {
        "" => String::new(),
        text => format!("; it has said:\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(interrupt: &Interrupt) -> Limits<'_> {
        Limits {
            patience: Duration::from_secs(60),
            interrupt,
        }
    }

    fn program(script: &'static str) -> Program {
        Program {
            name: "test",
            script,
            scale: 1,
        }
    }

    #[test]
    fn a_run_finds_what_was_prepared_and_its_answer_is_kept() {
        let interrupt = Interrupt::default();
        let program = program("prepare() { echo $((SCALE * 2)) > input; }\nrun() { cat input; }");
        let prepared = Prepared::new(&program, 21, &limits(&interrupt)).unwrap();
        let outcome = prepared.run(&limits(&interrupt)).unwrap();
        assert_eq!(outcome.answer, b"42\n");
    }

    #[test]
    fn its_failure_comes_with_its_last_words() {
        let interrupt = Interrupt::default();
        let program = program("prepare() { :; }\nrun() { echo no luck >&2; false; echo yes; }");
        let prepared = Prepared::new(&program, 1, &limits(&interrupt)).unwrap();
        let error = format!("{:#}", prepared.run(&limits(&interrupt)).unwrap_err());
        assert!(
            error.contains("test in local memory: ends with exit status: 1"),
            "{error}"
        );
        assert!(error.ends_with("no luck"), "{error}");
    }

    #[test]
    fn what_takes_too_long_is_ended_with_what_it_started() {
        let interrupt = Interrupt::default();
        let program = program("prepare() { :; }\nrun() { sleep 1000 & echo $! > pid; wait; }");
        let mut limits = limits(&interrupt);
        let prepared = Prepared::new(&program, 1, &limits).unwrap();
        limits.patience = Duration::from_secs(1);
        let error = prepared.run(&limits).unwrap_err();
        assert!(
            format!("{error:#}").contains("has not ended after 1 s"),
            "{error:#}"
        );
        let pid = std::fs::read_to_string(prepared.folder.path().join("pid")).unwrap();
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // It has ended, though its new parent may not have waited for it yet.
        assert!(state.is_err() || state.unwrap().contains(") Z "));
        let interrupted = Interrupt::default();
        interrupted.happen();
        limits.interrupt = &interrupted;
        assert!(
            prepared
                .run(&limits)
                .unwrap_err()
                .is::<mind_cli::Interrupted>()
        );
    }

    #[test]
    fn memory_of_the_program_counts_and_of_what_it_starts_but_not_that_of_others() {
        let interrupt = Interrupt::default();
        // What is kept, until no more comes: 20 MB.
        const KEEPS: &str =
            "(head -c 20000000 /dev/zero; sleep 1) | $RUN sh -c 'tail -c 20000000; :' | sha256sum";
        for (script, counts) in [(KEEPS, true), (KEEPS.replace("$RUN", "").leak(), false)] {
            let script = format!("prepare() {{ :; }}\nrun() {{ {script}; }}").leak();
            let program = program(script);
            let prepared = Prepared::new(&program, 1, &limits(&interrupt)).unwrap();
            let outcome = prepared.run(&limits(&interrupt)).unwrap();
            assert_eq!(outcome.memory >= 20_000_000, counts, "{}", outcome.memory);
        }
    }
}
