//! Packets by verdict, on the switch's ports and in the memory blades.

use anyhow::{Context as _, Result};
use mind_api::operator::Status;
use mind_common::verdict::Verdict;
use mind_dataplane::{PacketCounters, Responder, attach};
use mind_e2e::Bed;
use netns_setup::{Kind, paths, plan::INTERFACE};

/// Packets by verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; Verdict::ALL.len()]);

impl Counts {
    /// Those of the switch's ports, as the controller reports them, and of the memory blades.
    ///
    /// # Errors
    ///
    /// When the controller names a verdict that this build does not have.
    pub fn new<'a>(
        status: &Status,
        memory: impl IntoIterator<Item = &'a PacketCounters>,
    ) -> Result<Self> {
        let mut counts = [0; Verdict::ALL.len()];
        for (name, count) in status.ports.iter().flat_map(|port| &port.packets) {
            let verdict = Verdict::ALL
                .into_iter()
                .find(|verdict| verdict.name() == name);
            let verdict = verdict.with_context(|| {
                format!(
                    "the controller counts `{name}`, which is no verdict: is it of another build?"
                )
            })?;
            counts[verdict.number()] += count;
        }
        for (verdict, count) in memory.into_iter().flat_map(PacketCounters::iter) {
            counts[verdict.number()] += count;
        }
        Ok(Self(counts))
    }

    /// Packets that got `verdict`.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.0[verdict.number()]
    }

    /// All packets.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The counters of the memory blades, opened where the blades pinned them.
pub struct Counters {
    memory: Vec<(Responder, u32)>,
}

impl Counters {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// When a memory blade has none.
    pub fn open(bed: &Bed) -> Result<Self> {
        let testbed = bed.testbed();
        let open = |name: &str| -> Result<(Responder, u32)> {
            let responder = Responder::open(&paths::pins(name))?;
            let index = testbed.within(name, || anyhow::Ok(attach::index_of(INTERFACE)?))?;
            Ok((responder, index))
        };
        let blades = testbed.plan().of_kind(Kind::Memory);
        let memory = blades
            .map(|blade| {
                open(&blade.name)
                    .with_context(|| format!("cannot open the counters of {}", blade.name))
            })
            .collect::<Result<_>>()?;
        Ok(Self { memory })
    }

    /// All packets so far.
    ///
    /// # Errors
    ///
    /// When a memory blade's counters cannot be read.
    pub fn read(&self, status: &Status) -> Result<Counts> {
        let tallies = self
            .memory
            .iter()
            .map(|(responder, index)| responder.packet_counters(*index))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot read the counters of a memory blade")?;
        Counts::new(status, &tallies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::operator::PortStatus;

    fn status(name: &str) -> Status {
        let port = |count| PortStatus {
            interface: "c0".to_owned(),
            packets: [(name.to_owned(), count)].into(),
            ..PortStatus::default()
        };
        Status {
            ports: vec![port(3), port(4)],
            ..Status::default()
        }
    }

    #[test]
    fn the_packets_of_all_ports_are_added() {
        let counts = Counts::new(&status("fetch"), [&PacketCounters::default()]).unwrap();
        assert_eq!((counts.of(Verdict::Fetch), counts.sum()), (7, 7));
    }

    #[test]
    fn an_unknown_verdict_is_named() {
        let error = Counts::new(&status("teleported"), []).unwrap_err();
        assert!(error.to_string().contains("`teleported`"), "{error}");
    }
}
