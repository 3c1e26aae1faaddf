//! What is generated from a command line's definition: completions for shells, manual pages.

use std::{fs, io, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;

use crate::reference::Verb;

/// What `completions` takes.
#[derive(clap::Args, Debug)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints them on stdout.
    ///
    /// # Errors
    ///
    /// None; as of the other verbs.
    pub fn print(&self, mut command: Command) -> Result<()> {
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut io::stdout());
        Ok(())
    }
}

/// What `man` takes.
#[derive(clap::Args, Debug)]
pub struct Man {
    /// The folder, which is made: a file for the program and one for each verb.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Write one file of JSON instead, from which the book's reference is made.
    #[arg(long, hide = true)]
    json: bool,
}

impl Man {
    /// Writes them.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn write(&self, command: Command) -> Result<()> {
        let shown = self.folder.display();
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {shown}"))?;
        if self.json {
            let verb = Verb::of(command);
            let file = self.folder.join(format!("{}.json", verb.name));
            let text = serde_json::to_string_pretty(&verb).context("cannot write JSON")?;
            return fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()));
        }
        clap_mangen::generate_to(command, &self.folder)
            .with_context(|| format!("cannot write manual pages to {shown}"))
    }
}
