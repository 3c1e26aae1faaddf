//! The endurance run: four compute blades read and write shared memory at full speed, injected frames cause the
//! switch's other verdicts, and the machine's memory and the kernel's log are watched meanwhile. Nothing may be wrong,
//! missing or left.
//!
//! * The load: [`layout`] is its memory, [`work`] what is done with it and how it is checked, [`worker`] the process on
//!   a blade, [`job`] the messages to it, [`workers`] all these processes.
//! * Injected frames: [`frames`] builds them, [`inject`] sends them, [`raw`] is the socket.
//! * What is watched: [`verdicts`] says what causes each verdict and how often it must come up, [`counters`] how often
//!   it did, [`machine`] the memory, [`kernel_log`] the kernel's complaints, [`kernel_objects`] what eBPF leaves.
//! * [`soak`] is the run from beginning to end, [`report`] its result, [`progress`] its progress on stderr, [`signals`]
//!   ends it early.

pub mod counters;
pub mod frames;
pub mod inject;
pub mod job;
pub mod kernel_log;
pub mod kernel_objects;
pub mod layout;
pub mod machine;
pub mod progress;
pub mod raw;
pub mod report;
pub mod signals;
pub mod soak;
pub mod verdicts;
pub mod work;
pub mod worker;
pub mod workers;
