//! What the switch's tables should hold beside the directory: one function of the controller's state. Installing a
//! change, taking over from another controller and checking all compare with it.

use mind_api::message::BladeKind;
use mind_common::{
    addr::Prefix,
    id::{BladeId, BladeSet},
    permission::PermissionClass,
    table::{self, Peer, Translation},
};

use super::{
    Books,
    blades::{Port, slice_of},
};

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// What is behind a port.
    Port(Port),
    /// Where a compute blade is.
    Compute(BladeId),
    /// Where the memory blade with that number is.
    Memory(u8),
    /// Where the addresses of a prefix are kept.
    Translation(Prefix),
    /// On which blades a protection domain is placed.
    Placement(u32),
    /// What a protection domain may do with the addresses of a prefix.
    Protection(u32, Prefix),
}

/// What an entry says. An entry that says nothing is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Of [`Key::Port`], without flags.
    Port(table::Port),
    /// Of [`Key::Compute`] and [`Key::Memory`].
    Peer(Peer),
    /// Of [`Key::Translation`].
    Translation(Translation),
    /// Of [`Key::Placement`].
    Placement(BladeSet),
    /// Of [`Key::Protection`].
    Protection(PermissionClass),
}

impl Books {
    /// What the entry should say; `None` if it should not be there.
    pub fn wanted(&self, key: Key) -> Option<Value> {
        let peer = |kind, number| {
            let blade = self
                .blades
                .get(kind, number)
                .filter(|blade| blade.is_here)?;
            Some(Value::Peer(blade.peer()))
        };
        match key {
            Key::Port(port) => {
                let blade = self.blades.behind(port).filter(|blade| blade.is_here)?;
                Some(Value::Port(blade.port_entry()))
            }
            Key::Compute(blade) => peer(BladeKind::Compute, blade.get()),
            Key::Memory(number) => peer(BladeKind::Memory, number),
            Key::Translation(prefix) => {
                if let Some(translation) = self.places.entry(prefix) {
                    return Some(Value::Translation(translation));
                }
                let (slice, translation) = slice_of(prefix.base.slice()?);
                // It stays when the blade has gone: where pages are, and that they are lost, is told apart.
                self.blades
                    .get(BladeKind::Memory, translation.blade as u8)?;
                (slice == prefix).then_some(Value::Translation(translation))
            }
            Key::Placement(domain) => {
                let blades = self.domains.get(domain)?.blades();
                (!blades.is_empty()).then_some(Value::Placement(blades))
            }
            Key::Protection(domain, prefix) => {
                let class = self.domains.get(domain)?.protection.entry(prefix)?;
                Some(Value::Protection(class))
            }
        }
    }

    /// All entries that should be there.
    pub fn all_wanted(&self) -> impl Iterator<Item = (Key, Value)> {
        let blades = self.blades.all().flat_map(|blade| {
            let number = blade.incarnation.number;
            let (at, slice) = match blade.incarnation.kind {
                BladeKind::Compute => (Key::Compute(blade.incarnation.connection().blade), None),
                BladeKind::Memory => (
                    Key::Memory(number),
                    Some(Key::Translation(slice_of(number).0)),
                ),
            };
            [Some(at), slice, Some(Key::Port(blade.port))]
                .into_iter()
                .flatten()
        });
        let domains = self.domains.all().flat_map(|(number, domain)| {
            let entries = domain.protection.entries();
            let entries = entries.map(move |(prefix, _)| Key::Protection(number, prefix));
            [Key::Placement(number)].into_iter().chain(entries)
        });
        let places = self.places.entries();
        let places = places.map(|(prefix, _)| Key::Translation(prefix));
        let keys = blades.chain(places).chain(domains);
        keys.filter_map(|key| Some((key, self.wanted(key)?)))
    }
}
