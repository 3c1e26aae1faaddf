//! A program on a blade. It writes its messages in lines, and reads its instructions in lines: no test waits by the
//! clock.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use crate::{Bed, bed, patience};

/// The executable; what it can do is in `src/program/main.rs`.
pub const NAME: &str = "mind-e2e-program";

/// How many times longer a program may take that reports its progress.
const LINES: u32 = 10;

/// A running program.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The last line that was waited for.
    last: Option<String>,
}

impl Program {
    /// Starts the tests' program on a blade.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(bed: &Bed, blade: &str, arguments: &str) -> Result<Self> {
        Self::run(bed, blade, NAME, arguments)
    }

    /// Starts the program called `name`, which lies beside the daemons, on a blade.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn run(bed: &Bed, blade: &str, name: &str, arguments: &str) -> Result<Self> {
        let program = bed::need(&bed::programs()?, name)?;
        Self::execute(bed, blade, &program, arguments)
    }

    /// Starts the program in the file `program` on a blade.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn execute(bed: &Bed, blade: &str, program: &Path, arguments: &str) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().display();
        let mut command = Command::new(program);
        command
            .args(arguments.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = bed.testbed().spawn(blade, &mut command)?;
        let stdout = child.stdout.take().context("no pipe from the program")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            name: format!("`{name} {arguments}` on {blade}"),
            stdin: child.stdin.take(),
            child,
            lines,
            last: None,
        })
    }

    /// Waits for the next line.
    ///
    /// # Errors
    ///
    /// When it ends or writes nothing.
    pub fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(patience()) {
            Ok(line) => {
                self.last = Some(line.clone());
                Ok(line)
            }
            Err(RecvTimeoutError::Timeout) => bail!("{} says nothing", self.name),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("{} ended with {status} instead of a line", self.name)
            }
        }
    }

    /// The next line, if it is there; `None` otherwise.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn try_line(&mut self) -> Result<Option<String>> {
        match self.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("{} ended with {status}", self.name)
            }
        }
    }

    /// Waits for exactly this line.
    ///
    /// # Errors
    ///
    /// When it writes something else, or nothing.
    pub fn expect(&mut self, text: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(
            line == text,
            "{} says `{line}` instead of `{text}`",
            self.name
        );
        Ok(())
    }

    /// Waits until it is ready, then lets it go on.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn go(&mut self) -> Result<()> {
        self.expect("ready")?;
        self.send("go")
    }

    /// Sends it a line.
    ///
    /// # Errors
    ///
    /// When it does not read any more.
    pub fn send(&mut self, text: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its input is closed")?;
        writeln!(stdin, "{text}").with_context(|| format!("{} does not read its input", self.name))
    }

    /// Closes its input.
    pub fn dismiss(&mut self) {
        self.stdin.take();
    }

    /// Whether it has ended.
    ///
    /// # Errors
    ///
    /// When that cannot be found out.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end. A program that reports its progress gets more time with each line, within [`LINES`].
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let limit = Instant::now() + patience() * LINES;
        // Its output ends with it.
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(patience())) {
                Ok(line) => {
                    println!("{}: {line}", self.name);
                    self.last = Some(line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let last = self.last.as_deref().unwrap_or("nothing");
                    bail!("{} does not end; the last it said is `{last}`", self.name)
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(self.child.wait()?),
            }
        }
    }

    /// Waits for its end, which must be successful.
    ///
    /// # Errors
    ///
    /// When it fails or does not end.
    pub fn succeed(&mut self) -> Result<()> {
        let status = self.end()?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    /// Waits for its end, which must be by this signal.
    ///
    /// # Errors
    ///
    /// When it ends otherwise or not.
    pub fn die_of(mut self, signal: i32) -> Result<()> {
        let status = self.end()?;
        ensure!(
            status.signal() == Some(signal),
            "{} ended with {status} instead of by signal {signal}",
            self.name
        );
        Ok(())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}", self.name);
        }
        // It is this process's child, which is not waited for yet: its number is not used again.
        rustix::process::kill_process(Pid::from_child(&self.child), signal)?;
        Ok(())
    }

    /// Kills it.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        let status = self.child.wait()?;
        ensure!(
            status.signal() == Some(libc::SIGKILL),
            "{} ended with {status} before it was killed",
            self.name
        );
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // When a test failed half way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
