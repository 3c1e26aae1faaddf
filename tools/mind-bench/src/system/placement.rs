//! Which thread runs on which processor, and that processors do not enter idle states: the same for
//! the limits and for the system, since both affect a fault's time most.

use std::{
    fs::{self, File},
    io::Write as _,
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The name of the thread that handles faults in a compute blade's agent.
const ENGINE: &str = "engine";
/// Keeps processors awake (`Documentation/power/pm_qos_interface.rst`).
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Whether the thread that faults and the one that handles the fault share a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sharing {
    /// They do. Blades have processors of their own, as far as there are enough.
    Same,
    /// They do not.
    Across,
}

/// Which processors there are, and how they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    cpus: Vec<usize>,
    sharing: Sharing,
}

impl Placement {
    /// A placement on the processors that this process may use.
    pub(crate) fn new(sharing: Option<Sharing>) -> Result<Self> {
        let allowed = sched_getaffinity(None).context("cannot tell which processors there are")?;
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        Self::on(cpus.collect(), sharing)
    }

    fn on(cpus: Vec<usize>, sharing: Option<Sharing>) -> Result<Self> {
        let sharing = sharing.unwrap_or(if cpus.len() > 1 {
            Sharing::Across
        } else {
            Sharing::Same
        });
        let least = match sharing {
            Sharing::Same => 1,
            Sharing::Across => 2,
        };
        ensure!(
            cpus.len() >= least,
            "--placement across takes two processors, and there is one"
        );
        Ok(Self { cpus, sharing })
    }

    /// Whether they share one.
    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Where the program on compute blade `blade` faults.
    pub(crate) fn program(&self, blade: usize) -> usize {
        self.nth(blade)
    }

    /// Where the agent of compute blade `blade` handles faults, sends and receives.
    pub(crate) fn engine(&self, blade: usize) -> usize {
        match self.sharing {
            Sharing::Same => self.nth(blade),
            Sharing::Across => self.nth(blade + 1),
        }
    }

    fn nth(&self, number: usize) -> usize {
        self.cpus[number % self.cpus.len()]
    }
}

/// Keeps the calling thread on one processor.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    set(None, [cpu])
}

/// Lets the calling thread run on every processor.
pub(crate) fn unpin() -> Result<()> {
    // The kernel leaves out those that there are not.
    set(None, 0..CpuSet::MAX_CPU)
}

/// Keeps the thread that handles faults in the compute agent `agent` on one processor.
pub(crate) fn pin_engine(agent: i32, cpu: usize) -> Result<()> {
    let folder = format!("/proc/{agent}/task");
    let threads = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    let engine = threads
        .flatten()
        .find(|thread| {
            let name = fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.trim_end() == ENGINE)
        })
        .and_then(|thread| thread.file_name().to_str()?.parse().ok())
        .and_then(Pid::from_raw)
        .with_context(|| format!("process {agent} has no thread called {ENGINE}"))?;
    set(Some(engine), [cpu])
}

fn set(thread: Option<Pid>, cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(thread, &set).context("cannot bind a thread to its processor")
}

/// Keeps all processors out of idle states until dropped.
#[derive(Debug)]
pub(crate) struct Awake {
    _file: File,
}

impl Awake {
    /// Asks for it.
    pub(crate) fn hold() -> Result<Self> {
        File::options()
            .write(true)
            .open(LATENCY)
            .and_then(|mut file| {
                file.write_all(&0i32.to_ne_bytes())?;
                Ok(Self { _file: file })
            })
            .with_context(|| format!("cannot keep the processors awake by {LATENCY}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blades_have_processors_of_their_own_while_there_are_enough() {
        let placement = Placement::on(vec![2, 5], Some(Sharing::Same)).expect("one is enough");
        let of = |blade| (placement.program(blade), placement.engine(blade));
        assert_eq!([of(0), of(1), of(2)], [(2, 2), (5, 5), (2, 2)]);
    }

    #[test]
    fn two_processors_are_used_where_there_are_two() {
        let of = |cpus| {
            Placement::on(cpus, None)
                .expect("it takes what there is")
                .sharing()
        };
        assert_eq!(of(vec![4]), Sharing::Same);
        assert_eq!(of(vec![4, 5]), Sharing::Across);
    }

    #[test]
    fn across_keeps_an_engine_away_from_its_program() {
        let placement =
            Placement::on(vec![0, 1, 2], Some(Sharing::Across)).expect("three are enough");
        for blade in 0..6 {
            assert_ne!(placement.program(blade), placement.engine(blade));
        }
        let error = Placement::on(vec![3], Some(Sharing::Across)).expect_err("one is not enough");
        assert!(error.to_string().contains("takes two processors"));
    }

    #[test]
    fn a_thread_is_found_by_its_name_and_pinned() {
        let allowed = sched_getaffinity(None).expect("it can be asked");
        let cpu = (0..CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu));
        let cpu = cpu.expect("this runs on a processor");
        let own = std::process::id().cast_signed();
        let (started, wait) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name(ENGINE.into())
            .spawn(move || {
                started.send(rustix::thread::gettid()).expect("it waits");
                let _ = ended.recv();
            })
            .expect("a thread can be started");
        let id = wait.recv().expect("it has started");
        pin_engine(own, cpu).expect("it is there");
        let set = sched_getaffinity(Some(id)).expect("it is there");
        assert_eq!((set.count(), set.is_set(cpu)), (1, true));
        drop(end);
        thread.join().expect("it ends");
    }
}
