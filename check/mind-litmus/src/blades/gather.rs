//! Combines the participants' answers into outcomes: each has the registers of its threads, or the variables, of some
//! copies.

use super::job::Seen;
use super::participant::observed_registers;
use super::plan::Plan;
use crate::{
    histogram::Histogram,
    test::{Observable, Outcome, Test},
};

/// A participant whose answer does not fit the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has {told} {of}; the plan wants {wanted}")]
pub struct Mismatch {
    /// Which participant.
    pub participant: usize,
    /// Of what.
    pub of: &'static str,
    /// How many it has.
    pub told: usize,
    /// How many there should be.
    pub wanted: usize,
}

/// The outcomes of all copies of a batch, from what each participant saw.
///
/// # Errors
///
/// If an answer does not fit the plan.
pub fn gather(test: &Test, plan: &Plan, seen: &[Seen]) -> Result<Histogram, Mismatch> {
    let variables = test
        .observed()
        .iter()
        .filter(|of| matches!(of, Observable::Memory(_)))
        .count();
    let registers: Vec<usize> = (0..test.threads().len())
        .map(|thread| observed_registers(test, thread).count())
        .collect();
    let ran = ["copies that it ran", "registers of a copy"];
    let mut threads = Answers::new(ran, seen.iter().map(|seen| &seen.registers));
    let own_copies = ["copies that it observed", "variables of a copy"];
    let mut observers = Answers::new(own_copies, seen.iter().map(|seen| &seen.memory));
    let mut outcomes = Vec::with_capacity(plan.copies.len());
    for copy in &plan.copies {
        // In the order of what is observed: registers by thread, then memory.
        let mut values = Vec::with_capacity(test.observed().len());
        for (participant, count) in copy.participants.iter().zip(&registers) {
            values.extend(threads.next(*participant, *count)?);
        }
        values.extend(observers.next(copy.observer, variables)?);
        let mut values = values.into_iter();
        // As many as are observed, or a participant's answer did not fit.
        outcomes.push(Outcome::new(test, |_| values.next().unwrap_or(0)));
    }
    threads.end()?;
    observers.end()?;
    Ok(outcomes.into_iter().collect())
}

/// The values of each participant, copy by copy.
struct Answers<'s> {
    /// What copies and values are, for errors.
    of: [&'static str; 2],
    values: Vec<&'s [Vec<u64>]>,
    taken: Vec<usize>,
}

impl<'s> Answers<'s> {
    fn new(of: [&'static str; 2], values: impl Iterator<Item = &'s Vec<Vec<u64>>>) -> Self {
        let values: Vec<&[_]> = values.map(Vec::as_slice).collect();
        let taken = vec![0; values.len()];
        Self { of, values, taken }
    }

    /// The values of the next copy in the answer of `participant`.
    fn next(&mut self, participant: usize, wanted: usize) -> Result<&'s [u64], Mismatch> {
        let all = self.values.get(participant).copied().unwrap_or_default();
        let taken = self.taken.get(participant).copied().unwrap_or_default();
        let [copies, each] = self.of;
        let mismatch = |of, told, wanted| Mismatch {
            participant,
            of,
            told,
            wanted,
        };
        let values = all
            .get(taken)
            .ok_or_else(|| mismatch(copies, taken, taken + 1))?;
        if values.len() != wanted {
            return Err(mismatch(each, values.len(), wanted));
        }
        self.taken[participant] += 1;
        Ok(values)
    }

    /// No more copies come.
    fn end(&self) -> Result<(), Mismatch> {
        for (participant, (values, taken)) in self.values.iter().zip(&self.taken).enumerate() {
            if values.len() != *taken {
                return Err(Mismatch {
                    participant,
                    of: self.of[0],
                    told: values.len(),
                    wanted: *taken,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blades::layout::Layout;
    use crate::family;

    /// MP, whose thread 1 observes two registers; answers in which copy number n has the registers
    /// n and n + 100, and 7 in memory.
    fn ran(copies: usize) -> (Test, Plan, Vec<Seen>) {
        let test = family::test(&family::named("MP").unwrap()).unwrap();
        let plan = Plan::new(&test, Layout::OnePage, copies, 3, 5).unwrap();
        let mut seen = vec![Seen::default(); 3];
        for (number, copy) in plan.copies.iter().enumerate() {
            let number = number as u64;
            seen[copy.participants[0]].registers.push(Vec::new());
            let registers = vec![number, number + 100];
            seen[copy.participants[1]].registers.push(registers);
            seen[copy.observer].memory.push(vec![7, 7]);
        }
        (test, plan, seen)
    }

    #[test]
    fn values_come_together_copy_by_copy() {
        let (test, plan, seen) = ran(20);
        let histogram = gather(&test, &plan, &seen).unwrap();
        assert_eq!(histogram.copies(), 20);
        let outcomes: Vec<_> = histogram.iter().collect();
        assert_eq!(outcomes.len(), 20);
        for (number, (outcome, count)) in outcomes.into_iter().enumerate() {
            let number = number as u64;
            assert_eq!(
                (outcome.values(), count),
                (&[number, number + 100, 7, 7][..], 1)
            );
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_is_named() {
        let (test, plan, good) = ran(20);
        let error = |change: fn(&mut Seen)| {
            let mut seen = good.clone();
            change(&mut seen[1]);
            gather(&test, &plan, &seen).unwrap_err()
        };
        let missing = error(|seen| {
            seen.registers.pop();
        });
        assert_eq!((missing.participant, missing.of), (1, "copies that it ran"));
        let more = error(|seen| seen.memory.push(vec![7, 7]));
        assert_eq!(
            (more.of, more.told),
            ("copies that it observed", more.wanted + 1)
        );
        let short = error(|seen| {
            seen.memory[0].pop();
        });
        assert_eq!(
            short.to_string(),
            "it has 1 variables of a copy; the plan wants 2"
        );
        assert!(gather(&test, &plan, &good[..1]).is_err());
    }
}
