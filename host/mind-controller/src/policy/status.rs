//! What operators see of the books.

use mind_api::message::BladeKind;
use mind_api::operator::{
    AccessRange, BladeStatus, CopyStatus, DomainStatus, LossStatus, Status, VmaStatus,
};
use mind_common::addr::Va;

use super::{PAGE, Policy};
use crate::protect::Class;
use crate::registry::{Domain, Vma};

impl Policy {
    /// What there is, for operators; but for the ports and the copies, which are the data plane's.
    pub fn status(&self) -> Status {
        let blades = [BladeKind::Compute, BladeKind::Memory]
            .into_iter()
            .flat_map(|kind| {
                self.registry.blades(kind).map(move |blade| {
                    let slice = match kind {
                        BladeKind::Memory => self.allocator.slice(blade.number),
                        BladeKind::Compute => None,
                    };
                    BladeStatus {
                        kind,
                        number: blade.number,
                        name: blade.name.clone(),
                        address: blade.address,
                        port: None,
                        incarnation: blade.incarnation,
                        connected: blade.connected,
                        pages: blade.pages,
                        allocated: slice.map_or(0, |slice| slice.used() / PAGE),
                    }
                })
            });
        let domains = self
            .registry
            .domains()
            .iter()
            .map(|(domain, entry)| DomainStatus {
                domain: *domain,
                name: entry.name.clone(),
                processes: entry.processes.len() as u32,
                vmas: entry.vmas.len() as u32,
                bytes: entry.vmas.values().map(|vma| vma.length).sum(),
                on_loss: entry.on_loss,
                losses: entry.vmas.values().filter_map(loss_of).collect(),
            });
        Status {
            blades: blades.collect(),
            domains: domains.collect(),
            slots_used: self.directory.used(),
            slots: self.directory.capacity(),
            ports: Vec::new(),
            copied: CopyStatus::default(),
            awaited: Vec::new(),
        }
    }
}

impl Policy {
    /// Vmas at `from` and above, by address; at most `limit`. And where the rest begins, if there is more.
    pub fn vmas(&self, from: Va, limit: usize) -> (Vec<VmaStatus>, Option<u64>) {
        let mut vmas: Vec<_> = self
            .registry
            .domains()
            .iter()
            .flat_map(|(number, domain)| {
                let vmas = domain.vmas.range(from.0..);
                vmas.map(move |(_, vma)| (*number, domain, vma))
            })
            .collect();
        vmas.sort_unstable_by_key(|(_, _, vma)| vma.va().0);
        let next = vmas.get(limit).map(|(_, _, vma)| vma.va().0);
        vmas.truncate(limit);
        let status = |(number, domain, vma): (u32, &Domain, &Vma)| {
            let memory = self
                .registry
                .blade(BladeKind::Memory, vma.extent.blade)
                .map_or_else(String::new, |blade| blade.name.clone());
            let access = |(start, end, class): (u64, u64, Option<Class>)| AccessRange {
                va: start,
                length: end - start,
                access: Class::access(class),
            };
            let (start, end) = (vma.va().0, vma.end());
            let access = match self.protection.get(&number) {
                Some(protection) => protection.over(start, end),
                None => vec![(start, end, None)],
            }
            .into_iter()
            .map(access);
            VmaStatus {
                va: start,
                length: vma.length,
                domain: number,
                domain_name: domain.name.clone(),
                memory,
                area: vma.area.clone(),
                users: vma.users.count(),
                access: access.collect(),
                regions: self.directory.entries(vma.va(), vma.length).len() as u32,
                lost: vma.lost.as_ref().map_or(0, |lost| lost.regions),
            }
        };
        (vmas.into_iter().map(status).collect(), next)
    }
}

fn loss_of(vma: &Vma) -> Option<LossStatus> {
    let lost = vma.lost.as_ref()?;
    Some(LossStatus {
        va: vma.va().0,
        length: vma.length,
        area: vma.area.clone(),
        regions: lost.regions,
        last: lost.last.0,
        blade: lost.blade.clone(),
    })
}
