//! Litmus tests of x86-TSO: small programs of a few threads, each with the question where they may
//! end.

pub mod candidates;
pub mod cycle;
pub mod family;
pub mod files;
pub mod generator;
pub mod machine;
pub mod names;
pub mod oracle;
pub mod parser;
pub mod test;
