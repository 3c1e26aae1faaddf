//! What the machine tells operators of: lines of the log, and counts of metrics.

use mind_api::message::BladeKind;
use mind_common::addr::PAGE_SHIFT;
use mind_machines::controller::{Event, books::blades::Incarnation};

use super::Driver;

impl Driver {
    /// Notes an event.
    pub(super) fn tell(&mut self, event: Event) {
        match event {
            Event::Joined(incarnation) => {
                let name = self.name_of(incarnation.kind, incarnation.number);
                tracing::info!(
                    name,
                    port = self.port_name(incarnation),
                    ?incarnation,
                    "a blade has joined"
                );
                self.note_complete();
            }
            Event::Resumed(incarnation) => {
                let name = self.name_of(incarnation.kind, incarnation.number);
                tracing::info!(name, ?incarnation, "a blade is back");
            }
            Event::Fenced {
                incarnation,
                name,
                why,
            } => {
                let why = why.map_or_else(
                    || "its connection has ended".to_owned(),
                    |failure| failure.to_string(),
                );
                tracing::warn!(name, ?incarnation, why, "a blade is fenced");
                self.events.lost(incarnation.kind);
                self.is_complete.send_replace(false);
            }
            Event::Lost { region, vma, blade } => match vma {
                Some((domain, vma)) => tracing::error!(
                    %region, domain, %vma, blade,
                    "writes into a region that were not in memory yet are lost with a blade"
                ),
                None => tracing::warn!(%region, blade, "a region of no vma has lost writes"),
            },
            Event::VmaLost { domain, va, blade } => {
                let domains = &self.controller.books().domains;
                let vma = domains.vma(va);
                let (area, of, lost) = vma.map_or((None, 0, 0), |vma| {
                    let lost = domains.lost_ranges(vma).map(|(from, to)| to - from);
                    (vma.area.as_deref(), vma.length, lost.sum::<u64>())
                });
                let (pages, of) = (lost >> PAGE_SHIFT, of >> PAGE_SHIFT);
                tracing::error!(
                    domain, vma = %va, area, pages, of, blade,
                    "pages of a vma are lost with a memory blade; accesses to them fail until they are unmapped"
                );
            }
            Event::Refused { page, vma, blade } => match vma {
                Some((domain, vma)) => tracing::error!(
                    %page, domain, %vma, blade,
                    "memory refused a write-back; what was written is lost"
                ),
                None => tracing::debug!(%page, blade, "memory refused a write-back to no vma"),
            },
            Event::Changed(change, outcome) => self.events.changed(change, outcome),
            Event::Missed(kind, name) => {
                let kind = match kind {
                    BladeKind::Compute => "compute",
                    BladeKind::Memory => "memory",
                };
                tracing::warn!(name, kind, "a blade did not come back");
            }
            Event::TakenOver => {
                let books = self.controller.books();
                tracing::info!(
                    blades = books.blades.all().filter(|blade| blade.is_here).count(),
                    domains = books.domains.all().count(),
                    "took over from an earlier controller"
                );
                self.note_complete();
                for asked in std::mem::take(&mut self.checks) {
                    self.check(asked);
                }
            }
            Event::Failed { what, failure } => tracing::error!(%failure, "{what} failed"),
        }
    }

    fn port_name(&self, incarnation: Incarnation) -> &str {
        let blades = &self.controller.books().blades;
        let blade = blades.get(incarnation.kind, incarnation.number);
        blade
            .and_then(|blade| self.bridge.port(blade.port.0))
            .unwrap_or("?")
    }
}
