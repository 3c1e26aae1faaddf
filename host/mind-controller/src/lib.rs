//! The controller's policy, without I/O: who has which memory, who may touch it, what the directory holds, who is
//! there. [`policy`] puts the parts together and turns a request into [`step`](directory::Step)s that whoever holds the maps and the
//! connections carries out in order.

pub mod alloc;
pub mod directory;
pub mod policy;
pub mod protect;
pub mod records;
pub mod registry;
pub mod takeover;
