//! The switch's tables beside the slots: the blades behind the ports, protection, translation, and
//! the slots of pages.

use std::collections::{BTreeMap, BTreeSet};

use mind_common::{
    addr::{Prefix, Va},
    id::{BladeId, BladeSet, Connection, DomainId},
    memo::Location,
    table::{self, PORT_FANS_OUT, PORT_HANDS_OVER, Permission, Translation},
};

use crate::Node;

/// The blade that is registered behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// A compute blade, with the connection of its current incarnation.
    Compute(Connection),
    /// A memory blade.
    Memory,
}

/// The switch's tables besides its slots. They change seldom, so copies of a switch share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    /// What is registered behind the port of each blade; nothing if it is not listed.
    pub ports: BTreeMap<Node, Port>,
    /// Ports that have no program in TC: what must go to several blades is dropped there.
    pub without_tc: BTreeSet<Node>,
    /// Those of these that hand a packet for several blades over to the controller, which copies
    /// it.
    pub hands_over: BTreeSet<Node>,
    /// The compute blades that are present, each with the connection of its current incarnation.
    pub compute: BTreeMap<BladeId, Connection>,
    /// The memory blades that are present.
    pub memory: BTreeSet<u8>,
    /// On which blades a domain is placed.
    pub grants: BTreeMap<DomainId, BladeSet>,
    /// What a domain may do; the longest prefix counts.
    pub protection: BTreeMap<(DomainId, Prefix), Permission>,
    /// Where pages are stored; the longest prefix counts.
    pub translation: BTreeMap<Prefix, Translation>,
    /// The slot of each page that has one.
    pub pages: BTreeMap<Va, usize>,
}

impl Tables {
    /// Whether the domain is placed on the blade.
    pub fn is_placed(&self, domain: DomainId, blade: BladeId) -> bool {
        self.grants
            .get(&domain)
            .is_some_and(|blades| blades.contains(blade))
    }

    /// What the domain may do with `va`.
    pub fn permission(&self, domain: DomainId, va: Va) -> Option<Permission> {
        self.protection
            .iter()
            .filter(|((of, prefix), _)| *of == domain && covers(prefix, va))
            .min_by_key(|((_, prefix), _)| prefix.shift)
            .map(|(_, permission)| *permission)
    }

    /// Where `va` is stored, as the longest matching prefix says.
    pub fn location(&self, va: Va) -> Option<Location> {
        let entry = self
            .translation
            .iter()
            .filter(|(prefix, _)| covers(prefix, va))
            .min_by_key(|(prefix, _)| prefix.shift)
            .map(|(_, entry)| entry)?;
        Some(Location {
            blade: entry.blade,
            offset: entry.apply(va),
        })
    }

    /// The entry of a port, as the XDP program reads it.
    pub(super) fn port(&self, port: Node) -> table::Port {
        let mut entry = match self.ports.get(&port) {
            None => table::Port::default(),
            Some(Port::Compute(connection)) => table::Port::compute(*connection),
            Some(Port::Memory) => table::Port::memory(0),
        };
        if !self.without_tc.contains(&port) {
            entry.flags |= PORT_FANS_OUT;
        }
        if self.hands_over.contains(&port) {
            entry.flags |= PORT_HANDS_OVER;
        }
        entry
    }

    /// The slot of the page that `va` is in.
    pub fn slot(&self, va: Va) -> Option<usize> {
        self.pages.get(&va.page()).copied()
    }
}

fn covers(prefix: &Prefix, va: Va) -> bool {
    let of = |va: Va| va.0.checked_shr(prefix.shift).unwrap_or(0);
    of(va) == of(prefix.base)
}
