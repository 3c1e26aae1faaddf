//! The machine with store buffers and the axioms are two definitions of x86-TSO that are known to be
//! the same (Owens, Sarkar, Sewell: "A Better x86 Memory Model: x86-TSO", TPHOLs 2009). They agree on
//! arbitrary programs.

#[path = "common/arbitrary.rs"]
mod arbitrary;

use arbitrary::Limits;
use mind_litmus::candidates::{self, Axioms};
use mind_litmus::machine::Model;
use mind_litmus::oracle::{self, Allowed, Reach};
use mind_litmus::parser::parse;
use proptest::prelude::*;

fn agree(limits: Limits, cases: u32) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    let checked = runner.run(&arbitrary::tests(limits), |test| {
        let allowed = Allowed::of(&test).unwrap();
        let [tso, sc, coherence] = [Axioms::Tso, Axioms::Sc, Axioms::Coherence]
            .map(|axioms| candidates::outcomes(&test, axioms).unwrap());
        prop_assert_eq!(allowed.outcomes(Model::Tso), &tso, "{}", &test);
        prop_assert_eq!(allowed.outcomes(Model::Sc), &sc, "{}", &test);
        prop_assert!(sc.is_subset(&tso) && tso.is_subset(&coherence), "{}", &test);
        prop_assert!(!sc.is_empty());
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn two_threads_of_four_instructions() {
    let limits = Limits {
        threads: 2,
        instructions: 4,
        compare_exchange: false,
        dense: true,
    };
    agree(limits, 2000);
}

#[test]
fn three_threads_of_three_instructions() {
    let limits = Limits {
        threads: 3,
        instructions: 3,
        compare_exchange: false,
        dense: true,
    };
    agree(limits, 1000);
}

/// Where one thread is alone, a program does what it says.
fn end_of(program: &str, initial: &str) -> String {
    let text = format!("X86_64 A\n{{ {initial} }} P0 ; {program} ; forall true");
    let test = parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let [tso, sc] = [Model::Tso, Model::Sc].map(|model| oracle::outcomes(&test, model).unwrap());
    assert_eq!(tso, sc, "{text}");
    let ends: Vec<_> = tso.iter().map(|of| of.shown(&test).to_string()).collect();
    ends.join(", ")
}

#[test]
fn instructions_do_what_the_manual_says() {
    let quad = "uint64_t x=5; uint64_t 0:rax=7; uint64_t 0:rbx=9";
    for (program, end) in [
        ("movq (x),%rax", "0:rax=5 0:rbx=9 x=5"),
        ("movq %rax,(x)", "0:rax=7 0:rbx=9 x=7"),
        ("movq $1,(x); movq (x),%rax", "0:rax=1 0:rbx=9 x=1"),
        ("movq %rax,%rbx", "0:rax=7 0:rbx=7 x=5"),
        ("xchgq %rax,(x)", "0:rax=5 0:rbx=9 x=7"),
        ("lock xaddq %rax,(x)", "0:rax=5 0:rbx=9 x=12"),
        ("lock addq $2,(x); lock incq (x)", "0:rax=7 0:rbx=9 x=8"),
        ("lock addq %rbx,(x)", "0:rax=7 0:rbx=9 x=14"),
        // Memory is not as rax: it goes there.
        ("lock cmpxchgq %rbx,(x)", "0:rax=5 0:rbx=9 x=5"),
        // Now it is: rbx is stored.
        (
            "lock cmpxchgq %rbx,(x); lock cmpxchgq %rbx,(x)",
            "0:rax=5 0:rbx=9 x=9",
        ),
        ("mfence; lfence; sfence; nop", "0:rax=7 0:rbx=9 x=5"),
    ] {
        assert_eq!(end_of(program, quad), end, "{program}");
    }
    let long = "uint32_t x=4294967295; uint64_t 0:rax=8589934593; uint64_t 0:rbx=2";
    for (program, end) in [
        // The upper half of the register is not stored, and is cleared.
        ("movl %eax,(x)", "0:rax=8589934593 0:rbx=2 x=1"),
        ("movl %eax,%ebx", "0:rax=8589934593 0:rbx=1 x=4294967295"),
        ("movl (x),%eax", "0:rax=4294967295 0:rbx=2 x=4294967295"),
        ("xchgl %eax,(x)", "0:rax=4294967295 0:rbx=2 x=1"),
        (
            "lock xaddl %ebx,(x)",
            "0:rax=8589934593 0:rbx=4294967295 x=1",
        ),
        ("lock incl (x)", "0:rax=8589934593 0:rbx=2 x=0"),
    ] {
        assert_eq!(end_of(program, long), end, "{program}");
    }
}

#[test]
fn one_of_two_that_compare_and_exchange_wins() {
    let text = "X86_64 A
        { uint64_t x; uint64_t 0:rax; uint64_t 1:rax; 0:rbx=1; 1:rbx=2; }
        P0 | P1 ; lock cmpxchgq %rbx,(x) | lock cmpxchgq %rbx,(x) ; forall true";
    let test = parse(text).unwrap();
    let allowed = Allowed::of(&test).unwrap();
    let tso = allowed.outcomes(Model::Tso);
    let ends: Vec<_> = tso.iter().map(|of| of.shown(&test).to_string()).collect();
    assert_eq!(ends, ["0:rax=0 1:rax=1 x=1", "0:rax=2 1:rax=0 x=2"]);
    assert!(candidates::outcomes(&test, Axioms::Tso).is_err());
}

/// Store buffering with something between the store and the load.
fn store_buffering(between: &str) -> Reach {
    let text = format!(
        "X86_64 A\n{{ }} P0 | P1 ; movq $1,(x) | movq $1,(y) ; {between} | {between} ;
        movq (y),%rax | movq (x),%rax ; exists (0:rax=0 /\\ 1:rax=0)"
    );
    let test = parse(&text).unwrap();
    Allowed::of(&test).unwrap().reach(&test, Model::Tso)
}

#[test]
fn locked_instructions_are_fences_and_lfence_and_sfence_are_not() {
    for fence in [
        "mfence",
        "lock addq $0,(z)",
        "xchgq %rbx,(z)",
        "lock cmpxchgq %rbx,(z)",
    ] {
        assert_eq!(store_buffering(fence), Reach::Never, "{fence}");
    }
    for none in [
        "",
        "lfence",
        "sfence",
        "nop",
        "movq (z),%rbx",
        "movq $1,(z)",
    ] {
        assert_eq!(store_buffering(none), Reach::Sometimes, "{none}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let threads = 32;
    let names: Vec<_> = (0..threads).map(|thread| format!("P{thread}")).collect();
    let row = vec!["xchgq %rax,(x)"; threads].join("|");
    let text = format!(
        "X86_64 big\n{{ }} {}; {row}; {row}; {row}; exists (x=1)",
        names.join("|")
    );
    let test = parse(&text).unwrap();
    let error = Allowed::of(&test).unwrap_err();
    assert!(error.to_string().contains("`big` is too large"), "{error}");
    let error = candidates::outcomes(&test, Axioms::Tso).unwrap_err();
    assert!(error.to_string().contains("too many"), "{error}");
}
