//! How much memory programs have.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::PathBuf};

/// The programs whose memory counts: each is started by a script that notes its process first, as a program may change
/// all else by which one would know it.
#[derive(Clone, Debug)]
pub(crate) struct Watch(PathBuf);

impl Watch {
    /// The script; it is written to this path, and the notes are beside it.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        fs::write(
            &path,
            "#!/bin/sh\necho $$ >> \"$0.processes\"\nexec \"$@\"\n",
        )?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }

    /// The script's path, to be put before a program and its arguments.
    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    fn notes(&self) -> PathBuf {
        self.0.with_extension("processes")
    }

    /// Forgets those that were started.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(self.notes());
    }

    /// Bytes without a file (anonymous) in memory now, of the programs and all that descend from them; 0 of those that
    /// have ended.
    pub(crate) fn anonymous(&self) -> u64 {
        let notes = fs::read_to_string(self.notes()).unwrap_or_default();
        let programs = notes.lines().filter_map(|line| line.parse().ok());
        programs.map(anonymous).sum()
    }
}

/// The same of one process and what descends from it.
fn anonymous(pid: u32) -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let children = read(&format!("task/{pid}/children"));
    let children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    resident(&read("status")) + children.map(anonymous).sum::<u64>()
}

/// What of it is in memory without a file, from its `status` in proc(5).
fn resident(status: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_how_much() {
        let status = "Name:\tx\nVmRSS:\t  900 kB\nRssAnon:\t     124 kB\nRssFile:\t 776 kB\n";
        assert_eq!(resident(status), 124 << 10);
        assert_eq!(resident(""), 0);
    }
}
