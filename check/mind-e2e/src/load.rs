//! A load that causes every transition of the directory: blades count in lanes of their own, on all pages of an area.

use anyhow::Result;

use crate::{Bed, Domain, Program};

/// The blades that count. One more checks the sum.
pub const BLADES: [&str; 3] = ["c0", "c1", "c2"];
/// The blade that checks.
pub const OTHER: &str = "c3";
/// Threads of each.
const THREADS: u64 = 2;

/// A load, and what has been counted. Needs four compute blades.
#[derive(Debug)]
pub struct Load<'a> {
    /// Where it runs.
    pub domain: Domain<'a>,
    area: String,
    counted: u64,
}

impl<'a> Load<'a> {
    /// One in a domain of its own, on an area of so many pages.
    ///
    /// # Errors
    ///
    /// When the domain cannot be made.
    pub fn new(bed: &'a Bed, name: &'a str, pages: usize) -> Result<Self> {
        let domain = Domain::new(bed, name)?;
        Ok(Self {
            domain,
            area: format!("--area lanes --pages {pages}"),
            counted: 0,
        })
    }

    /// Starts each thread of each blade, which counts to `steps`.
    ///
    /// # Errors
    ///
    /// When a program cannot be started.
    pub fn start(&mut self, steps: u64) -> Result<Vec<Program>> {
        let mut programs = Vec::new();
        for (number, blade) in BLADES.into_iter().enumerate() {
            let first = number as u64 * THREADS;
            let area = &self.area;
            let job = format!("{area} lanes --threads {THREADS} --first {first} {steps}");
            programs.push(self.domain.start(blade, &job)?);
        }
        programs.iter_mut().try_for_each(Program::go)?;
        self.counted += steps * THREADS * BLADES.len() as u64;
        Ok(programs)
    }

    /// Where the area is.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn place(&self) -> Result<u64> {
        self.domain.place(OTHER, &self.area)
    }

    /// Checks that all that was counted is in memory, when all programs have ended.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn check(&self) -> Result<()> {
        let job = format!("{} lanes-sum {}", self.area, self.counted);
        self.domain.run(OTHER, &job)
    }

    /// Ends its domain.
    ///
    /// # Errors
    ///
    /// When the process that holds the domain open has failed.
    pub fn end(self) -> Result<()> {
        self.domain.end()
    }
}
