//! Where a testbed's files lie.

use std::path::{Path, PathBuf};

/// The testbed's folder.
pub const RUN: &str = "/run/mind";

/// Held (`flock`) while a testbed is brought up or down.
pub const LOCK: &str = "/run/mind.lock";

/// The state, as JSON.
pub fn state() -> PathBuf {
    Path::new(RUN).join("state.json")
}

/// The records that a controller hands on to its successor.
pub fn records() -> PathBuf {
    Path::new(RUN).join("mind-ctl.redb")
}

/// The bpffs in which the testbed's programs and maps are pinned.
pub fn bpffs() -> PathBuf {
    Path::new(RUN).join("bpf")
}

/// The folder of the Unix sockets: the blades', and those on which services report that they are
/// ready.
pub fn sockets() -> PathBuf {
    Path::new(RUN).join("sockets")
}

/// The socket of a compute blade's agent.
pub fn blade_socket(blade: &str) -> PathBuf {
    sockets().join(format!("{blade}.sock"))
}

/// The socket on which the service reports that it is ready.
pub fn notify_socket(service: &str) -> PathBuf {
    sockets().join(format!("{service}.notify"))
}

/// The folder of the services' logs.
pub fn logs() -> PathBuf {
    Path::new(RUN).join("logs")
}

/// What the service writes to stdout and stderr.
pub fn log(service: &str) -> PathBuf {
    logs().join(format!("{service}.log"))
}

/// Where the programs and maps of the switch or of a memory blade are pinned.
pub fn pins(name: &str) -> PathBuf {
    bpffs().join(name)
}
