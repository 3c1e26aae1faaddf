//! What the switch's eBPF programs and all other parts of MIND on eBPF share.
//!
//! The formats and decisions that the eBPF programs, the blade agents, the controller, the tests
//! and the simulators must agree on are written here once, as plain data and pure functions:
//!
//! * [`addr`]: pages, power-of-two regions, prefixes and the window of global addresses,
//! * [`id`]: blades and sets of blades, protection domains, connections,
//! * [`serial`]: sequence numbers, page versions and episodes, which wrap,
//! * [`wire`]: RoCEv2 and the coherence header,
//! * [`frame`]: a frame's headers where they lie in the packet,
//! * [`counters`]: the list of a compute blade's counters,
//! * [`directory`]: the directory word of a region and its state machine,
//! * [`memory`]: which write-back a memory blade stores, which atomic operation it carries out,
//! * [`memo`]: the copy of trie lookups that a directory slot keeps, and when it is valid,
//! * [`permission`]: permission classes,
//! * [`refusal`]: why a request is not carried out,
//! * [`switch`]: the stages of a packet in the switch,
//! * [`table`]: keys and values of the BPF maps,
//! * [`trace`]: the record of a packet that the switch gives out while packets are traced,
//! * [`verdict`]: what can become of a packet,
//! * [`rewrite`], [`checksum`]: what is written over a packet's headers.
//!
//! Nothing here does I/O, reads a clock or allocates; nothing here depends on another crate of the
//! project. The machines that hosts and simulators run on top of it are `mind-machines`'.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod addr;
pub mod checksum;
pub mod counters;
pub mod directory;
pub mod frame;
pub mod id;
pub mod losses;
pub mod memo;
pub mod memory;
pub mod permission;
pub mod refusal;
pub mod rewrite;
pub mod serial;
pub mod switch;
pub mod table;
pub mod trace;
pub mod verdict;
pub mod wire;
