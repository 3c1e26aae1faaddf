//! What of the books outlives the controller: a record for each blade, domain, vma and so on, as JSON by a key.
//!
//! The books note which keys a request touched; [`Policy::take_records`](crate::policy::Policy::take_records) gives
//! what became of them, for whoever keeps records. Slots and tables are not among them: the maps of the data plane
//! outlive the controller, too, and say it themselves.

use std::fmt;
use std::str::FromStr;

use mind_api::message::BladeKind;

/// What a record is of. Its text is unique, and is read back by [`FromStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A blade, by its kind and number.
    Blade(BladeKind, u8),
    /// A protection domain: its name, processes and areas.
    Domain(u32),
    /// A vma of a domain, by its first address.
    Vma(u32, u64),
    /// What a domain may do, range by range.
    Protection(u32),
    /// The number that the last new domain got.
    LastDomain,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blade(BladeKind::Compute, number) => write!(f, "compute/{number}"),
            Self::Blade(BladeKind::Memory, number) => write!(f, "memory/{number}"),
            Self::Domain(number) => write!(f, "domain/{number}"),
            Self::Vma(domain, va) => write!(f, "vma/{domain}/{va:x}"),
            Self::Protection(domain) => write!(f, "protection/{domain}"),
            Self::LastDomain => write!(f, "last_domain"),
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
        let number = |text: &str| text.parse().ok();
        let mut parts = text.split('/');
        let key = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("compute"), Some(blade), None, None) => blade
                .parse()
                .ok()
                .map(|number| Self::Blade(BladeKind::Compute, number)),
            (Some("memory"), Some(blade), None, None) => blade
                .parse()
                .ok()
                .map(|number| Self::Blade(BladeKind::Memory, number)),
            (Some("domain"), Some(domain), None, None) => number(domain).map(Self::Domain),
            (Some("protection"), Some(domain), None, None) => number(domain).map(Self::Protection),
            (Some("vma"), Some(domain), Some(va), None) => number(domain)
                .zip(u64::from_str_radix(va, 16).ok())
                .map(|(domain, va)| Self::Vma(domain, va)),
            (Some("last_domain"), None, None, None) => Some(Self::LastDomain),
            _ => None,
        };
        key.ok_or_else(|| NoKey(text.to_owned()))
    }
}

/// What became of what a key is of: its record, or nothing any more.
pub type Change = (Key, Option<Vec<u8>>);

/// A record that does not say what it should.
#[derive(Debug, thiserror::Error)]
#[error("the record `{key}` cannot be understood")]
pub struct Broken {
    /// Which.
    pub key: Key,
    /// The reason.
    #[source]
    pub source: serde_json::Error,
}

/// Addresses as numbers.
pub(crate) mod address {
    use mind_common::addr::Va;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(va: &Va, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(va.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Va, D::Error> {
        u64::deserialize(deserializer).map(Va)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        for key in [
            Key::Blade(BladeKind::Compute, 3),
            Key::Blade(BladeKind::Memory, 31),
            Key::Domain(65_535),
            Key::Vma(7, 0x1000_0000_4000),
            Key::Protection(1),
            Key::LastDomain,
        ] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for text in [
            "",
            "vma",
            "vma/1",
            "vma/1/x",
            "domain/-1",
            "domain/1/2",
            "slot/1",
        ] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
