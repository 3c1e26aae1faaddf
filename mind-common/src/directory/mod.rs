//! The directory: one word per region, and the functions that compute its transitions.
//!
//! [`word`] is the layout of a region's state; [`machine`] is what packets, and the loss of a
//! blade, do to it; [`queue`] decides which waiting blade is next; [`origin`] is which request
//! began an invalidation; [`index`] is how a page finds its region's word.

pub mod index;
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
