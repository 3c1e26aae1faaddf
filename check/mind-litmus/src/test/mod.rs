//! A litmus test: what each thread does, where registers and memory start, and the condition on
//! where they end. A [`Test`] is consistent; [`Parts`] is what it is made from.

mod condition;
mod instruction;
mod outcome;
mod parts;
mod print;
mod register;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub use condition::{Condition, Observable, Proposition, Quantifier};
pub use instruction::{Fence, Instruction, Operand, Width};
pub use outcome::Outcome;
pub use parts::{MAX_THREADS, Parts, TestError};
pub use register::Register;

/// The name of a memory location, such as `x`: letters, digits and `_`, no digit first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(String);

/// What is no name of a memory location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of a memory location; expected letters, digits and `_`, no digit first")]
pub struct NoLocation(String);

impl Location {
    /// Whether a name may begin with it.
    pub(crate) const fn begins_with(letter: char) -> bool {
        letter.is_ascii_alphabetic() || letter == '_'
    }

    /// Whether a name may contain it.
    pub(crate) const fn contains(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || letter == '_'
    }
}

impl FromStr for Location {
    type Err = NoLocation;

    fn from_str(name: &str) -> Result<Self, NoLocation> {
        if name.starts_with(Self::begins_with) && name.chars().all(Self::contains) {
            Ok(Self(name.to_owned()))
        } else {
            Err(NoLocation(name.to_owned()))
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A memory location before the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The width of all accesses to it.
    pub width: Width,
    /// Its value.
    pub initial: u64,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Registers that do not begin as 0.
    pub initial: BTreeMap<Register, u64>,
    /// What it does, in program order.
    pub instructions: Vec<Instruction>,
}

/// A litmus test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    name: String,
    description: Option<String>,
    info: Vec<(String, String)>,
    memory: BTreeMap<Location, Cell>,
    threads: Vec<Thread>,
    condition: Condition,
    observed: Vec<Observable>,
}

impl Test {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line about it: a generated test's cycle.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The value of a line `key=value` of its head.
    pub fn info(&self, key: &str) -> Option<&str> {
        let line = self.info.iter().find(|(of, _)| of == key);
        line.map(|(_, value)| value.as_str())
    }

    /// The memory that it uses, by name.
    pub const fn memory(&self) -> &BTreeMap<Location, Cell> {
        &self.memory
    }

    /// Its threads.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The condition on where it ends.
    pub const fn condition(&self) -> &Condition {
        &self.condition
    }

    /// What its outcomes are made of, in this order: registers by thread, then memory by name. That
    /// is what the condition mentions and what the test declares.
    pub fn observed(&self) -> &[Observable] {
        &self.observed
    }

    /// Whether the condition's proposition holds in this outcome of this test.
    pub fn holds_in(&self, outcome: &Outcome) -> bool {
        let value = |observable: &Observable| outcome.value(self, observable);
        self.condition.proposition.holds(&value)
    }
}
