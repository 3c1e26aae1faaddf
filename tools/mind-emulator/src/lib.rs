//! Replays traces through the same code as the live system, without packets: what MIND (SOSP 2021) says in its section 7
//! of directory, splitting and allocation is measured with it at sizes that no testbed has.

pub mod alloc;
pub mod generate;
pub mod modes;
pub mod run;
pub mod system;
pub mod trace;
