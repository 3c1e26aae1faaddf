//! What a controller changed on its host, in a file: one that is killed cannot put anything back, so the next one takes
//! the list over, and puts it back at its own end.
//!
//! The first line names the boot; each further line is a change, in the order of their making. A change is noted before
//! it is made, so a last line that was not written whole is of a change that was not made.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail};

use super::plan::Change;

/// Names the boot of this machine: a change of an earlier one is gone.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The list, and where it is kept. The file is locked as long as this value lives.
pub(super) struct Journal {
    path: PathBuf,
    boot: String,
    file: File,
    /// Each change, and where its line begins.
    changes: Vec<(Change, u64)>,
}

impl Journal {
    /// The list that an earlier controller left at `path`; empty where there is none, or it is of an earlier boot.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, holds something else, or a controller that lives has it.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let boot = fs::read_to_string(BOOT_ID).with_context(|| format!("cannot read {BOOT_ID}"))?;
        Self::of_boot(path, boot.trim())
    }

    fn of_boot(path: PathBuf, boot: &str) -> Result<Self> {
        let cannot = || format!("cannot open {}", path.display());
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(cannot)?;
        if file.try_lock().is_err() {
            bail!(
                "another controller runs on this host, and has {}: end it, or name another file with --state",
                path.display()
            );
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(cannot)?;
        let mut journal = Self {
            path,
            boot: boot.to_owned(),
            file,
            changes: Vec::new(),
        };
        let mut end = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let is_whole = line.ends_with('\n');
            match number {
                0 if is_whole && line.trim_end() == boot => {}
                0 => break,
                _ if !is_whole => break,
                _ => {
                    let change = serde_json::from_str(line).with_context(|| {
                        format!(
                            "line {} of {} is no change of this host: remove the file",
                            number + 1,
                            journal.path.display()
                        )
                    })?;
                    journal.changes.push((change, end));
                }
            }
            end += line.len() as u64;
        }
        journal.cut(end)?;
        if end == 0 {
            journal.append(&format!("{boot}\n"))?;
        }
        Ok(journal)
    }

    /// Whether no change is to be put back.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Notes a change that is about to be made.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(super) fn push(&mut self, change: Change) -> Result<()> {
        let line = serde_json::to_string(&change).context("a change is no JSON")?;
        let at = self.append(&format!("{line}\n"))?;
        self.changes.push((change, at));
        Ok(())
    }

    /// The last change.
    pub(super) fn last(&self) -> Option<&Change> {
        self.changes.last().map(|(change, _)| change)
    }

    /// Takes the last change off the list: it was undone, or not made.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(super) fn pop(&mut self) -> Result<()> {
        match self.changes.pop() {
            Some((_, at)) => self.cut(at),
            None => Ok(()),
        }
    }

    /// All changes, in the order of their making.
    pub(super) fn all(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().map(|(change, _)| change)
    }

    /// Takes changes off the list that were undone: all that are equal to this one.
    ///
    /// # Errors
    ///
    /// When the file cannot be written; then they are on the list still.
    pub(super) fn forget(&mut self, undone: &Change) -> Result<()> {
        let mut text = format!("{}\n", self.boot);
        let mut left = Vec::new();
        for change in self.all().filter(|change| *change != undone) {
            left.push((change.clone(), text.len() as u64));
            let line = serde_json::to_string(change).context("a change is no JSON")?;
            text.push_str(&line);
            text.push('\n');
        }
        // A controller that is killed has one list or the other.
        let beside = self.path.with_extension("json.new");
        let write = || {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&beside)?;
            file.try_lock()?;
            file.write_all(text.as_bytes())?;
            fs::rename(&beside, &self.path)?;
            Ok::<_, std::io::Error>(file)
        };
        self.file = write().with_context(|| format!("cannot write {}", self.path.display()))?;
        self.changes = left;
        Ok(())
    }

    /// Where the appended text begins.
    fn append(&mut self, text: &str) -> Result<u64> {
        let mut write = || {
            let at = self.file.seek(SeekFrom::End(0))?;
            self.file.write_all(text.as_bytes())?;
            Ok::<_, std::io::Error>(at)
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn cut(&self, length: u64) -> Result<()> {
        let cut = self.file.set_len(length);
        cut.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for Journal {
    /// Removes a file that says nothing.
    fn drop(&mut self) {
        if self.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(link: &str) -> Change {
        Change::Up {
            link: link.to_owned(),
        }
    }

    #[test]
    fn the_next_controller_of_the_same_boot_finds_what_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let open = |boot: &str| Journal::of_boot(path.clone(), boot);
        let mut journal = open("a").unwrap();
        assert!(journal.is_empty());
        journal.push(change("br0")).unwrap();
        journal.push(change("eth1")).unwrap();
        let error = open("a").err().unwrap();
        assert!(error.to_string().contains("another controller"), "{error}");
        drop(journal);

        // The third change was not made: the controller was killed while it wrote its line.
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"Up");
        fs::write(&path, text).unwrap();
        let mut journal = open("a").unwrap();
        assert_eq!(journal.last(), Some(&change("eth1")));
        journal.pop().unwrap();
        drop(journal);
        let mut journal = open("a").unwrap();
        assert_eq!(journal.last(), Some(&change("br0")));
        journal.pop().unwrap();
        journal.push(change("eth2")).unwrap();
        drop(journal);
        assert!(open("b").unwrap().is_empty(), "another boot");
        assert!(!path.exists());
    }

    #[test]
    fn what_was_undone_before_the_end_is_off_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let open = || Journal::of_boot(path.clone(), "a");
        let mut journal = open().unwrap();
        for link in ["br0", "eth1", "eth2"] {
            journal.push(change(link)).unwrap();
        }
        journal.forget(&change("eth1")).unwrap();
        assert!(open().is_err(), "it has the file still");
        journal.push(change("eth3")).unwrap();
        journal.pop().unwrap();
        drop(journal);
        let journal = open().unwrap();
        let left: Vec<_> = journal.all().cloned().collect();
        assert_eq!(left, [change("br0"), change("eth2")]);
    }

    #[test]
    fn a_file_of_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        fs::write(&path, "a\nnonsense\n").unwrap();
        let error = Journal::of_boot(path.clone(), "a").err().unwrap();
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
    }
}
