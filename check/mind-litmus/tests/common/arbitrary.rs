//! Arbitrary tests: a few threads that access a few locations in all ways.

use std::collections::{BTreeMap, BTreeSet};

use mind_litmus::test::{
    Condition, Fence, Instruction, Location, Observable, Operand, Parts, Proposition, Quantifier,
    Register, Test, Thread, Width,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

/// How large arbitrary tests are, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub threads: usize,
    /// Of each thread.
    pub instructions: usize,
    /// Whether there are instructions that write or not, depending on what they read.
    pub compare_exchange: bool,
    /// Whether tests are as large as they may be and all is observed, so that what threads do to
    /// each other is seen.
    pub dense: bool,
}

const LOCATIONS: [&str; 3] = ["x", "y", "z_1"];
const REGISTERS: [Register; 3] = [Register::Rax, Register::Rbx, Register::R8];

fn location() -> impl Strategy<Value = Location> {
    (0..LOCATIONS.len()).prop_map(|number| LOCATIONS[number].parse().unwrap())
}

fn register() -> impl Strategy<Value = Register> {
    (0..REGISTERS.len()).prop_map(|number| REGISTERS[number])
}

fn width() -> impl Strategy<Value = Width> {
    prop_oneof![Just(Width::Long), Just(Width::Quad)]
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        4 => (0..4_u32).prop_map(Operand::Immediate),
        1 => Just(Operand::Immediate(Operand::LARGEST)),
        3 => register().prop_map(Operand::Register),
    ]
}

/// An instruction; the width of its access is to be set.
fn instruction(compare_exchange: bool) -> impl Strategy<Value = Instruction> {
    let width = Width::Quad;
    let locked = if compare_exchange { 1 } else { 0 };
    prop_oneof![
        4 => (location(), register())
            .prop_map(move |(from, to)| Instruction::Load { width, from, to }),
        4 => (operand(), location())
            .prop_map(move |(value, to)| Instruction::Store { width, value, to }),
        1 => (operand(), register(), self::width())
            .prop_map(|(value, to, width)| Instruction::Move { width, value, to }),
        1 => (register(), location()).prop_map(move |(register, location)| {
            Instruction::Exchange { width, register, location }
        }),
        1 => (register(), location()).prop_map(move |(register, location)| {
            Instruction::FetchAdd { width, register, location }
        }),
        1 => (operand(), location())
            .prop_map(move |(value, location)| Instruction::Add { width, value, location }),
        locked => (register(), location()).prop_map(move |(new, location)| {
            Instruction::CompareExchange { width, new, location }
        }),
        2 => prop_oneof![4 => Just(Fence::Memory), 1 => Just(Fence::Load), 1 => Just(Fence::Store)]
            .prop_map(Instruction::Fence),
    ]
}

/// The instruction with the width that its location has.
fn resized(mut instruction: Instruction, widths: &BTreeMap<Location, Width>) -> Instruction {
    match &mut instruction {
        Instruction::Load {
            width, from: of, ..
        }
        | Instruction::Store { width, to: of, .. }
        | Instruction::Exchange {
            width,
            location: of,
            ..
        }
        | Instruction::FetchAdd {
            width,
            location: of,
            ..
        }
        | Instruction::Add {
            width,
            location: of,
            ..
        }
        | Instruction::CompareExchange {
            width,
            location: of,
            ..
        } => *width = widths[of],
        Instruction::Move { .. } | Instruction::Fence(_) => (),
    }
    instruction
}

fn observable(threads: usize) -> impl Strategy<Value = Observable> {
    prop_oneof![
        (0..threads, register())
            .prop_map(|(thread, register)| Observable::Register { thread, register }),
        location().prop_map(Observable::Memory),
    ]
}

/// All that a test of so many threads may observe.
fn all(threads: usize) -> BTreeSet<Observable> {
    let registers = (0..threads)
        .flat_map(|thread| REGISTERS.map(|register| Observable::Register { thread, register }));
    let memory = LOCATIONS.map(|name| Observable::Memory(name.parse().unwrap()));
    registers.chain(memory).collect()
}

fn proposition(threads: usize) -> impl Strategy<Value = Proposition> {
    let leaf = (observable(threads), prop_oneof![0..4_u64, any::<u64>()])
        .prop_map(|(of, value)| Proposition::Equal(of, value));
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|of| Proposition::Not(Box::new(of))),
            vec(inner.clone(), 0..4).prop_map(Proposition::All),
            vec(inner, 0..4).prop_map(Proposition::Any),
        ]
    })
}

fn value(width: Width) -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, any::<u64>()].prop_map(move |value| width.truncate(value))
}

/// Tests within the limits.
pub fn tests(limits: Limits) -> impl Strategy<Value = Test> {
    let thread = (
        btree_map(register(), value(Width::Quad), 0..3),
        vec(
            instruction(limits.compare_exchange),
            if limits.dense { limits.instructions } else { 0 }..=limits.instructions,
        ),
    )
        .prop_map(|(initial, instructions)| Thread {
            initial,
            instructions,
        });
    let fewest = if limits.dense { limits.threads } else { 1 };
    let threads = vec(thread, fewest..=limits.threads);
    let text = (
        "[!-~]{1,12}",
        proptest::option::of("[ !#-~]{0,20}"),
        vec(("[A-Za-z0-9_-]{1,8}", "([!-~]([ -~]{0,8}[!-~])?)?"), 0..3),
    );
    (text, threads, [width(), width(), width()]).prop_flat_map(move |(text, threads, widths)| {
        let names = LOCATIONS.map(|name| name.parse::<Location>().unwrap());
        let widths: BTreeMap<_, _> = names.into_iter().zip(widths).collect();
        let initial: Vec<_> = widths
            .iter()
            .map(|(name, width)| (Just(name.clone()), value(*width)))
            .collect();
        let quantifier = prop_oneof![
            Just(Quantifier::Exists),
            Just(Quantifier::NotExists),
            Just(Quantifier::ForAll),
        ];
        let condition = (quantifier, proposition(threads.len()));
        let observed = btree_set(observable(threads.len()), 0..4);
        let all = limits.dense.then(|| all(threads.len()));
        let observed = observed.prop_map(move |some| all.clone().unwrap_or(some));
        (initial, condition, observed).prop_map(move |(initial, condition, observed)| {
            let (name, description, info) = text.clone();
            let mut threads = threads.clone();
            for thread in &mut threads {
                let instructions = std::mem::take(&mut thread.instructions).into_iter();
                thread.instructions = instructions.map(|of| resized(of, &widths)).collect();
            }
            let (quantifier, proposition) = condition;
            Test::new(Parts {
                name,
                description,
                info,
                widths: widths.clone(),
                initial: initial.into_iter().collect(),
                threads,
                condition: Condition {
                    quantifier,
                    proposition,
                },
                observed,
            })
            .unwrap()
        })
    })
}
