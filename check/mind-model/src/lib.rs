//! The protocol as a model for exhaustive search: the switch, memory and the controller of
//! `mind-machines`, the compute blades of `mind-common`, and a network that loses, repeats and reorders
//! packets, each as often as a budget allows.
//!
//! * [`setting`]: what takes part, and how often what goes wrong,
//! * [`world`]: a state,
//! * [`action`]: what can happen in it,
//! * [`step`]: what comes of that,
//! * `ages`: what becomes of the ages of copies,
//! * [`operation`]: atomic operations in memory,
//! * [`canonical`]: states that behave alike become equal,
//! * [`value`]: which of the writes of a page a copy has,
//! * [`property`]: what must hold,
//! * [`liveness`]: whether everybody who waits gets what it waits for,
//! * [`packed`]: a state as the checker keeps it,
//! * [`model`]: all of that for the checker,
//! * [`settings`]: what is searched,
//! * [`search`]: a search,
//! * [`trace`]: a way through the states as a table.

pub mod action;
mod ages;
pub mod canonical;
pub mod liveness;
pub mod model;
pub mod operation;
pub mod packed;
pub mod property;
pub mod search;
pub mod setting;
pub mod settings;
pub mod step;
pub mod trace;
pub mod value;
pub mod world;
