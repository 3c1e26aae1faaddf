//! The final condition of a test: a proposition about registers and memory after all threads have
//! ended, and whether some, none or all outcomes are expected to make it true.

use std::collections::BTreeSet;
use std::fmt;

use super::{Location, Register, Width};

/// Something that has a value at the end of a test: a register of a thread, or a memory location.
/// Registers come before memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Observable {
    /// A thread's register.
    Register {
        /// The thread's number, from 0.
        thread: usize,
        /// The register.
        register: Register,
    },
    /// A memory location.
    Memory(Location),
}

impl fmt::Display for Observable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { thread, register } => {
                write!(f, "{thread}:{}", register.name(Width::Quad))
            }
            Self::Memory(location) => location.fmt(f),
        }
    }
}

/// A proposition about final values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposition {
    /// Something has a value.
    Equal(Observable, u64),
    /// It is not so.
    Not(Box<Self>),
    /// All of these are so; of none, true.
    All(Vec<Self>),
    /// At least one of these is so; of none, false.
    Any(Vec<Self>),
}

impl Proposition {
    /// All of these are so.
    pub fn all(propositions: impl IntoIterator<Item = Self>) -> Self {
        Self::All(propositions.into_iter().collect()).simplified()
    }

    /// At least one of these is so.
    pub fn any(propositions: impl IntoIterator<Item = Self>) -> Self {
        Self::Any(propositions.into_iter().collect()).simplified()
    }

    /// Whether it holds where things have these values.
    pub fn holds(&self, value: &impl Fn(&Observable) -> u64) -> bool {
        match self {
            Self::Equal(observable, expected) => value(observable) == *expected,
            Self::Not(proposition) => !proposition.holds(value),
            Self::All(propositions) => propositions.iter().all(|of| of.holds(value)),
            Self::Any(propositions) => propositions.iter().any(|of| of.holds(value)),
        }
    }

    /// Adds what it mentions.
    pub(crate) fn mentioned(&self, found: &mut BTreeSet<Observable>) {
        match self {
            Self::Equal(observable, _) => {
                found.insert(observable.clone());
            }
            Self::Not(proposition) => proposition.mentioned(found),
            Self::All(propositions) | Self::Any(propositions) => {
                for proposition in propositions {
                    proposition.mentioned(found);
                }
            }
        }
    }

    /// The same without groups of one.
    pub(crate) fn simplified(self) -> Self {
        let each = |of: Vec<Self>| of.into_iter().map(Self::simplified).collect::<Vec<_>>();
        match self {
            Self::Equal(..) => self,
            Self::Not(proposition) => Self::Not(Box::new(proposition.simplified())),
            Self::All(propositions) => {
                let mut propositions = each(propositions);
                match propositions.len() {
                    1 => propositions.remove(0),
                    _ => Self::All(propositions),
                }
            }
            Self::Any(propositions) => {
                let mut propositions = each(propositions);
                match propositions.len() {
                    1 => propositions.remove(0),
                    _ => Self::Any(propositions),
                }
            }
        }
    }

    /// How tightly its outermost part binds.
    const fn binding(&self) -> u8 {
        match self {
            Self::Any(of) if !of.is_empty() => 0,
            Self::All(of) if !of.is_empty() => 1,
            _ => 2,
        }
    }

    fn part(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        if self.binding() < least {
            write!(f, "({self})")
        } else {
            write!(f, "{self}")
        }
    }
}

impl fmt::Display for Proposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, sign, least) = match self {
            Self::Equal(observable, value) => return write!(f, "{observable}={value}"),
            Self::Not(proposition) => {
                f.write_str("not ")?;
                return write!(f, "({proposition})");
            }
            Self::All(of) if of.is_empty() => return f.write_str("true"),
            Self::Any(of) if of.is_empty() => return f.write_str("false"),
            Self::All(of) => (of, " /\\ ", 2),
            Self::Any(of) => (of, " \\/ ", 1),
        };
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                f.write_str(sign)?;
            }
            part.part(f, least)?;
        }
        Ok(())
    }
}

/// What is said about a test's outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantifier {
    /// Some outcome is so.
    Exists,
    /// No outcome is so.
    NotExists,
    /// All outcomes are so.
    ForAll,
}

impl fmt::Display for Quantifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "exists",
            Self::NotExists => "~exists",
            Self::ForAll => "forall",
        })
    }
}

/// A final condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// For how many outcomes.
    pub quantifier: Quantifier,
    /// What is so.
    pub proposition: Proposition,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.quantifier, self.proposition)
    }
}
