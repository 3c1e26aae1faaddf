//! What outlives the controller, in a file: records of its books, and the answers that agents may ask for again.
//!
//! Each request that changes the books is one transaction, when it is done and before it is answered. So a request is
//! either answered, now or when it is asked again, or has not happened; what it left half done in the maps is undone
//! by [`recovery`](super::core). The maps hold the rest, and the file means nothing without them: it says whose it is.

use std::{net::Ipv4Addr, path::Path};

use anyhow::{Context as _, Result, bail};
use mind_api::{Failure, Reply};
use mind_controller::records::{Change, Key};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};

use super::session::Registered;

/// Whose records they are: [`Owner`], under the one key "owner".
const OWNER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("owner");
/// Records of the books, by [`Key`].
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// Answers, by the life of a blade ([`life`]) and the request's number.
const ANSWERS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("answers");

/// The data plane that records belong to. They are of no use to one of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The boot of this machine (`/proc/sys/kernel/random/boot_id`): what was pinned is gone after another.
    pub(super) boot: String,
    /// What the programs' object is known by.
    pub(super) object: String,
    /// The switch's address.
    pub(super) address: Ipv4Addr,
    /// Its ports, in the order of their names.
    pub(super) ports: Vec<String>,
    /// Slots of its directory.
    pub(super) slots: u32,
    /// Whether it loses packets when a test tells it to.
    pub(super) loses_on_purpose: bool,
}

/// A request that its blade may make again.
pub(super) struct Asked<'a> {
    pub(super) by: Registered,
    pub(super) id: u64,
    /// No answers to requests of lower numbers are wanted any more.
    pub(super) answered: u64,
    pub(super) answer: &'a Result<Reply, Failure>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Store {
    database: Database,
}

/// The life of a blade, as a key.
fn life(of: Registered) -> String {
    let Registered {
        kind,
        number,
        incarnation,
    } = of;
    format!("{}/{incarnation}", Key::Blade(kind, number))
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
        // Of a version that wrote something else, it is nobody's.
        Ok(serde_json::from_slice(bytes.value()).ok())
    }

    /// Forgets everything, and is that one's from now on.
    pub(super) fn begin(&self, owner: &Owner) -> Result<()> {
        let write = self.database.begin_write()?;
        write.delete_table(OWNER)?;
        write.delete_table(RECORDS)?;
        write.delete_table(ANSWERS)?;
        {
            let bytes = serde_json::to_vec(owner)?;
            write.open_table(OWNER)?.insert("owner", bytes.as_slice())?;
            write.open_table(RECORDS)?;
            write.open_table(ANSWERS)?;
        }
        Ok(write.commit()?)
    }

    /// All records.
    pub(super) fn records(&self) -> Result<Vec<(Key, Vec<u8>)>> {
        let read = self.database.begin_read()?;
        let table = read.open_table(RECORDS)?;
        let record = |entry: Result<
            (redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, &[u8]>),
            redb::StorageError,
        >| {
            let (key, bytes) = entry?;
            Ok((key.value().parse()?, bytes.value().to_vec()))
        };
        table.iter()?.map(record).collect()
    }

    /// Keeps what has changed, and the answer to the request that changed it, all or nothing.
    pub(super) fn keep(&self, changes: &[Change], asked: Option<&Asked<'_>>) -> Result<()> {
        let write = self.database.begin_write()?;
        {
            let mut records = write.open_table(RECORDS)?;
            for (key, record) in changes {
                match record {
                    Some(record) => records.insert(key.to_string().as_str(), record.as_slice())?,
                    None => records.remove(key.to_string().as_str())?,
                };
            }
            if let Some(asked) = asked {
                let mut answers = write.open_table(ANSWERS)?;
                let life = life(asked.by);
                let life = life.as_str();
                answers.retain_in((life, 0)..(life, asked.answered), |_, _| false)?;
                let bytes = serde_json::to_vec(asked.answer)?;
                answers.insert((life, asked.id), bytes.as_slice())?;
            }
        }
        Ok(write.commit()?)
    }

    /// The answer to a request, if it had one.
    pub(super) fn answer(&self, by: Registered, id: u64) -> Result<Option<Result<Reply, Failure>>> {
        let read = self.database.begin_read()?;
        let table = read.open_table(ANSWERS)?;
        let bytes = table.get((life(by).as_str(), id))?;
        Ok(bytes
            .map(|bytes| serde_json::from_slice(bytes.value()))
            .transpose()?)
    }

    /// A life of a blade is over: it asks for nothing again.
    pub(super) fn forget_answers(&self, by: Registered) -> Result<()> {
        let write = self.database.begin_write()?;
        {
            let life = life(by);
            let life = life.as_str();
            let all = (life, 0)..=(life, u64::MAX);
            write.open_table(ANSWERS)?.retain_in(all, |_, _| false)?;
        }
        Ok(write.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::{Errno, message::BladeKind};

    fn owner() -> Owner {
        Owner {
            boot: "boot".into(),
            object: "object".into(),
            address: Ipv4Addr::new(198, 18, 0, 1),
            ports: vec!["c0".into()],
            slots: 16,
            loses_on_purpose: false,
        }
    }

    const BLADE: Registered = Registered {
        kind: BladeKind::Compute,
        number: 1,
        incarnation: 2,
    };

    #[test]
    fn what_is_kept_is_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let store = Store::open(&path).unwrap();
        assert_eq!(store.owner().unwrap(), None);
        store.begin(&owner()).unwrap();
        let answer = Ok(Reply::Done);
        let asked = Asked {
            by: BLADE,
            id: 7,
            answered: 7,
            answer: &answer,
        };
        let changes = [
            (Key::Domain(1), Some(b"one".to_vec())),
            (Key::Domain(2), Some(b"two".to_vec())),
        ];
        store.keep(&changes, Some(&asked)).unwrap();
        store.keep(&[(Key::Domain(1), None)], None).unwrap();
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
            [(Key::Domain(2), b"two".to_vec())]
        );
        assert_eq!(store.answer(BLADE, 7).unwrap(), Some(answer));
        assert_eq!(store.answer(BLADE, 8).unwrap(), None);
        store.begin(&owner()).unwrap();
        assert!(store.records().unwrap().is_empty());
    }

    #[test]
    fn answers_are_kept_until_nobody_waits_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        store.begin(&owner()).unwrap();
        let other = Registered {
            incarnation: 3,
            ..BLADE
        };
        let refused = Err(Failure::new(Errno::ENOENT, "no area `x`"));
        for (by, id, answered) in [(BLADE, 1, 1), (BLADE, 2, 1), (other, 1, 1), (BLADE, 4, 2)] {
            let asked = Asked {
                by,
                id,
                answered,
                answer: &refused,
            };
            store.keep(&[], Some(&asked)).unwrap();
        }
        let kept = |by, id| store.answer(by, id).unwrap().is_some();
        assert!(!kept(BLADE, 1) && kept(BLADE, 2) && kept(BLADE, 4) && kept(other, 1));
        store.forget_answers(BLADE).unwrap();
        assert!(!kept(BLADE, 2) && !kept(BLADE, 4) && kept(other, 1));
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
