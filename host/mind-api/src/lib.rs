//! The control protocol: what controller, blade agents, programs and operators say to each other over TCP.
//!
//! A connection carries frames, each a 32-bit big-endian length and that many bytes of JSON. JSON, since this is the
//! slow path (nothing here happens per page or per packet): a frame can be read in a capture or a log, a field can be
//! added without a new version, and other languages need no library of ours. The first frame of the caller is a
//! [`Hello`], which the controller answers with a [`Welcome`] or a refusal; from then on both sides send requests
//! and answer the other's, in any order, told apart by their numbers. A blade is alive while its connection is.
//!
//! [`message`] holds what is said, [`operator`] what operators are told, [`errno`] what goes wrong, [`frame`] how it
//! looks on the wire, [`endpoint`] where the controller listens, [`client`] one connection's calling side. [`program`] is what programs say to the agent of their own blade.

pub mod client;
pub mod endpoint;
pub mod errno;
pub mod frame;
pub mod message;
pub mod operator;
pub mod program;

pub use client::{Client, ClientError};
pub use endpoint::Endpoint;
pub use errno::{Errno, Failure};
pub use message::{Command, Hello, Reply, Request, Welcome};

/// The version of the protocol. Both sides must speak the same; added fields and messages need no new one.
pub const VERSION: u32 = 4;
