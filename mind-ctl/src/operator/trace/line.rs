//! A packet as it is printed: a line for people, or JSON.

use std::fmt;

use mind_api::operator::TracedPacket;
use mind_common::{directory::Word, id::Connection, trace::Shown, verdict::Verdict, wire::Opcode};
use serde::Serialize;

use super::names::Names;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// A packet.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    /// When it came, in nanoseconds since 1970.
    when: u64,
    /// The port that it came in at.
    port: String,
    /// What became of it.
    verdict: String,
    /// What the network sees of that.
    kind: Option<&'static str>,
    /// What it was; by number if it is none of ours.
    message: Option<String>,
    /// The compute blade whose connection it said.
    blade: Option<String>,
    /// Its packet sequence number.
    psn: Option<u32>,
    /// The address that it named.
    va: Option<u64>,
    /// The directory word that it met.
    before: Option<Directory>,
    /// The directory word that it left.
    after: Option<Directory>,
}

/// A directory word.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Directory {
    /// As `mind-ctl regions` names it.
    state: &'static str,
    /// Sharers, the owner, or who still owes an answer.
    blades: Vec<String>,
    /// While it is busy: who it will be given to.
    requester: Option<String>,
    /// How often it was busy or held.
    episode: u32,
    /// All of it but the episode, as a line has it.
    text: String,
}

impl Directory {
    fn new(raw: u64, names: &Names) -> Self {
        let word = Word::from_raw(raw);
        let name = |blade| names.blade(blade);
        let requester = word.state().is_busy().then(|| word.requester());
        Self {
            state: word.state().name(),
            blades: word.blades().iter().map(name).collect(),
            requester: requester.map(name),
            episode: word.episode().get(),
            text: Shown(word, name).to_string(),
        }
    }
}

impl Line {
    pub(super) fn new(packet: &TracedPacket, names: &Names) -> Self {
        let verdict = Verdict::ALL
            .into_iter()
            .find(|verdict| verdict.name() == packet.verdict);
        let message = packet.opcode.map(|number| {
            Opcode::from_u8(number).map_or_else(
                || format!("opcode-{number:#04x}"),
                |opcode| opcode.name().to_owned(),
            )
        });
        let connection = packet.qp.and_then(Connection::from_qp);
        Self {
            when: packet.when,
            port: names.port(packet.ifindex),
            verdict: packet.verdict.clone(),
            kind: verdict.map(|verdict| verdict.kind().name()),
            message,
            blade: connection.map(|connection| names.blade(connection.blade)),
            psn: packet.psn,
            va: packet.va,
            before: packet.before.map(|raw| Directory::new(raw, names)),
            after: packet.after.map(|raw| Directory::new(raw, names)),
        }
    }
}

/// In columns as wide as what mostly stands there.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.when / SECOND % DAY;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let micros = self.when % SECOND / 1000;
        write!(f, "{hours:02}:{minutes:02}:{:02}.{micros:06}", seconds % 60)?;
        let Some(message) = &self.message else {
            return write!(f, "  {:<6}  {}", self.port, self.verdict);
        };
        write!(f, "  {:<6}  {:<14}", self.port, self.verdict)?;
        let blade = self.blade.as_deref().unwrap_or("?");
        let psn = self.psn.unwrap_or_default();
        write!(f, "  {message:<20}  {blade:<6}  {psn:>8}")?;
        if let Some(va) = self.va {
            write!(f, "  {va:#014x}")?;
        }
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if before == after => write!(f, "  {}", before.text),
            (Some(before), Some(after)) => write!(f, "  {} -> {}", before.text, after.text),
            _ => Ok(()),
        }
    }
}

/// That packets are missing.
#[derive(Debug, Serialize)]
pub(super) struct Lost {
    /// At most so many: some may not have been asked for.
    pub(super) lost: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.lost;
        write!(
            f,
            "-- up to {lost} packets are missing here: they came too fast"
        )
    }
}

#[cfg(test)]
mod tests {
    use mind_api::{
        message::BladeKind,
        operator::{BladeStatus, PortStatus, Status},
    };
    use mind_common::{
        directory::State,
        id::{BladeId, BladeSet},
    };

    use super::*;

    fn blade(number: u8) -> BladeId {
        BladeId::new(number).unwrap()
    }

    fn names() -> Names {
        let compute = |number, name: &str| BladeStatus {
            kind: BladeKind::Compute,
            number,
            name: name.into(),
            address: std::net::Ipv4Addr::LOCALHOST,
            port: None,
            incarnation: 1,
            connected: true,
            here: true,
            pages: 0,
            allocated: 0,
        };
        Names::of(&Status {
            // In the order in which they came, not that of their names.
            blades: vec![compute(0, "c1"), compute(1, "c0")],
            ports: vec![PortStatus {
                interface: "c0".into(),
                ifindex: 7,
                ..PortStatus::default()
            }],
            ..Status::default()
        })
    }

    fn packet() -> TracedPacket {
        let shared: BladeSet = [blade(0), blade(1)].into_iter().collect();
        let before = Word::default().settled(State::Shared, shared);
        let after = before.busy(State::SharedToModified, blade(1), BladeSet::only(blade(0)));
        let connection = Connection {
            blade: blade(1),
            incarnation: 1,
        };
        TracedPacket {
            when: ((13 * 60 + 7) * 60 + 9) * SECOND + DAY * SECOND + 12_345_678,
            ifindex: 7,
            verdict: "invalidate".into(),
            opcode: Some(Opcode::Upgrade as u8),
            qp: Some(connection.to_qp()),
            psn: Some(50),
            va: Some(0x1000_0000_4000),
            before: Some(before.raw()),
            after: Some(after.raw()),
        }
    }

    #[test]
    fn a_line_has_time_port_verdict_message_blade_address_and_change() {
        let line = Line::new(&packet(), &names()).to_string();
        let words: Vec<_> = line.split("  ").map(str::trim).collect();
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(
            words,
            [
                "13:07:09.012345",
                "c0",
                "invalidate",
                "upgrade",
                "c0",
                "50",
                "0x100000004000",
                "S{c1,c0} -> SM{c1} for c0"
            ]
        );
    }

    #[test]
    fn a_packet_that_changes_nothing_has_one_state() {
        let packet = TracedPacket {
            after: packet().before,
            ..packet()
        };
        let line = Line::new(&packet, &names()).to_string();
        assert!(line.ends_with("  S{c1,c0}"), "{line}");
    }

    #[test]
    fn what_is_not_for_the_switch_has_a_port_and_a_verdict() {
        let foreign = TracedPacket {
            ifindex: 9,
            verdict: "foreign".into(),
            ..TracedPacket::default()
        };
        let line = Line::new(&foreign, &names()).to_string();
        assert_eq!(line.trim_end(), "00:00:00.000000  9       foreign");
    }

    #[test]
    fn scripts_get_names_and_parts() {
        let value = serde_json::to_value(Line::new(&packet(), &names())).unwrap();
        assert_eq!(value["port"], "c0");
        assert_eq!(value["kind"], "forwarded");
        assert_eq!(value["message"], "upgrade");
        assert_eq!(value["va"], 0x1000_0000_4000_u64);
        assert_eq!(value["before"]["state"], "shared");
        assert_eq!(value["before"]["blades"], serde_json::json!(["c1", "c0"]));
        assert_eq!(value["after"]["requester"], "c0");
        assert_eq!(value["after"]["text"], "SM{c1} for c0");
        let strange = TracedPacket {
            opcode: Some(0x64),
            ..packet()
        };
        let value = serde_json::to_value(Line::new(&strange, &names())).unwrap();
        assert_eq!(value["message"], "opcode-0x64");
    }

    #[test]
    fn a_blade_of_another_life_is_asked_after() {
        let names = names();
        assert!(names.know(&packet()));
        let reborn = Connection {
            blade: blade(1),
            incarnation: 2,
        };
        for unknown in [
            TracedPacket {
                qp: Some(reborn.to_qp()),
                ..packet()
            },
            TracedPacket {
                ifindex: 8,
                ..packet()
            },
        ] {
            assert!(!names.know(&unknown));
        }
    }
}
