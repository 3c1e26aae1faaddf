//! What can go wrong with a call, as opposed to an access.

use std::{io, path::PathBuf};

use mind_api::Failure;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither the builder nor the environment names the socket of the blade's agent.
    #[error(
        "{} is not set: run the program with `netns-setup exec BLADE -- PROGRAM`, or set it to the socket of the \
         blade's agent",
        crate::SOCKET_VARIABLE
    )]
    NoSocket,
    /// No agent can be reached at the socket.
    #[error("cannot connect to the blade's agent at {path}")]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The agent ended, or closed the connection. All memory of the domain is SIGBUS for this process from then on.
    #[error(
        "the blade's agent has ended; this process has to end, and may start anew under another agent"
    )]
    AgentEnded,
    /// The connection to the agent broke while a message was sent or received.
    #[error("the connection to the blade's agent is broken")]
    Connection(#[source] io::Error),
    /// The agent sent a message that has no place there: it is another version, or something else listens at the socket.
    #[error("the blade's agent does not speak this library's protocol: {0}")]
    Protocol(String),
    /// The process has detached.
    #[error("this process has detached from its blade; a process attaches once")]
    Detached,
    /// A child of the process that attached made the call.
    #[error(
        "this process is a child of process {parent}, which attached; it is not attached itself, and may be"
    )]
    Forked {
        /// The process that attached.
        parent: u32,
    },
    /// The library's own thread cannot be started.
    #[error("cannot start the thread that serves the blade's agent")]
    Thread(#[source] io::Error),
    /// The window, in which the memory lies, cannot be mapped or given up.
    #[error(transparent)]
    Window(#[from] mind_userfault::Error),
    /// The agent or the controller refuses; its error number is Linux's.
    #[error(transparent)]
    Refused(#[from] Failure),
}

impl Error {
    /// The error number of Linux that stands for it; what a function in C sets `errno` to.
    ///
    /// ```
    /// assert_eq!(mind_client::Error::NoSocket.errno(), 107); // ENOTCONN
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoSocket | Self::AgentEnded | Self::Detached | Self::Forked { .. } => {
                libc::ENOTCONN
            }
            Self::Connect { source, .. } | Self::Connection(source) => {
                source.raw_os_error().unwrap_or(libc::ENOTCONN)
            }
            Self::Protocol(_) => libc::EPROTO,
            Self::Thread(source) => source.raw_os_error().unwrap_or(libc::EAGAIN),
            Self::Window(error) => error
                .errno()
                .map_or(libc::ENOMEM, |errno| errno.raw_os_error()),
            Self::Refused(failure) => failure.errno.number(),
        }
    }
}
