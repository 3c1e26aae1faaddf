//! What outlives the controller, in a file: the records of its machine.
//!
//! The machine says what is one transaction, and what may wait for the next one ([`Store::keep_soon`]): each transaction
//! waits for the disk, which is most of what a request takes. The maps hold the rest, and the file means nothing without them: it says
//! to which data plane it belongs.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use mind_machines::controller::books::records::{Change, Key, Record};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};

/// Whose records they are: [`Owner`], under the one key "owner".
const OWNER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("owner");
/// Records of the books, by [`Key`].
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// The version of the records' format.
pub(super) const FORMAT: u32 = 2;
/// How long what is to be kept soon waits for something else to be kept.
const SOON: Duration = Duration::from_millis(100);

/// The data plane that records belong to. They are of no use to one of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The version of the records' format.
    #[serde(default)]
    pub(super) format: u32,
    /// The boot of this machine (`/proc/sys/kernel/random/boot_id`): what was pinned is gone after another.
    pub(super) boot: String,
    /// What the programs' object is known by.
    pub(super) object: String,
    /// What the layout of its maps is known by.
    #[serde(default)]
    pub(super) layout: String,
    /// The switch's address.
    pub(super) address: Ipv4Addr,
    /// Its ports, in the order of their names.
    pub(super) ports: Vec<String>,
    /// Whether it loses packets when a test tells it to.
    pub(super) loses_on_purpose: bool,
}

/// The file.
#[derive(Debug)]
pub(super) struct Store {
    database: Database,
    /// What is to be kept before anything else is.
    soon: BTreeMap<Key, Option<Record>>,
    /// When that is to be kept at the latest.
    due: Option<Instant>,
}

impl Store {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// When another controller has it, it is no such file, or its folder cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let database = match Database::create(path) {
            Ok(database) => database,
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => {
                bail!(
                    "another controller keeps its records in {shown}: name another file with --state"
                )
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot keep records in {shown}: name another file with --state")
                });
            }
        };
        Ok(Self {
            database,
            soon: BTreeMap::new(),
            due: None,
        })
    }

    /// Whose records there are.
    pub(super) fn owner(&self) -> Result<Option<Owner>> {
        let read = self.database.begin_read()?;
        let table = match read.open_table(OWNER) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            table => table?,
        };
        let Some(bytes) = table.get("owner")? else {
            return Ok(None);
        };
        // Of a version that wrote something else, it belongs to no data plane.
        Ok(serde_json::from_slice(bytes.value()).ok())
    }

    /// Forgets everything, and is that one's from now on.
    pub(super) fn begin(&self, owner: &Owner) -> Result<()> {
        let write = self.database.begin_write()?;
        write.delete_table(OWNER)?;
        write.delete_table(RECORDS)?;
        {
            let bytes = serde_json::to_vec(owner)?;
            write.open_table(OWNER)?.insert("owner", bytes.as_slice())?;
            write.open_table(RECORDS)?;
        }
        Ok(write.commit()?)
    }

    /// Keeps all records, which are that one's from now on.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(super) fn hand_over(&self, owner: &Owner) -> Result<()> {
        let write = self.database.begin_write()?;
        {
            let bytes = serde_json::to_vec(owner)?;
            write.open_table(OWNER)?.insert("owner", bytes.as_slice())?;
        }
        Ok(write.commit()?)
    }

    /// All records.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or something in it is no record.
    pub(super) fn records(&self) -> Result<Vec<(Key, Record)>> {
        let read = self.database.begin_read()?;
        let table = read.open_table(RECORDS)?;
        let mut records = Vec::new();
        for entry in table.iter()? {
            let (key, bytes) = entry?;
            let record = serde_json::from_slice(bytes.value());
            let record = record
                .with_context(|| format!("the record `{}` cannot be understood", key.value()))?;
            records.push((key.value().parse()?, record));
        }
        Ok(records)
    }

    /// Keeps what has changed, with what was to be kept soon: all or nothing.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(super) fn keep(&mut self, changes: &[Change]) -> Result<()> {
        let write = self.database.begin_write()?;
        {
            let mut records = write.open_table(RECORDS)?;
            let changes = changes.iter().map(|(key, record)| (key, record));
            for (key, record) in self.soon.iter().chain(changes) {
                let key = key.to_string();
                match record {
                    Some(record) => {
                        let bytes = serde_json::to_vec(record)?;
                        records.insert(key.as_str(), bytes.as_slice())?
                    }
                    None => records.remove(key.as_str())?,
                };
            }
        }
        write.commit()?;
        self.soon.clear();
        self.due = None;
        Ok(())
    }

    /// What has changed is kept with what is kept next, or by [`keep_due`](Self::keep_due).
    pub(super) fn keep_soon(&mut self, changes: Vec<Change>) {
        self.soon.extend(changes);
        self.due.get_or_insert_with(|| Instant::now() + SOON);
    }

    /// When [`keep_due`](Self::keep_due) has something to keep.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Keeps what was to be kept soon, if nothing else was kept meanwhile.
    ///
    /// # Errors
    ///
    /// When the file cannot be written: it is tried again later.
    pub(super) fn keep_due(&mut self) -> Result<()> {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return Ok(());
        }
        self.due = Some(Instant::now() + SOON);
        self.keep(&[])
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.soon.is_empty()
            && let Err(error) = self.keep(&[])
        {
            tracing::warn!(%error, "what was done last is not recorded: the next controller does it again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            format: FORMAT,
            boot: "boot".into(),
            object: "object".into(),
            layout: "layout".into(),
            address: Ipv4Addr::new(198, 18, 0, 1),
            ports: vec!["c0".into()],
            loses_on_purpose: false,
        }
    }

    #[test]
    fn what_is_kept_is_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.owner().unwrap(), None);
        store.begin(&owner()).unwrap();
        let changes = [
            (Key::LastDomain, Some(Record::LastDomain(7))),
            (Key::Domain(2), None),
        ];
        store.keep(&changes).unwrap();
        store
            .keep(&[(Key::LastDomain, Some(Record::LastDomain(8)))])
            .unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(
            error.to_string().contains("another controller"),
            "{error:#}"
        );
        drop(store);

        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.owner().unwrap(), Some(owner()));
        assert_eq!(
            store.records().unwrap(),
            [(Key::LastDomain, Record::LastDomain(8))]
        );
        let other = Owner {
            ports: vec!["c1".into()],
            ..owner()
        };
        store.hand_over(&other).unwrap();
        assert_eq!(store.owner().unwrap(), Some(other));
        assert_eq!(store.records().unwrap().len(), 1);
        store.keep(&[(Key::LastDomain, None)]).unwrap();
        assert!(store.records().unwrap().is_empty());
        store.begin(&owner()).unwrap();
        assert!(store.records().unwrap().is_empty());
    }

    #[test]
    fn what_is_to_be_kept_soon_is_kept_with_the_next_or_when_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let last = |number| (Key::LastDomain, Some(Record::LastDomain(number)));
        let mut store = Store::open(&path).unwrap();
        store.begin(&owner()).unwrap();
        store.keep_soon(vec![last(1), (Key::Domain(2), None)]);
        store.keep_soon(vec![last(2)]);
        assert!(store.records().unwrap().is_empty());
        assert!(store.due().is_some());
        store.keep(&[(Key::Domain(3), None)]).unwrap();
        let kept = |number| vec![(Key::LastDomain, Record::LastDomain(number))];
        assert_eq!(store.records().unwrap(), kept(2));
        assert_eq!(store.due(), None);

        // What is kept at once is newer.
        store.keep_soon(vec![last(3)]);
        store.keep(&[last(4)]).unwrap();
        assert_eq!(store.records().unwrap(), kept(4));

        store.keep_soon(vec![last(5)]);
        store.keep_due().unwrap();
        assert_eq!(store.records().unwrap(), kept(4));
        store.due = Some(Instant::now());
        store.keep_due().unwrap();
        assert_eq!(store.records().unwrap(), kept(5));
        assert_eq!(store.due(), None);

        store.keep_soon(vec![last(6)]);
        drop(store);
        assert_eq!(Store::open(&path).unwrap().records().unwrap(), kept(6));
    }

    #[test]
    fn a_record_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        store.begin(&owner()).unwrap();
        let write = store.database.begin_write().unwrap();
        write
            .open_table(RECORDS)
            .unwrap()
            .insert("domain/1", &b"{}"[..])
            .unwrap();
        write.commit().unwrap();
        let error = format!("{:#}", store.records().unwrap_err());
        assert!(error.contains("`domain/1`"), "{error}");
    }

    #[test]
    fn a_file_of_something_else_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, "something else entirely").unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(format!("{error:#}").contains("--state"), "{error:#}");
    }
}
