//! Whether the controller's books, the tables as they are pinned, and the blades agree.
//!
//! A check compares a copy of the books with the maps on a thread of its own, while both go on changing: what it finds
//! may be on its way from one to the other. So it looks again before it reports, and what it reports was so each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    net::Ipv4Addr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use mind_api::{
    Command, Reply,
    message::{BladeKind, Identity, Report},
    operator::{Check, Discrepancy},
};
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGES_PER_BLOCK, Region, Va},
    directory::{Prior, State, Word},
    id::BladeSet,
};
use mind_dataplane::{Switch, attach};
use mind_machines::controller::{
    Session,
    books::{
        Books,
        blades::{Blade, Port},
        tables::{Key, Value},
    },
};
use tokio::time::timeout;

use super::{super::fdb::Bridge, Driver, Message, packets::Waiting, part::Part, tables};

/// Checks that may go on at a time: each has a copy of the books.
pub(super) const CHECKS: usize = 4;
/// How often a check looks again that finds something.
const LOOKS: u32 = 5;
/// And after how long.
const PAUSE: Duration = Duration::from_millis(100);
/// Discrepancies that are kept; of more, their number is.
const MOST: usize = 10_000;
/// Characters of a value that are told.
const LONGEST: usize = 1_000;
/// How long it may take an agent to say what it knows.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// What helps against tables that are not as the books say.
const RELOAD: &str = "restart `mind-controller`, which fills the tables anew";

/// A check that is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Asked {
    /// By whom.
    pub(super) session: Session,
    /// The request's number.
    pub(super) id: u64,
    /// How often it has looked.
    pub(super) looks: u32,
}

/// What a look has found.
pub(in crate::serve) struct Looked {
    asked: Asked,
    check: Check,
}

impl Driver {
    /// Looks, elsewhere.
    pub(super) fn check(&mut self, asked: Asked) {
        if !self.controller.is_serving() {
            return self.checks.push(asked);
        }
        let Some(own) = self.own.upgrade() else {
            return;
        };
        let copy = Copy {
            books: self.controller.books().clone(),
            waiting: self.packets.waiting().clone(),
            address: self.address,
            bridge: Arc::clone(&self.bridge),
            pins: self.pins.clone(),
        };
        let blades: Vec<_> = copy.books.blades.all().cloned().collect();
        let mut identities = Vec::new();
        for blade in blades {
            // Its absence is known, and no discrepancy.
            let Some(session) = self.controller.session(blade.incarnation) else {
                continue;
            };
            let answer = self.own_command(session, Command::Identify);
            identities.push(async move {
                let answer = match timeout(ANSWER_LIMIT, answer).await {
                    Ok(Ok(Ok(Report::Identity(identity)))) => Ok(identity),
                    Ok(Ok(Ok(other))) => Err(format!("{other:?}")),
                    Ok(Ok(Err(failure))) => Err(failure.to_string()),
                    Ok(Err(_)) => Err("its connection ended".to_owned()),
                    Err(_) => Err("no answer in time".to_owned()),
                };
                (blade, answer)
            });
        }
        tokio::spawn(async move {
            let identities = join_all(identities).await;
            let compared = tokio::task::spawn_blocking(move || compare(&copy, identities)).await;
            if let Ok(check) = compared {
                let looked = Looked { asked, check };
                let _ = own.send(Message::Checked(Box::new(looked))).await;
            }
        });
    }

    /// Tells what was found, or looks again.
    pub(super) fn checked(&mut self, looked: Looked) {
        let Looked { mut asked, check } = looked;
        asked.looks += 1;
        if check.discrepancies.is_empty() || asked.looks > LOOKS {
            self.checking = self.checking.saturating_sub(1);
            let Check {
                compared,
                discrepancies,
                left_off,
            } = check;
            if let Some(connection) = self.connections.get_mut(&asked.session) {
                connection.discrepancies = discrepancies;
            }
            let checked = Check {
                compared,
                left_off,
                ..Check::default()
            };
            return self.answer(asked.session, asked.id, Ok(Reply::Checked(checked)));
        }
        let Some(own) = self.own.upgrade() else {
            return;
        };
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            let _ = own.send(Message::LookAgain(asked)).await;
        });
    }
}

impl Driver {
    /// What the last check of a connection has found. With the last part it is forgotten.
    pub(super) fn list_discrepancies(&mut self, session: Session, from: u64, limit: u32) -> Reply {
        let mut part = Part::new(limit);
        let Some(connection) = self.connections.get_mut(&session) else {
            return Reply::Discrepancies {
                discrepancies: Vec::new(),
                next: None,
            };
        };
        let first = usize::try_from(from).unwrap_or(usize::MAX);
        let mut next = None;
        for (place, found) in connection.discrepancies.iter().enumerate().skip(first) {
            if part.is_full() {
                next = Some(place as u64);
                break;
            }
            part.push(found.clone());
        }
        if next.is_none() {
            connection.discrepancies = Vec::new();
        }
        let discrepancies = part.entries();
        Reply::Discrepancies {
            discrepancies,
            next,
        }
    }
}

/// What the controller knows, at a moment.
struct Copy {
    books: Books,
    waiting: Waiting,
    address: Ipv4Addr,
    bridge: Arc<Bridge>,
    pins: PathBuf,
}

impl Copy {
    fn name_of(&self, kind: BladeKind, number: u8) -> String {
        let known = self.books.blades.get(kind, number);
        known.map_or_else(
            || format!("{kind:?} blade {number}"),
            |blade| blade.name.clone(),
        )
    }

    fn names_of(&self, blades: BladeSet) -> String {
        let name = |blade: mind_common::id::BladeId| self.name_of(BladeKind::Compute, blade.get());
        match blades.is_empty() {
            true => "no blade".to_owned(),
            false => blades.iter().map(name).collect::<Vec<_>>().join(", "),
        }
    }
}

/// Compares everything.
fn compare(copy: &Copy, identities: Vec<(Blade, Result<Identity, String>)>) -> Check {
    let mut audit = Audit::default();
    // What is pinned, not what this process has open: another process may have taken the pins away.
    let pinned = Switch::open(&copy.pins);
    let compared = pinned.and_then(|mut pinned| audit.tables(copy, &mut pinned));
    if let Err(error) = compared {
        audit.note(
            format_args!("the data plane in {}", copy.pins.display()),
            "pinned".to_owned(),
            error.to_string(),
            RELOAD,
        );
    }
    audit.blades(copy, identities);
    audit.check
}

/// Compares things of one kind after the other, and notes what differs.
#[derive(Default)]
struct Audit {
    check: Check,
}

impl Audit {
    fn compare<T: PartialEq>(
        &mut self,
        kind: &str,
        object: impl Display,
        (expected, found): (T, T),
        show: impl Fn(&T) -> String,
        fix: &str,
    ) {
        *self.check.compared.entry(kind.to_owned()).or_default() += 1;
        if expected != found {
            self.note(object, show(&expected), show(&found), fix);
        }
    }

    fn note(&mut self, object: impl Display, expected: String, found: String, fix: &str) {
        if self.check.discrepancies.len() == MOST {
            self.check.left_off += 1;
            return;
        }
        self.check.discrepancies.push(Discrepancy {
            object: object.to_string(),
            expected: shortened(expected),
            found: shortened(found),
            fix: fix.to_owned(),
        });
    }

    fn tables(&mut self, copy: &Copy, pinned: &mut Switch) -> mind_dataplane::Result<()> {
        self.ports(copy, pinned)?;
        self.entries(copy, pinned)?;
        self.directory(copy, pinned)
    }

    /// The switch itself, and the programs on its ports.
    fn ports(&mut self, copy: &Copy, pinned: &mut Switch) -> mind_dataplane::Result<()> {
        if let Ok(mac) = copy.bridge.address() {
            let pair = ((copy.address, mac), pinned.identity()?);
            let show = |(address, mac): &(_, [u8; 6])| format!("{address}, {mac:02x?}");
            self.compare("switch", "the switch's addresses", pair, show, RELOAD);
        }
        for (interface, _) in copy.bridge.ports() {
            let attached = attach::check_port(pinned, interface, &copy.pins)?;
            let show = |state: &Result<(), String>| match state {
                Ok(()) => "its programs attached".to_owned(),
                Err(why) => why.clone(),
            };
            let object = format!("port {interface}");
            self.compare("attachments", object, (Ok(()), attached), show, RELOAD);
        }
        Ok(())
    }

    /// All tables but the directory.
    fn entries(&mut self, copy: &Copy, pinned: &Switch) -> mind_dataplane::Result<()> {
        let ports = copy.bridge.ports().iter().map(|(_, index)| *index);
        let found = tables::read(pinned, &ports.collect::<Vec<_>>())?;
        let found: BTreeMap<Key, Value> = found.into_iter().collect();
        let expected: BTreeMap<Key, Value> = copy.books.all_wanted().collect();
        let keys: BTreeSet<_> = expected.keys().chain(found.keys()).copied().collect();
        let show = |value: &Option<Value>| match value {
            None => "no entry".to_owned(),
            Some(Value::Placement(blades)) => copy.names_of(*blades),
            Some(Value::Port(port)) => format!("{port:?}"),
            Some(Value::Peer(peer)) => format!("{peer:?}"),
            Some(Value::Translation(translation)) => format!("{translation:?}"),
            Some(Value::Protection(class)) => format!("{class:?}"),
        };
        for key in keys {
            let (kind, object) = self.object(copy, key);
            let pair = (expected.get(&key).copied(), found.get(&key).copied());
            self.compare(kind, object, pair, show, RELOAD);
        }
        Ok(())
    }

    /// What kind of entry it is, and what it is about.
    fn object(&self, copy: &Copy, key: Key) -> (&'static str, String) {
        match key {
            Key::Port(Port(ifindex)) => {
                let name = copy.bridge.port(ifindex);
                let name = name.map_or_else(|| ifindex.to_string(), str::to_owned);
                ("ports", format!("port {name}"))
            }
            Key::Compute(blade) => {
                let name = copy.name_of(BladeKind::Compute, blade.get());
                ("peers", format!("the place of blade {name}"))
            }
            Key::Memory(number) => {
                let name = copy.name_of(BladeKind::Memory, number);
                ("peers", format!("the place of blade {name}"))
            }
            Key::Translation(prefix) => ("translations", format!("the translation of {prefix}")),
            Key::Placement(domain) => ("placements", format!("the blades of domain {domain}")),
            Key::Protection(domain, prefix) => (
                "protections",
                format!("what domain {domain} may do with {prefix}"),
            ),
        }
    }

    /// Slots, and what finds them.
    fn directory(&mut self, copy: &Copy, pinned: &Switch) -> mind_dataplane::Result<()> {
        let directory = pinned.directory();
        let connected = copy.books.blades.computes();
        let mut pages: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let (mut free, mut used) = (0, 0);
        for number in 1..u32::try_from(directory.slots()).unwrap_or(u32::MAX) {
            let slot = directory.slot(number)?;
            let (word, region) = (slot.word(), slot.region());
            if word.state() == State::Free {
                free += 1;
                continue;
            }
            used += 1;
            let Some(region) = region.filter(|region| copy.books.has_memory_for(*region)) else {
                let found = region.map_or_else(|| "no region".to_owned(), |it| it.to_string());
                self.note(
                    format_args!("slot {number}"),
                    "a region of a vma".to_owned(),
                    found,
                    RELOAD,
                );
                continue;
            };
            let entries = pages
                .entry(region.base().0 >> BLOCK_SHIFT)
                .or_insert_with(|| vec![0; PAGES_PER_BLOCK]);
            for page in region.pages() {
                entries[page.page_in_block()] = number;
            }
            self.word(copy, region, word, connected);
        }
        *self.check.compared.entry("slots".to_owned()).or_default() += used;
        self.compare(
            "free slots",
            "the number of free slots",
            (copy.waiting.free_slots(directory), free),
            usize::to_string,
            RELOAD,
        );
        self.pages(pinned, pages)
    }

    /// What pages find.
    fn pages(
        &mut self,
        pinned: &Switch,
        expected: BTreeMap<u64, Vec<u32>>,
    ) -> mind_dataplane::Result<()> {
        let directory = pinned.directory();
        let found: BTreeSet<u64> = directory.blocks()?.into_iter().collect();
        let nothing = vec![0; PAGES_PER_BLOCK];
        let blocks: BTreeSet<_> = expected.keys().chain(&found).copied().collect();
        for block in blocks {
            let wanted = expected.get(&block).unwrap_or(&nothing);
            let first = block << BLOCK_SHIFT;
            let Some(found) = directory.slots_in(block)? else {
                if wanted == &nothing {
                    continue;
                }
                self.note(
                    format_args!("the index of the block at {}", Va(first)),
                    "an entry".to_owned(),
                    "no entry".to_owned(),
                    RELOAD,
                );
                continue;
            };
            for (page, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                let page = Va(first + ((page as u64) << PAGE_SHIFT));
                let object = format_args!("the slot's number for the page at {page}");
                self.compare("pages", object, (*wanted, found), u32::to_string, RELOAD);
            }
        }
        Ok(())
    }

    /// Whether a region's word is one that it may have while nothing is under way.
    fn word(&mut self, copy: &Copy, region: Region, word: Word, connected: BladeSet) {
        let strangers = word.blades().minus(connected);
        let (expected, found) = match (word.state(), word.prior()) {
            (State::Locked, was) if was != Some(Prior::Lost) => (
                "open to requests",
                "held for a change that is not under way".to_owned(),
            ),
            (state, _) if state != State::Locked && !strangers.is_empty() => (
                "blades that are here",
                format!("{} in it", copy.names_of(strangers)),
            ),
            _ => return,
        };
        let fix = format!("`mind-ctl region reset {}`", region.base());
        let object = format!("the slot of {region}");
        self.note(object, expected.to_owned(), found, &fix);
    }

    /// Whether blades know who they are, and which processes they have.
    fn blades(&mut self, copy: &Copy, identities: Vec<(Blade, Result<Identity, String>)>) {
        for (blade, answer) in identities {
            let object = format!("blade {}", blade.name);
            let fix = format!("restart `mind-blade` on {}", blade.name);
            match answer {
                Ok(found) => {
                    let expected = identity_of(&copy.books, &blade);
                    let show = |identity: &Identity| format!("{identity:?}");
                    self.compare("blades", object, (expected, found), show, &fix);
                }
                Err(why) => self.note(object, "an answer".to_owned(), why, &fix),
            }
        }
    }
}

/// A text without what is too long to be read.
fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Who a blade is, by the books.
fn identity_of(books: &Books, blade: &Blade) -> Identity {
    let number = blade.incarnation.number;
    let is_compute = blade.incarnation.kind == BladeKind::Compute;
    let processes = books.domains.all().flat_map(|(domain, known)| {
        let here = known.processes.iter();
        let here = here.filter(move |process| is_compute && process.blade == number);
        here.map(move |process| (domain, process.pid))
    });
    Identity {
        number,
        incarnation: blade.incarnation.incarnation,
        pages: blade.pages,
        processes: processes.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_discrepancies_are_kept_and_the_others_counted() {
        let mut audit = Audit::default();
        for number in 0..MOST + 5 {
            audit.note(number, "x".repeat(LONGEST + 1), String::new(), RELOAD);
        }
        assert_eq!(audit.check.discrepancies.len(), MOST);
        assert_eq!(audit.check.left_off, 5);
        assert_eq!(audit.check.discrepancies[0].expected.len(), LONGEST + 3);
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
