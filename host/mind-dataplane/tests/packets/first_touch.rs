//! A page whose region has no slot: it gets one, unless none is left.

use mind_common::{
    addr::{BLOCK_SHIFT, Region, Va, WINDOW_BASE},
    directory::{State, Word},
    id::BladeSet,
    refusal::Refusal,
    table::{FreeKind, Slot},
    verdict::Verdict,
};
use mind_dataplane::{Directory, Switch, SwitchLimits};

use crate::world::{
    BLOCKLESS, Expect as _, PAGE, SLOTLESS, World, acquire, blades, cases, compute, read, upgrade,
};

cases![
    a_region_gets_a_slot_when_it_is_touched_first,
    the_first_region_of_a_block_takes_no_table,
    the_second_region_of_a_block_takes_one_for_all,
    a_unit_with_smaller_regions_gets_one_of_a_page,
    a_slot_that_is_used_again_is_as_new,
    an_upgrade_opens_nothing,
    what_is_denied_opens_nothing,
    without_a_slot_the_request_is_to_come_again,
    a_closed_list_gives_and_takes_nothing,
    without_a_table_the_slot_goes_back,
    a_block_that_is_closed_is_to_be_asked_again,
    the_controller_is_told_once_that_little_is_left,
    what_is_taken_out_leaves_nothing_behind,
    several_processors_open_one_slot_for_a_region,
    a_slot_takes_at_most_160_bytes_and_a_block_a_small_entry,
];

/// The first slot that no other case uses.
const FIRST: u32 = 10;

/// Slots that packets can open, with the lowest first.
fn with_slots(world: &World, count: u32) {
    let directory = world.bed.switch.directory();
    directory.drain(FreeKind::Slots);
    for slot in (FIRST..FIRST + count).rev() {
        let handle = directory.slot(slot).expect("the slot is there");
        handle.reset(Slot::default());
        directory.give(FreeKind::Slots, slot);
    }
}

/// Takes out what a case has put in.
fn clear(world: &World, regions: impl IntoIterator<Item = Region>) {
    let directory = world.bed.switch.directory();
    for region in regions {
        let retired = directory.assign(region, 0).expect("it can be taken out");
        directory.give_retired(retired);
    }
    directory.drain(FreeKind::Slots);
}

fn unit(va: Va) -> Region {
    Region::containing(va, 2).expect("order 2 is a region's")
}

fn slot_of(directory: &Directory, va: Va) -> u32 {
    directory.slot_of(va).expect("it can be looked up")
}

fn a_region_gets_a_slot_when_it_is_touched_first(world: &mut World) {
    with_slots(world, 2);
    let run = world.send(0, &read(0, SLOTLESS));
    run.met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    for page in unit(SLOTLESS).pages() {
        assert_eq!(slot_of(directory, page), FIRST);
    }
    let slot = directory.slot(FIRST).expect("the slot is there");
    assert_eq!(slot.region(), Some(unit(SLOTLESS)));
    assert_eq!(
        (slot.word().state(), slot.word().blades()),
        (State::Shared, blades([0]))
    );
    assert_eq!(directory.left(FreeKind::Slots), 1);
    // The next one finds it.
    let other = Va(SLOTLESS.0 + 0x3000);
    world.send(1, &read(1, other)).met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    assert_eq!(directory.left(FreeKind::Slots), 1);
    let word = directory.slot(FIRST).expect("the slot is there").word();
    assert_eq!(word.blades(), blades([0, 1]));
    clear(world, [unit(SLOTLESS)]);
}

fn the_first_region_of_a_block_takes_no_table(world: &mut World) {
    with_slots(world, 1);
    let tables = world.bed.switch.directory().left(FreeKind::Tables);
    world.send(0, &acquire(0, BLOCKLESS)).met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    assert_eq!(slot_of(directory, BLOCKLESS), FIRST);
    assert_eq!(slot_of(directory, Va(BLOCKLESS.0 + 0x4000)), 0);
    assert_eq!(directory.left(FreeKind::Tables), tables);
    clear(world, [unit(BLOCKLESS)]);
}

fn the_second_region_of_a_block_takes_one_for_all(world: &mut World) {
    with_slots(world, 3);
    let tables = world.bed.switch.directory().left(FreeKind::Tables);
    let at = |number: u64| Va(BLOCKLESS.0 + number * 0x4000);
    for number in [1, 0, 127] {
        world.send(0, &read(0, at(number))).met(Verdict::Fetch);
    }
    let directory = world.bed.switch.directory();
    let found = [1, 0, 127, 2].map(|number| slot_of(directory, at(number)));
    assert_eq!(found, [FIRST, FIRST + 1, FIRST + 2, 0]);
    assert_eq!(directory.left(FreeKind::Tables), tables - 1);
    // What leads to one region only needs none.
    clear(world, [unit(at(0)), unit(at(127))]);
    let directory = world.bed.switch.directory();
    assert_eq!(directory.left(FreeKind::Tables), tables);
    assert_eq!(slot_of(directory, at(1)), FIRST);
    clear(world, [unit(at(1))]);
}

fn a_unit_with_smaller_regions_gets_one_of_a_page(world: &mut World) {
    with_slots(world, 2);
    let directory = world.bed.switch.directory();
    let half = Region::containing(BLOCKLESS, 1).expect("order 1 is a region's");
    let slot = directory.take(FreeKind::Slots).expect("one is left");
    let word = Word::default().settled(State::Invalid, BladeSet::EMPTY);
    let handle = directory.slot(slot).expect("the slot is there");
    handle.reset(Slot::new(word, half));
    directory.assign(half, slot).expect("it can be put in");
    let page = Va(BLOCKLESS.0 + 0x2000);
    world.send(0, &read(0, page)).met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    let found = [0, 1, 2, 3].map(|page| slot_of(directory, Va(BLOCKLESS.0 + (page << 12))));
    assert_eq!(found, [FIRST, FIRST, FIRST + 1, 0]);
    let handle = directory.slot(FIRST + 1).expect("the slot is there");
    assert_eq!(handle.region(), Region::containing(page, 0));
    let groups = directory.left(FreeKind::Groups);
    clear(
        world,
        [
            half,
            Region::containing(page, 0).expect("order 0 is a region's"),
        ],
    );
    assert_eq!(
        world.bed.switch.directory().left(FreeKind::Groups),
        groups + 1
    );
}

fn a_slot_that_is_used_again_is_as_new(world: &mut World) {
    with_slots(world, 1);
    world.send(0, &acquire(0, SLOTLESS)).met(Verdict::Fetch);
    world.send(0, &acquire(0, SLOTLESS)).met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    let handle = directory.slot(FIRST).expect("the slot is there");
    let before = handle.word();
    let free = before.settled(State::Free, BladeSet::EMPTY);
    handle.swap_word(before, free).expect("it is the word");
    clear(world, [unit(SLOTLESS)]);
    let directory = world.bed.switch.directory();
    directory.give(FreeKind::Slots, FIRST);
    world.send(1, &read(1, BLOCKLESS)).met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    let handle = directory.slot(FIRST).expect("the slot is there");
    assert_eq!(handle.region(), Some(unit(BLOCKLESS)));
    assert!(handle.word().episode().is_after(before.episode()));
    assert_eq!(
        (handle.accesses(), handle.memo()),
        (1, mind_common::memo::Memo::default())
    );
    // The region that it had finds none.
    assert_eq!(slot_of(directory, SLOTLESS), 0);
    clear(world, [unit(BLOCKLESS)]);
}

fn an_upgrade_opens_nothing(world: &mut World) {
    with_slots(world, 1);
    let run = world.send(0, &upgrade(0, SLOTLESS));
    run.met(Verdict::NoCopy)
        .refused(compute(0), Refusal::NoCopy);
    assert_eq!(world.bed.switch.directory().left(FreeKind::Slots), 1);
    clear(world, []);
}

fn what_is_denied_opens_nothing(world: &mut World) {
    with_slots(world, 1);
    let denied = Va(PAGE.0 + (16 << 20));
    world.send(0, &read(0, denied)).met(Verdict::Protected);
    assert_eq!(world.bed.switch.directory().left(FreeKind::Slots), 1);
    clear(world, []);
}

fn without_a_slot_the_request_is_to_come_again(world: &mut World) {
    with_slots(world, 0);
    for page in [SLOTLESS, BLOCKLESS] {
        let run = world.send(0, &read(0, page));
        run.met(Verdict::NoSlot).refused(compute(0), Refusal::Busy);
    }
}

fn a_closed_list_gives_and_takes_nothing(world: &mut World) {
    with_slots(world, 2);
    let directory = world.bed.switch.directory();
    directory.close(FreeKind::Slots);
    directory.give(FreeKind::Slots, FIRST + 2);
    assert_eq!(directory.take(FreeKind::Slots), None);
    world.send(0, &read(0, SLOTLESS)).met(Verdict::NoSlot);
    let directory = world.bed.switch.directory();
    assert_eq!(slot_of(directory, SLOTLESS), 0);
    directory.reopen_list(FreeKind::Slots);
    assert_eq!(directory.left(FreeKind::Slots), 0);
    directory.give(FreeKind::Slots, FIRST);
    assert_eq!(directory.left(FreeKind::Slots), 1);
    world.send(0, &read(0, SLOTLESS)).met(Verdict::Fetch);
    let directory = world.bed.switch.directory();
    assert_eq!(slot_of(directory, SLOTLESS), FIRST);
    clear(world, [unit(SLOTLESS)]);
}

fn without_a_table_the_slot_goes_back(world: &mut World) {
    with_slots(world, 2);
    let tables = world.bed.switch.directory().drain(FreeKind::Tables);
    world.send(0, &read(0, BLOCKLESS)).met(Verdict::Fetch);
    let second = Va(BLOCKLESS.0 + 0x4000);
    let run = world.send(0, &read(0, second));
    run.met(Verdict::NoSlot).refused(compute(0), Refusal::Busy);
    let directory = world.bed.switch.directory();
    assert_eq!(directory.left(FreeKind::Slots), 1);
    assert_eq!(slot_of(directory, second), 0);
    for table in tables.into_iter().rev() {
        directory.give(FreeKind::Tables, table);
    }
    world.send(0, &read(0, second)).met(Verdict::Fetch);
    clear(world, [unit(BLOCKLESS), unit(second)]);
}

fn a_block_that_is_closed_is_to_be_asked_again(world: &mut World) {
    with_slots(world, 1);
    let directory = world.bed.switch.directory();
    directory.close_block(BLOCKLESS);
    let run = world.send(0, &read(0, BLOCKLESS));
    run.met(Verdict::Moved).refused(compute(0), Refusal::Busy);
    let directory = world.bed.switch.directory();
    assert_eq!(directory.left(FreeKind::Slots), 1);
    directory.open_block(BLOCKLESS);
    world.send(0, &read(0, BLOCKLESS)).met(Verdict::Fetch);
    clear(world, [unit(BLOCKLESS)]);
}

fn the_controller_is_told_once_that_little_is_left(world: &mut World) {
    let mut shortages = world
        .bed
        .switch
        .open_shortages()
        .expect("it can be opened again");
    with_slots(world, 8);
    let low = world.bed.switch.directory().low(FreeKind::Slots) as u32;
    assert!((1..8).contains(&low));
    shortages.take();
    let at = |number: u32| Va(BLOCKLESS.0 + u64::from(number) * 0x4000);
    for number in 0..8 {
        world.send(0, &read(0, at(number))).met(Verdict::Fetch);
        let told = shortages.take();
        let expected = (8 - number == low).then_some(FreeKind::Slots);
        assert_eq!(told, Vec::from_iter(expected), "{number}");
    }
    clear(world, (0..8).map(|number| unit(at(number))));
}

fn what_is_taken_out_leaves_nothing_behind(world: &mut World) {
    let kinds = [FreeKind::Heads, FreeKind::Tables, FreeKind::Groups];
    let left = |world: &World| kinds.map(|kind| world.bed.switch.directory().left(kind));
    let before = (
        left(world),
        world.bed.switch.directory().blocks().expect("listed").len(),
    );
    with_slots(world, 20);
    let at = |number: u64| Va(BLOCKLESS.0 + ((number % 3) << 18) + ((number / 3) << 14));
    for number in 0..20 {
        world.send(0, &read(0, at(number))).met(Verdict::Fetch);
    }
    clear(world, (0..20).map(|number| unit(at(number))));
    let after = (
        left(world),
        world.bed.switch.directory().blocks().expect("listed").len(),
    );
    assert_eq!(before, after);
}

/// Both processors touch the same regions first at the same time, again and again: there is one slot for each, and none is
/// lost.
fn several_processors_open_one_slot_for_a_region(world: &mut World) {
    // The first of a block has no table to be entered in, the second brings it.
    const REGIONS: u32 = 3;
    let at = |number: u32| Va(BLOCKLESS.0 + u64::from(number) * 0x4000);
    for _ in 0..1_000 {
        with_slots(world, 3 * REGIONS);
        let frames = [0, 1].map(|blade| {
            let frames = (0..REGIONS).map(|number| read(blade, at(number)));
            (blade, frames.collect::<Vec<_>>())
        });
        let ports: Vec<_> = frames
            .iter()
            .map(|(blade, frames)| {
                let frames = frames.iter().map(mind_dataplane::harness::Packet::bytes);
                (world.port(*blade), frames.collect())
            })
            .collect();
        let counted = world.bed.ingress_at_once(&ports);
        for port in counted.expect("the kernel runs the program") {
            assert_eq!(port.of_verdict(Verdict::Fetch), REGIONS.into(), "{port:?}");
        }
        let directory = world.bed.switch.directory();
        let slots = (0..REGIONS).map(|number| slot_of(directory, at(number)));
        let mut slots: Vec<u32> = slots.collect();
        for (number, slot) in (0..).zip(&slots) {
            let handle = directory.slot(*slot).expect("the slot is there");
            assert_eq!(handle.region(), Some(unit(at(number))));
            assert_eq!(handle.word().blades(), blades([0, 1]), "{number}");
        }
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), REGIONS as usize);
        assert_eq!(directory.left(FreeKind::Slots), 2 * REGIONS as usize);
        clear(world, (0..REGIONS).map(|number| unit(at(number))));
    }
}

/// Kernel memory of a directory, in bytes: without any region, and with one for each of its slots.
fn memory_with(slots: u32, regions_per_block: u64) -> (u64, u64) {
    let limits = SwitchLimits {
        slots: slots + 1,
        ..SwitchLimits::default()
    };
    let switch = Switch::load(&limits).expect("the kernel loads it");
    let memory = || switch.directory_memory().expect("the kernel says it");
    let empty = memory();
    let directory = switch.open_directory().expect("its maps are there");
    for slot in 1..=slots {
        let number = u64::from(slot);
        let (block, unit_in_block) = (number / regions_per_block, number % regions_per_block);
        let va = WINDOW_BASE + (block << BLOCK_SHIFT) + (unit_in_block << 14);
        let retired = directory.assign(unit(Va(va)), slot);
        directory.give_retired(retired.expect("there is room"));
    }
    (empty, memory())
}

fn a_slot_takes_at_most_160_bytes_and_a_block_a_small_entry(_: &mut World) {
    const SLOTS: u32 = 1 << 16;
    /// Of the kernel's hash map, with key, value and what its allocator keeps beside it.
    const ENTRY: u64 = 72;
    for regions_per_block in [128, 16, 1] {
        let (empty, full) = memory_with(SLOTS, regions_per_block);
        let a_slot = full as f64 / f64::from(SLOTS);
        println!("{a_slot:.1} bytes a slot where a block has {regions_per_block} regions");
        let blocks = u64::from(SLOTS) / regions_per_block + 1;
        assert!(
            full - empty <= blocks * ENTRY,
            "{empty} before, {full} then"
        );
        assert!(regions_per_block < 16 || a_slot <= 160.0, "{a_slot}");
    }
}
