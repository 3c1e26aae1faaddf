//! The process in a protection domain of its own, which it joins when it first needs memory in the window. What it has
//! mapped there is freed when it ends, however it ends, for the domain has no other process.

use std::{
    ffi::c_int,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use mind_client::{Access, Memory, Process};

use crate::{
    areas::State,
    own,
    system::{self, Result},
};

/// How often memory is asked for anew that turns out to be where a parent's copy is.
const ATTEMPTS: usize = 64;

/// The process, and what of the window is not for it.
pub(crate) struct Membership {
    process: Option<&'static Process>,
    /// Whether it was told that the process cannot join.
    told: bool,
    /// Ranges that a fork has put copies at.
    copies: Vec<Range<u64>>,
}

static MEMBERSHIP: Mutex<Membership> = Mutex::new(Membership {
    process: None,
    told: false,
    copies: Vec::new(),
});

/// Keeps it as it is, until it is dropped: for a fork.
pub(crate) fn hold() -> MutexGuard<'static, Membership> {
    MEMBERSHIP.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Membership {
    /// The calling process is a child, with copies of its parent's memory at these addresses.
    pub(crate) fn leave(&mut self, copies: impl IntoIterator<Item = Range<u64>>) {
        // The parent's connection, descriptors and thread are not this process's.
        self.process = None;
        self.told = false;
        self.copies.extend(copies);
    }

    fn process(&mut self) -> Result<&'static Process> {
        if let Some(process) = self.process {
            return Ok(process);
        }
        let process = Process::builder(&name())
            .without(self.copies.iter().cloned())
            .attach()
            .map_err(|error| {
                if !std::mem::replace(&mut self.told, true) {
                    tell("has no memory in the window", &error);
                }
                error.errno()
            })?;
        let process = Box::leak(Box::new(process));
        self.process = Some(process);
        Ok(process)
    }

    fn overlaps_copies(&self, memory: Memory) -> bool {
        let range = memory.va()..memory.va() + memory.len() as u64;
        let mut copies = self.copies.iter();
        copies.any(|copy| copy.start < range.end && range.start < copy.end)
    }
}

/// The name of the process's domain, which no other process has: the program's name is for the operator.
fn name() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let program = read("/proc/self/comm");
    let unique = read("/proc/sys/kernel/random/uuid");
    let process = std::process::id();
    format!("{} {process} {}", program.trim_end(), unique.trim_end())
}

/// Says what is wrong on the standard error output.
pub(crate) fn tell(what: &str, error: &dyn std::fmt::Display) {
    eprintln!("mind run: process {} {what}: {error}", std::process::id());
}

fn process() -> Result<&'static Process> {
    hold().process()
}

/// Maps zeroed memory in the window. The address.
pub(crate) fn map(length: u64) -> Result<u64> {
    own::inside(|| {
        let process = process()?;
        for _ in 0..ATTEMPTS {
            let memory = process
                .map(length, Access::Write)
                .map_err(|error| error.errno())?;
            // What is at a copy's address is kept, so that the next is elsewhere.
            if !hold().overlaps_copies(memory) {
                return Ok(memory.va());
            }
        }
        Err(libc::ENOMEM)
    })
}

/// Unmaps what `map` returned.
pub(crate) fn unmap(range: Range<u64>) -> Result<()> {
    own::inside(|| {
        let memory = Memory::at(range.start, range.end - range.start);
        process()?.unmap(memory).map_err(|error| error.errno())
    })
}

/// Changes what may be done with part of it.
pub(crate) fn protect(range: Range<u64>, state: State) -> Result<()> {
    let access = match state {
        State::Write => Access::Write,
        State::Read => Access::Read,
        State::None | State::Gone => Access::None,
    };
    own::inside(|| {
        let memory = Memory::at(range.start, range.end - range.start);
        process()?
            .protect(memory, access)
            .map_err(|error| error.errno())
    })
}

/// An error as a function of the C library returns it.
pub(crate) fn status(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(number) => {
            system::set_errno(number);
            -1
        }
    }
}
