//! What operators see: the books, and what only the data plane and the blades know.

use std::{collections::BTreeMap, ops::Range};

use mind_api::{
    Command, Errno, Failure, Reply,
    message::{BladeKind, Report},
    operator::{FanOut, PortStatus, RegionOrder, RegionStatus, Status, TraceFilter},
};
use mind_common::{
    addr::{Va, WINDOW_BASE, WINDOW_SIZE},
    directory::Prior,
    id::BladeId,
};
use mind_controller::directory::Entry;
use mind_dataplane::attach;

use super::{
    super::{session::Session, tracer::Wanted},
    Core, broken, index,
};

/// Vmas in one answer; each takes about 300 bytes, and more where many ranges of it differ.
const MOST_VMAS: usize = 500;
/// Regions in one answer; each takes at most about 500 bytes.
const MOST_REGIONS: usize = 1_000;

impl Core {
    pub(in crate::serve) fn status(&self) -> Status {
        let mut status = self.policy.status();
        status.copied = self.copied.status();
        status.awaited = self.awaited();
        for blade in &mut status.blades {
            blade.connected &= self.agents.contains_key(&(blade.kind, blade.number));
        }
        for interface in &self.ports {
            let Ok(ifindex) = attach::index_of(interface) else {
                continue;
            };
            let packets = match self.switch.packet_counters(ifindex) {
                Ok(counters) => counters
                    .iter()
                    .map(|(verdict, count)| (verdict.name().to_owned(), count))
                    .collect(),
                Err(error) => {
                    tracing::warn!(interface, %error, "a port's counters cannot be read");
                    continue;
                }
            };
            let behind = self.blade_known_behind(ifindex);
            let blade = behind.map(|(kind, blade)| {
                let listed = status
                    .blades
                    .iter_mut()
                    .find(|other| other.kind == kind && other.number == blade.number);
                if let Some(listed) = listed {
                    listed.port = Some(interface.clone());
                }
                blade.name.clone()
            });
            let fan_out = match self.switch.port(ifindex) {
                Ok(port) if port.fans_out() => FanOut::Switch,
                Ok(port) if port.hands_over() => FanOut::Controller,
                _ => FanOut::None,
            };
            status.ports.push(PortStatus {
                interface: interface.clone(),
                ifindex,
                blade,
                fan_out,
                packets,
            });
        }
        status
    }

    /// From now on an operator's session notes what becomes of packets.
    pub(super) fn trace(&self, session: &Session, filter: &TraceFilter) -> Result<Reply, Failure> {
        let mut compute = self.policy.registry().blades(BladeKind::Compute);
        let blade = match &filter.blade {
            None => None,
            Some(name) => {
                let blade = compute.find(|blade| blade.name == *name);
                let number = blade.and_then(|blade| BladeId::new(blade.number));
                let none = || {
                    let message =
                        format!("there is no compute blade {name}; `mind-ctl blades` lists them");
                    Failure::new(Errno::ENOENT, message)
                };
                Some(number.ok_or_else(none)?)
            }
        };
        let following = self.tracer.follow(Wanted::new(blade, &filter.ranges));
        session.trace(following.map_err(|error| broken(&error))?);
        Ok(Reply::Done)
    }

    pub(super) fn list_vmas(&self, from: Va) -> Reply {
        let (vmas, next) = self.policy.vmas(from, MOST_VMAS);
        Reply::Vmas { vmas, next }
    }

    pub(super) fn list_regions(
        &self,
        range: Range<u64>,
        order: RegionOrder,
        limit: u32,
    ) -> Result<Reply, Failure> {
        let Range { start, end } = range;
        if start >= end {
            let message = format!("there are no addresses between {start:#x} and {end:#x}");
            return Err(Failure::new(Errno::EINVAL, message));
        }
        // Whatever is asked for, the window is where regions are.
        let start = start.max(WINDOW_BASE);
        let end = end.min(WINDOW_BASE + WINDOW_SIZE);
        let mut entries = match start < end {
            true => self.policy.directory().entries_over(Va(start), end - start),
            false => Vec::new(),
        };
        let directory = self.switch.directory();
        let slot = |entry: &Entry| directory.slot(index(entry)).map_err(|error| broken(&error));
        let limit = usize::try_from(limit).map_or(MOST_REGIONS, |limit| limit.min(MOST_REGIONS));
        let mut next = None;
        match order {
            RegionOrder::Address => {
                next = entries.get(limit).map(|entry| entry.region.base().0);
            }
            RegionOrder::Invalidations | RegionOrder::Accesses => {
                let mut keyed = entries
                    .into_iter()
                    .map(|entry| {
                        let slot = slot(&entry)?;
                        let count = match order {
                            RegionOrder::Accesses => slot.accesses(),
                            _ => slot.invalidations(),
                        };
                        Ok((count, entry))
                    })
                    .collect::<Result<Vec<_>, Failure>>()?;
                // The sort is stable: those of one count stay in the order of addresses.
                keyed.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
                entries = keyed.into_iter().map(|(_, entry)| entry).collect();
            }
        }
        entries.truncate(limit);
        let regions = entries
            .iter()
            .map(|entry| {
                let slot = slot(entry)?;
                let word = slot.word();
                let state = word.state();
                Ok(RegionStatus {
                    va: entry.region.base().0,
                    length: entry.region.size(),
                    slot: index(entry),
                    state: match word.prior() {
                        Some(Prior::Lost) => "lost",
                        _ => state.name(),
                    }
                    .to_owned(),
                    blades: word
                        .blades()
                        .iter()
                        .map(|blade| self.name_of(blade))
                        .collect(),
                    requester: state.is_busy().then(|| self.name_of(word.requester())),
                    episode: word.episode().get(),
                    // As they are declared, 32 bits.
                    accesses: slot.accesses() as u32,
                    invalidations: slot.invalidations() as u32,
                    dropped: slot.dropped() as u32,
                    flushed: slot.flushed() as u32,
                })
            })
            .collect::<Result<_, Failure>>()?;
        Ok(Reply::Regions { regions, next })
    }

    /// Asks all compute blades what they count. One that does not answer is left out.
    pub(super) async fn list_caches(&self) -> Reply {
        let asked = self
            .policy
            .registry()
            .blades(BladeKind::Compute)
            .filter_map(|blade| {
                let agent = self.agent(BladeKind::Compute, blade.number).ok()?;
                let name = blade.name.clone();
                Some(async move { (name, agent.ask(Command::CountCache).await) })
            });
        let mut caches = BTreeMap::new();
        for (name, answer) in futures_util::future::join_all(asked).await {
            match answer {
                Ok(Report::Cache(report)) => {
                    caches.insert(name, *report);
                }
                Ok(other) => tracing::warn!(name, ?other, "a blade answers something else"),
                Err(failure) => {
                    tracing::warn!(name, %failure, "a blade does not say what it counts")
                }
            }
        }
        Reply::Caches { caches }
    }

    /// What people call a compute blade.
    pub(super) fn name_of(&self, blade: BladeId) -> String {
        let known = self
            .policy
            .registry()
            .blade(BladeKind::Compute, blade.get());
        known.map_or_else(|| blade.to_string(), |blade| blade.name.clone())
    }
}
