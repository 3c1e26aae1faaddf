//! The paths: which packet comes in, what the directory is like before it, and what is to become of it.

use anyhow::Result;
use mind_common::{
    addr::{PAGE_SIZE, Page, Va},
    directory::{Source, State, Target, Word},
    id::{BladeSet, DomainId},
    serial::Episode,
    table::{PORT_FANS_OUT, Port},
    verdict::Verdict,
    wire::{Cost, Invalidation},
};
use mind_dataplane::harness::{Host, Packet, XdpAction};
use mind_machines::datagram::{Body, PageRequest};

use super::beds::{
    Filling, RACK, SPREAD, STORED, STRANGER, SWITCH, blade, compute, connection, memory, region_of,
    slot_of,
};

/// A path through a program.
pub(super) struct Path {
    /// The row's name.
    pub(super) name: &'static str,
    /// What it is, for people.
    pub(super) says: &'static str,
    pub(super) packet: Packet,
    /// What is behind the port at which it comes in.
    pub(super) port: Port,
    pub(super) place: Place,
    /// The page that it is about, or the first of them.
    pub(super) page: Va,
    /// The word of the page's slot before it.
    pub(super) word: Word,
    pub(super) verdict: Verdict,
    pub(super) action: XdpAction,
    /// Whether the bound is for it.
    pub(super) is_fast: bool,
    /// Whether the slot's memo is cleared before each run.
    pub(super) clears_memo: bool,
}

/// Where a path's page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the switch's directory: its region has a slot.
    Kept,
    /// In no slot, before each run.
    Untouched,
    /// In a directory of a million slots: another one for each run.
    Spread,
    /// In a memory blade, whose program it is.
    Memory,
}

/// A page in the middle of the directory.
const PAGE: Va = Filling::page(RACK.regions / 2);
/// The blade that sends.
const SENDER: u8 = 0;
/// The blade whose requests make a word busy.
const OTHER: u8 = 4;
/// The episode of every word.
const EPISODE: Episode = Episode::new(1);
/// What a page is full of.
const DATA: Page = [0x5a; PAGE_SIZE];

impl Path {
    /// The program that puts back what a run changes, and calls the one under test.
    pub(super) const fn program(&self) -> &'static str {
        match self.place {
            Place::Kept | Place::Untouched | Place::Spread => "mind_bench_staged",
            Place::Memory => "mind_bench_served",
        }
    }
}

/// A word whose invalidations, if there are any, are for [`OTHER`].
pub(super) fn word(state: State, blades: impl IntoIterator<Item = u8>) -> Word {
    let blades: BladeSet = blades.into_iter().map(blade).collect();
    Word::new(state, blade(OTHER), EPISODE, blades)
}

/// A frame of a blade, for the switch.
fn send(message: &Body<&Page>) -> Packet {
    Packet::new(message, compute(SENDER), SWITCH, connection(SENDER).to_qp())
}

/// A frame of one host for another.
fn between(from: Host, to: Host, message: &Body<&Page>) -> Packet {
    Packet::new(message, from, to, connection(SENDER).to_qp())
}

/// All paths, in the report's order. The rows beside them are on the frame of the first one.
pub(super) fn paths() -> Result<Vec<Path>> {
    let at = |page, domain| PageRequest { page, domain };
    let request = at(PAGE, RACK.domain_of(PAGE));
    let (read, acquire) = (send(&Body::read(request)), send(&Body::acquire(request)));
    let invalid = word(State::Invalid, []);
    let mut port = Port::compute(connection(SENDER));
    port.flags = PORT_FANS_OUT;
    // What paths have in common: one of this blade's packets about a page whose region has a slot.
    let path = |name, says, packet: &Packet, word, verdict| Path {
        name,
        says,
        packet: packet.clone(),
        port,
        place: Place::Kept,
        page: PAGE,
        word,
        verdict,
        action: XdpAction::Redirect,
        is_fast: false,
        clears_memo: false,
    };
    let fast = |name, says, packet, word| Path {
        is_fast: true,
        ..path(name, says, packet, word, Verdict::Fetch)
    };
    let passed = |path| Path {
        action: XdpAction::Pass,
        ..path
    };
    let untouched = Filling::page(RACK.regions);
    let first = Filling::page(0);
    Ok(vec![
        fast("i_s", "read, no blade has the page", &read, invalid),
        fast("i_m", "write, no blade has the page", &acquire, invalid),
        fast(
            "s_s",
            "read, others share the page",
            &read,
            word(State::Shared, [1, 2]),
        ),
        Path {
            is_fast: false,
            clears_memo: true,
            ..fast(
                "i_s_cold",
                "the same as i_s, first since an entry changed",
                &read,
                invalid,
            )
        },
        Path {
            is_fast: false,
            place: Place::Spread,
            page: first,
            ..fast(
                "i_s_spread",
                "the same as i_s, spread over a million regions",
                &send(&Body::read(at(first, SPREAD.domain_of(first)))),
                invalid,
            )
        },
        Path {
            is_fast: false,
            place: Place::Untouched,
            page: untouched,
            ..fast(
                "first_touch",
                "the same as i_s, the region has no slot yet",
                &send(&Body::read(at(untouched, RACK.domain_of(untouched)))),
                word(State::Free, []),
            )
        },
        passed(path(
            "multicast",
            "write, three share the page, up to TC",
            &acquire,
            word(State::Shared, [1, 2, 3]),
            Verdict::PassedUp,
        )),
        path(
            "forward",
            "the owner's answer to an invalidation, on with the page",
            &send(&forward()?),
            word(State::ModifiedToShared, [SENDER]),
            Verdict::PageForwarded,
        ),
        path(
            "write_back",
            "the owner's write-back, on to memory",
            &send(&Body::Write {
                page: request,
                version: STORED.next(),
                data: &DATA,
            }),
            word(State::Modified, [SENDER]),
            Verdict::WriteBack,
        ),
        Path {
            port: Port::memory(0),
            ..path(
                "answer",
                "memory's answer, on to the requester",
                &between(
                    memory(0),
                    SWITCH,
                    &Body::ReadResponse {
                        version: STORED,
                        data: &DATA,
                    },
                ),
                invalid,
                Verdict::Delivered,
            )
        },
        path(
            "busy",
            "refused, the region is being changed",
            &read,
            word(State::ModifiedToShared, [1]),
            Verdict::Busy,
        ),
        path(
            "denied",
            "refused, no protection entry",
            &send(&Body::read(at(PAGE, STRANGER))),
            invalid,
            Verdict::Protected,
        ),
        passed(path(
            "foreign",
            "a datagram of another protocol",
            &read.clone().udp(2, &[0, 53]),
            invalid,
            Verdict::Foreign,
        )),
        served(path(
            "responder_read",
            "memory's program: a page is read",
            &between(SWITCH, memory(0), &Body::read(at(Va(0), DomainId(0)))),
            invalid,
            Verdict::Read,
        )),
        served(path(
            "responder_write",
            "memory's program: a page is written back",
            &between(
                SWITCH,
                memory(0),
                &Body::Write {
                    page: at(Va(0), DomainId(0)),
                    version: STORED.next(),
                    data: &DATA,
                },
            ),
            invalid,
            Verdict::Stored,
        )),
    ])
}

/// The same, in a memory blade.
fn served(path: Path) -> Path {
    Path {
        place: Place::Memory,
        action: XdpAction::Tx,
        ..path
    }
}

/// What an owner sends when another blade reads the page that it has written, once memory has the page.
fn forward() -> Result<Body<&'static Page>> {
    Ok(Body::Forward {
        invalidation: Invalidation {
            page: PAGE,
            region: region_of(PAGE)?,
            slot: slot_of(PAGE),
            episode: EPISODE,
            requester: blade(OTHER),
            target: Target::Shared,
            source: Source::Forward,
        },
        cost: Cost {
            dropped: 0,
            flushed: 1,
        },
        version: STORED.next(),
        data: &DATA,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn paths_are_those_that_the_bench_promises() {
        let paths = paths().expect("they can be made");
        let names: HashSet<_> = paths.iter().map(|path| path.name).collect();
        assert_eq!(names.len(), paths.len(), "no name comes twice");
        let promised = "i_s i_m s_s i_s_cold i_s_spread first_touch multicast forward write_back answer busy denied \
             foreign responder_read responder_write";
        assert_eq!(names, promised.split_whitespace().collect());
        let fast = paths.iter().filter(|path| path.is_fast);
        let fast: Vec<_> = fast.map(|path| path.name).collect();
        assert_eq!(fast, ["i_s", "i_m", "s_s"]);
    }

    #[test]
    fn the_untouched_region_is_in_a_block_with_others() {
        let [last, untouched] = [RACK.regions - 1, RACK.regions].map(Filling::page);
        assert_eq!(last.block(), untouched.block());
        assert_eq!(slot_of(last), RACK.regions);
    }
}
