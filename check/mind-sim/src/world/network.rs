//! Cables between hosts and the switch: how often a packet arrives, and when.

use crate::trace::Direction;
use std::collections::BTreeMap;

use mind_machines::Node;

use crate::plan::{NetworkFaults, generator};

/// How long a packet takes without faults, in nanoseconds.
const TRANSIT: std::ops::Range<u64> = 500..5_000;
/// The most copies of a packet.
const COPIES: std::ops::RangeInclusive<u32> = 1..=2;

struct Cable {
    random: fastrand::Rng,
    /// The link is down until then.
    down_until: u64,
}

/// All cables.
pub(crate) struct Network {
    seed: u64,
    network_faults: NetworkFaults,
    cables: BTreeMap<(Node, Direction), Cable>,
    /// Draws which packets are held up in the switch.
    hold_ups: fastrand::Rng,
}

impl Network {
    pub(crate) fn new(seed: u64, network_faults: NetworkFaults) -> Self {
        Self {
            seed,
            network_faults,
            cables: BTreeMap::new(),
            hold_ups: generator(seed, 0x2_0000),
        }
    }

    fn cable(&mut self, node: Node, way: Direction) -> &mut Cable {
        let seed = self.seed;
        self.cables.entry((node, way)).or_insert_with(|| {
            let host = match node {
                Node::Compute(blade) => u64::from(blade.get()),
                Node::Memory(number) => 0x100 + u64::from(number),
            };
            Cable {
                random: generator(
                    seed,
                    0x1_0000 + (host << 1) + u64::from(way == Direction::Up),
                ),
                down_until: 0,
            }
        })
    }

    /// A host's link is down until then, but not beyond the end of the faults.
    pub(crate) fn link_down(&mut self, node: Node, until: u64) {
        let until = until.min(self.network_faults.until);
        for way in [Direction::Up, Direction::Down] {
            let cable = self.cable(node, way);
            cable.down_until = cable.down_until.max(until);
        }
    }

    /// How long a packet that reaches the switch at `now` is held up there, in nanoseconds; `None` if it is not.
    pub(crate) fn hold_up(&mut self, now: u64) -> Option<u64> {
        let NetworkFaults {
            hold_ups, longest, ..
        } = self.network_faults;
        let is_held_up = hold_ups > 0
            && now < self.network_faults.until
            && self.hold_ups.u32(0..1000) < hold_ups;
        is_held_up.then(|| self.hold_ups.u64(0..=longest))
    }

    /// The delays of the copies of a packet that is sent at `now`, in nanoseconds.
    pub(crate) fn delays(&mut self, now: u64, node: Node, way: Direction) -> Vec<u64> {
        let network_faults = self.network_faults;
        let Cable { random, down_until } = self.cable(node, way);
        let mut chance = |of_1000: u32| of_1000 > 0 && random.u32(0..1000) < of_1000;
        if now >= network_faults.until {
            return vec![random.u64(TRANSIT)];
        }
        let copies = 1 + if chance(network_faults.duplication) {
            random.u32(COPIES)
        } else {
            0
        };
        let mut delays = Vec::with_capacity(copies as usize);
        for _ in 0..copies {
            let mut chance = |of_1000: u32| of_1000 > 0 && random.u32(0..1000) < of_1000;
            let (is_lost, is_late) = (chance(network_faults.loss), chance(network_faults.lateness));
            let late = random.u64(0..=network_faults.latest);
            let delay = random.u64(TRANSIT) + if is_late { late } else { 0 };
            if !is_lost && now >= *down_until {
                delays.push(delay);
            }
        }
        delays
    }
}

#[cfg(test)]
mod tests {
    use mind_common::id::BladeId;

    use super::*;
    use crate::plan::MILLISECOND;

    const UNTIL: u64 = 10 * MILLISECOND;
    const BLADES: [Node; 2] = [
        Node::Compute(BladeId::from_low_bits(0)),
        Node::Compute(BladeId::from_low_bits(1)),
    ];
    const BAD: NetworkFaults = NetworkFaults {
        loss: 300,
        duplication: 500,
        lateness: 200,
        latest: MILLISECOND,
        hold_ups: 100,
        longest: MILLISECOND,
        until: UNTIL,
    };

    /// How copies of so many packets are delayed, each sent at that time.
    fn delays(network: &mut Network, now: u64, node: Node, packets: usize) -> Vec<Vec<u64>> {
        let packets = 0..packets;
        let delays = packets.map(|_| network.delays(now, node, Direction::Up));
        delays.collect()
    }

    #[test]
    fn packets_are_lost_repeated_and_late_as_often_as_the_faults_say() {
        let delays = delays(&mut Network::new(1, BAD), 0, BLADES[0], 10_000);
        let of_1000 =
            |is_so: fn(&Vec<u64>) -> bool| delays.iter().filter(|it| is_so(it)).count() / 10;
        // One copy of half of them, two of a quarter, three of a quarter.
        let gone = of_1000(Vec::is_empty);
        assert!((160..200).contains(&gone), "{gone}");
        let many = of_1000(|copies| copies.len() > 1);
        assert!((290..350).contains(&many), "{many}");
        let copies = delays.iter().flatten();
        let late = copies
            .clone()
            .filter(|delay| !TRANSIT.contains(*delay))
            .count();
        let late = late * 1_000 / copies.clone().count();
        assert!((180..220).contains(&late), "{late}");
        assert!(copies.max() < Some(&(TRANSIT.end + MILLISECOND)));
    }

    #[test]
    fn packets_are_held_up_as_often_as_the_faults_say_until_they_stop() {
        let mut network = Network::new(1, BAD);
        let held: Vec<u64> = (0..10_000).filter_map(|_| network.hold_up(0)).collect();
        assert!((900..1_100).contains(&held.len()), "{}", held.len());
        assert!(held.iter().all(|delay| *delay <= MILLISECOND));
        assert_eq!(network.hold_up(UNTIL), None);
    }

    #[test]
    fn nothing_is_wrong_once_faults_have_stopped() {
        let mut network = Network::new(1, BAD);
        network.link_down(BLADES[0], 2 * UNTIL);
        for copies in delays(&mut network, UNTIL, BLADES[0], 1_000) {
            let [delay] = copies[..] else {
                panic!("{} copies", copies.len());
            };
            assert!(TRANSIT.contains(&delay));
        }
    }

    #[test]
    fn no_packet_passes_a_link_that_is_down_and_others_are_unaffected() {
        let (mut whole, mut cut) = (Network::new(1, BAD), Network::new(1, BAD));
        cut.link_down(BLADES[0], MILLISECOND);
        let silent = delays(&mut cut, MILLISECOND - 1, BLADES[0], 100);
        assert!(silent.iter().all(Vec::is_empty));
        let same = delays(&mut whole, 0, BLADES[1], 100);
        assert_eq!(delays(&mut cut, 0, BLADES[1], 100), same);
        // It has drawn as many random numbers as without the fault.
        delays(&mut whole, 0, BLADES[0], 100);
        let after = delays(&mut whole, MILLISECOND, BLADES[0], 100);
        assert_eq!(delays(&mut cut, MILLISECOND, BLADES[0], 100), after);
        assert!(!after.iter().all(Vec::is_empty));
    }
}
