//! The oracle gives the verdicts that the literature gives. Both kinds of oracle do: the machine
//! with store buffers, and the axioms.

use mind_litmus::candidates::{self, Axioms};
use mind_litmus::cycle::Cycle;
use mind_litmus::family;
use mind_litmus::generator::{self, Question};
use mind_litmus::machine::Model;
use mind_litmus::names;
use mind_litmus::oracle::{Allowed, Reach};
use mind_litmus::parser;
use mind_litmus::test::Test;

/// What a model makes of a test's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Forbidden by x86-TSO.
    Forbidden,
    /// Allowed by x86-TSO and forbidden by sequential consistency.
    TsoOnly,
}
use Verdict::{Forbidden, TsoOnly};

/// Asks both oracles.
fn verdict(test: &Test) -> Verdict {
    let allowed = Allowed::of(test).unwrap();
    for (model, axioms) in [(Model::Tso, Axioms::Tso), (Model::Sc, Axioms::Sc)] {
        let by_axioms = candidates::outcomes(test, axioms).unwrap();
        assert_eq!(
            allowed.outcomes(model),
            &by_axioms,
            "machine and axioms differ for\n{test}"
        );
    }
    let reach = |model| allowed.reach(test, model);
    match (reach(Model::Tso), reach(Model::Sc)) {
        (Reach::Never, Reach::Never) => Forbidden,
        (Reach::Sometimes, Reach::Never) => TsoOnly,
        other => panic!("no cycle is {other:?}:\n{test}"),
    }
}

/// The names are those of Alglave, Maranget, Tautschnig: "Herding Cats", TOPLAS 36(2), 2014, and of
/// Maranget, Sarkar, Sewell: "A Tutorial Introduction to the ARM and POWER Relaxed Memory Models",
/// 2012. For x86 they follow from what is said there of TSO (only a store and a later load of
/// another location are not kept in order, and `mfence` keeps them); those of 2+2W, LB, MP, R, RWC,
/// S, SB, WRC, WRR+2W, WRW+2W, WRW+WR and WWC, with and without fences and forwarding, are in the
/// list of the herd tools' own catalogue for x86_64 as well.
#[test]
fn named_tests_have_the_verdicts_of_the_literature() {
    for (name, expected) in [
        ("SB", TsoOnly),
        ("SB+mfence+po", TsoOnly),
        ("SB+mfences", Forbidden),
        ("MP", Forbidden),
        ("MP+mfences", Forbidden),
        ("LB", Forbidden),
        ("LB+mfences", Forbidden),
        ("R", TsoOnly),
        ("R+mfence+po", TsoOnly),
        ("R+po+mfence", Forbidden),
        ("R+mfences", Forbidden),
        ("S", Forbidden),
        ("S+mfences", Forbidden),
        ("2+2W", Forbidden),
        ("2+2W+mfences", Forbidden),
        ("IRIW", Forbidden),
        ("IRIW+mfences", Forbidden),
        ("IRRWIW", Forbidden),
        ("IRWIW", Forbidden),
        ("WRC", Forbidden),
        ("WRC+mfences", Forbidden),
        ("ISA2", Forbidden),
        ("ISA2+mfences", Forbidden),
        ("RWC", TsoOnly),
        ("RWC+po+mfence", Forbidden),
        ("RWC+mfences", Forbidden),
        ("WWC", Forbidden),
        ("WRR+2W", Forbidden),
        ("WRW+2W", Forbidden),
        ("WRW+WR", TsoOnly),
        ("WRW+WR+po+mfence", Forbidden),
        ("W+RWC", TsoOnly),
        ("Z6.0", TsoOnly),
        ("Z6.1", Forbidden),
        ("Z6.2", Forbidden),
        ("Z6.3", Forbidden),
        ("Z6.4", TsoOnly),
        ("Z6.5", TsoOnly),
        ("3.SB", TsoOnly),
        ("3.SB+mfences", Forbidden),
        ("3.LB", Forbidden),
        ("3.2W", Forbidden),
        ("CoRR", Forbidden),
        ("CoWW", Forbidden),
        ("CoRW1", Forbidden),
        ("CoRW2", Forbidden),
        ("CoWR", Forbidden),
        ("CoWR0", Forbidden),
    ] {
        let cycle = family::named(name).unwrap_or_else(|| panic!("{name} has no cycle"));
        let test = generator::generate(name, &cycle, Question::Cycle).unwrap();
        assert_eq!(verdict(&test), expected, "{test}");
        // What the collection asks at one location: whether memory is coherent.
        let test = family::test(&cycle).unwrap();
        assert_eq!(verdict(&test), expected, "{test}");
    }
}

/// A thread reads its own store before others do: "Intra-processor forwarding is allowed" (Intel).
/// The verdicts are those of the herd tools' catalogue for x86_64.
#[test]
fn forwarding_is_allowed() {
    for (cycle, name, expected) in [
        ("Rfi PodRR Fre Rfi PodRR Fre", "SB+rfi-pos", TsoOnly),
        ("MFencedWR Fre Rfi PodRR Fre", "SB+mfence+rfi-po", TsoOnly),
        (
            "MFencedWR Fre PodWW Rfi PodRR Fre",
            "SB+mfence+po-rfi-po",
            TsoOnly,
        ),
        ("PodWW Coe Rfi PodRR Fre", "R+po+rfi-po", TsoOnly),
        ("Rfe PodRR Fre Rfi PodRR Fre", "RWC+po+rfi-po", TsoOnly),
        ("Rfe PodRW Coe Rfi PodRR Fre", "WRW+WR+po+rfi-po", TsoOnly),
        (
            "PodWW Rfe PodRW Rfi PodRR Fre",
            "MP+po+po-rfi-po",
            Forbidden,
        ),
    ] {
        let cycle: Cycle = cycle.parse().unwrap();
        assert_eq!(names::name(&cycle), name);
        let test = generator::generate(name, &cycle, Question::Cycle).unwrap();
        assert_eq!(verdict(&test), expected, "{test}");
    }
}

/// A test from its threads, their instructions separated by `;`, and its condition. `xchg` stores
/// 1, which all registers r15 begin as.
fn test(name: &str, threads: &[&str], condition: &str) -> Test {
    let mut text = format!("X86_64 {name}\n{{");
    let threads: Vec<Vec<&str>> = threads
        .iter()
        .map(|thread| thread.split(';').map(str::trim).collect())
        .collect();
    for thread in 0..threads.len() {
        text += &format!("{thread}:r15=1;");
    }
    text += "}\n";
    let names = (0..threads.len()).map(|thread| format!("P{thread}"));
    text += &(names.collect::<Vec<_>>().join("|") + ";\n");
    for row in 0..threads.iter().map(Vec::len).max().unwrap() {
        let cells = threads
            .iter()
            .map(|thread| thread.get(row).copied().unwrap_or(""));
        text += &(cells.collect::<Vec<_>>().join("|") + ";\n");
    }
    text += &format!("exists ({condition})\n");
    parser::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const WX1: &str = "movq $1,(x)";
const WY1: &str = "movq $1,(y)";
const XCHG_X: &str = "xchgq %r15,(x)";
const XCHG_Y: &str = "xchgq %r15,(y)";

/// The examples of Intel's manual (Software Developer's Manual, volume 3A, section 8.2.3), which
/// Sewell, Sarkar, Owens, Zappa Nardelli, Myreen (CACM 53(7), 2010, section 3.2) go through.
#[test]
fn the_examples_of_the_manual_have_its_verdicts() {
    let xy = "movq (x),%rax; movq (y),%rbx";
    let yx = "movq (y),%rax; movq (x),%rbx";
    let both = "1:rax=1 /\\ 1:rbx=0";
    let readers = "2:rax=1 /\\ 2:rbx=0 /\\ 3:rax=1 /\\ 3:rbx=0";
    let [wx1, wy1] = [WX1, WY1];
    for (name, threads, condition, expected) in [
        (
            "8-1",
            vec![format!("{wx1};{wy1}"), yx.into()],
            both,
            Forbidden,
        ),
        (
            "8-2",
            vec![
                format!("movq (x),%rax;{wy1}"),
                format!("movq (y),%rax;{wx1}"),
            ],
            "0:rax=1 /\\ 1:rax=1",
            Forbidden,
        ),
        (
            "8-3",
            vec![
                format!("{wx1};movq (y),%rax"),
                format!("{wy1};movq (x),%rax"),
            ],
            "0:rax=0 /\\ 1:rax=0",
            TsoOnly,
        ),
        (
            "8-4",
            vec![format!("{wx1};movq (x),%rax")],
            "0:rax=0",
            Forbidden,
        ),
        (
            "8-5",
            vec![format!("{wx1};{xy}"), format!("{wy1};{yx}")],
            "0:rax=1 /\\ 0:rbx=0 /\\ 1:rax=1 /\\ 1:rbx=0",
            TsoOnly,
        ),
        (
            "8-6",
            vec![wx1.into(), format!("movq (x),%rax;{wy1}"), yx.into()],
            "1:rax=1 /\\ 2:rax=1 /\\ 2:rbx=0",
            Forbidden,
        ),
        (
            "8-7",
            vec![wx1.into(), wy1.into(), xy.into(), yx.into()],
            readers,
            Forbidden,
        ),
        (
            "8-8",
            vec![XCHG_X.into(), XCHG_Y.into(), xy.into(), yx.into()],
            readers,
            Forbidden,
        ),
        (
            "8-9",
            vec![
                format!("{XCHG_X};movq (y),%rax"),
                format!("{XCHG_Y};movq (x),%rax"),
            ],
            "0:rax=0 /\\ 1:rax=0",
            Forbidden,
        ),
        (
            "8-10",
            vec![format!("{XCHG_X};{wy1}"), yx.into()],
            both,
            Forbidden,
        ),
    ] {
        let threads: Vec<&str> = threads.iter().map(String::as_str).collect();
        let test = test(name, &threads, condition);
        assert_eq!(verdict(&test), expected, "{test}");
    }
}

/// The further tests of Owens, Sarkar, Sewell: "A Better x86 Memory Model: x86-TSO (Extended
/// Version)", UCAM-CL-TR-745, 2009; n8 as its errata have it. Those from n5 on are in the CACM paper.
#[test]
fn the_tests_of_the_x86_tso_papers_have_their_verdicts() {
    for (name, threads, condition, expected) in [
        (
            "iwp2.3.b",
            vec!["movq $1,(x); movq (x),%rax", "movq $1,(y); movq (y),%rax"],
            "0:rax=0 /\\ 1:rax=0",
            Forbidden,
        ),
        (
            "iwp2.6",
            vec![
                "movq $1,(x)",
                "movq $2,(x)",
                "movq (x),%rax; movq (x),%rbx",
                "movq (x),%rax; movq (x),%rbx",
            ],
            "2:rax=1 /\\ 2:rbx=2 /\\ 3:rax=2 /\\ 3:rbx=1",
            Forbidden,
        ),
        (
            "amd3",
            vec![
                "movq $1,(x); movq $2,(x); movq (y),%rax",
                "movq $1,(y); movq $2,(y); movq (x),%rax",
            ],
            "0:rax=1 /\\ 1:rax=1",
            TsoOnly,
        ),
        (
            "amd10",
            vec![
                "movq $1,(x); mfence; movq (x),%rax; movq (y),%rbx",
                "movq $1,(y); mfence; movq (y),%rax; movq (x),%rbx",
            ],
            "0:rax=1 /\\ 0:rbx=0 /\\ 1:rax=1 /\\ 1:rbx=0",
            Forbidden,
        ),
        (
            "n1",
            vec![
                "movq $2,(x); movq (y),%rax",
                "movq $1,(y); movq $1,(x)",
                "movq (x),%rax; movq (x),%rbx",
            ],
            "0:rax=0 /\\ 2:rax=1 /\\ 2:rbx=2",
            TsoOnly,
        ),
        (
            "n2",
            vec![
                "movq $1,(y); movq $1,(x)",
                "movq $2,(x); movq $1,(z)",
                "movq (x),%rax; movq (x),%rbx",
                "movq (z),%rax; movq (y),%rbx",
            ],
            "2:rax=1 /\\ 2:rbx=2 /\\ 3:rax=1 /\\ 3:rbx=0",
            Forbidden,
        ),
        (
            "n3",
            vec![
                "xchgq %r15,(x)",
                "movq $1,(y)",
                "movq (y),%rax; movq (x),%rbx; movq (x),%rcx",
                "movq (x),%rax; movq (y),%rbx; movq (y),%rcx",
            ],
            "2:rax=1 /\\ 2:rbx=0 /\\ 2:rcx=1 /\\ 3:rax=1 /\\ 3:rbx=0 /\\ 3:rcx=1",
            Forbidden,
        ),
        (
            "n4",
            vec![
                "movq (x),%rax; movq $1,(x); movq (x),%rbx",
                "movq (x),%rax; movq $2,(x); movq (x),%rbx",
            ],
            "0:rax=2 /\\ 0:rbx=1 /\\ 1:rax=1 /\\ 1:rbx=2",
            Forbidden,
        ),
        (
            "n8",
            vec![
                "xchgq %r15,(x); movq (y),%rax",
                "movq $1,(y); movq (x),%rax",
            ],
            "0:rax=0 /\\ 1:rax=0",
            TsoOnly,
        ),
        (
            "n5",
            vec!["movq $1,(x); movq (x),%rax", "movq $2,(x); movq (x),%rax"],
            "0:rax=2 /\\ 1:rax=1",
            Forbidden,
        ),
        (
            "n4b",
            vec!["movq (x),%rax; movq $1,(x)", "movq (x),%rax; movq $2,(x)"],
            "0:rax=2 /\\ 1:rax=1",
            Forbidden,
        ),
        (
            "n6",
            vec![
                "movq $1,(x); movq (x),%rax; movq (y),%rbx",
                "movq $2,(y); movq $2,(x)",
            ],
            "0:rax=1 /\\ 0:rbx=0 /\\ x=1",
            TsoOnly,
        ),
        (
            "n7",
            vec![
                "movq $1,(x); movq (x),%rax; movq (y),%rbx",
                "movq $1,(y)",
                "movq (y),%rax; movq (x),%rbx",
            ],
            "0:rax=1 /\\ 0:rbx=0 /\\ 2:rax=1 /\\ 2:rbx=0",
            TsoOnly,
        ),
    ] {
        let test = test(name, &threads, condition);
        assert_eq!(verdict(&test), expected, "{test}");
    }
}

/// Among critical cycles, those that x86-TSO allows are those in which a store and a later load of
/// one thread have no `mfence` between (Alglave et al., TOPLAS 2014: the axioms of TSO).
#[test]
fn a_critical_cycle_is_allowed_if_and_only_if_a_store_and_load_are_not_fenced() {
    let cycles = family::critical(family::Size {
        threads: 4,
        length: 8,
    });
    assert_eq!(cycles.len(), 611);
    for cycle in cycles {
        let relaxed = cycle.edges().iter().any(|edge| edge.to_string() == "PodWR");
        let expected = if relaxed { TsoOnly } else { Forbidden };
        assert_eq!(verdict(&family::test(&cycle).unwrap()), expected, "{cycle}");
    }
}
