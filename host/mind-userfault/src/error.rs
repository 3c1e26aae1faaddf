//! Errors of the kernel's userfaultfd and of the memory behind it.

use rustix::io::Errno;

/// A call to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No userfaultfd could be made.
    #[error(
        "cannot make a userfaultfd: {0} (without root it needs vm.unprivileged_userfaultfd=1 or \
         access to /dev/userfaultfd)"
    )]
    Open(#[source] Errno),
    /// The kernel is too old.
    #[error(
        "this kernel's userfaultfd has features {have:#x} and MIND needs {need:#x}: write \
         protection and minor faults of shared memory came with Linux 5.19"
    )]
    Features {
        /// What the kernel offers.
        have: u64,
        /// What is needed.
        need: u64,
    },
    /// Something else.
    #[error("cannot {what}: {errno}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        errno: Errno,
    },
}

impl Error {
    pub(crate) fn call(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Call { what, errno }
    }

    /// The kernel's answer, where there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open(errno) | Self::Call { errno, .. } => Some(*errno),
            Self::Features { .. } => None,
        }
    }
}
