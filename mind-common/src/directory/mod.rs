//! The directory: one word per region, and the functions that say what happens to it.
//!
//! [`word`] is how a region's state is laid out; [`machine`] is what packets, and the loss of a
//! blade, do to it; [`queue`] is whose turn it is; [`origin`] is what has to be remembered beside it.

pub mod machine;
pub mod origin;
pub mod queue;
pub mod word;

pub use machine::{
    Answer, AnswerVerdict, Invalidations, Request, RequestVerdict, Source, Step, Target,
    Transition, Want,
};
pub use origin::Origin;
pub use queue::{Admission, Queue, admit};
pub use word::{Prior, State, Word};
