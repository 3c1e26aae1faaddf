//! What runs the daemons as services: systemd's units, and the configuration files that the daemons themselves explain.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::need;
use super::tree::Tree;
use crate::{process, workspace};

/// The folder of the units in a prefix.
pub(crate) const UNITS: &str = "lib/systemd/system";

/// A daemon that can be a service.
pub(crate) struct Daemon {
    /// Its name; the unit's without `.service`, the configuration file's without `.toml`.
    pub(crate) name: &'static str,
    /// The program.
    program: &'static str,
    /// The verb that makes the program be this daemon, if it can be several.
    verb: Option<&'static str>,
}

/// All of them.
pub(crate) const DAEMONS: [Daemon; 3] = [
    Daemon {
        name: "mind-controller",
        program: "mind-controller",
        verb: None,
    },
    Daemon {
        name: "mind-blade-compute",
        program: "mind-blade",
        verb: Some("compute"),
    },
    Daemon {
        name: "mind-blade-memory",
        program: "mind-blade",
        verb: Some("memory"),
    },
];

impl Daemon {
    /// The unit's file name.
    pub(crate) fn unit(&self) -> String {
        format!("{}.service", self.name)
    }

    /// Its configuration file, in which each key is explained and commented out, by the daemon in the folder `built`.
    pub(crate) fn example(&self, built: &Path) -> Result<String> {
        let mut command = Command::new(need(built, self.program)?);
        process::output(command.args(self.verb).arg("--example-config"))
    }
}

/// Installs the units.
pub(super) fn install(tree: &Tree) -> Result<()> {
    for daemon in DAEMONS {
        let unit = daemon.unit();
        let template = workspace::root().join(format!("contrib/systemd/{unit}.in"));
        let text = fs::read_to_string(&template)
            .with_context(|| format!("cannot read {}", template.display()))?;
        let text = text.replace("@PREFIX@", &tree.prefix().display().to_string());
        tree.write(text.as_bytes(), Path::new(UNITS).join(unit), 0o644)?;
    }
    Ok(())
}
