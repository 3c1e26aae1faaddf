//! What blades and ports are called, as the controller said it last.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use mind_api::{
    message::BladeKind,
    operator::{Status, TracedPacket},
};
use mind_common::id::{BladeId, Connection};

use super::Controller;

/// How long the controller is not asked again: a packet may say a connection that no blade has.
const PAUSE: Duration = Duration::from_secs(1);

/// The names.
#[derive(Debug, Default)]
pub(super) struct Names {
    ports: HashMap<u32, String>,
    /// Compute blades, each with the life that it is in.
    blades: HashMap<u8, (u16, String)>,
    asked: Option<Instant>,
}

impl Names {
    /// Asks the controller.
    pub(super) async fn learn(&mut self, controller: &Controller) -> Result<()> {
        *self = Self::of(&controller.status().await?);
        self.asked = Some(Instant::now());
        Ok(())
    }

    pub(super) fn of(status: &Status) -> Self {
        let compute = status
            .blades
            .iter()
            .filter(|blade| blade.kind == BladeKind::Compute);
        Self {
            ports: status
                .ports
                .iter()
                .map(|port| (port.ifindex, port.interface.clone()))
                .collect(),
            blades: compute
                .map(|blade| (blade.number, (blade.incarnation, blade.name.clone())))
                .collect(),
            asked: None,
        }
    }

    /// Whether a packet's port and blade are known, or it is of no use to ask again.
    pub(super) fn know(&self, packet: &TracedPacket) -> bool {
        let connection = packet.qp.and_then(Connection::from_qp);
        let is_known = connection.is_none_or(|it| {
            let known = self.blades.get(&it.blade.get());
            known.is_some_and(|(incarnation, _)| *incarnation == it.incarnation)
        });
        is_known && self.ports.contains_key(&packet.ifindex)
            || self.asked.is_some_and(|asked| asked.elapsed() < PAUSE)
    }

    /// A port's name, or its number.
    pub(super) fn port(&self, ifindex: u32) -> String {
        let name = self.ports.get(&ifindex).cloned();
        name.unwrap_or_else(|| ifindex.to_string())
    }

    /// A compute blade's name, or its number.
    pub(super) fn blade(&self, blade: BladeId) -> String {
        let known = self.blades.get(&blade.get());
        known.map_or_else(|| blade.to_string(), |(_, name)| name.clone())
    }
}
