//! A protection domain of a test's own. It is there as long as this value, whatever becomes of the test's programs.

use anyhow::{Context as _, Result};
use netns_setup::Kind;

use crate::{Bed, Program};

/// A domain, and the testbed that it is on.
#[derive(Debug)]
pub struct Domain<'a> {
    bed: &'a Bed,
    name: &'a str,
    options: &'a str,
    keeper: Program,
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
        let mut keeper = Program::start(bed, blade, &format!("--domain {name} {options} keep"))?;
        keeper.expect("ready")?;
        Ok(Self {
            bed,
            name,
            options,
            keeper,
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

    /// Runs a program to its good end.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn run(&self, blade: &str, arguments: &str) -> Result<()> {
        let mut program = self.start(blade, arguments)?;
        program.go()?;
        program.succeed()
    }

    /// Starts programs, lets them go at once and waits for their good ends.
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
        // What the blades are at while the programs are still there tells a hang from a crawl.
        let ended = running.iter_mut().try_for_each(Program::succeed);
        ended.with_context(|| self.bed.reports())
    }

    /// Has one program on each of these blades write the same page in turns.
    ///
    /// # Errors
    ///
    /// When one of them fails, or misses a turn.
    pub fn take_turns(&self, blades: &[&str], rounds: u64) -> Result<()> {
        let players = blades.len();
        let turns =
            |player| format!("--area page turns --player {player} --players {players} {rounds}");
        let programs = blades.iter().enumerate();
        let programs: Vec<_> = programs
            .map(|(player, blade)| (*blade, turns(player)))
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
    /// When its keeper has failed.
    pub fn end(mut self) -> Result<()> {
        self.keeper.tell("go")?;
        self.keeper.succeed()
    }
}
