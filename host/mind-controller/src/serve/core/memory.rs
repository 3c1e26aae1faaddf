//! A memory blade that is gone takes along what it kept. Its regions are lost: every access fails until the program
//! unmaps, whatever the domain chose for lost writes, since there is nothing old either. A blade that comes back is
//! empty and serves new memory only.

use std::collections::BTreeSet;

use mind_api::message::BladeKind;
use mind_common::{
    addr::{PAGE_SHIFT, Va},
    directory::Prior,
    table::Peer,
};
use mind_machines::controller::procedure::lose;

use super::{Core, blades::slice_of, index};

impl Core {
    /// The memory blade is gone: the switch does not ask it any more, and what it kept is lost. Does nothing again
    /// where that was done before.
    pub(super) async fn lose_memory(&mut self, number: u8, incarnation: u16) {
        let blade = self.policy.registry().blade(BladeKind::Memory, number);
        let name = blade.map_or_else(|| format!("m{number}"), |blade| blade.name.clone());
        if blade.is_some_and(|blade| blade.connected && blade.incarnation == incarnation) {
            self.events.lost(BladeKind::Memory);
        }
        self.policy
            .disconnect(BladeKind::Memory, number, incarnation);
        if let Some(agent) = self.agents.remove(&(BladeKind::Memory, number)) {
            agent.dismiss();
        }
        if let Err(error) = self.switch.set_memory(number, Peer::default()) {
            tracing::error!(name, %error, "a memory blade that is gone is still asked");
        }
        self.keep(None);

        let vmas = self.lose_regions(number, &name);
        self.keep(None);
        // What blades have of it goes, too: a write-back is refused from now on, and reported.
        for (domain, va) in vmas {
            let Some(vma) = self.policy.registry().vma_at(va).map(|(_, vma)| vma) else {
                continue;
            };
            let (start, end) = (vma.va().0, vma.end());
            tracing::error!(
                domain, vma = %va, area = vma.area, pages = vma.length >> PAGE_SHIFT, blade = name,
                "what a memory blade kept is lost; accesses fail until it is unmapped"
            );
            let blades = self.placed.get(&domain).copied().unwrap_or_default();
            self.flush_or_expel(blades, start, end).await;
        }
        self.bury().await;
    }

    /// Makes the words of the blade's regions lost, and notes it by vma. The vmas that lost something now: domain and
    /// first address.
    fn lose_regions(&mut self, number: u8, name: &str) -> BTreeSet<(u32, Va)> {
        let (slice, _) = slice_of(number);
        let entries = self
            .policy
            .directory()
            .entries(slice.base, 1 << slice.shift);
        let mut vmas = BTreeSet::new();
        for entry in entries {
            let directory = self.switch.directory();
            let slot = match directory.slot(index(&entry)) {
                Ok(slot) => slot,
                Err(error) => {
                    tracing::error!(region = %entry.region, %error, "a lost region is still open");
                    continue;
                }
            };
            loop {
                let word = slot.word();
                let Some(next) = lose(word) else { break };
                if slot.swap_word(word, next).is_ok() {
                    self.pass();
                    let noted = self.policy.note_loss(entry.region, name);
                    vmas.extend(noted.map(|(domain, vma)| (domain, vma.va())));
                    break;
                }
            }
        }
        vmas
    }

    /// Whether accesses to part of the range fail because what was there is lost.
    pub(super) fn has_lost(&self, va: Va, length: u64) -> bool {
        let directory = self.switch.directory();
        let entries = self.policy.directory().entries_over(va, length);
        entries.iter().any(|entry| {
            let slot = directory.slot(index(entry));
            slot.is_ok_and(|slot| slot.word().prior() == Some(Prior::Lost))
        })
    }
}
