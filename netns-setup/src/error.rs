//! The errors of testbeds.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of an operation on a testbed.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a testbed: the object, what was tried, and where it helps, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is one already.
    #[error("a testbed is running: {description}; `netns-setup down` ends it")]
    Running {
        /// Its size, age and maker.
        description: String,
    },
    /// Another process brings a testbed up or down.
    #[error(
        "another process ({holder}) is bringing a testbed up or down; try again when it is done"
    )]
    Locked {
        /// Which process, as far as it is known.
        holder: String,
    },
    /// Interrupted before the testbed was up; nothing is left of it.
    #[error("interrupted; no testbed is left")]
    Interrupted,
    /// There is none.
    #[error("no testbed is running; `netns-setup up` starts one")]
    NotRunning,
    /// Half a testbed, or what a killed run left.
    #[error("the testbed is damaged ({reasons}); `netns-setup down` removes what is left of it")]
    Damaged {
        /// What is missing or left over.
        reasons: String,
    },
    /// No such blade.
    #[error("there is no blade `{name}`; this testbed has {known}")]
    NoSuchBlade {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A testbed of that size is not possible.
    #[error("{what} is {value}; expected {expected}")]
    Size {
        /// The option.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is expected.
        expected: String,
    },
    /// The operating system refused something.
    #[error("cannot {tried} {}", path.display())]
    Io {
        /// The verb.
        tried: &'static str,
        /// The object.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Only root can make namespaces.
    #[error("only root can make network namespaces; run this with sudo")]
    NotRoot,
    /// The kernel refused a change of the network.
    #[error("cannot {tried} in the namespace {namespace}")]
    Netlink {
        /// Verb and object.
        tried: String,
        /// Where.
        namespace: String,
        /// The reason.
        #[source]
        source: rtnetlink::Error,
    },
    /// A program of the machine failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its status, and its output.
        output: String,
    },
    /// The state file cannot be parsed.
    #[error("{} is not a testbed's state", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: serde_json::Error,
    },
    /// A service ended before it was ready.
    #[error("{service} ended before it was ready; its log, {}, ends:\n{tail}", log.display())]
    ServiceDied {
        /// Its name.
        service: String,
        /// Its log.
        log: PathBuf,
        /// The last lines.
        tail: String,
    },
    /// A service was not ready in time.
    #[error("{service} was not ready after {} s; its log is {}", limit.as_secs(), log.display())]
    ServiceLate {
        /// Its name.
        service: String,
        /// Its log.
        log: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// A process did not die of SIGKILL.
    #[error("process {pid} does not end, not even by SIGKILL; the kernel's log may say why")]
    Unkillable {
        /// The process.
        pid: i32,
    },
}

impl Error {
    /// For `map_err`: what was tried on which file.
    pub(crate) fn io<E: Into<io::Error>>(
        tried: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            tried,
            path,
            source: source.into(),
        }
    }
}
