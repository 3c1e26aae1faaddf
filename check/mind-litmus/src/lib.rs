//! Litmus tests of x86-TSO: small programs of a few threads, each with a condition on its final
//! state.
//!
//! * A [`mod@test`] is read from a `.litmus` file by the [`parser`], or made from a [`cycle`] by
//!   the [`generator`]; [`family`] makes the project's own collection, with the [`names`] of the
//!   literature.
//! * The [`oracle`] says which outcomes are allowed, by walking through all states of the
//!   store-buffer [`machine`]. The axioms over [`candidates`] say the same in another way.
//! * A [`runner`] runs a test, which yields a [`histogram`]; a [`report`] compares that with the
//!   oracle, and [`tables`] prints it.
//!
//! [`blades`] is the runner on real blades, [`simulated`] the one in the simulator.

pub mod blades;
pub mod candidates;
pub mod cycle;
#[cfg(test)]
mod every_instruction;
pub mod family;
pub mod files;
pub mod generator;
pub mod histogram;
pub mod machine;
pub mod names;
pub mod oracle;
pub mod parser;
pub mod report;
pub mod runner;
pub mod simulated;
pub mod tables;
pub mod test;
