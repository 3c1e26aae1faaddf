//! Programs in C on MIND: what `mind.h` declares. The header is generated from here (`tests/header.rs`), so what a C
//! programmer has to know is said in the comments on the functions, and in the header's preamble (`cbindgen.toml`).
//!
//! * [`attach`], [`options`]: the process and its protection domain,
//! * [`memory`], [`area`]: what it does with memory,
//! * [`choices`]: the constants,
//! * [`error`]: what can go wrong, and how a C program is told,
//! * [`boundary`]: what stands between C and Rust: no panic and no bad pointer gets across.

#![allow(
    clippy::missing_safety_doc,
    reason = "what a caller in C must see to is said in C's words, without a section for it"
)]

mod area;
mod attach;
mod boundary;
mod choices;
mod error;
mod log;
mod memory;
mod options;
mod version;
