//! `cargo xtask vm`: runs a command of the project as root in a virtual machine on a Debian kernel. This file holds
//! the command line, the order of things and the one line that says how it ended.

mod budget;
mod console;
mod guest;
mod initramfs;
mod kernel;
mod limit;
mod live;
mod qemu;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::budget::Budget;
use self::guest::{Job, Work};
use self::kernel::Wanted;
use self::limit::Limit;
use self::qemu::{Accelerator, End, Event, Machine, Run};
use crate::debian::Need;
use crate::object;
use crate::process;
use crate::setup;
use crate::workspace;

/// What `cargo xtask vm` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel: `newest`, or the numbers its version begins with.
    #[arg(long, value_name = "VERSION", default_value = "6.12")]
    kernel: Wanted,
    /// Look for a newer kernel than the one that was downloaded before.
    #[arg(long)]
    update: bool,
    /// Virtual CPUs.
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u32,
    /// Memory of the guest in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// Give up after so many seconds; by default, 1800 where the guest boots in 13, and in proportion where it takes
    /// longer.
    #[arg(long, value_name = "S")]
    timeout: Option<u64>,
    /// More arguments for the guest's kernel.
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    append: String,
    /// Also hold the eBPF programs against the verifier budget, as is done without CMD.
    #[arg(long)]
    verifier: bool,
    /// The command; by default the live tests.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Exit codes of `cargo xtask vm` beside those of the command.
mod code {
    /// The guest's kernel complained, or the guest stopped.
    pub(super) const GUEST: u8 = 97;
    /// The verifier budget is exceeded.
    pub(super) const BUDGET: u8 = 98;
    /// Time ran out.
    pub(super) const TIMEOUT: u8 = 124;
    /// There was no run.
    pub(super) const NO_RUN: u8 = 125;
    /// Ctrl-C.
    pub(super) const INTERRUPTED: u8 = 130;
}

/// Runs `cargo xtask vm` and says how it ended.
pub(crate) fn run(args: &Args) -> ExitCode {
    let started = Instant::now();
    let verdict = match try_run(args) {
        Ok(verdict) => verdict,
        Err(error) => Verdict::NoRun(format!("{error:#}")),
    };
    eprintln!("vm: {verdict} after {} s", started.elapsed().as_secs());
    ExitCode::from(verdict.code())
}

/// How it ended, for people and for scripts.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed { place: String },
    Failed { why: End, place: String },
    OverBudget { place: String },
    NoRun(String),
}

impl Verdict {
    fn code(&self) -> u8 {
        match self {
            Self::Passed { .. } => 0,
            Self::OverBudget { .. } => code::BUDGET,
            Self::NoRun(_) => code::NO_RUN,
            Self::Failed { why, .. } => match why {
                End::Exited(code) => *code,
                End::Complained(..) | End::Stopped => code::GUEST,
                End::Unready(_) => code::NO_RUN,
                End::TimedOut => code::TIMEOUT,
                End::Interrupted => code::INTERRUPTED,
            },
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { place } => write!(f, "passed on {place}"),
            Self::OverBudget { place } => write!(f, "failed: verifier budget exceeded on {place}"),
            Self::NoRun(reason) => write!(f, "failed: {}", reason.replace('\n', " ")),
            Self::Failed { why, place } => {
                match why {
                    End::Exited(code) => write!(f, "failed: the command ended with {code}")?,
                    End::Complained(complaint, text) => write!(f, "failed: {complaint}: {text}")?,
                    End::Unready(reason) => write!(f, "failed: the guest was not ready: {reason}")?,
                    End::Stopped => {
                        write!(f, "failed: the guest stopped before the command ended")?
                    }
                    End::TimedOut => write!(f, "failed: time ran out")?,
                    End::Interrupted => write!(f, "failed: interrupted")?,
                }
                write!(f, " on {place}")
            }
        }
    }
}

fn try_run(args: &Args) -> Result<Verdict> {
    setup::ensure_packages(&[Need::Qemu, Need::Busybox, Need::Kmod, Need::Cpio, Need::Xz])?;
    let kernel = kernel::get(&args.kernel, args.update)?;
    let work = work(args)?;
    let budget = work.verifier.as_ref().map(|_| Budget::read()).transpose()?;

    let scratch = Scratch::new()?;
    let initramfs = scratch.0.join("initramfs.cpio");
    initramfs::write(
        &kernel,
        &guest::scripts(&kernel, &work)?,
        &scratch.0,
        &initramfs,
    )?;
    let events = qemu::events()?;
    let mut machine = Machine {
        kernel: &kernel,
        initramfs: &initramfs,
        accelerator: Accelerator::Tcg,
        cpus: args.cpus,
        memory: args.memory,
        append: &args.append,
        writable: &work.writable,
        console: kernel::folder().join("console.log"),
    };
    if kvm_works(&machine, &events)? {
        machine.accelerator = Accelerator::Kvm;
    }
    let place = format!("{} ({})", kernel.release, machine.accelerator.name());
    process::step(format_args!("booting {place}"));
    let limit = args.timeout.map_or(Limit::FollowsBoot, |seconds| {
        Limit::Fixed(Duration::from_secs(seconds))
    });
    let run = boot(&machine, limit, &events)?;

    match run.end {
        End::Exited(0) => {}
        End::Exited(_) | End::Interrupted => {
            return Ok(Verdict::Failed {
                why: run.end,
                place,
            });
        }
        End::Complained(..) | End::Unready(_) | End::Stopped | End::TimedOut => {
            for line in &run.excerpt {
                eprintln!("  | {line}");
            }
            process::step(format_args!(
                "the guest's console is in {}",
                machine.console.display()
            ));
            return Ok(Verdict::Failed {
                why: run.end,
                place,
            });
        }
    }
    let Some(budget) = budget else {
        return Ok(Verdict::Passed { place });
    };
    if run.verified.is_empty() {
        return Ok(Verdict::NoRun(format!(
            "no figure came from the verifier of {place}; its message is above"
        )));
    }
    let walked: BTreeMap<_, _> = run.verified.into_iter().collect();
    let comparison = budget.compare(&kernel.series(), &walked);
    print!("{}", comparison.text(&kernel.series()));
    Ok(if comparison.is_within() {
        Verdict::Passed { place }
    } else {
        Verdict::OverBudget { place }
    })
}

/// Boots once; under TCG again if the guest died before it was up: QEMU's translator now and then stumbles over the
/// kernel patching its own code.
fn boot(
    machine: &Machine<'_>,
    limit: Limit,
    events: &(Sender<Event>, Receiver<Event>),
) -> Result<Run> {
    const TRIES: usize = 3;
    for _ in 1..TRIES {
        let run = qemu::run(machine, limit, events)?;
        let stumbled = machine.accelerator == Accelerator::Tcg
            && !run.started
            && run.excerpt.iter().any(|line| line.contains("Oops: int3"));
        if !stumbled {
            return Ok(run);
        }
        process::step("the guest died while patching its own code; booting it again");
    }
    qemu::run(machine, limit, events)
}

/// Whether there is a busybox that runs in an initramfs.
pub(crate) fn has_busybox() -> bool {
    initramfs::busybox().is_ok()
}

/// What the guest is to do.
fn work(args: &Args) -> Result<Work> {
    let writable = workspace::target();
    let path = |object: object::Object| {
        let path = object.path().to_string_lossy().into_owned();
        (object.env.to_owned(), path)
    };
    let mut environment = object::OBJECTS.map(path).to_vec();
    // A test that cannot do its work there is broken, not skipped.
    environment.push(("MIND_VM".to_owned(), "1".to_owned()));
    let wants_verifier = args.verifier || args.command.is_empty();
    if wants_verifier {
        let tools = setup::ensure()?;
        object::build(&tools)?;
    }
    let jobs = if args.command.is_empty() {
        live::jobs()?
    } else {
        vec![Job {
            words: args.command.clone(),
            folder: std::env::current_dir().context("cannot tell the current folder")?,
        }]
    };
    let verifier = if wants_verifier {
        Some(live::verifier()?)
    } else {
        None
    };
    Ok(Work {
        jobs,
        verifier,
        environment,
        writable,
    })
}

/// Whether KVM runs a guest here: a device that is there may still boot nothing. Tried once per QEMU and host kernel.
fn kvm_works(machine: &Machine<'_>, events: &(Sender<Event>, Receiver<Event>)) -> Result<bool> {
    const LIMIT: Limit = Limit::Fixed(Duration::from_secs(20));
    const DEVICE: &str = "/dev/kvm";

    if OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .is_err()
    {
        return Ok(false);
    }
    let qemu = process::output(Command::new("qemu-system-x86_64").arg("--version"))?;
    let host = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    let key = format!("{}{host}", qemu.lines().next().unwrap_or_default());
    let cache = kernel::folder().join("kvm");
    let text = fs::read_to_string(&cache).unwrap_or_default();
    if let Some((known, answer)) = text.split_once('\n')
        && known == key.trim()
    {
        return Ok(answer.trim() == "works");
    }
    process::step(format_args!("trying whether {DEVICE} boots a guest"));
    let probe = Machine {
        accelerator: Accelerator::Kvm,
        append: guest::PROBE,
        console: kernel::folder().join("kvm-console.log"),
        ..*machine
    };
    let run = qemu::run(&probe, LIMIT, events)?;
    if run.end == End::Interrupted {
        // Whoever asked for the end gets it from the run to come.
        events.0.send(Event::Interrupt).ok();
        return Ok(false);
    }
    let answer = if run.booted { "works" } else { "does not boot" };
    fs::write(&cache, format!("{}\n{answer}\n", key.trim()))
        .with_context(|| format!("cannot write {}", cache.display()))?;
    Ok(run.booted)
}

/// A folder for one run, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        remove_left_over(&kernel::folder());
        let path = kernel::folder().join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot create the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

/// Removes the folders of runs that were killed.
fn remove_left_over(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("run-"));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all::<&Path>(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::console::Complaint;
    use super::*;

    fn failed(why: End) -> Verdict {
        Verdict::Failed {
            why,
            place: "6.12.0 (TCG)".into(),
        }
    }

    #[test]
    fn every_end_has_its_line_and_its_code() {
        let panic = End::Complained(Complaint::Panic, "Kernel panic - not syncing: x".into());
        let cases = [
            (
                Verdict::Passed {
                    place: "6.12.0 (TCG)".into(),
                },
                0,
                "passed on 6.12.0 (TCG)",
            ),
            (
                failed(End::Exited(7)),
                7,
                "failed: the command ended with 7 on 6.12.0 (TCG)",
            ),
            (
                failed(panic),
                97,
                "failed: guest panic: Kernel panic - not syncing: x on 6.12.0 (TCG)",
            ),
            (
                failed(End::TimedOut),
                124,
                "failed: time ran out on 6.12.0 (TCG)",
            ),
            (
                failed(End::Interrupted),
                130,
                "failed: interrupted on 6.12.0 (TCG)",
            ),
            (
                Verdict::NoRun("this lacks:\n - qemu".into()),
                125,
                "failed: this lacks:  - qemu",
            ),
        ];
        for (verdict, code, line) in cases {
            assert_eq!(verdict.to_string(), line);
            assert_eq!(verdict.code(), code, "{line}");
        }
    }
}
