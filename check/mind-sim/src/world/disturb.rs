//! Carries out disturbances.

use mind_machines::{
    Node,
    controller::{Ask, Request},
};

use crate::{
    plan::{Change, Disturbance},
    trace::What,
    world::mapped::request,
    world::{Event, World},
};

impl World<'_> {
    /// Carries one out.
    pub(crate) fn disturb(&mut self, disturbance: Disturbance) {
        self.record(What::Disturbed(disturbance));
        let now = self.queue.now();
        match disturbance {
            Disturbance::Change(change, va) => {
                self.receive_from_controller(Ask::of_nobody(match change {
                    Change::Reset => Request::Reset(va),
                    Change::Split => Request::Split(va),
                    Change::Merge => Request::Merge(va),
                }))
            }
            Disturbance::Mapping(mapping, domain, region) => {
                if let Some(area) = self.plan.area_of(domain, region) {
                    self.receive_from_controller(Ask::of_nobody(request(area, mapping)));
                }
            }
            Disturbance::Unzeroed { memory, lasts } => self.mapped.unzero(memory, now + lasts),
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
