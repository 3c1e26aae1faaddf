//! What operators see.

use mind_api::message::{BladeKind, PortStatus, Status};
use mind_ctl::registry::Port;
use mind_dataplane::attach;

use super::Core;

impl Core {
    pub(super) fn status(&self) -> Status {
        let mut status = self.policy.status();
        for interface in &self.ports {
            let Ok(ifindex) = attach::index_of(interface) else {
                continue;
            };
            let packets = match self.switch.tally(ifindex) {
                Ok(tally) => tally
                    .iter()
                    .map(|(verdict, count)| (verdict.name().to_owned(), count))
                    .collect(),
                Err(error) => {
                    tracing::warn!(interface, %error, "a port's counters cannot be read");
                    continue;
                }
            };
            let blade = [BladeKind::Compute, BladeKind::Memory]
                .into_iter()
                .flat_map(|kind| self.policy.registry().blades(kind))
                .find(|blade| blade.port == Port(ifindex))
                .map(|blade| blade.name.clone());
            status.ports.push(PortStatus {
                interface: interface.clone(),
                blade,
                packets,
            });
        }
        status
    }
}
