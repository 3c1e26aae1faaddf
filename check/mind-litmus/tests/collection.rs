//! The public collection of x86 tests, which the diy tools have made: it is read, and the generator
//! makes the same tests from their cycles.

mod common;

use std::collections::BTreeSet;

use mind_litmus::candidates::{self, Axioms};
use mind_litmus::cycle::Cycle;
use mind_litmus::family::{self, Size};
use mind_litmus::generator::{self, Question};
use mind_litmus::machine::Model;
use mind_litmus::oracle::Allowed;
use mind_litmus::test::{Quantifier, Test};
use mind_litmus::{files, names, parser};

/// How many tests the collection has.
const TESTS: usize = 644;

/// Its tests with their cycles.
fn tests() -> Option<Vec<(Test, Cycle)>> {
    let load = |path: std::path::PathBuf| {
        let test = files::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let cycle = test
            .info("Orig")
            .expect("each file names its cycle")
            .parse();
        (
            test,
            cycle.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
    };
    let tests: Vec<_> = common::collection()?.into_iter().map(load).collect();
    assert_eq!(tests.len(), TESTS);
    Some(tests)
}

#[test]
fn every_file_is_read_and_printed_and_read_again() {
    for (test, _) in tests().unwrap_or_default() {
        assert_eq!(
            parser::parse(&test.to_string()).as_ref(),
            Ok(&test),
            "{test}"
        );
    }
}

#[test]
fn the_generator_makes_every_test_from_its_cycle() {
    let Some(tests) = tests() else { return };
    let (mut programs, mut outcomes, mut verdicts) = (0, 0, 0);
    for (test, cycle) in &tests {
        // The folder CO asks for all that coherence allows.
        let question = match cycle.has_one_location() || test.to_string().contains("not (") {
            true => Question::Coherence,
            false => Question::Cycle,
        };
        let made = generator::generate(test.name(), cycle, question).unwrap();
        programs += usize::from(made.threads() == test.threads());
        let (theirs, ours) = (Allowed::of(test).unwrap(), Allowed::of(&made).unwrap());
        outcomes += usize::from(made.observed() == test.observed() && ours == theirs);

        // The same condition: of whatever coherent memory could show, it holds in the same. Four
        // files say for all outcomes what ours says for none.
        let negated = test.condition().quantifier == Quantifier::ForAll;
        let coherent = candidates::outcomes(test, Axioms::Coherence).unwrap();
        let same = coherent
            .iter()
            .all(|outcome| made.holds_in(outcome) != (test.holds_in(outcome) == negated));
        let reached = |model| ours.reach(&made, model) == theirs.reach(test, model);
        verdicts += usize::from(same && (negated || reached(Model::Tso) && reached(Model::Sc)));
    }
    println!(
        "of {} files: {programs} with the same programs, {outcomes} with the same outcomes allowed, \
         {verdicts} with the same verdict",
        tests.len()
    );
    assert_eq!((programs, outcomes, verdicts), (TESTS, TESTS, TESTS));
}

#[test]
fn machine_and_axioms_agree_on_every_file() {
    for (test, _) in tests().unwrap_or_default() {
        let allowed = Allowed::of(&test).unwrap();
        for (model, axioms) in [(Model::Tso, Axioms::Tso), (Model::Sc, Axioms::Sc)] {
            let by_axioms = candidates::outcomes(&test, axioms).unwrap();
            assert_eq!(allowed.outcomes(model), &by_axioms, "{test}");
        }
    }
}

#[test]
fn every_test_has_the_name_of_its_cycle() {
    for (test, cycle) in tests().unwrap_or_default() {
        let name = match test.name() {
            // The same cycles once more, with another condition or another value.
            "CoRR1" => "CoRR",
            "CoRW" => "CoRW2",
            name => name,
        };
        assert_eq!(names::name(&cycle), name);
    }
}

#[test]
fn the_projects_own_collection_has_every_test_of_it() {
    let Some(tests) = tests() else { return };
    let own = family::collection(Size {
        threads: 4,
        length: 8,
    })
    .unwrap();
    // The folder CO has tests of MP and others that ask for coherence as well.
    let mut found = BTreeSet::new();
    for (test, cycle) in &tests {
        let name = names::name(cycle);
        let own = own
            .get(&name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        // That one begins with the other thread.
        if test.name() != "CoRW" {
            assert_eq!(own.threads(), test.threads(), "{own}\n{test}");
        }
        found.insert(name);
    }
    let more: Vec<_> = own.keys().filter(|name| !found.contains(*name)).collect();
    println!(
        "{} tests of our own, {} of them in the files; not there: {more:?}",
        own.len(),
        found.len()
    );
    assert_eq!(own.len() - found.len(), 11, "{more:?}");
}
