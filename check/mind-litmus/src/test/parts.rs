//! What a test is made from, and whether it fits together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cell, Condition, Location, Observable, Operand, Test, Thread, Width};

/// The most threads of a test: as many as there are compute blades.
pub const MAX_THREADS: usize = 32;

/// What a test is made from.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Its name: one word.
    pub name: String,
    /// A line about it; generated tests have their cycle here.
    pub description: Option<String>,
    /// More about it: keys and values, one line each.
    pub info: Vec<(String, String)>,
    /// The widths of memory locations, where they are declared.
    pub widths: BTreeMap<Location, Width>,
    /// Memory that does not begin as 0.
    pub initial: BTreeMap<Location, u64>,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The final condition.
    pub condition: Condition,
    /// What an outcome is made of, beside what the condition mentions.
    pub observed: BTreeSet<Observable>,
}

/// Why parts are no test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// A name that would not be read again.
    #[error("`{0}` is no name of a test; expected one word")]
    Name(String),
    /// A description that would not be read again.
    #[error("the description `{0}` has a quote or a line's end in it")]
    Description(String),
    /// A line of information that would not be read again.
    #[error(
        "`{key}={value}` cannot be written as a line: the key is one word of letters, digits, `_` and `-`, \
         the value has no white space around it and no line's end in it"
    )]
    Info {
        /// Before `=`.
        key: String,
        /// After it.
        value: String,
    },
    /// Too few threads or too many.
    #[error("{0} threads; expected 1 to {MAX_THREADS}")]
    Threads(usize),
    /// Locations are accessed as a whole only.
    #[error(
        "thread {thread} accesses {} bytes of `{location}`, which has {}; accesses of several widths to \
         one location are not supported",
        accessed.bytes(), width.bytes()
    )]
    MixedSize {
        /// Which thread.
        thread: usize,
        /// Which of its instructions, from 0.
        instruction: usize,
        /// Of what.
        location: Location,
        /// What it has.
        width: Width,
        /// What is accessed.
        accessed: Width,
    },
    /// An immediate that cannot be encoded, or would be extended with ones.
    #[error(
        "thread {thread} has the constant {constant}; expected at most {}",
        Operand::LARGEST
    )]
    Immediate {
        /// Which thread.
        thread: usize,
        /// Which of its instructions, from 0.
        instruction: usize,
        /// What.
        constant: u32,
    },
    /// An initial value that does not fit.
    #[error("`{location}` cannot begin as {value}: it has {} bytes", width.bytes())]
    Initial {
        /// What.
        location: Location,
        /// How much it can have.
        width: Width,
        /// How much it should have.
        value: u64,
    },
    /// A register of a thread that is not there.
    #[error("there is no thread for `{observable}`; the test has {threads}")]
    NoThread {
        /// What is mentioned.
        observable: Observable,
        /// How many there are.
        threads: usize,
    },
}

impl Test {
    /// Puts a test together. A location whose width is not declared has that of the first access
    /// to it, and 4 bytes if there is none. One that is neither accessed nor observed is left out.
    ///
    /// # Errors
    ///
    /// What does not fit together.
    pub fn new(parts: Parts) -> Result<Self, TestError> {
        check_text(&parts)?;
        let mut threads = parts.threads;
        if threads.is_empty() || threads.len() > MAX_THREADS {
            return Err(TestError::Threads(threads.len()));
        }
        for thread in &mut threads {
            thread.initial.retain(|_, value| *value != 0);
        }
        let condition = Condition {
            quantifier: parts.condition.quantifier,
            proposition: parts.condition.proposition.simplified(),
        };
        let mut observed = parts.observed;
        condition.proposition.mentioned(&mut observed);

        let mut widths = parts.widths;
        let mut used = check_accesses(&threads, &mut widths)?;
        for observable in &observed {
            match observable {
                Observable::Memory(location) => {
                    used.insert(location.clone());
                }
                Observable::Register { thread, .. } if *thread >= threads.len() => {
                    return Err(TestError::NoThread {
                        observable: observable.clone(),
                        threads: threads.len(),
                    });
                }
                Observable::Register { .. } => (),
            }
        }
        let cell = |location: Location| {
            let width = widths.get(&location).copied().unwrap_or(Width::Long);
            let initial = parts.initial.get(&location).copied().unwrap_or(0);
            if width.truncate(initial) == initial {
                Ok((location, Cell { width, initial }))
            } else {
                Err(TestError::Initial {
                    location,
                    width,
                    value: initial,
                })
            }
        };
        Ok(Self {
            name: parts.name,
            description: parts.description,
            info: parts.info,
            memory: used.into_iter().map(cell).collect::<Result<_, _>>()?,
            threads,
            condition,
            observed: observed.into_iter().collect(),
        })
    }
}

fn check_text(parts: &Parts) -> Result<(), TestError> {
    let Parts {
        name,
        description,
        info,
        ..
    } = parts;
    if name.is_empty() || name.contains(|letter: char| letter.is_whitespace()) {
        return Err(TestError::Name(name.clone()));
    }
    if let Some(text) = description
        && text.contains(['"', '\n', '\r'])
    {
        return Err(TestError::Description(text.clone()));
    }
    for (key, value) in info {
        let key_is_fine =
            !key.is_empty() && key.chars().all(|of| Location::contains(of) || of == '-');
        if !key_is_fine || value.contains(['\n', '\r']) || value.trim() != value {
            return Err(TestError::Info {
                key: key.clone(),
                value: value.clone(),
            });
        }
    }
    Ok(())
}

/// Holds the accesses against the widths, and adds widths that follow from accesses. Returns what is
/// accessed.
fn check_accesses(
    threads: &[Thread],
    widths: &mut BTreeMap<Location, Width>,
) -> Result<BTreeSet<Location>, TestError> {
    let mut accesses = BTreeSet::new();
    for (thread, Thread { instructions, .. }) in threads.iter().enumerate() {
        for (number, instruction) in instructions.iter().enumerate() {
            if let Some(constant) = instruction.immediate()
                && constant > Operand::LARGEST
            {
                return Err(TestError::Immediate {
                    thread,
                    instruction: number,
                    constant,
                });
            }
            let Some((location, accessed)) = instruction.access() else {
                continue;
            };
            accesses.insert(location.clone());
            let width = *widths.entry(location.clone()).or_insert(accessed);
            if width != accessed {
                return Err(TestError::MixedSize {
                    thread,
                    instruction: number,
                    location: location.clone(),
                    width,
                    accessed,
                });
            }
        }
    }
    Ok(accesses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{Instruction, Outcome, Proposition, Quantifier, Register};

    fn parts() -> Parts {
        let x: Location = "x".parse().unwrap();
        let load = Instruction::Load {
            width: Width::Quad,
            from: x.clone(),
            to: Register::Rax,
        };
        Parts {
            name: "A".to_owned(),
            description: None,
            info: Vec::new(),
            widths: BTreeMap::new(),
            initial: BTreeMap::new(),
            threads: vec![Thread {
                initial: BTreeMap::new(),
                instructions: vec![load],
            }],
            condition: Condition {
                quantifier: Quantifier::Exists,
                proposition: Proposition::all([Proposition::Equal(Observable::Memory(x), 1)]),
            },
            observed: BTreeSet::new(),
        }
    }

    fn refused(change: impl FnOnce(&mut Parts)) -> String {
        let mut parts = parts();
        change(&mut parts);
        Test::new(parts).unwrap_err().to_string()
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        assert!(Test::new(parts()).is_ok());
        for name in ["", "a b", "a\n"] {
            assert!(refused(|of| of.name = name.to_owned()).contains("one word"));
        }
        let text = refused(|of| of.description = Some("a\"b".to_owned()));
        assert!(text.contains("has a quote"), "{text}");
        for (key, value) in [("", "a"), ("a b", "c"), ("a", " b"), ("a", "b\nc")] {
            let text = refused(|of| of.info.push((key.to_owned(), value.to_owned())));
            assert!(text.contains("cannot be written as a line"), "{text}");
        }
        assert!(refused(|of| of.threads.clear()).contains("0 threads; expected 1 to 32"));
        assert!(refused(|of| of.threads = vec![Thread::default(); 33]).contains("33 threads"));
        let x: Location = "x".parse().unwrap();
        let text = refused(|of| {
            of.widths.insert(x.clone(), Width::Long);
        });
        assert!(
            text.contains("accesses 8 bytes of `x`, which has 4"),
            "{text}"
        );
        let text = refused(|of| {
            of.threads[0].instructions.clear();
            of.initial.insert(x.clone(), 1 << 32);
        });
        assert!(
            text.contains("`x` cannot begin as 4294967296: it has 4 bytes"),
            "{text}"
        );
        let text = refused(|of| {
            of.threads[0].instructions.push(Instruction::Store {
                width: Width::Quad,
                value: Operand::Immediate(Operand::LARGEST + 1),
                to: x,
            });
        });
        assert!(
            text.contains("the constant 2147483648; expected at most"),
            "{text}"
        );
        let text = refused(|of| {
            of.observed.insert(Observable::Register {
                thread: 1,
                register: Register::Rax,
            });
        });
        assert!(text.contains("there is no thread for `1:rax`"), "{text}");
    }

    #[test]
    fn names_of_locations_are_words() {
        for name in ["x", "_", "z_1", "X9"] {
            assert_eq!(name.parse::<Location>().unwrap().to_string(), name);
        }
        for name in ["", "9", "a b", "a-b", "é", "x;"] {
            assert!(name.parse::<Location>().is_err(), "{name}");
        }
    }

    #[test]
    fn an_outcome_has_values_by_name() {
        let mut parts = parts();
        parts.observed.insert(Observable::Register {
            thread: 0,
            register: Register::Rax,
        });
        let test = Test::new(parts).unwrap();
        let outcome = Outcome::new(&test, |of| match of {
            Observable::Memory(_) => 1,
            Observable::Register { .. } => 2,
        });
        assert_eq!(outcome.values(), [2, 1]);
        assert_eq!(outcome.shown(&test).to_string(), "0:rax=2 x=1");
        assert_eq!(outcome.value(&test, &test.observed()[1]), 1);
        assert!(test.holds_in(&outcome));
    }
}
