//! The directory: one word per region, and the functions that say what happens to it.
//!
//! [`word`] is how a region's state is laid out; [`machine`] is how it changes; [`origin`] is what
//! has to be remembered beside it. Both ends of the
//! switch's XDP program call it, and so does the controller.

pub mod machine;
pub mod origin;
pub mod word;

pub use machine::{
    Answer, AnswerVerdict, Order, Path, Request, RequestVerdict, Supply, Target, Transition, Want,
};
pub use origin::Origin;
pub use word::{State, Word};
