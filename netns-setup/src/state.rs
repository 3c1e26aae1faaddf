//! The state file: what a testbed consists of and how far it has come, for later processes.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::program::Process;
use crate::service::Role;

/// How far a testbed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It is being brought up. If the lock is free then, the process that brought it up was killed.
    Starting,
    /// It is whole.
    Up,
    /// It is being taken down.
    Stopping,
}

/// A service that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningService {
    /// Its name.
    pub name: String,
    /// What it does, which decides when it is stopped.
    pub role: Role,
    /// The namespace that it runs in.
    pub namespace: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its process.
    pub process: Process,
}

/// All that is known of a testbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// How far it has come.
    pub phase: Phase,
    /// What it consists of.
    pub plan: Plan,
    /// When it was begun, in seconds since 1970.
    pub since: u64,
    /// The process that made it.
    pub maker: Process,
    /// Whether it ends with its maker, as a test's does.
    pub bound: bool,
    /// Its services, in the order of their start.
    pub services: Vec<RunningService>,
    /// Whether the kernel grouped processes by session before, and is to do so again.
    #[serde(default)]
    pub groups_sessions: bool,
}

impl State {
    /// The state of a testbed that begins now.
    pub fn new(plan: Plan, maker: Process, bound: bool) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            phase: Phase::Starting,
            plan,
            since: since.unwrap_or_default().as_secs(),
            maker,
            bound,
            services: Vec::new(),
            groups_sessions: false,
        }
    }

    /// How long ago it was begun.
    pub fn age(&self) -> Duration {
        let since = UNIX_EPOCH + Duration::from_secs(self.since);
        since.elapsed().unwrap_or_default()
    }

    /// Which testbed this is, for people.
    pub fn describe(&self) -> String {
        format!(
            "{}, for {} s, made by process {}",
            self.plan,
            self.age().as_secs(),
            self.maker.pid
        )
    }

    /// Writes it atomically: a reader sees the old or the new state.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|source| Error::State {
            path: path.to_owned(),
            source,
        })?;
        let part = path.with_extension("json.part");
        fs::write(&part, text).map_err(Error::io("write", &part))?;
        fs::rename(&part, path).map_err(Error::io("replace", path))
    }

    /// Reads it; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(Error::io("read", path))?,
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| Error::State {
                path: path.to_owned(),
                source,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_file() {
        let folder = std::env::temp_dir().join(format!("netns-setup-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("state.json");
        assert_eq!(State::read(&path).unwrap(), None);
        let process = Process { pid: 12, start: 34 };
        let mut state = State::new(Plan::new(2, 1).unwrap(), process, true);
        state.phase = Phase::Up;
        state.groups_sessions = true;
        state.services.push(RunningService {
            name: "ctl".into(),
            role: Role::Controller,
            namespace: "mind-sw".into(),
            command: vec!["mind-controller".into()],
            process,
        });
        state.write(&path).unwrap();
        assert_eq!(State::read(&path).unwrap(), Some(state));
        fs::write(&path, "{").unwrap();
        let error = State::read(&path).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("state.json is not a testbed's state")
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
