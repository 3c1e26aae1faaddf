//! Whether the controller's books, the tables as they are pinned, and the blades agree.
//!
//! Words change under traffic while this looks; what is compared stays while no request is being carried out, and the
//! controller carries out one at a time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Display,
};

use mind_api::{
    Command, Failure,
    message::{BladeKind, Identity, Report},
    operator::{Check, Discrepancy},
};
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SHIFT, PAGES_PER_BLOCK, Va},
    directory::{Prior, State},
    id::{BladeId, BladeSet, DomainId, MAX_BLADES},
    table::{Peer, Permission, Port as PortEntry},
};
use mind_controller::registry::Blade;
use mind_dataplane::{Switch, attach};

use super::{
    super::fdb,
    Core,
    blades::{peer_of, slice_of},
    broken, index,
    steps::permission_of,
};

/// What helps against tables that are not as the books say.
const RELOAD: &str = "restart `mind-controller`, which fills the tables anew";

/// Compares things of one kind, and notes what differs.
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
        self.check.discrepancies.push(Discrepancy {
            object: object.to_string(),
            expected,
            found,
            fix: fix.to_owned(),
        });
    }

    /// Compares two tables entry by entry.
    fn compare_all<K: Ord + Clone, V: PartialEq + Clone>(
        &mut self,
        kind: &str,
        object: impl Fn(&K) -> String,
        (expected, found): (BTreeMap<K, V>, BTreeMap<K, V>),
        show: impl Fn(&V) -> String,
    ) {
        let keys: BTreeSet<_> = expected.keys().chain(found.keys()).cloned().collect();
        let show = |value: &Option<V>| value.as_ref().map_or_else(|| "no entry".to_owned(), &show);
        for key in keys {
            let pair = (expected.get(&key).cloned(), found.get(&key).cloned());
            self.compare(kind, object(&key), pair, show, RELOAD);
        }
    }
}

impl Core {
    /// Compares everything.
    pub(super) async fn check(&self) -> Result<Check, Failure> {
        let mut audit = Audit {
            check: Check::default(),
        };
        // What is pinned, not what this process has open: somebody may have taken the pins away.
        match Switch::open(&self.pins) {
            Ok(mut pinned) => self
                .check_tables(&mut pinned, &mut audit)
                .map_err(|error| broken(&error))?,
            Err(error) => audit.note(
                format_args!("the data plane in {}", self.pins.display()),
                "pinned".to_owned(),
                error.to_string(),
                RELOAD,
            ),
        }
        self.check_blades(&mut audit).await;
        Ok(audit.check)
    }

    fn check_tables(&self, pinned: &mut Switch, audit: &mut Audit) -> mind_dataplane::Result<()> {
        self.check_ports(pinned, audit)?;
        self.check_peers(pinned, audit)?;
        self.check_tries(pinned, audit)?;
        self.check_directory(pinned, audit)
    }

    /// The switch itself, its ports and the programs on them.
    fn check_ports(&self, pinned: &mut Switch, audit: &mut Audit) -> mind_dataplane::Result<()> {
        if let Ok(mac) = fdb::address_of(&self.bridge) {
            let pair = ((self.address, mac), pinned.identity()?);
            let show = |(address, mac): &(_, [u8; 6])| format!("{address}, {mac:02x?}");
            audit.compare("switch", "the switch's addresses", pair, show, RELOAD);
        }
        for interface in &self.ports {
            let object = format!("port {interface}");
            let attached = attach::check_port(pinned, interface, &self.pins)?;
            let show = |state: &Result<(), String>| match state {
                Ok(()) => "its programs attached".to_owned(),
                Err(why) => why.clone(),
            };
            let pair = (Ok(()), attached);
            audit.compare("attachments", &object, pair, show, RELOAD);
            let Ok(ifindex) = attach::index_of(interface) else {
                continue;
            };
            let found = pinned.port(ifindex)?;
            let expected = self.port_entry(interface, found.flags);
            let show = |port: &PortEntry| format!("{port:?}");
            audit.compare("ports", &object, (expected, found), show, RELOAD);
        }
        Ok(())
    }

    /// Where blades are.
    fn check_peers(&self, pinned: &Switch, audit: &mut Audit) -> mind_dataplane::Result<()> {
        let show = |peer: &Peer| format!("{peer:?}");
        for number in 0..MAX_BLADES as u8 {
            for kind in [BladeKind::Compute, BladeKind::Memory] {
                let known = self.policy.registry().blade(kind, number);
                let expected = known
                    .filter(|blade| blade.connected)
                    .map_or_else(Peer::default, |blade| peer_of(kind, blade));
                let found = match kind {
                    BladeKind::Compute => pinned.compute(BladeId::from_low_bits(number.into()))?,
                    BladeKind::Memory => pinned.memory(number)?,
                };
                let object = known.map_or_else(
                    || format!("the place of {kind:?} blade {number}"),
                    |blade| format!("the place of blade {}", blade.name),
                );
                audit.compare("peers", object, (expected, found), show, RELOAD);
            }
        }
        Ok(())
    }

    /// Who may touch what, and where it is kept.
    fn check_tries(&self, pinned: &Switch, audit: &mut Audit) -> mind_dataplane::Result<()> {
        let memories = self.policy.registry().blades(BladeKind::Memory);
        let expected = memories.map(|blade| slice_of(blade.number)).collect();
        let found = pinned.translations()?.into_iter().collect();
        audit.compare_all(
            "translations",
            |prefix| format!("the translation of {prefix}"),
            (expected, found),
            |translation| format!("{translation:?}"),
        );

        let domains = self.policy.registry().domains().iter();
        let placed = domains.map(|(number, domain)| {
            let on = domain.processes.iter();
            let blades = on.map(|(blade, _)| BladeId::from_low_bits((*blade).into()));
            (*number, blades.collect::<BladeSet>())
        });
        let expected = placed.filter(|(_, blades)| !blades.is_empty()).collect();
        let found = pinned.placements()?.into_iter();
        audit.compare_all(
            "placements",
            |domain| format!("the blades of domain {domain}"),
            (
                expected,
                found.map(|(domain, blades)| (domain.0, blades)).collect(),
            ),
            |blades| self.names_of(*blades),
        );

        let entries = self.policy.protection().flat_map(|(domain, entries)| {
            let of_domain = move |(prefix, class)| ((domain, prefix), permission_of(class));
            entries.into_iter().map(of_domain)
        });
        let found = pinned.protections()?.into_iter();
        let key = |(domain, prefix, permission): (DomainId, _, Permission)| {
            ((domain.0, prefix), permission)
        };
        audit.compare_all(
            "protections",
            |(domain, prefix)| format!("what domain {domain} may do with {prefix}"),
            (entries.collect(), found.map(key).collect()),
            |permission| format!("{permission:?}"),
        );
        Ok(())
    }

    /// Blocks, tables and slots.
    fn check_directory(&self, pinned: &Switch, audit: &mut Audit) -> mind_dataplane::Result<()> {
        let books = self.policy.directory();
        let expected = books.blocks().map(|(number, table)| (number, table.0));
        audit.compare_all(
            "blocks",
            |block| format!("the table of the block at {}", Va(block << BLOCK_SHIFT)),
            (expected.collect(), pinned.blocks()?.into_iter().collect()),
            u32::to_string,
        );

        let directory = pinned.directory();
        let connected = self.compute_blades();
        let mut pages: HashMap<(u32, usize), u32> = HashMap::new();
        let mut used = BTreeSet::new();
        for (table, entry) in books.all() {
            let number = index(&entry);
            used.insert(number);
            for page in entry.region.pages() {
                pages.insert((table.0, page.page_in_block()), number);
            }
            let slot = directory.slot(number)?;
            let object = format!("the slot of {}", entry.region);
            let pair = (Some(entry.region), slot.region());
            let show = |region: &Option<_>| {
                region.map_or_else(|| "no region".to_owned(), |region| format!("{region}"))
            };
            audit.compare("slots", &object, pair, show, RELOAD);
            let word = slot.word();
            let strangers = word.blades().minus(connected);
            let wrong = match (word.state(), word.prior()) {
                (State::Free, _) => {
                    Some(("a word in use", "a free word".to_owned(), RELOAD.to_owned()))
                }
                (State::Locked, was) if was != Some(Prior::Lost) => Some((
                    "open to requests",
                    "held for a change that is not under way".to_owned(),
                    format!("`mind-ctl region reset {}`", entry.region.base()),
                )),
                (state, _) if state != State::Locked && !strangers.is_empty() => Some((
                    "blades that are here",
                    format!("{} in it", self.names_of(strangers)),
                    format!("`mind-ctl region reset {}`", entry.region.base()),
                )),
                _ => None,
            };
            if let Some((expected, found, fix)) = wrong {
                audit.note(object, expected.to_owned(), found, &fix);
            }
        }
        for number in 1..u32::try_from(directory.slots()).unwrap_or(u32::MAX) {
            if !used.contains(&number) {
                let pair = (State::Free, directory.slot(number)?.word().state());
                let show = |state: &State| state.name().to_owned();
                audit.compare(
                    "free slots",
                    format_args!("slot {number}"),
                    pair,
                    show,
                    RELOAD,
                );
            }
        }
        for (number, table) in books.blocks() {
            let first = Va(number << BLOCK_SHIFT);
            for page in (0..PAGES_PER_BLOCK as u64).map(|page| Va(first.0 + (page << PAGE_SHIFT))) {
                let expected = pages.get(&(table.0, page.page_in_block())).copied();
                let found = directory.entry(table.0, page)?;
                let found = found.load(std::sync::atomic::Ordering::Acquire);
                let pair = (expected.unwrap_or(0), found);
                let object = format!("the slot's number for the page at {page}");
                audit.compare("pages", object, pair, u32::to_string, RELOAD);
            }
        }
        Ok(())
    }

    /// Whether blades think that they are who we think.
    async fn check_blades(&self, audit: &mut Audit) {
        for kind in [BladeKind::Compute, BladeKind::Memory] {
            for blade in self.policy.registry().blades(kind) {
                let object = format!("blade {}", blade.name);
                let fix = format!("restart `mind-blade` on {}", blade.name);
                let Ok(agent) = self.agent(kind, blade.number) else {
                    // Its absence is known, and no discrepancy.
                    continue;
                };
                let expected = self.identity_of(kind, blade);
                match agent.ask(Command::Identify).await {
                    Ok(Report::Identity(found)) => {
                        let show = |identity: &Identity| format!("{identity:?}");
                        audit.compare("blades", object, (expected, found), show, &fix);
                    }
                    Ok(other) => {
                        audit.note(object, "its identity".into(), format!("{other:?}"), &fix)
                    }
                    Err(failure) => {
                        audit.note(object, "an answer".into(), failure.to_string(), &fix);
                    }
                }
            }
        }
    }

    fn identity_of(&self, kind: BladeKind, blade: &Blade) -> Identity {
        let domains = self.policy.registry().domains().iter();
        let processes = domains.flat_map(|(number, domain)| {
            let here = domain.processes.iter();
            let here =
                here.filter(|(other, _)| kind == BladeKind::Compute && *other == blade.number);
            here.map(move |(_, pid)| (*number, *pid))
        });
        Identity {
            number: blade.number,
            incarnation: blade.incarnation,
            pages: blade.pages,
            processes: processes.collect(),
        }
    }

    fn names_of(&self, blades: BladeSet) -> String {
        let names: Vec<_> = blades.iter().map(|blade| self.name_of(blade)).collect();
        match names.is_empty() {
            true => "no blade".to_owned(),
            false => names.join(", "),
        }
    }
}
