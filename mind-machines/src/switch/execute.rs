//! What the controller wants done to the switch's tables and words, done at once: for whatever drives the controller
//! without a real data plane.

use mind_common::{
    addr::Va,
    directory::{
        State, Word,
        machine::{Loss, on_loss},
    },
    id::{BladeId, DomainId},
    permission::PermissionClass,
    table::{self, PEER_PRESENT, Peer},
};

use super::{
    Port, Switch, Tables,
    slot::{index, number},
};
use crate::{
    Node,
    controller::{
        Act, Entry, FoundSlot, Seen,
        books::{
            blades,
            tables::{Key, Value},
        },
        interface, procedure,
    },
};

/// Ports of compute blades come first, those of memory blades behind them.
const MEMORY_PORTS: u32 = 1 << 8;

/// The port behind which a host is.
pub fn port_of(node: Node) -> blades::Port {
    blades::Port(match node {
        Node::Compute(blade) => u32::from(blade.get()),
        Node::Memory(number) => MEMORY_PORTS + u32::from(number),
    })
}

/// The host behind a port.
pub fn node_at(port: blades::Port) -> Node {
    match port.0.checked_sub(MEMORY_PORTS) {
        Some(number) => Node::Memory(number as u8),
        None => Node::Compute(BladeId::from_low_bits(port.0.into())),
    }
}

impl Switch {
    /// Does what the controller wants done; `None` for what is not the switch's ([`Act::Keep`]).
    ///
    /// # Panics
    ///
    /// For a slot that the switch does not have.
    pub fn execute(&mut self, act: &Act) -> Option<Seen> {
        let seen = match act {
            Act::Look { slot } => Seen::Word(self.slots[index(*slot)].word),
            Act::Swap { slot, old, new } => {
                self.swap_word(index(*slot), *old, *new);
                Seen::Word(self.slots[index(*slot)].word)
            }
            Act::TakeSlot => Seen::Slot(self.take_slot().map(number)),
            Act::GiveSlots { slots } => {
                slots.iter().for_each(|slot| self.give_slot(index(*slot)));
                Seen::Done(Ok(()))
            }
            Act::StopOpening => {
                self.stop_opening();
                Seen::Done(Ok(()))
            }
            Act::StartOpening => {
                self.start_opening();
                Seen::Done(Ok(()))
            }
            Act::TellAgain => {
                self.tell_again();
                Seen::Done(Ok(()))
            }
            Act::LookForUses { from, most } => {
                let end = self.end(*from, *most);
                Seen::Uses {
                    found: self.uses(index(*from), end),
                    next: (end < self.slots.len()).then(|| number(end)),
                    left: self.left(),
                }
            }
            Act::LookIntoBlocks { from, most, enough } => {
                let end = self.end(*from, *most);
                let (found, end) = self.uses_in_blocks(index(*from), end, *enough);
                Seen::Uses {
                    found,
                    next: (end < self.slots.len()).then(|| number(end)),
                    left: self.left(),
                }
            }
            Act::Open { slot, region, word } => {
                Switch::open(self, index(*slot), *region, *word);
                Seen::Done(Ok(()))
            }
            Act::Cover { slot, region } => {
                self.slots[index(*slot)].region = *region;
                Seen::Done(Ok(()))
            }
            Act::Assign { region, slot } => {
                self.assign(*region, slot.map(index));
                Seen::Done(Ok(()))
            }
            Act::Find { from, to, most } => self.find(*from, *to, *most),
            Act::Forget { blade, from, most } => self.sweep(*from, *most, |slot| {
                let step = loss(slot.word, *blade)?;
                let is_lost = step.verdict == Loss::Writes;
                Some((step.next, is_lost))
            }),
            Act::Lose { kept, from, most } => self.sweep(*from, *most, |slot| {
                let is_its = slot
                    .region
                    .is_some_and(|region| interface::is_within(kept, region.base()));
                let lost = is_its.then(|| procedure::lose(slot.word)).flatten()?;
                Some((lost, true))
            }),
            Act::Install { key, value } => {
                self.install(*key, *value);
                Seen::Done(Ok(()))
            }
            Act::ReadTables => Seen::Tables(self.tables.entries().collect()),
            Act::ReadSlots { from, most } => self.read_slots(*from, *most),
            Act::Reindex { regions } => {
                self.tables_mut().pages.clear();
                for (region, slot) in regions {
                    self.assign(*region, Some(index(*slot)));
                }
                Seen::Done(Ok(()))
            }
            Act::Keep { .. } => return None,
        };
        Some(seen)
    }

    fn find(&self, from: Va, to: Va, most: usize) -> Seen {
        let mut found: Vec<Entry> = Vec::new();
        let pages = &self.tables.pages;
        let mut next = from.page();
        loop {
            let Some((page, slot)) = pages.range(next.min(to)..to).next() else {
                return Seen::Regions { found, next: None };
            };
            let Some(region) = self.slots[*slot]
                .region
                .filter(|region| region.contains(*page))
            else {
                // Its slot is another region's by now, or covers nothing at the moment.
                next = Va(page.0 + 4096);
                continue;
            };
            if found.len() == most {
                let next = Some(*page);
                return Seen::Regions { found, next };
            }
            found.push(Entry {
                region,
                slot: number(*slot),
            });
            next = Va(region.base().0 + region.size());
        }
    }

    /// Changes words from a slot on; `change` says what one becomes, and whether something of its region is lost by that.
    fn sweep(
        &mut self,
        from: u32,
        most: u32,
        change: impl Fn(&super::Slot) -> Option<(Word, bool)>,
    ) -> Seen {
        let end = self.end(from, most);
        let mut lost = Vec::new();
        for (number, slot) in (from..).zip(&mut self.slots[index(from)..end]) {
            let Some((next, is_lost)) = change(slot) else {
                continue;
            };
            slot.word = next;
            if let Some(region) = slot.region.filter(|_| is_lost) {
                lost.push(Entry {
                    region,
                    slot: number,
                });
            }
        }
        let next = (end < self.slots.len()).then(|| number(end));
        Seen::Swept { lost, next }
    }

    /// The index after the last of so many slots.
    fn end(&self, from: u32, most: u32) -> usize {
        let end = index(from).saturating_add(most as usize);
        end.min(self.slots.len())
    }

    fn read_slots(&self, from: u32, most: u32) -> Seen {
        let end = self.end(from, most);
        let used =
            (index(from)..end).filter(|index| self.slots[*index].word.state() != State::Free);
        let found = used.map(|index| {
            let slot = &self.slots[index];
            let covered = slot.region.or_else(|| self.region_of_pages(index));
            let after = covered.map(|region| Va(region.base().0 + region.size()));
            FoundSlot {
                slot: number(index),
                region: slot.region,
                word: slot.word,
                pages: match slot.region {
                    Some(_) => None,
                    None => self.region_of_pages(index),
                },
                is_found: slot
                    .region
                    .is_some_and(|region| self.tables.slot(region.base()) == Some(index)),
                neighbour: after.and_then(|va| self.tables.slot(va)).map_or(0, number),
            }
        });
        Seen::Slots {
            found: found.collect(),
            next: (end < self.slots.len()).then(|| number(end)),
        }
    }

    /// What is kept here of an entry's value: addresses of hosts are not.
    pub(crate) const fn kept(value: Value) -> Value {
        match value {
            Value::Peer(peer) => Value::Peer(Peer {
                ipv4: [0; 4],
                mac: [0; 6],
                ..peer
            }),
            other => other,
        }
    }

    fn install(&mut self, key: Key, value: Option<Value>) {
        let tables = self.tables_mut();
        match (key, value) {
            (Key::Port(port), Some(Value::Port(entry))) => {
                let port = node_at(port);
                let behind = match mind_common::id::Connection::from_qp(entry.connection) {
                    Some(connection) if entry.kind() == table::PortKind::Compute => {
                        Port::Compute(connection)
                    }
                    _ => Port::Memory,
                };
                tables.ports.insert(port, behind);
            }
            (Key::Port(port), _) => {
                tables.ports.remove(&node_at(port));
            }
            (Key::Compute(blade), Some(Value::Peer(peer))) => {
                tables.compute.insert(blade, peer.connection_of(blade));
            }
            (Key::Compute(blade), _) => {
                tables.compute.remove(&blade);
            }
            (Key::Memory(number), value) => {
                match value {
                    Some(_) => tables.memory.insert(number),
                    None => tables.memory.remove(&number),
                };
            }
            (Key::Translation(prefix), Some(Value::Translation(translation))) => {
                tables.translation.insert(prefix, translation);
            }
            (Key::Translation(prefix), _) => {
                tables.translation.remove(&prefix);
            }
            (Key::Placement(domain), Some(Value::Placement(blades))) => {
                tables.grants.insert(DomainId(domain), blades);
            }
            (Key::Placement(domain), _) => {
                tables.grants.remove(&DomainId(domain));
            }
            (Key::Protection(domain, prefix), Some(Value::Protection(class))) => {
                tables
                    .protection
                    .insert((DomainId(domain), prefix), class.permission());
            }
            (Key::Protection(domain, prefix), _) => {
                tables.protection.remove(&(DomainId(domain), prefix));
            }
        }
    }
}

/// What the departure of a blade makes of a word.
fn loss(word: Word, gone: BladeId) -> Option<mind_common::directory::machine::Step<Loss>> {
    let step = on_loss(word, gone);
    #[cfg(feature = "mutants")]
    let step = crate::mutant::lost(word, step);
    step
}

impl Tables {
    /// All entries, as the controller reads them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, Value)> {
        fn present(node: Node, connection: u32) -> Peer {
            Peer {
                ipv4: [0; 4],
                mac: [0; 6],
                flags: PEER_PRESENT,
                ifindex: port_of(node).0,
                connection,
            }
        }
        let ports = self.ports.iter().map(|(node, port)| {
            let entry = match (port, node) {
                (Port::Compute(connection), _) => table::Port::compute(*connection),
                (Port::Memory, Node::Memory(number)) => table::Port::memory(*number),
                (Port::Memory, Node::Compute(_)) => table::Port::memory(0),
            };
            (Key::Port(port_of(*node)), Value::Port(entry))
        });
        let compute = self.compute.iter().map(|(blade, connection)| {
            let peer = present(Node::Compute(*blade), connection.to_qp());
            (Key::Compute(*blade), Value::Peer(peer))
        });
        let memory = self.memory.iter().map(|number| {
            let peer = present(Node::Memory(*number), 0);
            (Key::Memory(*number), Value::Peer(peer))
        });
        let translation = self.translation.iter();
        let translation = translation
            .map(|(prefix, entry)| (Key::Translation(*prefix), Value::Translation(*entry)));
        let grants = self.grants.iter();
        let grants =
            grants.map(|(domain, blades)| (Key::Placement(domain.0), Value::Placement(*blades)));
        let protection = self
            .protection
            .iter()
            .map(|((domain, prefix), permission)| {
                let class = PermissionClass::of(*permission);
                (Key::Protection(domain.0, *prefix), Value::Protection(class))
            });
        let blades = ports.chain(compute).chain(memory);
        blades.chain(translation).chain(grants).chain(protection)
    }
}
