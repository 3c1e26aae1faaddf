//! A testbed's life cycle: the order of the steps that bring it up and down.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use mind_cli::Interrupt;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::{
    condition::{Condition, Findings, judge},
    error::{Error, Result},
    halt::Halt,
    link, namespace, paths,
    plan::{Kind, Plan},
    program::{self, Process},
    scheduler,
    service::{self, Role, Service},
    state::{Phase, State},
};

/// The options of a testbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compute blades.
    pub compute: u8,
    /// Memory blades.
    pub memory: u8,
    /// Bytes that each memory blade offers.
    pub memory_size: u64,
    /// Bytes of each compute blade's page cache.
    pub cache: u64,
    /// Directory slots of the switch; as many as the controller chooses, if none are given.
    pub slots: Option<u32>,
    /// The folder with the programs of the services; without it there are only the network and no services.
    pub services: Option<PathBuf>,
    /// Whether the switch can lose packets on purpose; for tests.
    pub lose_on_purpose: bool,
    /// Whether the controller copies invalidations for several blades, instead of the switch.
    pub controller_copies: bool,
    /// Milliseconds of the controller's epochs, 0 for none; as many as it chooses, if none are given.
    pub epoch: Option<u32>,
    /// Whether the testbed is useless once the calling process is gone, as a test's.
    pub bound: bool,
}

impl Default for Options {
    /// Two blades of each kind, network only.
    fn default() -> Self {
        Self {
            compute: 2,
            memory: 2,
            memory_size: 256 << 20,
            cache: 64 << 20,
            slots: None,
            services: None,
            lose_on_purpose: false,
            controller_copies: false,
            epoch: None,
            bound: false,
        }
    }
}

/// A running testbed.
#[derive(Clone, Debug)]
pub struct Testbed {
    state: State,
    dead: Vec<String>,
}

impl Testbed {
    /// Brings a testbed up. Debris of an earlier one is removed, with a message in the log.
    ///
    /// # Errors
    ///
    /// [`Error::Running`] if there is one; otherwise the error, and nothing is left of it.
    pub fn up(options: &Options) -> Result<Self> {
        Self::up_unless(options, &Interrupt::default())
    }

    /// Brings a testbed up, unless it is interrupted before it is.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and as [`up`](Self::up).
    pub fn up_unless(options: &Options, interrupt: &Interrupt) -> Result<Self> {
        let plan = Plan::new(options.compute, options.memory)?;
        need_root()?;
        let _lock = Lock::acquire(Wait::No)?;
        match look()? {
            Condition::Absent => {}
            Condition::Running { state, .. } => {
                return Err(Error::Running {
                    description: state.describe(),
                });
            }
            Condition::Debris { state, reasons } => {
                tracing::warn!(
                    reasons = reasons.join("; "),
                    "removing the debris of a testbed"
                );
                remove(state.as_ref())?;
            }
        }
        let halt = Halt::of(interrupt)?;
        let mut state = State::new(plan, Process::current(), options.bound);
        match raise(&mut state, options, &halt) {
            Ok(()) => Ok(Self {
                state,
                dead: Vec::new(),
            }),
            Err(error) => {
                if let Err(second) = remove(Some(&state)) {
                    tracing::error!(error = %chain(&second), "cannot remove the half-made testbed");
                    return Err(error);
                }
                // A program that was run may have got the Ctrl-C as well, and failed.
                halt.check()?;
                Err(error)
            }
        }
    }

    /// Brings a testbed up that is taken down when the guard is dropped; if the process is killed, by the next one that
    /// brings a testbed up.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up).
    pub fn guarded(options: &Options) -> Result<Guard> {
        let options = Options {
            bound: true,
            ..options.clone()
        };
        Self::up(&options).map(Guard)
    }

    /// The testbed that runs.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`], [`Error::Damaged`].
    pub fn current() -> Result<Self> {
        match look()? {
            Condition::Running { state, dead } => Ok(Self { state, dead }),
            Condition::Absent => Err(Error::NotRunning),
            Condition::Debris { reasons, .. } => Err(Error::Damaged {
                reasons: reasons.join("; "),
            }),
        }
    }

    /// Its state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What it consists of.
    pub fn plan(&self) -> &Plan {
        &self.state.plan
    }

    /// The services that have died.
    pub fn dead(&self) -> &[String] {
        &self.dead
    }

    /// What a program in the blade called `name` (or the switch, `sw`) needs in its environment.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBlade`].
    pub fn environment(&self, name: &str) -> Result<Vec<(&'static str, String)>> {
        self.plan().namespace_of(name)?;
        let mut environment = vec![
            ("MIND_BLADE", name.to_owned()),
            ("MIND_CONTROLLER", Plan::controller().to_string()),
            ("MIND_PIN", paths::pins(name).display().to_string()),
        ];
        if self
            .plan()
            .of_kind(Kind::Compute)
            .any(|blade| blade.name == name)
        {
            let socket = paths::blade_socket(name).display().to_string();
            environment.push(("MIND_BLADE_SOCKET", socket));
        }
        Ok(environment)
    }

    /// Runs `work` on a thread in the namespace of the blade called `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBlade`], and those of `work`.
    pub fn within<T: Send, E: From<Error> + Send>(
        &self,
        name: &str,
        work: impl FnOnce() -> std::result::Result<T, E> + Send,
    ) -> std::result::Result<T, E> {
        let namespace = self.plan().namespace_of(name)?;
        namespace::within(&namespace, work)
    }

    /// Starts `command` in the blade called `name`, with the blade's environment.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBlade`], or that it cannot be started.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<std::process::Child> {
        command.envs(self.environment(name)?);
        namespace::spawn(&self.plan().namespace_of(name)?, command)
    }

    /// Takes the calling thread, and what it executes, into the blade called `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBlade`], or that it cannot be entered.
    pub fn enter(&self, name: &str) -> Result<()> {
        namespace::enter(&self.plan().namespace_of(name)?)
    }
}

/// A testbed; dropping this takes it down.
#[derive(Debug)]
pub struct Guard(Testbed);

impl std::ops::Deref for Guard {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A process that found the testbed running releases the lock at once.
        let removed = Lock::acquire(Wait::Yes).and_then(|_lock| {
            // Services may have been restarted.
            let latest = State::read(&paths::state()).ok().flatten();
            remove(Some(latest.as_ref().unwrap_or(self.0.state())))
        });
        if let Err(error) = removed {
            tracing::error!(error = %chain(&error), "cannot remove the testbed");
        }
    }
}

/// What [`down`] found and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// There was nothing.
    Nothing,
    /// A testbed, described.
    Testbed(String),
    /// The debris of one; why it was that.
    Debris(String),
}

/// Takes the testbed down, whole or not.
///
/// # Errors
///
/// What cannot be removed; calling again goes on with what is left.
pub fn down() -> Result<Removed> {
    need_root()?;
    let _lock = Lock::acquire(Wait::No)?;
    match look()? {
        Condition::Absent => Ok(Removed::Nothing),
        Condition::Running { state, .. } => {
            remove(Some(&state))?;
            Ok(Removed::Testbed(state.plan.to_string()))
        }
        Condition::Debris { state, reasons } => {
            remove(state.as_ref())?;
            Ok(Removed::Debris(reasons.join("; ")))
        }
    }
}

/// Kills a service, as a crash would, and starts it again as it was started, with `more` arguments; returns when it is
/// ready.
///
/// # Errors
///
/// [`Error::NotRunning`], [`Error::Damaged`], [`Error::NoSuchBlade`]; or that it does not start again.
pub fn restart(name: &str, more: &[String]) -> Result<Process> {
    need_root()?;
    let _lock = Lock::acquire(Wait::Yes)?;
    let mut state = Testbed::current()?.state;
    let names = || state.services.iter().map(|service| service.name.as_str());
    let place = names().position(|known| known == name);
    let place = place.ok_or_else(|| Error::NoSuchBlade {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })?;
    let running = &mut state.services[place];
    program::kill(running.process)?;
    let mut service = Service {
        name: running.name.clone(),
        role: running.role,
        namespace: running.namespace.clone(),
        command: running.command.clone(),
    };
    service.command.extend_from_slice(more);
    let starting = service::start(&service)?;
    let process = starting.service().process;
    running.process = process;
    state.write(&paths::state())?;
    starting.ready()?;
    Ok(process)
}

/// Looks at the machine.
///
/// # Errors
///
/// When the namespaces cannot be listed.
pub fn look() -> Result<Condition> {
    let state = match State::read(&paths::state()) {
        Ok(state) => state.map(Ok),
        Err(error) => Some(Err(chain(&error))),
    };
    let mut findings = Findings {
        namespaces: namespace::list()?,
        folder: Path::new(paths::RUN).exists(),
        ..Findings::default()
    };
    if let Some(Ok(state)) = &state {
        findings.maker_alive = state.maker.is_alive();
        findings.services_alive = state
            .services
            .iter()
            .filter(|service| service.process.is_alive())
            .map(|service| service.name.clone())
            .collect();
    }
    findings.state = state;
    Ok(judge(findings))
}

fn raise(state: &mut State, options: &Options, halt: &Halt) -> Result<()> {
    halt.check()?;
    for folder in [
        Path::new(paths::RUN),
        &paths::sockets(),
        &paths::logs(),
        &paths::bpffs(),
    ] {
        fs::create_dir_all(folder).map_err(Error::io("create the folder", folder))?;
    }
    let file = paths::state();
    state.groups_sessions = scheduler::groups_sessions()?;
    // Before anything is done that a later process must undo.
    state.write(&file)?;
    if state.groups_sessions
        && let Err(error) = scheduler::group_sessions(false)
    {
        state.groups_sessions = false;
        tracing::warn!(error = %chain(&error), "under load, packets may have to wait for seconds");
    }
    let bpffs = paths::bpffs();
    mount(
        Some("bpf"),
        &bpffs,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(Error::io("mount a bpffs at", &bpffs))?;

    let names: Vec<_> = state.plan.namespaces().collect();
    in_parallel(&names, |name| namespace::create(name))?;
    halt.check()?;
    link::wire_switch(&state.plan)?;
    in_parallel(&state.plan.blades, link::wire_blade)?;
    halt.check()?;

    if let Some(programs) = &options.services {
        let services = service::standard(&state.plan, options, programs);
        for role in Role::ALL {
            let mut starting = Vec::new();
            for service in services.iter().filter(|service| service.role == role) {
                let started = service::start(service)?;
                // Written before it is waited for: so a later process finds it.
                state.services.push(started.service().clone());
                state.write(&file)?;
                starting.push(started);
            }
            starting
                .into_iter()
                .try_for_each(|service| service.ready_unless(halt))?;
        }
    }
    state.phase = Phase::Up;
    state.write(&file)
}

/// Removes everything, in this order: programs, services from senders to the controller, pins (and with them the
/// attached programs), namespaces, files. Goes on after an error and returns the first.
fn remove(state: Option<&State>) -> Result<()> {
    let mut first = Ok(());
    let mut note = |result: Result<()>| {
        if let Err(error) = result {
            if first.is_ok() {
                first = Err(error);
            } else {
                tracing::warn!(error = %chain(&error), "and more");
            }
        }
    };
    if let Some(state) = state {
        let state = State {
            phase: Phase::Stopping,
            ..state.clone()
        };
        if Path::new(paths::RUN).exists() {
            note(state.write(&paths::state()));
        }
    }
    let services = state
        .map(|state| state.services.as_slice())
        .unwrap_or_default();
    let namespaces = namespace::list()?;
    let ids: BTreeSet<u64> = namespaces
        .iter()
        .filter_map(|name| namespace::id(name))
        .collect();
    let mut programs = program::in_namespaces(&ids);
    programs.retain(|process| services.iter().all(|service| service.process != *process));
    note(program::end(&programs));
    for role in Role::ALL.into_iter().rev() {
        let processes: Vec<_> = services
            .iter()
            .filter(|service| service.role == role)
            .map(|service| service.process)
            .collect();
        note(program::end(&processes));
    }
    note(remove_bpffs());
    let names: Vec<_> = namespaces.into_iter().collect();
    note(in_parallel(&names, |name| namespace::remove(name)));
    namespace::remove_empty_folder();
    if state.is_some_and(|state| state.groups_sessions) {
        note(scheduler::group_sessions(true));
    }
    note(remove_folder(Path::new(paths::RUN)));
    first
}

/// Unpins everything, which detaches what is attached by a pinned link, and unmounts.
fn remove_bpffs() -> Result<()> {
    let path = paths::bpffs();
    loop {
        match umount2(&path, MntFlags::empty()) {
            // Not mounted, or no longer.
            Err(nix::Error::EINVAL | nix::Error::ENOENT) => return Ok(()),
            Ok(()) => {}
            Err(nix::Error::EBUSY) => {
                umount2(&path, MntFlags::MNT_DETACH).map_err(Error::io("unmount", &path))?;
            }
            Err(error) => return Err(Error::io("unmount", &path)(error)),
        }
    }
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove the folder", path)(error))
        }
        _ => Ok(()),
    }
}

/// Does `work` on all items at once; the first error, when all are done.
fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect();
        results.into_iter().collect()
    })
}

/// Whether a test can make a testbed: it runs as root. Otherwise says that it is skipped.
///
/// # Panics
///
/// Where tests must run (`CI` or `MIND_VM` is in the environment) and this is not root.
pub fn is_testable() -> bool {
    if need_root().is_ok() {
        return true;
    }
    assert!(
        ["CI", "MIND_VM"]
            .iter()
            .all(|name| std::env::var_os(name).is_none()),
        "these tests must run as root here"
    );
    eprintln!("skipped: only root can make a testbed");
    false
}

fn need_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Error::NotRoot)
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Whether to wait for another process's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    No,
    Yes,
}

/// Held while a testbed is brought up or down. The kernel releases it when the process ends.
struct Lock {
    _file: File,
}

impl Lock {
    fn acquire(wait: Wait) -> Result<Self> {
        let path = Path::new(paths::LOCK);
        loop {
            let mut file = File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(path)
                .map_err(Error::io("open", path))?;
            match (file.try_lock(), wait) {
                (Ok(()), _) => {}
                (Err(TryLockError::WouldBlock), Wait::Yes) => {
                    file.lock().map_err(Error::io("lock", path))?;
                }
                (Err(TryLockError::WouldBlock), Wait::No) => {
                    let mut holder = String::new();
                    file.read_to_string(&mut holder).ok();
                    return Err(Error::Locked {
                        holder: holder.trim().to_owned(),
                    });
                }
                (Err(TryLockError::Error(error)), _) => return Err(Error::io("lock", path)(error)),
            }
            // The process that held it removed the file: then this is a lock on nothing.
            let is_current = match (fs::metadata(path), file.metadata()) {
                (Ok(there), Ok(ours)) => there.ino() == ours.ino(),
                _ => false,
            };
            if is_current {
                file.set_len(0).map_err(Error::io("write", path))?;
                write!(file, "process {}", std::process::id()).map_err(Error::io("write", path))?;
                return Ok(Self { _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        fs::remove_file(paths::LOCK).ok();
    }
}
