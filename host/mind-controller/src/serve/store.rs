//! What outlives the controller, in a file: the records of its machine.
//!
//! The machine says what is one transaction. The maps hold the rest, and the file means nothing without them: it says
//! to which data plane it belongs.

use std::{net::Ipv4Addr, path::Path};

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
        Ok(Self { database })
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

    /// Keeps what has changed, all or nothing.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(super) fn keep(&self, changes: &[Change]) -> Result<()> {
        let write = self.database.begin_write()?;
        {
            let mut records = write.open_table(RECORDS)?;
            for (key, record) in changes {
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
        Ok(write.commit()?)
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
        let store = Store::open(&path).unwrap();
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

        let store = Store::open(&path).unwrap();
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
