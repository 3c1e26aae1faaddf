//! Litmus tests of x86-TSO: small programs of a few threads, each with the question where they may
//! end.

pub mod candidates;
pub mod machine;
pub mod oracle;
pub mod parser;
pub mod test;
