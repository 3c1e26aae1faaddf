//! Nodes that are broken on purpose, to see that it is found.

use mind_common::{directory::State, serial::Version};
use mind_machines::{
    Node,
    datagram::{Body, Datagram},
};

use crate::{plan::Image, world::World};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Flaw {
    /// The directory forgets one of many sharers.
    ForgottenSharer,
    /// Memory stores whatever comes, however old.
    OldVersions,
    /// Memory acknowledges write-backs and keeps what it had.
    LostStores,
    /// Memory does not fence pages of blades that are gone.
    NoFences,
    /// Programs may write on while their page is written back.
    NoProtection,
    /// A blade shows its programs every page that it has, of whichever domain.
    ForeignPages,
    /// Stores leave a store buffer in any order.
    #[value(skip)]
    UnorderedStores,
}

impl Flaw {
    /// Those of nodes, which show without scripts.
    pub const ALL: [Self; 6] = [
        Self::ForgottenSharer,
        Self::OldVersions,
        Self::LostStores,
        Self::NoFences,
        Self::NoProtection,
        Self::ForeignPages,
    ];
}

impl World<'_> {
    /// Whether that is broken.
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaw == Some(flaw)
    }

    /// What is broken in the switch, after a packet from a host.
    pub(crate) fn spoil_switch(&mut self, from: Node) {
        let Node::Compute(from) = from else {
            return;
        };
        if !self.has(Flaw::ForgottenSharer) {
            return;
        }
        for index in 0..self.switch.slots().len() {
            let Some(slot) = self.switch.slot_mut(index) else {
                continue;
            };
            let (word, sharers) = (slot.word, slot.word.blades());
            let other = sharers.iter().find(|blade| *blade != from);
            if word.state() == State::Shared
                && sharers.len() > 2
                && let Some(other) = other
            {
                slot.word = word.settled(State::Shared, sharers.without(other));
            }
        }
    }

    /// What is broken in memory, before a packet.
    pub(crate) fn spoil_memory(&mut self, number: u8, packet: &mut Datagram<Image>) {
        let (old, lost) = (self.has(Flaw::OldVersions), self.has(Flaw::LostStores));
        let Some(memory) = self.memories.get_mut(&number) else {
            return;
        };
        if let Body::Write {
            page,
            version,
            data,
        } = &mut packet.body
        {
            let number = page.page.0 >> mind_common::addr::PAGE_SHIFT;
            let mut stored = memory.page(number);
            if lost {
                *data = stored.data;
            }
            if old {
                stored.version = Version::new(version.get().wrapping_sub(1));
                memory.set_page(number, stored);
            }
        }
    }
}
