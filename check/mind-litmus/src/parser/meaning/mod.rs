//! From a file as it is written to the test that it means: names become registers and locations,
//! and what is said twice or of nothing is refused.

mod instruction;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::File;
use super::condition::Written as Clause;
use super::error::{ParseError, Spanned};
use super::head::{Item, Syntax, Target};
use crate::test::{
    Condition, Location, Observable, Parts, Proposition, Register, Test, TestError, Thread, Width,
};

/// The types that a declaration may have, and how wide they are.
const TYPES: [(&str, Width); 11] = [
    ("int", Width::Long),
    ("int32_t", Width::Long),
    ("uint32_t", Width::Long),
    ("unsigned", Width::Long),
    ("int64_t", Width::Quad),
    ("uint64_t", Width::Quad),
    ("long", Width::Quad),
    ("intptr_t", Width::Quad),
    ("uintptr_t", Width::Quad),
    ("size_t", Width::Quad),
    ("ssize_t", Width::Quad),
];

/// The test that `file` means, which was read from `text`.
pub(super) fn test(text: &str, file: File<'_>) -> Result<Test, ParseError> {
    let count = file.threads.len();
    let reader = Reader {
        text,
        threads: count,
        syntax: file.head.syntax,
    };
    let mut parts = Parts {
        name: file.head.name.to_owned(),
        description: file.head.description.map(str::to_owned),
        info: file
            .head
            .info
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        widths: BTreeMap::new(),
        initial: BTreeMap::new(),
        threads: vec![Thread::default(); count],
        condition: Condition {
            quantifier: file.quantifier,
            proposition: reader.proposition(file.proposition)?,
        },
        observed: BTreeSet::new(),
    };
    // Where a location was first given its width, and where its value.
    let mut places = BTreeMap::new();
    for item in &file.head.initial {
        reader.initial(item, &mut parts, &mut places)?;
    }
    for target in &file.observed {
        parts.observed.insert(reader.observable(target)?);
    }
    for (thread, written) in parts.threads.iter_mut().zip(&file.threads) {
        for written in written {
            let instruction = reader.instruction(written, &parts.widths)?;
            thread.instructions.extend(instruction);
        }
    }
    Test::new(parts).map_err(|error| {
        let place = match &error {
            TestError::MixedSize {
                thread,
                instruction,
                ..
            }
            | TestError::Immediate {
                thread,
                instruction,
                ..
            } => {
                // `nop` is left out of the instructions.
                let mut written = file.threads[*thread].iter().filter(|of| !of.is_nothing());
                written.nth(*instruction).map(|of| of.mnemonic.span.start)
            }
            TestError::Initial { location, .. } => places.get(location).copied(),
            _ => None,
        };
        ParseError::at(text, place.unwrap_or(0), error.to_string())
    })
}

struct Reader<'a> {
    text: &'a str,
    threads: usize,
    syntax: Syntax,
}

impl Reader<'_> {
    fn wrong(&self, span: &Range<usize>, problem: impl Into<String>) -> ParseError {
        ParseError::at(self.text, span.start, problem)
    }

    fn observable(&self, target: &Spanned<Target<'_>>) -> Result<Observable, ParseError> {
        match target.value {
            Target::Memory(name) => Ok(Observable::Memory(self.location(name, &target.span)?)),
            Target::Register { thread, name } => {
                let (register, _) = self.register(name, &target.span)?;
                match usize::try_from(thread) {
                    Ok(thread) if thread < self.threads => {
                        Ok(Observable::Register { thread, register })
                    }
                    _ => Err(self.wrong(
                        &target.span,
                        format!(
                            "there is no thread {thread}; expected 0 to {}",
                            self.threads - 1
                        ),
                    )),
                }
            }
        }
    }

    fn location(&self, name: &str, span: &Range<usize>) -> Result<Location, ParseError> {
        name.parse()
            .map_err(|error: crate::test::NoLocation| self.wrong(span, error.to_string()))
    }

    fn register(&self, name: &str, span: &Range<usize>) -> Result<(Register, Width), ParseError> {
        Register::named(name).ok_or_else(|| {
            let problem = format!(
                "expected a register (rax to r15 or eax to r15d, without the stack pointer), found `{name}`"
            );
            self.wrong(span, problem)
        })
    }

    /// Notes what an item of the initial state says.
    fn initial(
        &self,
        item: &Item<'_>,
        parts: &mut Parts,
        places: &mut BTreeMap<Location, usize>,
    ) -> Result<(), ParseError> {
        let observable = self.observable(&item.target)?;
        let width = item.kind.as_ref().map(|kind| {
            let known = TYPES.iter().find(|(name, _)| *name == kind.value);
            known.map(|(_, width)| *width).ok_or_else(|| {
                let names: Vec<_> = TYPES.iter().map(|(name, _)| *name).collect();
                let problem = format!(
                    "expected one of the types {}, found `{}`",
                    names.join(", "),
                    kind.value
                );
                self.wrong(&kind.span, problem)
            })
        });
        let width = width.transpose()?;
        let again = || {
            let problem = format!("`{observable}` is in the initial state twice");
            self.wrong(&item.target.span, problem)
        };
        if width.is_some() {
            parts.observed.insert(observable.clone());
        }
        match &observable {
            Observable::Memory(location) => {
                if let Some(width) = width {
                    let known = parts.widths.insert(location.clone(), width);
                    if known.is_some_and(|known| known != width) {
                        return Err(again());
                    }
                }
                if let Some(value) = &item.value {
                    places.insert(location.clone(), value.span.start);
                    let known = parts.initial.insert(location.clone(), value.value);
                    if known.is_some() {
                        return Err(again());
                    }
                }
            }
            Observable::Register { thread, register } => {
                if let Some(value) = &item.value {
                    let registers = &mut parts.threads[*thread].initial;
                    if registers.insert(*register, value.value).is_some() {
                        return Err(again());
                    }
                }
            }
        }
        Ok(())
    }

    fn proposition(&self, clause: Clause<'_>) -> Result<Proposition, ParseError> {
        let each = |of: Vec<Clause<'_>>| -> Result<Vec<_>, _> {
            of.into_iter().map(|of| self.proposition(of)).collect()
        };
        Ok(match clause {
            Clause::Equal(target, value) => Proposition::Equal(self.observable(&target)?, value),
            Clause::Not(of) => Proposition::Not(Box::new(self.proposition(*of)?)),
            Clause::All(of) => Proposition::All(each(of)?),
            Clause::Any(of) => Proposition::Any(each(of)?),
        })
    }
}
