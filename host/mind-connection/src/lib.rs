//! Connections that carry the control protocol ([`mind_api`]), over TCP and Unix sockets.
//!
//! * [`frame`]: the encoding of frames,
//! * [`endpoint`]: where the controller listens,
//! * [`client`]: the calling side of a connection to the controller,
//! * [`lists`]: lists of the controller's, which come in parts,
//! * [`packets`]: a connection between a program and the agent of its blade.
//!
//! ```
//! use mind_api::message::{Frame, Request};
//! use mind_connection::frame;
//!
//! let request = Frame::Request { id: 1, answered: 1, body: Request::Status };
//! let bytes = frame::encode(&request)?;
//! assert_eq!(frame::decode(&bytes)?, request);
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod client;
pub mod endpoint;
pub mod frame;
pub mod lists;
pub mod packets;

pub use client::{Client, ClientError};
pub use endpoint::Endpoint;
pub use packets::{Listener, Packets};
