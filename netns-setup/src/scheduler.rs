//! How the kernel schedules the testbed's processes. A testbed is several hosts' load on one; where the kernel takes
//! all processes of a session for one task (`sched(7)`, autogroup), that weighs as much as one of its own threads, and
//! on Linux 6.18 those that carry packets are left waiting for seconds. So a testbed's processes are tasks like any
//! other.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};

const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Whether sessions are scheduled as tasks (autogroup); false if the kernel cannot do that.
///
/// # Errors
///
/// When that cannot be read.
pub fn groups_sessions() -> Result<bool> {
    let path = Path::new(AUTOGROUP);
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => Ok(result.map_err(Error::io("read", path))?.trim() == "1"),
    }
}

/// Sets whether sessions are scheduled as tasks.
///
/// # Errors
///
/// When the kernel does not let it be set.
pub fn group_sessions(yes: bool) -> Result<()> {
    let path = Path::new(AUTOGROUP);
    fs::write(path, if yes { "1" } else { "0" }).map_err(Error::io("write", path))
}
