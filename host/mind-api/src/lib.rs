//! The control protocol: the messages between controller, blade agents, programs and operators, over TCP and Unix
//! sockets.
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
//! * [`frame`]: the encoding of frames,
//! * [`endpoint`]: where the controller listens,
//! * [`client`]: the calling side of a connection,
//! * [`program`]: the messages between a program and the agent of its own blade.
//!
//! ```
//! use mind_api::{frame, message::{Frame, Request}};
//!
//! let request = Frame::Request { id: 1, answered: 1, body: Request::Status };
//! let bytes = frame::encode(&request)?;
//! assert_eq!(frame::decode(&bytes)?, request);
//! # Ok::<(), std::io::Error>(())
//! ```

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
