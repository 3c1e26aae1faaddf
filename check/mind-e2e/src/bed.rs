//! A testbed with its daemons.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_api::{
    operator::Status,
    program::{BladeReport, FromBlade, ToBlade},
};
use mind_connection::packets::Packets;
use netns_setup::{Kind, Options, Testbed, paths, program::Process, testbed::Guard};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::operator::Operator;

/// Last lines of each log that a failure shows.
const TAIL: usize = 15;
/// How long the losses of a departure are waited for.
const LOSS_LIMIT: Duration = Duration::from_secs(10);

/// A testbed; dropping this takes it down.
#[derive(Debug)]
pub struct Bed {
    testbed: Guard,
}

impl Bed {
    /// Brings it up: so many blades, each compute blade with so many bytes of page cache.
    ///
    /// # Errors
    ///
    /// When the daemons are not built or do not start.
    pub fn up(compute: u8, memory: u8, cache: u64) -> Result<Self> {
        Self::with(&Options {
            compute,
            memory,
            memory_size: 64 << 20,
            cache,
            ..Options::default()
        })
    }

    /// Brings one up as `options` say, with the daemons of this build.
    ///
    /// # Errors
    ///
    /// When the daemons are not built or do not start.
    pub fn with(options: &Options) -> Result<Self> {
        let options = Options {
            services: Some(programs()?),
            ..options.clone()
        };
        let testbed = Testbed::guarded(&options)?;
        Ok(Self { testbed })
    }

    /// Brings up the network alone, without any daemon.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn network(compute: u8, memory: u8) -> Result<Self> {
        let options = Options {
            compute,
            memory,
            ..Options::default()
        };
        let testbed = Testbed::guarded(&options)?;
        Ok(Self { testbed })
    }

    /// The testbed.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// The counters of a compute blade's agent.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn report(&self, blade: &str) -> Result<BladeReport> {
        match self.ask(blade, &ToBlade::Report)? {
            (FromBlade::Report(report), _) => Ok(*report),
            (other, _) => bail!("the agent of {blade} answers with {other:?}"),
        }
    }

    /// Connects to a compute blade's agent, and returns what it answers to the first message, and the connection.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn ask(&self, blade: &str, message: &ToBlade) -> Result<(FromBlade, Packets)> {
        let packets = Packets::connect(&paths::blade_socket(blade))
            .with_context(|| format!("cannot reach the agent of {blade}"))?;
        packets.send(message, None)?;
        match packets.receive::<FromBlade>()? {
            Some((answer, _)) => Ok((answer, packets)),
            None => bail!("the agent of {blade} closes the connection"),
        }
    }

    /// The counters of all compute blades' agents, a line each: for the message of a failure.
    pub fn reports(&self) -> String {
        let plan = self.testbed.plan();
        let lines = plan.of_kind(Kind::Compute).map(|blade| {
            let report = self.report(&blade.name);
            format!("{}: {report:?}", blade.name)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Connects an operator to the controller.
    ///
    /// # Errors
    ///
    /// When there is no controller.
    pub fn operator(&self) -> Result<Operator> {
        self.operator_on("sw")
    }

    /// Connects to the controller from a blade.
    ///
    /// # Errors
    ///
    /// When there is no controller.
    pub fn operator_on(&self, blade: &str) -> Result<Operator> {
        self.testbed.within(blade, Operator::connect)
    }

    /// The controller's status.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn status(&self) -> Result<Status> {
        self.operator()?.status()
    }

    /// The controller's status once it says that something was lost with that blade; as it is after a while if it says
    /// no such thing. The departure of a blade goes on while others have their answers.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn status_after_loss(&self, blade: &str) -> Result<Status> {
        let start = Instant::now();
        loop {
            let status = self.status()?;
            let mut losses = status.domains.iter().flat_map(|domain| &domain.losses);
            if losses.any(|loss| loss.blade == blade) || start.elapsed() > LOSS_LIMIT {
                return Ok(status);
            }
        }
    }

    /// The daemon called `name`: `ctl`, or a blade's.
    ///
    /// # Errors
    ///
    /// When there is none of that name.
    pub fn daemon(&self, name: &str) -> Result<Process> {
        // It may have been started again.
        let latest = Testbed::current()?;
        let services = &latest.state().services;
        let service = services.iter().find(|service| service.name == name);
        Ok(service
            .with_context(|| format!("no daemon is called {name}"))?
            .process)
    }

    /// Kills a daemon, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn kill(&self, name: &str) -> Result<()> {
        self.end(name, rustix::process::Signal::KILL)
    }

    /// Ends a daemon by a signal, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn end(&self, name: &str, signal: rustix::process::Signal) -> Result<()> {
        let handle = self.signal(name, signal)?;
        let mut end = [PollFd::new(&handle, PollFlags::IN)];
        rustix::event::poll(&mut end, None)?;
        Ok(())
    }

    /// Kills a daemon, if it runs, and starts it again with `more` arguments; returns when it is ready.
    ///
    /// # Errors
    ///
    /// When there is none, or it does not start.
    pub fn restart(&self, name: &str, more: &[String]) -> Result<Process> {
        let process = netns_setup::testbed::restart(name, more);
        process.with_context(|| format!("{name} is not to be started again\n{}", self.logs()))
    }

    /// Runs a daemon several times, each time with the next argument of `runs`; then once without.
    ///
    /// # Errors
    ///
    /// As of [`restart`](Self::restart).
    pub fn watch(&self, name: &str, runs: Vec<String>) -> Result<Watched<'_>> {
        let mut runs = runs.into_iter();
        let (handle, deaths) = self.run_next(name, &mut runs)?;
        Ok(Watched {
            bed: self,
            name: name.to_owned(),
            runs,
            handle,
            deaths,
        })
    }

    /// Starts a daemon with the next argument, and with the one after it if it is ready and has died at once. The daemon,
    /// and how many have died.
    fn run_next(
        &self,
        name: &str,
        runs: &mut std::vec::IntoIter<String>,
    ) -> Result<(OwnedFd, u32)> {
        for deaths in 0.. {
            let arguments: Vec<_> = runs.next().into_iter().collect();
            let opened = opened(name, self.restart(name, &arguments)?);
            if opened.is_ok() || arguments.is_empty() {
                return Ok((opened?, deaths));
            }
        }
        unreachable!("there is an end of arguments")
    }

    /// Sends a daemon a signal.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn signal(&self, name: &str, signal: rustix::process::Signal) -> Result<OwnedFd> {
        let handle = opened(name, self.daemon(name)?)?;
        rustix::process::pidfd_send_signal(&handle, signal)?;
        Ok(handle)
    }

    /// Sets the switch's port of a blade `up` or `down`.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn link(&self, port: &str, state: &str) -> Result<()> {
        self.testbed.within("sw", || {
            let status = Command::new("ip")
                .args(["link", "set", port, state])
                .status()?;
            ensure!(status.success(), "the port {port} cannot be set {state}");
            Ok(())
        })
    }

    /// The last lines of the log of every daemon, those that a test has started itself included.
    pub fn logs(&self) -> String {
        let mut logs: Vec<_> = fs::read_dir(paths::logs())
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        logs.sort();
        let mut text = String::new();
        for path in logs {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let log = fs::read(&path).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<_> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(TAIL)..] {
                text.push_str(&format!("  {name} | {line}\n"));
            }
        }
        text
    }
}

fn opened(name: &str, process: Process) -> Result<OwnedFd> {
    let handle = process.open();
    handle.with_context(|| format!("{name} is dead already"))
}

/// A daemon that is started again when it has died.
#[derive(Debug)]
pub struct Watched<'a> {
    bed: &'a Bed,
    name: String,
    runs: std::vec::IntoIter<String>,
    handle: OwnedFd,
    deaths: u32,
}

impl Watched<'_> {
    /// Waits a moment for its end, and starts it again if that comes.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn look(&mut self) -> Result<()> {
        const MOMENT: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        let mut end = [PollFd::new(&self.handle, PollFlags::IN)];
        if rustix::event::poll(&mut end, Some(&MOMENT))? == 0 {
            return Ok(());
        }
        let (handle, deaths) = self.bed.run_next(&self.name, &mut self.runs)?;
        self.handle = handle;
        self.deaths += 1 + deaths;
        Ok(())
    }

    /// Starts it without additional arguments; returns how often it has ended.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn spare(self) -> Result<u32> {
        self.bed.restart(&self.name, &[])?;
        Ok(self.deaths)
    }
}

/// The folder with the programs of this build.
///
/// # Errors
///
/// When they are not built.
pub fn programs() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    // Tests are in `deps`, programs beside it.
    let folder = own
        .ancestors()
        .skip(1)
        .find(|folder| folder.file_name().is_some_and(|name| name != "deps"))
        .unwrap_or(Path::new("."));
    for name in ["mind-controller", "mind-ctl", "mind-blade"] {
        need(folder, name)?;
    }
    Ok(folder.to_owned())
}

/// The program called `name` in `folder`.
///
/// # Errors
///
/// When it is not built.
pub fn need(folder: &Path, name: &str) -> Result<PathBuf> {
    let program = folder.join(name);
    if !program.exists() {
        bail!(
            "{name} is not in {}: build it with `cargo xtask build`",
            folder.display()
        );
    }
    Ok(program)
}
