//! The endurance run: four compute blades read and write shared memory at full speed, frames that no blade would send
//! take the switch's other paths, and beside it the machine's memory and the kernel's log are watched. Nothing may be
//! wrong, missing or left.
//!
//! * The load: [`layout`] says what memory there is, [`work`] what is done with it and how it is checked, [`worker`] is
//!   the process on a blade, [`job`] what is said to it, [`crew`] the soak's hold on those processes.
//! * What no blade sends: [`frames`] builds it, [`inject`] sends it, [`raw`] is its socket.
//! * What is watched: [`ways`] says how each verdict is taken and how often it must be, [`counters`] how often it was,
//!   [`machine`] the memory, [`kernel_log`] the kernel's complaints, [`kernel_objects`] what eBPF leaves.
//! * [`soak`] is the order of it all, [`report`] its result, [`progress`] what is said meanwhile, [`signals`] its early
//!   end.

pub mod counters;
pub mod crew;
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
pub mod ways;
pub mod work;
pub mod worker;
