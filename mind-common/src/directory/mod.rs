//! The directory: one word per region, and the functions that say what happens to it.
//!
//! [`word`] is how a region's state is laid out; [`machine`] is how it changes. Both ends of the
//! switch's XDP program call it, and so does the controller.

pub mod machine;
pub mod word;

pub use machine::{
    Answer, AnswerVerdict, Order, Request, RequestVerdict, Supply, Target, Transition, Want,
};
pub use word::{State, Word};
