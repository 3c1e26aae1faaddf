//! Cables between hosts and the switch: how often a packet arrives, and when.

use crate::trace::Direction;
use std::collections::BTreeMap;

use mind_machines::Node;

use crate::plan::{Weather, dice};

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
    cables: BTreeMap<(Node, Direction), Cable>,
}

impl Network {
    pub(crate) const fn new(seed: u64, weather: Weather) -> Self {
        Self {
            seed,
            weather,
            cables: BTreeMap::new(),
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
                random: dice(
                    seed,
                    0x1_0000 + (host << 1) + u64::from(way == Direction::Up),
                ),
                unplugged: 0,
            }
        })
    }

    /// Nothing passes the cables of a host for a time, but not beyond the end of the faults.
    pub(crate) fn unplug(&mut self, node: Node, until: u64) {
        let until = until.min(self.weather.until);
        for way in [Direction::Up, Direction::Down] {
            let cable = self.cable(node, way);
            cable.unplugged = cable.unplugged.max(until);
        }
    }

    /// When the copies of a packet that is sent at `now` arrive, after `now`, in nanoseconds.
    pub(crate) fn delays(&mut self, now: u64, node: Node, way: Direction) -> Vec<u64> {
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
    const BAD: Weather = Weather {
        loss: 300,
        duplication: 500,
        lateness: 200,
        latest: MILLISECOND,
        until: UNTIL,
    };

    /// How copies of so many packets are delayed, each sent at that time.
    fn delays(network: &mut Network, now: u64, node: Node, packets: usize) -> Vec<Vec<u64>> {
        let packets = 0..packets;
        let delays = packets.map(|_| network.delays(now, node, Direction::Up));
        delays.collect()
    }

    #[test]
    fn packets_are_lost_repeated_and_late_as_often_as_the_weather_says() {
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
    fn nothing_is_wrong_once_faults_have_stopped() {
        let mut network = Network::new(1, BAD);
        network.unplug(BLADES[0], 2 * UNTIL);
        for copies in delays(&mut network, UNTIL, BLADES[0], 1_000) {
            let [delay] = copies[..] else {
                panic!("{} copies", copies.len());
            };
            assert!(TRANSIT.contains(&delay));
        }
    }

    #[test]
    fn nothing_passes_an_unplugged_cable_and_others_do_not_notice() {
        let (mut whole, mut cut) = (Network::new(1, BAD), Network::new(1, BAD));
        cut.unplug(BLADES[0], MILLISECOND);
        let silent = delays(&mut cut, MILLISECOND - 1, BLADES[0], 100);
        assert!(silent.iter().all(Vec::is_empty));
        let same = delays(&mut whole, 0, BLADES[1], 100);
        assert_eq!(delays(&mut cut, 0, BLADES[1], 100), same);
        // It has thrown as many dice as if nothing had been wrong.
        delays(&mut whole, 0, BLADES[0], 100);
        let after = delays(&mut whole, MILLISECOND, BLADES[0], 100);
        assert_eq!(delays(&mut cut, MILLISECOND, BLADES[0], 100), after);
        assert!(!after.iter().all(Vec::is_empty));
    }
}
