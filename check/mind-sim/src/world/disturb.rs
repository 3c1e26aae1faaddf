//! Carries out disturbances.

use mind_api::message::Request;
use mind_common::id::DomainId;
use mind_machines::Node;

use crate::{
    plan::{Disturbance, Mapping, Place, blade},
    trace::What,
    world::agent::Purpose,
    world::{Event, World},
};

/// The number of the process that maps areas for others.
pub(crate) const KEEPER: i32 = i32::MAX;

impl World<'_> {
    /// The blade on which the program runs that maps areas for others, in all domains.
    pub(crate) const fn keeper(&self) -> Node {
        Node::Compute(blade(self.plan.blades))
    }

    /// The program that maps areas for others does that.
    pub(crate) fn keep_mapped(&mut self, mapping: Mapping, area: usize) {
        let domain = self.plan.areas.get(area).map(|area| area.domain);
        let domain: Option<DomainId> = domain.and_then(|domain| self.kept.get(&domain).copied());
        if let Some(domain) = domain
            && let Some(request) = self
                .mapped
                .request(self.plan, (domain, KEEPER), mapping, area)
        {
            self.promises.asked(&request);
            let purpose = Purpose::Maps(None, mapping, area);
            self.ask(self.keeper(), request, purpose);
        }
    }

    /// Carries one out.
    pub(crate) fn disturb(&mut self, disturbance: Disturbance) {
        self.record(What::Disturbed(disturbance));
        let now = self.queue.now();
        match disturbance {
            Disturbance::Change(change, area, page) => {
                let place = Place {
                    area,
                    page,
                    word: 0,
                };
                if let Some(cell) = self.mapped.cell(place) {
                    let va = cell.page.0;
                    self.operate(Request::ChangeRegion { va, change });
                }
            }
            Disturbance::Mapping(mapping, area) => self.keep_mapped(mapping, area),
            Disturbance::ControllerDies { moment, back, late } => {
                self.let_controller_die(moment, back, late)
            }
            Disturbance::MemoryCrash {
                memory,
                noticed,
                back,
            } => self.crash_memory(memory, noticed, back),
            Disturbance::Unzeroed { memory, lasts } => self.mapped.unzero(memory, now + lasts),
            Disturbance::Unable { blade, lasts } => {
                self.unable_until.insert(blade, now + lasts);
            }
            Disturbance::Counts => self.operate(Request::ListCaches { from: 0, limit: 4 }),
            Disturbance::OperatorsLeave => self.operators_leave(),
            Disturbance::WithoutTc { blade, lasts } => {
                let node = Node::Compute(blade);
                self.switch.tables_mut().without_tc.insert(node);
                self.queue.after(lasts, Event::Repaired(node));
            }
            Disturbance::LinkDown { node, lasts } => self.network.link_down(node, now + lasts),
            Disturbance::Hang { blade, lasts } => self.hang(blade, lasts),
            Disturbance::Exit {
                blade,
                domain,
                threads,
                back,
            } => self.exit(blade, domain, threads, back),
            Disturbance::Disconnect {
                blade,
                noticed,
                found,
            } => self.disconnect(blade, noticed, found),
            Disturbance::Crash {
                blade,
                noticed,
                back,
            } => self.crash(blade, noticed, back),
        }
    }
}
