//! Controllers that end anywhere in a change, and others that go on with what they left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use mind_api::message::{Access, BladeKind, Open, RegionChange, Registration};
use mind_common::{
    addr::{BLOCK_SHIFT, PAGE_SIZE, PAGES_PER_BLOCK, Region, Va},
    id::BladeId,
};
use mind_machines::controller::procedure::Change;
use proptest::prelude::*;

use super::{Found, FoundSlot, Takeover};
use crate::{
    directory::{Entry, Regions, Slot, Step, Table},
    policy::{Plan, Policy},
    records::Key,
    registry::{Member, Port},
};

const SLOTS: u32 = 96;
const TABLES: u32 = 6;
const PAGE: u64 = PAGE_SIZE as u64;

/// What the kernel keeps. Slots are those in use, and whether they are held.
#[derive(Clone, Debug, Default)]
struct Maps {
    slots: BTreeMap<u32, (Region, bool)>,
    tables: BTreeMap<u32, BTreeMap<usize, u32>>,
    blocks: BTreeMap<u64, Table>,
}

/// One store to a map.
#[derive(Clone, Copy, Debug)]
enum Store {
    Use(Entry, bool),
    Hold(Slot, bool),
    Leave(Slot),
    Cover(Entry),
    Page(Table, usize, Option<Slot>),
    Block(u64, Option<Table>),
    Blank(Table),
}

impl Maps {
    fn apply(&mut self, store: Store) {
        match store {
            Store::Use(entry, is_locked) => {
                let before = self.slots.insert(entry.slot.0, (entry.region, is_locked));
                assert_eq!(before, None, "a slot in use is opened");
            }
            Store::Hold(slot, is_locked) => self.slots.get_mut(&slot.0).unwrap().1 = is_locked,
            Store::Leave(slot) => assert!(self.slots.remove(&slot.0).is_some()),
            Store::Cover(entry) => {
                let slot = self.slots.get_mut(&entry.slot.0).unwrap();
                assert!(slot.1, "a slot that is not held covers something else");
                slot.0 = entry.region;
            }
            Store::Page(table, page, slot) => {
                let table = self.tables.entry(table.0).or_default();
                match slot {
                    Some(slot) => table.insert(page, slot.0),
                    None => table.remove(&page),
                };
            }
            Store::Block(block, Some(table)) => {
                self.blocks.insert(block, table);
            }
            Store::Block(block, None) => {
                self.blocks.remove(&block);
            }
            Store::Blank(table) => {
                assert!(!self.blocks.values().any(|other| *other == table));
                self.tables.remove(&table.0);
            }
        }
    }

    fn found(&self) -> Found {
        let slot = |(slot, (region, is_locked)): (&u32, &(Region, bool))| FoundSlot {
            entry: Entry {
                slot: Slot(*slot),
                region: *region,
            },
            is_locked: *is_locked,
        };
        Found {
            slots: self.slots.iter().map(slot).collect(),
            blocks: self.blocks.clone(),
        }
    }

    /// As the controller does.
    fn take_over(&mut self, takeover: &Takeover) {
        for entry in &takeover.cover {
            self.apply(Store::Cover(*entry));
        }
        for entry in &takeover.open {
            self.apply(Store::Use(*entry, false));
        }
        for table in takeover.blocks.values() {
            self.tables.remove(&table.0);
        }
        for entry in &takeover.entries {
            let table = takeover.blocks[&entry.region.base().block()];
            for page in entry.region.pages() {
                self.apply(Store::Page(table, page.page_in_block(), Some(entry.slot)));
            }
        }
        for (block, table) in &takeover.publish {
            self.apply(Store::Block(*block, Some(*table)));
        }
        for block in &takeover.withdraw {
            self.apply(Store::Block(*block, None));
        }
        for slot in &takeover.strays {
            self.apply(Store::Leave(*slot));
        }
        for slot in self.slots.values_mut() {
            slot.1 = false;
        }
    }

    /// Whether it is what the books say, and covers their vmas.
    fn check(&self, policy: &Policy) {
        let directory = policy.directory();
        let slots: BTreeMap<_, _> = directory
            .all()
            .map(|(_, entry)| (entry.slot.0, (entry.region, false)))
            .collect();
        assert_eq!(self.slots, slots);
        assert_eq!(self.blocks, directory.blocks().collect());
        let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
        for (block, table) in &self.blocks {
            for (page, slot) in self.tables.get(&table.0).into_iter().flatten() {
                assert!(*page < PAGES_PER_BLOCK);
                pages.insert((block << BLOCK_SHIFT) + *page as u64 * PAGE, *slot);
            }
        }
        let entries = directory.all().map(|(_, entry)| entry);
        let expected = entries.flat_map(|entry| {
            let pages = entry.region.pages();
            pages.map(move |page| (page.0, entry.slot.0))
        });
        assert_eq!(pages, expected.collect());
        let domains = policy.registry().domains().values();
        let vmas = domains.flat_map(|domain| domain.vmas.values());
        let mapped: BTreeSet<_> = vmas
            .flat_map(|vma| (vma.va().0..vma.end()).step_by(PAGE_SIZE))
            .collect();
        assert_eq!(pages.keys().copied().collect::<BTreeSet<_>>(), mapped);
    }
}

/// A plan's steps, store by store.
fn stores(steps: &[Step], is_locked: bool) -> Vec<Store> {
    let pages = |table: Table, entry: Entry, slot: Option<Slot>| {
        let page = move |page: Va| Store::Page(table, page.page_in_block(), slot);
        entry.region.pages().map(page).collect()
    };
    let store = |step: &Step| match step {
        Step::Open(entry) => vec![Store::Use(*entry, is_locked)],
        Step::Blank(table) => vec![Store::Blank(*table)],
        Step::Fill { table, entry } => pages(*table, *entry, Some(entry.slot)),
        Step::Clear { table, entry } => pages(*table, *entry, None),
        Step::Publish { block, table } => vec![Store::Block(*block, Some(*table))],
        Step::Withdraw { block, .. } => vec![Store::Block(*block, None)],
        Step::Cover(entry) => vec![Store::Cover(*entry)],
        Step::Change(regions) => changes(regions),
        Step::Zero(_) | Step::Grant { .. } | Step::Revoke { .. } | Step::Protect { .. } => vec![],
    };
    steps.iter().flat_map(store).collect()
}

fn changes(regions: &Regions) -> Vec<Store> {
    let seconds = regions.entries.iter().filter_map(|(_, second)| *second);
    let seconds: Vec<_> = seconds.map(|entry| entry.slot).collect();
    let firsts: Vec<_> = regions
        .entries
        .iter()
        .map(|(entry, _)| entry.slot)
        .collect();
    let merged = seconds.iter().filter(|_| regions.change == Change::Merge);
    let held = firsts.iter().chain(merged.clone());
    let mut all: Vec<_> = held.map(|slot| Store::Hold(*slot, true)).collect();
    all.extend(stores(&regions.rewire, true));
    match regions.change {
        Change::Free => all.extend(firsts.iter().map(|slot| Store::Leave(*slot))),
        _ => all.extend(firsts.iter().map(|slot| Store::Hold(*slot, false))),
    }
    match regions.change {
        Change::Merge => all.extend(seconds.iter().map(|slot| Store::Leave(*slot))),
        _ => all.extend(seconds.iter().map(|slot| Store::Hold(*slot, false))),
    }
    all
}

/// Controllers, one after the other; the kernel; and what is kept on disk.
struct World {
    policy: Policy,
    maps: Maps,
    records: BTreeMap<Key, Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            policy: Policy::new(SLOTS, TABLES),
            maps: Maps::default(),
            records: BTreeMap::new(),
        };
        for (port, kind, pages) in [
            (1, BladeKind::Compute, 64),
            (2, BladeKind::Compute, 64),
            (3, BladeKind::Memory, 700),
        ] {
            let registration = Registration {
                kind,
                name: format!("port {port}"),
                address: Ipv4Addr::new(198, 18, 0, port as u8),
                mac: [2, 0, 0, 0, 0, port as u8],
                pages,
            };
            world.policy.register(Port(port), registration).unwrap();
        }
        world.keep();
        world
    }

    fn keep(&mut self) {
        for (key, record) in self.policy.take_records() {
            match record {
                Some(record) => self.records.insert(key, record),
                None => self.records.remove(&key),
            };
        }
    }

    /// Carries a plan out, or ends after so many stores; whether it was carried out.
    fn carry_out<T>(&mut self, plan: Plan<T>, end: Option<prop::sample::Index>) -> bool {
        let stores = stores(&plan.steps, false);
        let count = end.map_or(stores.len(), |end| end.index(stores.len() + 1));
        for store in &stores[..count] {
            self.maps.apply(*store);
        }
        if end.is_none() {
            self.policy.finish(plan.given_up);
        }
        end.is_none()
    }

    fn change(&mut self, regions: &Regions, end: Option<prop::sample::Index>) -> bool {
        let stores = changes(regions);
        let count = end.map_or(stores.len(), |end| end.index(stores.len() + 1));
        for store in &stores[..count] {
            self.maps.apply(*store);
        }
        if end.is_none() {
            self.policy.changed(regions, true);
        }
        end.is_none()
    }

    /// Another controller begins with what there is.
    fn restart(&mut self) {
        let records = self
            .records
            .iter()
            .map(|(key, bytes)| (*key, bytes.clone()));
        self.policy = Policy::restore(SLOTS, TABLES, records).unwrap();
        let takeover = self.policy.take_over(&self.maps.found());
        self.maps.take_over(&takeover);
    }

    /// Does something, or part of it.
    fn act(&mut self, action: &Action, end: Option<prop::sample::Index>) {
        let caller = BladeId::new(action.blade).unwrap();
        let member = Member {
            blade: action.blade,
            pid: action.pid,
        };
        let domain = u32::from(action.domain) + 1;
        let domains = self.policy.registry().domains();
        let vmas: Vec<_> = domains
            .get(&domain)
            .into_iter()
            .flat_map(|domain| domain.vmas.values())
            .map(|vma| (vma.va(), vma.length))
            .collect();
        let vma = (!vmas.is_empty()).then(|| vmas[action.which.index(vmas.len())]);
        let name = format!("area {}", action.size % 3);
        let pages = u64::from(action.size);
        let done = match (action.kind, vma) {
            (Kind::Enter, _) => {
                let name = format!("domain {}", action.domain);
                let plan = self.policy.enter_named(caller, &name, action.pid, None);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Exit, _) => {
                let plan = self.policy.exit(caller, domain, action.pid);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Map, _) => {
                let plan = self.policy.map(caller, domain, pages * PAGE, Access::Write);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Open, _) => {
                let (length, access) = (pages * PAGE, Access::Read);
                let open = Open::OrCreate;
                let plan = self
                    .policy
                    .open_area(member, domain, &name, length, access, open);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Unlink, _) => {
                let plan = self.policy.unlink_area(caller, domain, &name);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Unmap, Some((va, length))) => {
                let plan = self.policy.unmap(member, domain, va, length);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Protect, Some((va, _))) => {
                let access = [Access::None, Access::Read, Access::Write][pages as usize % 3];
                let plan = self.policy.protect(caller, domain, va, PAGE, access);
                plan.is_ok_and(|plan| self.carry_out(plan, end))
            }
            (Kind::Split | Kind::Merge, Some((va, length))) => {
                let va = Va(va.0 + pages * PAGE % length);
                let change = match action.kind {
                    Kind::Split => RegionChange::Split,
                    _ => RegionChange::Merge,
                };
                let regions = self.policy.change_region(va, change);
                let regions = regions.ok().flatten();
                regions.is_some_and(|regions| self.change(&regions, end))
            }
            (Kind::Lose, Some((va, _))) if end.is_none() => {
                let region = self.policy.directory().at(va).map(|entry| entry.region);
                region.is_some_and(|region| self.policy.note_loss(region, "gone").is_some())
            }
            _ => true,
        };
        if done {
            self.keep();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Enter,
    Exit,
    Map,
    Open,
    Unlink,
    Unmap,
    Protect,
    Split,
    Merge,
    Lose,
}

#[derive(Clone, Debug)]
struct Action {
    kind: Kind,
    blade: u8,
    domain: u8,
    pid: i32,
    which: prop::sample::Index,
    size: u8,
}

fn action() -> impl Strategy<Value = Action> {
    let kinds = prop_oneof![
        3 => Just(Kind::Enter),
        1 => Just(Kind::Exit),
        4 => Just(Kind::Map),
        2 => Just(Kind::Open),
        1 => Just(Kind::Unlink),
        2 => Just(Kind::Unmap),
        2 => Just(Kind::Protect),
        4 => Just(Kind::Split),
        4 => Just(Kind::Merge),
        1 => Just(Kind::Lose),
    ];
    let who = (0..2u8, 0..2u8, 100..102);
    (kinds, who, any::<prop::sample::Index>(), 1..60u8).prop_map(
        |(kind, (blade, domain, pid), which, size)| Action {
            kind,
            blade,
            domain,
            pid,
            which,
            size,
        },
    )
}

/// All that programs can see of the books.
fn seen(policy: &Policy) -> String {
    let registry = policy.registry();
    let protection: Vec<_> = policy.protection().collect();
    let blades: Vec<_> = [BladeKind::Compute, BladeKind::Memory]
        .into_iter()
        .flat_map(|kind| registry.blades(kind))
        .collect();
    format!(
        "{blades:?} {:?} {} {protection:?} {:?}",
        registry.domains(),
        registry.last_domain(),
        policy.status().blades
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_was_answered_is_there_and_what_was_not_has_not_happened(
        actions in prop::collection::vec((action(), prop::option::weighted(0.3, any::<prop::sample::Index>())), 1..40),
    ) {
        let mut world = World::new();
        for (action, end) in actions {
            match end {
                None => world.act(&action, None),
                Some(_) => {
                    let before = seen(&world.policy);
                    world.act(&action, end);
                    world.restart();
                    prop_assert_eq!(seen(&world.policy), before);
                }
            }
            world.maps.check(&world.policy);
        }
        let before = seen(&world.policy);
        world.restart();
        world.maps.check(&world.policy);
        prop_assert_eq!(seen(&world.policy), before);
    }
}
