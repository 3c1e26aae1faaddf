//! The control protocol: the messages between controller, blade agents, programs and operators. Messages only: the
//! connections that carry them are in the crate `mind-connection`.
//!
//! A connection carries frames, each a 32-bit big-endian length and that many bytes of JSON. JSON, since this is the
//! slow path (nothing here happens per page or per packet): a frame can be read in a capture or a log, a field can be
//! added without a new version, and other languages need no special library. The first frame of the caller is a
//! [`Hello`], which the controller answers with a [`Welcome`] or a refusal; from then on both sides send requests and
//! answer the other's, in any order, matched by their numbers. A blade counts as present while its connection is open.
//!
//! * [`message`]: requests, replies and commands,
//! * [`operator`]: the replies for operators,
//! * [`errno`]: refusals, as Linux names errors,
//! * [`program`]: the messages between a program and the agent of its own blade,
//! * [`run`]: what `mind run` tells the library that it loads into a program.

pub mod errno;
pub mod message;
pub mod operator;
pub mod program;
pub mod run;

pub use errno::{Errno, Failure};
pub use message::{Command, Hello, Reply, Request, Welcome};

/// The version of the protocol. Both sides must speak the same; added fields and messages need no new one.
pub const VERSION: u32 = 5;
