//! The frames that cause the switch's refusals and drops, and those of memory, one by one. Pure: hosts' addresses in,
//! bytes out.
//!
//! None can disturb the load. They come from a reserved blade and ask for pages of a reserved domain; frames that claim
//! another sender, or ask for pages of the load, ask for nothing that would change them.

use mind_common::{
    addr::{PAGE_SIZE, Page, Region, SLICE_SHIFT, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::{Source, Target},
    id::{BladeId, DomainId},
    serial::{Episode, Version},
    verdict::Verdict,
    wire::{Atomic, Cost, Invalidation, Opcode, Syndrome},
};
use mind_dataplane::harness::{Host, Packet};
use mind_machines::datagram::{Body, PageRequest};

/// Where a frame is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InjectionPoint {
    /// At the interface of the compute blade that is reserved for it.
    Blade,
    /// At the interface of a compute blade whose agent has died.
    Gone,
    /// At the interface of the memory blade that has the pages reserved.
    Memory,
    /// At the switch's port to that memory blade.
    Switch,
}

impl InjectionPoint {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Blade, Self::Gone, Self::Memory, Self::Switch];
}

/// A frame that is to be sent.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Where.
    pub at: InjectionPoint,
    /// What.
    pub packet: Packet,
    /// The verdict that it must get, at the switch or at the memory blade.
    pub verdict: Verdict,
}

/// The addresses and connections of the hosts that frames come from and go to.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// The switch.
    pub switch: Host,
    /// The compute blade that is reserved.
    pub blade: Host,
    /// Its number.
    pub number: BladeId,
    /// Its connection.
    pub qp: u32,
    /// The connection of a blade that works.
    pub other: u32,
    /// The compute blade whose agent has died.
    pub gone: Host,
    /// The connection that it had.
    pub gone_qp: u32,
    /// The memory blade that has the pages reserved.
    pub memory: Host,
    /// The domain of those pages.
    pub domain: DomainId,
    /// The first of them, [`PAGES`](crate::inject::PAGES) in all.
    pub va: Va,
}

/// The page that is written back; the blade owns it.
const WRITTEN: u64 = 0;
/// The page that is operated on; the blade owns it.
const OPERATED: u64 = 16;
/// The page that is never requested with success.
const UNTOUCHED: u64 = 32;
/// A domain that there is not.
const NO_DOMAIN: DomainId = DomainId(0x00ff_fff0);
/// An EtherType for experiments (IEEE 802), which nothing at the switch handles.
const EXPERIMENTAL: [u8; 2] = 0x88b5_u16.to_be_bytes();
/// Where the EtherType is in a frame.
const ETHERTYPE: usize = 12;

static ZEROS: Page = [0; PAGE_SIZE];

/// Behind what any memory blade has.
const BEYOND: Va = Va(1 << 44);

/// The last page of the window, in the slice of a memory blade that there is not.
const UNSERVED: Va = Va(WINDOW_BASE + WINDOW_SIZE - PAGE_SIZE as u64);

impl Hosts {
    fn page(&self, number: u64) -> PageRequest {
        PageRequest {
            page: Va(self.va.0 + number * PAGE_SIZE as u64),
            domain: self.domain,
        }
    }

    /// A page of the same slice as the reserved pages, but far behind what any memory blade has.
    fn unallocated(&self) -> Va {
        let slice = 1_u64 << SLICE_SHIFT;
        Va((self.va.0 & !(slice - 1)) + slice - PAGE_SIZE as u64)
    }

    fn ask(&self, message: &Body<&Page>) -> Packet {
        Packet::new(message, self.blade, self.switch, self.qp)
    }

    fn upgrade(&self, request: PageRequest) -> Packet {
        self.ask(&Body::upgrade(request))
    }

    fn write(&self, request: PageRequest, version: u32) -> Packet {
        self.ask(&Body::Write {
            page: request,
            version: Version::new(version),
            data: &ZEROS,
        })
    }

    fn add(&self, va: Va) -> Body<&'static Page> {
        Body::Atomic {
            va,
            domain: self.domain,
            operation: Atomic::FetchAdd { addend: 1 },
        }
    }

    fn invalidation(&self, page: Va) -> Invalidation {
        Invalidation {
            page,
            region: Region::containing(page, 0).expect("a page is a region"),
            slot: 0,
            episode: Episode::new(0),
            requester: self.number,
            target: Target::Invalid,
            source: Source::Grant,
        }
    }

    fn acknowledge(&self, page: Va) -> Packet {
        self.ask(&Body::answer(self.invalidation(page), Cost::default()))
    }

    /// The frames that make the blade the owner of its pages.
    pub fn opening(&self) -> Vec<Frame> {
        [WRITTEN, OPERATED]
            .map(|page| Frame {
                at: InjectionPoint::Blade,
                packet: self.ask(&Body::acquire(self.page(page))),
                verdict: Verdict::Fetch,
            })
            .into()
    }

    /// Frames that each get another verdict; the `number`-th such series, from 1.
    pub fn series(&self, number: u32) -> Vec<Frame> {
        let untouched = self.page(UNTOUCHED);
        let good = || self.upgrade(untouched);
        let elsewhere = |page| PageRequest { page, ..untouched };
        let operate = |seq| {
            let va = Va(self.page(OPERATED).page.0 + 8);
            self.ask(&self.add(va)).seq(seq)
        };
        let in_switchs_name = Host {
            mac: self.blade.mac,
            ..self.switch
        };
        // An operation's version and number must be later than the last series', and earlier ones be known.
        let (earlier, current) = (number, number + 1);
        let at_blade = [
            (good().put(ETHERTYPE, &EXPERIMENTAL), Verdict::Foreign),
            (good().cut_to(60), Verdict::Truncated),
            (good().opcode(0x04), Verdict::UnknownOpcode),
            (
                good().opcode(Opcode::Invalidate as u8),
                Verdict::UnexpectedOpcode,
            ),
            (good().opcode(Opcode::FanOut as u8), Verdict::Internal),
            (good().ttl(1), Verdict::Expired),
            (good().qp(self.other), Verdict::Impostor),
            (good().extended(7, &[8]), Verdict::Invalid),
            (
                self.upgrade(PageRequest {
                    domain: NO_DOMAIN,
                    ..untouched
                }),
                Verdict::NotPlaced,
            ),
            (
                self.upgrade(elsewhere(self.unallocated())),
                Verdict::Protected,
            ),
            (self.write(elsewhere(UNSERVED), 1), Verdict::NoMemory),
            (good(), Verdict::NoCopy),
            (self.write(untouched, 1), Verdict::NotOwner),
            (self.acknowledge(untouched.page), Verdict::StaleAnswer),
            (
                // No such source.
                self.acknowledge(untouched.page).extended(23, &[9]),
                Verdict::Malformed,
            ),
            (
                self.ask(&Body::answer_with_fetch(
                    self.invalidation(UNSERVED),
                    Cost::default(),
                )),
                Verdict::DeadBlade,
            ),
            (self.write(self.page(WRITTEN), current), Verdict::Stored),
            (self.write(self.page(WRITTEN), current), Verdict::Duplicate),
            (self.write(self.page(WRITTEN), earlier), Verdict::Outdated),
            (operate(current), Verdict::Operated),
            (operate(current), Verdict::Replayed),
            (operate(earlier), Verdict::StaleOperation),
            (
                Packet::new(&self.add(BEYOND), in_switchs_name, self.memory, self.qp),
                Verdict::Bypass,
            ),
        ]
        .map(|(packet, verdict)| (InjectionPoint::Blade, packet, verdict));
        let acknowledged = Body::Acknowledge {
            syndrome: Syndrome::Ack,
            version: Version::new(0),
        };
        let elsewhere = [
            (
                InjectionPoint::Gone,
                Packet::new(
                    &Body::upgrade(untouched),
                    self.gone,
                    self.switch,
                    self.gone_qp,
                ),
                Verdict::UnknownPort,
            ),
            (
                InjectionPoint::Memory,
                Packet::new(&acknowledged, self.memory, self.switch, self.gone_qp),
                Verdict::StaleConnection,
            ),
            (
                InjectionPoint::Switch,
                Packet::new(&self.add(BEYOND), self.switch, self.memory, self.qp),
                Verdict::OutOfRange,
            ),
            (
                // A frame that the switch would drop at a blade's port.
                InjectionPoint::Switch,
                Packet::new(&Body::upgrade(untouched), self.blade, self.memory, self.qp),
                Verdict::NotFromSwitch,
            ),
        ];
        at_blade
            .into_iter()
            .chain(elsewhere)
            .map(|(at, packet, verdict)| Frame {
                at,
                packet,
                verdict,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        inject::PAGES,
        verdicts::{self, Cause},
    };

    /// The frame's IPv4 source address.
    fn source(packet: &Packet) -> [u8; 4] {
        const SOURCE: usize = 14 + 12;
        std::array::from_fn(|byte| packet.bytes()[SOURCE + byte])
    }

    fn hosts() -> Hosts {
        Hosts {
            switch: Host::numbered(254),
            blade: Host::numbered(5),
            number: BladeId::new(4).unwrap(),
            qp: 0x104,
            other: 0x100,
            gone: Host::numbered(6),
            gone_qp: 0x105,
            memory: Host::numbered(101),
            domain: DomainId(7),
            va: Va(WINDOW_BASE + (3 << SLICE_SHIFT) + (1 << 20)),
        }
    }

    #[test]
    fn every_path_that_is_to_be_injected_has_a_frame() {
        let taken: HashSet<_> = hosts()
            .series(1)
            .iter()
            .map(|frame| frame.verdict)
            .collect();
        for verdict in Verdict::ALL {
            // An operation that is carried out has come through the switch as one.
            let is_taken = taken.contains(&verdict) || verdict == Verdict::Operate;
            match verdicts::of(verdict) {
                Cause::Injected => assert!(is_taken, "{verdict} has no frame"),
                Cause::Nothing(_) => assert!(!is_taken, "{verdict} has a frame"),
                Cause::Load => {}
            }
        }
    }

    #[test]
    fn no_frame_is_longer_than_the_link_takes() {
        let hosts = hosts();
        for frame in hosts.series(1).iter().chain(&hosts.opening()) {
            let len = frame.packet.bytes().len();
            let most = 14 + netns_setup::plan::MTU as usize;
            assert!(len <= most, "{}: {len}", frame.verdict);
        }
    }

    #[test]
    fn frames_that_change_something_come_from_the_blade_set_aside() {
        let hosts = hosts();
        for frame in hosts.series(1) {
            let changes = matches!(
                frame.verdict,
                Verdict::Stored | Verdict::Operated | Verdict::Fetch
            );
            if changes {
                assert_eq!(frame.at, InjectionPoint::Blade);
                assert_eq!(source(&frame.packet), hosts.blade.ipv4.octets());
            }
        }
    }

    #[test]
    fn the_pages_that_frames_ask_for_are_set_aside() {
        const { assert!(UNTOUCHED < PAGES as u64) };
        assert_eq!(hosts().unallocated().slice(), hosts().va.slice());
        assert!(UNSERVED.is_in_window(PAGE_SIZE as u64));
    }

    #[test]
    fn each_series_comes_after_the_last() {
        let written = |number| {
            let series = hosts().series(number);
            let stored = series.into_iter().find(|f| f.verdict == Verdict::Stored);
            stored.unwrap().packet.bytes().to_vec()
        };
        assert_ne!(written(1), written(2));
    }
}
