//! What operators see of the books.

use mind_api::message::{BladeKind, BladeStatus, DomainStatus, LossStatus, Status};

use super::{PAGE, Policy};
use crate::registry::Vma;

impl Policy {
    /// What there is, for operators; but for the ports, which are the data plane's.
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
        }
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
