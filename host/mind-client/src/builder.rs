//! What a process can choose when it attaches.

use std::{ops::Range, path::PathBuf};

use mind_api::message::OnLoss;

use crate::{Error, Process, SOCKET_VARIABLE};

/// A process that is about to attach to its blade, from [`Process::builder`].
///
/// ```no_run
/// use mind_client::{OnLoss, Process};
///
/// let process = Process::builder("weather")
///     .on_loss(OnLoss::Fail)
///     .socket("/run/mind-blade.sock")
///     .attach()?;
/// # Ok::<(), mind_client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `attach`"]
pub struct Builder {
    pub(crate) domain: String,
    pub(crate) on_loss: Option<OnLoss>,
    socket: Option<PathBuf>,
    pub(crate) taken: Vec<Range<u64>>,
}

impl Builder {
    pub(crate) fn new(domain: &str) -> Self {
        Self {
            domain: domain.to_owned(),
            on_loss: None,
            socket: None,
            taken: Vec::new(),
        }
    }

    /// What readers of the domain see when a blade is lost with writes that were not written back. A domain has one
    /// choice, made by the first process that attaches with one; [`OnLoss::LastWritten`] if none does.
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = Some(on_loss);
        self
    }

    /// Path of the socket at which the blade's agent listens; by default the environment names it
    /// ([`SOCKET_VARIABLE`]).
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Ranges of addresses in the window, of whole pages, that the process has mapped for something else, as a child that
    /// keeps a copy of its parent's memory where it was. What the domain has there cannot be accessed.
    pub fn without(mut self, taken: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.taken.extend(taken);
        self
    }

    /// Attaches the calling process.
    ///
    /// # Errors
    ///
    /// * [`Error::NoSocket`]: neither the builder nor the environment names the socket.
    /// * [`Error::Connect`]: no agent listens there that the process may talk to.
    /// * [`Error::Refused`] with EINVAL: the domain has chosen another [`on_loss`](Self::on_loss), or its name is
    ///   none; with EPROTO: the agent is of another version; with EAGAIN: it has as many programs as it takes; with EIO:
    ///   it cannot reach the controller.
    /// * [`Error::Window`]: the window cannot be mapped, because this process has attached before, something else is
    ///   there, or the kernel does not let this user have a userfaultfd.
    /// * [`Error::AgentEnded`], [`Error::Connection`], [`Error::Protocol`]: the agent fails meanwhile.
    pub fn attach(self) -> Result<Process, Error> {
        let socket = match &self.socket {
            Some(path) => path.clone(),
            None => std::env::var_os(SOCKET_VARIABLE)
                .ok_or(Error::NoSocket)?
                .into(),
        };
        Process::attach_to(&socket, self)
    }
}
