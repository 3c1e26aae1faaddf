//! Cables between hosts and the switch: how often a packet arrives, and when.

use std::collections::BTreeMap;

use mind_nodes::Node;

use crate::plan::{Weather, dice};

/// Which way a packet goes on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the host to the switch.
    Up,
    /// From the switch to the host.
    Down,
}

/// How long a packet takes if nothing is wrong, in nanoseconds.
const TRANSIT: std::ops::Range<u64> = 500..5_000;
/// The most copies of a packet.
const COPIES: std::ops::RangeInclusive<u32> = 1..=2;

struct Cable {
    random: fastrand::Rng,
    /// Nothing passes until then.
    unplugged: u64,
}

/// All cables.
pub(crate) struct Network {
    seed: u64,
    weather: Weather,
    cables: BTreeMap<(Node, Way), Cable>,
}

impl Network {
    pub(crate) const fn new(seed: u64, weather: Weather) -> Self {
        Self {
            seed,
            weather,
            cables: BTreeMap::new(),
        }
    }

    fn cable(&mut self, node: Node, way: Way) -> &mut Cable {
        let seed = self.seed;
        self.cables.entry((node, way)).or_insert_with(|| {
            let host = match node {
                Node::Compute(blade) => u64::from(blade.get()),
                Node::Memory(number) => 0x100 + u64::from(number),
            };
            Cable {
                random: dice(seed, 0x1_0000 + (host << 1) + u64::from(way == Way::Up)),
                unplugged: 0,
            }
        })
    }

    /// Nothing passes the cables of a host for a time, but not beyond the end of the faults.
    pub(crate) fn unplug(&mut self, node: Node, until: u64) {
        let until = until.min(self.weather.until);
        for way in [Way::Up, Way::Down] {
            let cable = self.cable(node, way);
            cable.unplugged = cable.unplugged.max(until);
        }
    }

    /// When the copies of a packet that is sent at `now` arrive, after `now`, in nanoseconds.
    pub(crate) fn delays(&mut self, now: u64, node: Node, way: Way) -> Vec<u64> {
        let weather = self.weather;
        let Cable { random, unplugged } = self.cable(node, way);
        let mut chance = |of_1000: u32| of_1000 > 0 && random.u32(0..1000) < of_1000;
        if now >= weather.until {
            return vec![random.u64(TRANSIT)];
        }
        let copies = 1 + if chance(weather.duplication) {
            random.u32(COPIES)
        } else {
            0
        };
        let mut delays = Vec::with_capacity(copies as usize);
        for _ in 0..copies {
            let mut chance = |of_1000: u32| of_1000 > 0 && random.u32(0..1000) < of_1000;
            let (is_lost, is_late) = (chance(weather.loss), chance(weather.lateness));
            let late = random.u64(0..=weather.latest);
            let delay = random.u64(TRANSIT) + if is_late { late } else { 0 };
            if !is_lost && now >= *unplugged {
                delays.push(delay);
            }
        }
        delays
    }
}
