//! What can go wrong with a call, as opposed to an access.

use std::{io, path::PathBuf};

use mind_api::Failure;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not said where the blade is.
    #[error(
        "{} is not set: run the program with `netns-setup exec BLADE -- PROGRAM`, or set it to the \
         socket of the blade's agent",
        crate::SOCKET_VARIABLE
    )]
    NoBlade,
    /// There is no agent.
    #[error("cannot connect to the blade's agent at {path}")]
    Connect {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The agent is gone, or speaks otherwise.
    #[error("the blade's agent is gone: {0}")]
    Lost(String),
    /// A child of the process that attached calls.
    #[error(
        "this process is a child of process {parent}, which attached; it is not attached itself, \
         and may be"
    )]
    Forked {
        /// The one that attached.
        parent: u32,
    },
    /// The window can't be used.
    #[error(transparent)]
    Window(#[from] mind_userfault::Error),
    /// The system refuses; its error number is what Linux would say.
    #[error(transparent)]
    Refused(#[from] Failure),
}

impl Error {
    /// Linux's number for it.
    pub fn errno(&self) -> i32 {
        const ENOTCONN: i32 = 107;
        const ENOMEM: i32 = 12;
        match self {
            Self::NoBlade | Self::Lost(_) | Self::Forked { .. } => ENOTCONN,
            Self::Connect { source, .. } => source.raw_os_error().unwrap_or(ENOTCONN),
            Self::Window(error) => error.errno().map_or(ENOMEM, |errno| errno.raw_os_error()),
            Self::Refused(failure) => failure.errno.number(),
        }
    }
}
