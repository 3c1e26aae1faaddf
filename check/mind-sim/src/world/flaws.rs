//! Machines that are broken on purpose ([`Flaw`]).

use mind_common::{directory::State, serial::Version};
use mind_machines::{
    Node,
    datagram::{Body, Datagram},
};

use super::World;
use crate::{flaw::Flaw, plan::Image};

impl World<'_> {
    /// Whether the run has that flaw.
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaw == Some(flaw)
    }

    /// Applies a flaw of the switch, after a packet from a host.
    pub(crate) fn break_switch(&mut self, from: Node) {
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

    /// Applies a flaw of memory, before a packet.
    pub(crate) fn break_memory(&mut self, number: u8, packet: &mut Datagram<Image>) {
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
