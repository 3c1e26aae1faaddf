//! What of the controller's state outlives it: a record for each blade, domain, vma and so on.
//!
//! Slots and what finds them are not among them: the maps of the data plane outlive the controller too, and say it
//! themselves.

use std::{fmt, str::FromStr};

use mind_api::{
    errno::Failure,
    message::{BladeKind, Reply},
};
use mind_common::{addr::Va, permission::PermissionClass};
use serde::{Deserialize, Serialize};

use super::{
    Books,
    blades::{Blade, Incarnation},
    domains::{Domain, Vma},
    memory::Piece,
};

/// What a record is of. Its text is unique, and is read back by [`FromStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A blade, by its kind and number.
    Blade(BladeKind, u8),
    /// A protection domain: its name, processes and choice.
    Domain(u32),
    /// A vma, by its first address.
    Vma(u64),
    /// Memory that was freed and is not zeroed yet, by its first address.
    Unclean(u64),
    /// The number that the last new domain got.
    LastDomain,
    /// The answer to a request that its blade may make again: whose, and the request's number.
    Answer(Incarnation, u64),
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// Of [`Key::Blade`].
    Blade(Blade),
    /// Of [`Key::Domain`].
    Domain(Domain),
    /// Of [`Key::Vma`]: the vma, and what its domain may do with it: first page, pages, class.
    Vma(Vma, Vec<(u64, u64, PermissionClass)>),
    /// Of [`Key::Unclean`].
    Unclean(Piece),
    /// Of [`Key::LastDomain`].
    LastDomain(u32),
    /// Of [`Key::Answer`].
    Answer(Result<Reply, Failure>),
}

const fn name(kind: BladeKind) -> &'static str {
    match kind {
        BladeKind::Compute => "compute",
        BladeKind::Memory => "memory",
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blade(kind, number) => write!(f, "blade/{}/{number}", name(*kind)),
            Self::Domain(number) => write!(f, "domain/{number}"),
            Self::Vma(va) => write!(f, "vma/{va:x}"),
            Self::Unclean(va) => write!(f, "unclean/{va:x}"),
            Self::LastDomain => write!(f, "last_domain"),
            Self::Answer(of, id) => {
                write!(
                    f,
                    "answer/{}/{}/{}/{id}",
                    name(of.kind),
                    of.number,
                    of.incarnation
                )
            }
        }
    }
}

/// A text that is no key's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no record of a controller's")]
pub struct NoKey(String);

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let kind = |text: &str| match text {
            "compute" => Some(BladeKind::Compute),
            "memory" => Some(BladeKind::Memory),
            _ => None,
        };
        let address = |text: &str| u64::from_str_radix(text, 16).ok();
        let parts: Vec<_> = text.split('/').collect();
        let key = match parts[..] {
            ["blade", of, number] => kind(of)
                .zip(number.parse().ok())
                .map(|(of, number)| Self::Blade(of, number)),
            ["domain", number] => number.parse().ok().map(Self::Domain),
            ["vma", va] => address(va).map(Self::Vma),
            ["unclean", va] => address(va).map(Self::Unclean),
            ["last_domain"] => Some(Self::LastDomain),
            ["answer", of, number, incarnation, id] => (|| {
                let of = Incarnation {
                    kind: kind(of)?,
                    number: number.parse().ok()?,
                    incarnation: incarnation.parse().ok()?,
                };
                Some(Self::Answer(of, id.parse().ok()?))
            })(),
            _ => None,
        };
        key.ok_or_else(|| NoKey(text.to_owned()))
    }
}

/// A record and its key; `None` for one that is to be forgotten.
pub type Change = (Key, Option<Record>);

impl Books {
    /// The record of what has that key, as it is now; `None` if that is not there any more.
    pub fn record(&self, key: Key) -> Option<Record> {
        match key {
            Key::Blade(kind, number) => self.blades.get(kind, number).cloned().map(Record::Blade),
            Key::Domain(number) => {
                let domain = self.domains.get(number)?;
                Some(Record::Domain(domain.recorded()))
            }
            Key::Vma(va) => {
                let vma = self.domains.vma(Va(va))?;
                let rights = self.domains.rights(vma).into_iter();
                let rights = rights.filter(|(_, _, class)| *class != PermissionClass::None);
                Some(Record::Vma(vma.clone(), rights.collect()))
            }
            Key::Unclean(va) => self.unclean.get(&va).copied().map(Record::Unclean),
            Key::LastDomain => Some(Record::LastDomain(self.domains.last())),
            Key::Answer(of, id) => self.answers.get(&(of, id)).cloned().map(Record::Answer),
        }
    }

    /// State made from records. Nothing of it is known to be in the tables.
    pub fn restore(records: impl IntoIterator<Item = (Key, Record)>) -> Self {
        let mut books = Self::default();
        let mut vmas = Vec::new();
        for (key, record) in records {
            match (key, record) {
                (Key::Domain(number), Record::Domain(domain)) => books.domains.put(number, domain),
                (Key::Answer(of, id), Record::Answer(answer)) => {
                    books.answers.insert((of, id), answer);
                }
                (Key::Unclean(_), Record::Unclean(piece)) => books.put_unclean(piece),
                (_, Record::Blade(blade)) => books.blades.put(blade),
                (_, Record::Vma(vma, rights)) => vmas.push((vma, rights)),
                (_, Record::LastDomain(number)) => books.domains.set_last(number),
                (_, Record::Domain(_) | Record::Answer(_) | Record::Unclean(_)) => {}
            }
        }
        for blade in books.blades.of(BladeKind::Memory) {
            books.memory.add(
                blade.incarnation.number,
                blade.pages.saturating_mul(super::PAGE),
            );
        }
        for (vma, rights) in vmas {
            for piece in &vma.pieces {
                books.memory.claim(*piece);
            }
            books.places.replace(&[], &vma.pieces);
            let domain = vma.domain;
            books.domains.put_vma(vma);
            if let Some(domain) = books.domains.get_mut(domain) {
                for (from, to, class) in rights {
                    domain.protection.set(Va(from), to - from, class);
                }
            }
        }
        for piece in books.unclean.values() {
            books.memory.claim(*piece);
            books.memory.free(*piece);
            books.places.replace(&[], &[*piece]);
        }
        books
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let of = Incarnation {
            kind: BladeKind::Compute,
            number: 3,
            incarnation: 65_535,
        };
        for key in [
            Key::Blade(BladeKind::Compute, 3),
            Key::Blade(BladeKind::Memory, 31),
            Key::Domain(65_535),
            Key::Vma(0x1000_0000_4000),
            Key::Unclean(0x1000_0000_4000),
            Key::LastDomain,
            Key::Answer(of, u64::MAX),
        ] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for text in [
            "",
            "vma",
            "vma/x",
            "domain/-1",
            "domain/1/2",
            "slot/1",
            "answer/compute/1/2",
            "blade/disk/1",
        ] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
