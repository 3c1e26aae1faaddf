//! A protection domain of a test's own. It exists as long as this value, also when all of the test's programs have
//! ended.

use anyhow::{Context as _, Result};
use netns_setup::Kind;

use crate::{Bed, Program};

/// A domain, and the testbed that it is on.
#[derive(Debug)]
pub struct Domain<'a> {
    bed: &'a Bed,
    name: &'a str,
    options: &'a str,
    holder: Program,
}

impl<'a> Domain<'a> {
    /// Makes it, by a process on the last compute blade.
    ///
    /// # Errors
    ///
    /// When that cannot be started.
    pub fn new(bed: &'a Bed, name: &'a str) -> Result<Self> {
        Self::choosing(bed, name, "")
    }

    /// The same, and its programs get these arguments, too.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn choosing(bed: &'a Bed, name: &'a str, options: &'a str) -> Result<Self> {
        let plan = bed.testbed().plan();
        let last = plan.of_kind(Kind::Compute).last();
        let blade = last.map_or("c0", |blade| blade.name.as_str());
        let mut holder = Program::start(bed, blade, &format!("--domain {name} {options} keep"))?;
        holder.expect("ready")?;
        Ok(Self {
            bed,
            name,
            options,
            holder,
        })
    }

    /// The testbed.
    pub fn bed(&self) -> &'a Bed {
        self.bed
    }

    /// Starts a program in it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(&self, blade: &str, arguments: &str) -> Result<Program> {
        let arguments = format!("--domain {} {} {arguments}", self.name, self.options);
        Program::start(self.bed, blade, &arguments)
    }

    /// Runs a program to its end, which must be successful.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn run(&self, blade: &str, arguments: &str) -> Result<()> {
        let mut program = self.start(blade, arguments)?;
        program.go()?;
        program.succeed()
    }

    /// Starts programs, lets them run at once and waits for their ends, which must be successful.
    ///
    /// # Errors
    ///
    /// When one of them fails.
    pub fn run_all(&self, programs: &[(&str, String)]) -> Result<()> {
        let mut running = Vec::new();
        for (blade, arguments) in programs {
            running.push(self.start(blade, arguments)?);
        }
        running.iter_mut().try_for_each(Program::go)?;
        // The blades' counters while the programs still run distinguish a hang from slow progress.
        let ended = running.iter_mut().try_for_each(Program::succeed);
        ended.with_context(|| self.bed.reports())
    }

    /// Runs one program on each of these blades; they write the same page in turns.
    ///
    /// # Errors
    ///
    /// When one of them fails, or misses a turn.
    pub fn take_turns(&self, blades: &[&str], rounds: u64) -> Result<()> {
        let writers = blades.len();
        let turns =
            |writer| format!("--area page turns --writer {writer} --writers {writers} {rounds}");
        let programs = blades.iter().enumerate();
        let programs: Vec<_> = programs
            .map(|(writer, blade)| (*blade, turns(writer)))
            .collect();
        self.run_all(&programs)
    }

    /// Where an area is.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn place(&self, blade: &str, area: &str) -> Result<u64> {
        let mut program = self.start(blade, &format!("{area} where"))?;
        program.go()?;
        let va = program.line()?.parse()?;
        program.succeed()?;
        Ok(va)
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// When the process that holds the domain open has failed.
    pub fn end(mut self) -> Result<()> {
        self.holder.send("go")?;
        self.holder.succeed()
    }
}
