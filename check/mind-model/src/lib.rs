//! The protocol as a model for exhaustive search: the machines of `mind-machines` (switch, compute blades, memory
//! blade, controller) and a network that loses, repeats and reorders packets, each as often as a budget allows.
//!
//! * [`setting`]: the size of a model, and its budget of faults,
//! * [`world`]: a state,
//! * [`action`]: the actions that are possible in it,
//! * [`step`]: the state after an action,
//! * [`control`]: how the controller is driven,
//! * [`rights`]: what programs may do with the memory,
//! * `ages`: the ages of page contents,
//! * [`operation`]: atomic operations in memory,
//! * [`canonical`]: makes states that behave alike equal,
//! * [`value`]: which write of a page a copy has,
//! * [`property`]: what must hold in every state,
//! * [`liveness`]: whether every request completes once faults stop,
//! * [`packed`]: a state as the checker stores it,
//! * [`model`]: the model for the checker,
//! * [`settings`]: the settings that are searched,
//! * [`search`]: a search,
//! * [`trace`]: a way through the states as a table.

pub mod action;
mod ages;
pub mod canonical;
pub mod controller;
pub mod liveness;
pub mod model;
pub mod operation;
pub mod packed;
pub mod property;
pub mod rights;
pub mod search;
pub mod setting;
pub mod settings;
pub mod step;
pub mod trace;
pub mod value;
pub mod world;
