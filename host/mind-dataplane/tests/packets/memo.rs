//! The memos of slots: when they are valid, and that they never permit more than the tries.

use mind_common::{
    addr::{PAGE_SIZE, Prefix, Region, SLICE_SHIFT, Va},
    directory::{Prior, State},
    id::DomainId,
    memo::{Current, Location, Memo},
    refusal::Refusal,
    table::{MAY_READ, MAY_WRITE, Peer, Permission, Protection, Slot, Translation},
    verdict::Verdict,
    wire::Atomic,
};
use mind_dataplane::harness::Packet;
use mind_machines::datagram::{Body, PageRequest};

use crate::world::{
    DOMAIN, EVERYTHING, Expect as _, OFFSET, OUTLIER, OUTLIER_OFFSET, PAGE, READ_ONLY, SLOT,
    SLOTLESS, UNPERMITTED, World, acquire, blades, cases, compute, memory, operate, qp, read,
    upgrade,
};

cases![
    what_the_tries_return_is_in_the_memo,
    a_valid_memo_is_used,
    a_memo_holds_for_every_page_of_the_region,
    an_upgrade_writes_and_uses_a_memo,
    an_operation_writes_and_uses_a_memo,
    a_memo_is_not_valid_in_another_domain,
    a_memo_of_a_former_generation_is_not_valid,
    a_memo_of_a_later_generation_is_not_valid,
    the_memo_of_a_delayed_packet_is_not_valid,
    a_permission_that_is_narrowed_is_denied_at_once,
    an_operation_is_denied_at_once,
    a_permission_that_is_taken_away_is_denied_at_once,
    a_permission_that_is_widened_is_given_at_once,
    a_placement_that_ends_is_denied_at_once,
    without_a_memo_the_tries_are_searched,
    a_denial_writes_no_memo,
    a_prefix_smaller_than_the_region_gets_no_memo,
    what_changes_elsewhere_costs_no_memo,
    what_changes_in_the_block_costs_the_memo,
    a_place_that_is_moved_is_followed_at_once,
    a_memory_blade_that_goes_is_noticed_at_once,
    a_longer_prefix_inside_the_region_is_not_hidden,
    a_slot_that_gets_another_region_has_no_memo,
    a_slot_that_is_used_again_has_no_memo,
    a_memo_is_not_valid_for_a_page_that_left_the_region,
    a_denied_page_without_a_slot_is_denied,
];

/// In another block than all other pages.
const ELSEWHERE: Va = Va(PAGE.0 + (8 << 20));

fn region(page: Va) -> Region {
    Region::containing(page, 2).expect("order 2 is a region's")
}

fn prefix(base: Va, shift: u32) -> Prefix {
    Prefix { base, shift }
}

/// The page `number` pages behind `page`.
fn after(page: Va, number: u64) -> Va {
    Va(page.0 + number * PAGE_SIZE as u64)
}

/// The same packet, in the domain [`UNPERMITTED`].
fn lonely(packet: Packet) -> Packet {
    packet.extended(8, &UNPERMITTED.0.to_be_bytes())
}

fn protect(world: &mut World, domain: DomainId, prefix: Prefix, bits: u32) {
    world
        .bed
        .switch
        .protect(domain, prefix, Permission { bits })
        .expect("an entry can be made");
}

fn unprotect(world: &mut World, domain: DomainId, prefix: Prefix) {
    let there = world.bed.switch.unprotect(domain, prefix);
    assert!(there.expect("an entry can be removed"), "it was there");
}

/// The generations of the block of all pages here but those of [`ELSEWHERE`], and of a domain.
fn now_in(world: &World, domain: DomainId) -> Current {
    world.bed.switch.directory().current(domain, PAGE)
}

fn now(world: &World) -> Current {
    now_in(world, DOMAIN)
}

/// The memo of slot `slot`.
fn memo_of(world: &World, slot: u32) -> Memo {
    world
        .bed
        .switch
        .directory()
        .slot(slot)
        .expect("a slot")
        .memo()
}

/// The memo that a packet writes for `page` when it finds the generations `current`, an entry with `bits`, and
/// the page at `translation`.
fn memo(
    current: &Current,
    page: Va,
    domain: DomainId,
    bits: u32,
    translation: Translation,
) -> Memo {
    let protection = Protection {
        permission: Permission { bits },
        shift: 20,
    };
    Memo::new(
        current,
        region(page),
        domain,
        &protection,
        Some(&translation),
    )
    .expect("it fits a memo")
}

/// A slot's memo has another location of [`PAGE`] than the trie.
fn mislead(world: &World) {
    let elsewhere = Translation::new(1, PAGE, OUTLIER_OFFSET);
    let memo = memo(&now(world), PAGE, DOMAIN, EVERYTHING, elsewhere);
    world.slot().set_memo(memo);
}

fn is_denied(world: &mut World, from: u8, packet: &Packet) {
    let run = world.send(from, packet);
    run.met(Verdict::Protected)
        .refused(compute(from), Refusal::Denied);
}

/// The request went to memory blade `number`, for the page at `offset`.
fn is_fetched(world: &mut World, packet: &Packet, number: u8, offset: u64) {
    let run = world.send(0, packet);
    let message = run.met(Verdict::Fetch).to(memory(number), qp(0), 1);
    let expected = Body::read(PageRequest {
        page: Va(offset),
        domain: DomainId(0),
    });
    assert_eq!(message, expected);
}

fn what_the_tries_return_is_in_the_memo(world: &mut World) {
    assert_eq!(world.slot().memo(), Memo::default());
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    let (memo, now) = (world.slot().memo(), now(world));
    assert!(memo.allows(&now, DOMAIN, MAY_READ));
    assert!(memo.allows(&now, DOMAIN, MAY_WRITE));
    let location = Location {
        blade: 0,
        offset: Va(OFFSET),
    };
    assert_eq!(memo.location(&now, PAGE), Some(location));
}

fn a_valid_memo_is_used(world: &mut World) {
    mislead(world);
    is_fetched(world, &read(0, PAGE), 1, OUTLIER_OFFSET);
    is_fetched(world, &acquire(0, PAGE), 1, OUTLIER_OFFSET);
}

fn a_memo_holds_for_every_page_of_the_region(world: &mut World) {
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    let offset = OFFSET + 3 * PAGE_SIZE as u64;
    is_fetched(world, &read(0, after(PAGE, 3)), 0, offset);
    mislead(world);
    let offset = OUTLIER_OFFSET + 3 * PAGE_SIZE as u64;
    is_fetched(world, &read(0, after(PAGE, 3)), 1, offset);
}

fn an_upgrade_writes_and_uses_a_memo(world: &mut World) {
    world.set_word(State::Shared, [0]);
    world.send(0, &upgrade(0, PAGE)).met(Verdict::Grant);
    let now = now(world);
    assert!(world.slot().memo().allows(&now, DOMAIN, MAY_WRITE));
    assert!(world.slot().memo().location(&now, PAGE).is_some());
    world.set_word(State::Shared, [0]);
    world.send(0, &upgrade(0, PAGE)).met(Verdict::Grant);
}

fn add(from: u8, va: Va) -> Packet {
    operate(from, va, Atomic::FetchAdd { addend: 1 })
}

fn an_operation_writes_and_uses_a_memo(world: &mut World) {
    let word = Va(PAGE.0 + 16);
    world.set_word(State::Modified, [0]);
    world.send(0, &add(0, word)).met(Verdict::Operate);
    let now = now(world);
    assert!(world.slot().memo().allows(&now, DOMAIN, MAY_WRITE));
    mislead(world);
    let run = world.send(0, &add(0, word));
    let message = run.met(Verdict::Operate).to(memory(1), qp(0), 1);
    let expected = Body::Atomic {
        va: Va(OUTLIER_OFFSET + 16),
        domain: DomainId(0),
        operation: Atomic::FetchAdd { addend: 1 },
    };
    assert_eq!(message, expected);
}

fn a_memo_is_not_valid_in_another_domain(world: &mut World) {
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    let before = world.slot().memo();
    is_denied(world, 1, &lonely(read(1, PAGE)));
    assert_eq!(world.slot().memo(), before, "the denial changes nothing");
}

/// Sets a memo that permits writing where the trie does not, of generations of block and domain so much later than now.
fn set_memo_at(world: &mut World, block: i64, domain: i64) {
    let mut at = now(world);
    let add = |to: &mut u64, later| *to = to.checked_add_signed(later).expect("many have passed");
    add(&mut at.block.number, block);
    add(&mut at.domain, domain);
    let here = Translation::new(0, PAGE, OFFSET);
    let memo = memo(&at, READ_ONLY, DOMAIN, EVERYTHING, here);
    let slot = world.bed.switch.directory().slot(2).expect("a slot");
    slot.set_memo(memo);
}

fn a_memo_of_a_former_generation_is_not_valid(world: &mut World) {
    for (block, domain) in [(-1, 0), (0, -1)] {
        set_memo_at(world, block, domain);
        is_denied(world, 0, &acquire(0, READ_ONLY));
    }
    // The test itself is right: in these it would be.
    set_memo_at(world, 0, 0);
    world.send(0, &acquire(0, READ_ONLY)).met(Verdict::Fetch);
}

fn a_memo_of_a_later_generation_is_not_valid(world: &mut World) {
    for (block, domain) in [(1, 0), (0, 1)] {
        set_memo_at(world, block, domain);
        is_denied(world, 0, &acquire(0, READ_ONLY));
    }
}

fn the_memo_of_a_delayed_packet_is_not_valid(world: &mut World) {
    // It asked before the change, and writes after it.
    world.send(0, &acquire(0, PAGE)).met(Verdict::Fetch);
    let held_up = world.slot().memo();
    protect(world, DOMAIN, prefix(PAGE, 20), MAY_READ);
    world.slot().set_memo(held_up);
    is_denied(world, 0, &acquire(0, PAGE));
    world.slot().set_memo(held_up);
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    assert_ne!(
        world.slot().memo(),
        held_up,
        "the memo has what the trie says now"
    );
    is_denied(world, 0, &acquire(0, PAGE));
}

fn a_permission_that_is_narrowed_is_denied_at_once(world: &mut World) {
    world.send(0, &acquire(0, PAGE)).met(Verdict::Fetch);
    protect(world, DOMAIN, prefix(PAGE, 20), MAY_READ);
    is_denied(world, 0, &acquire(0, PAGE));
    is_denied(world, 0, &upgrade(0, PAGE));
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    is_denied(world, 0, &acquire(0, PAGE));
}

fn an_operation_is_denied_at_once(world: &mut World) {
    world.set_word(State::Modified, [0]);
    world.send(0, &add(0, PAGE)).met(Verdict::Operate);
    protect(world, DOMAIN, prefix(PAGE, 20), MAY_READ);
    is_denied(world, 0, &add(0, PAGE));
}

fn a_permission_that_is_taken_away_is_denied_at_once(world: &mut World) {
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    unprotect(world, DOMAIN, prefix(PAGE, 20));
    is_denied(world, 0, &read(0, PAGE));
    is_denied(world, 0, &acquire(0, PAGE));
}

fn a_permission_that_is_widened_is_given_at_once(world: &mut World) {
    world.send(0, &read(0, READ_ONLY)).met(Verdict::Fetch);
    is_denied(world, 0, &acquire(0, READ_ONLY));
    protect(world, DOMAIN, prefix(READ_ONLY, 20), EVERYTHING);
    world.send(0, &acquire(0, READ_ONLY)).met(Verdict::Fetch);
}

fn a_placement_that_ends_is_denied_at_once(world: &mut World) {
    world.send(0, &read(0, PAGE)).met(Verdict::Fetch);
    let switch = &mut world.bed.switch;
    switch
        .place(DOMAIN, blades([1, 2, 3]))
        .expect("a domain can be placed");
    let run = world.send(0, &read(0, PAGE));
    run.met(Verdict::NotPlaced)
        .refused(compute(0), Refusal::Denied);
}

fn without_a_memo_the_tries_are_searched(world: &mut World) {
    let here = Translation::new(0, PAGE, OFFSET);
    let now = now(world);
    let less = memo(&now, PAGE, DOMAIN, MAY_READ, here);
    world.slot().set_memo(less);
    world.send(0, &acquire(0, PAGE)).met(Verdict::Fetch);
    let memo = world.slot().memo();
    assert!(memo.allows(&now, DOMAIN, MAY_WRITE), "and now it is");
}

fn a_denial_writes_no_memo(world: &mut World) {
    is_denied(world, 1, &lonely(read(1, PAGE)));
    assert_eq!(world.slot().memo(), Memo::default());
    is_denied(world, 0, &acquire(0, READ_ONLY));
    assert_eq!(memo_of(world, 2), Memo::default());
}

fn a_prefix_smaller_than_the_region_gets_no_memo(world: &mut World) {
    let page = prefix(PAGE, 12);
    protect(world, UNPERMITTED, page, EVERYTHING);
    world.send(1, &lonely(read(1, PAGE))).met(Verdict::Fetch);
    assert_eq!(world.slot().memo(), Memo::default());
    is_denied(world, 1, &lonely(read(1, after(PAGE, 1))));
    unprotect(world, UNPERMITTED, page);
    // One as large as the region is.
    let whole = prefix(PAGE, 14);
    protect(world, UNPERMITTED, whole, MAY_READ);
    world.send(1, &lonely(read(1, PAGE))).met(Verdict::Fetch);
    let now = now_in(world, UNPERMITTED);
    assert!(world.slot().memo().allows(&now, UNPERMITTED, MAY_READ));
    is_denied(world, 1, &lonely(acquire(1, PAGE)));
    unprotect(world, UNPERMITTED, whole);
    is_denied(world, 1, &lonely(read(1, PAGE)));
}

/// What was misled goes on to be.
fn what_changes_elsewhere_costs_no_memo(world: &mut World) {
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    mislead(world);
    let entry = prefix(PAGE, 20);
    protect(world, DomainId(3), entry, MAY_READ);
    unprotect(world, DomainId(3), entry);
    is_fetched(world, &read(0, PAGE), 1, OUTLIER_OFFSET);

    let outlier = prefix(ELSEWHERE, 14);
    let translation = Translation::new(1, ELSEWHERE, 0);
    let switch = &mut world.bed.switch;
    switch
        .translate(outlier, translation)
        .expect("an entry can be made");
    switch.untranslate(outlier).expect("it can be removed");
    is_fetched(world, &read(0, PAGE), 1, OUTLIER_OFFSET);
    // Nor are memos there of larger regions: one may be as large as the smallest entry of its block.
    assert_eq!(now(world).block.finest, 14);
    let block = prefix(Va(ELSEWHERE.0 + (2 << 20)), 21);
    let finest = |world: &World| {
        let current = world.bed.switch.directory().current(DOMAIN, block.base);
        current.block.finest
    };
    assert!(finest(world) >= 21);

    let directory = world.bed.switch.directory();
    let free = directory.slot(6).expect("a slot");
    free.set_region(region(ELSEWHERE));
    free.clear_region();
    is_fetched(world, &read(0, PAGE), 1, OUTLIER_OFFSET);
}

fn what_changes_in_the_block_costs_the_memo(world: &mut World) {
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    mislead(world);
    world.slot().set_region(region(PAGE));
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    mislead(world);
    let switch = &mut world.bed.switch;
    let outlier = prefix(after(PAGE, 32), 14);
    let translation = Translation::new(1, PAGE, 0);
    switch
        .translate(outlier, translation)
        .expect("an entry can be made");
    switch.untranslate(outlier).expect("it can be removed");
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
}

fn a_place_that_is_moved_is_followed_at_once(world: &mut World) {
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    let slice = prefix(PAGE, SLICE_SHIFT);
    let moved = Translation::new(1, PAGE, 0x7000);
    let switch = &mut world.bed.switch;
    switch
        .translate(slice, moved)
        .expect("an entry can be replaced");
    is_fetched(world, &read(0, PAGE), 1, 0x7000);
    let switch = &mut world.bed.switch;
    let there = switch.untranslate(slice).expect("an entry can be removed");
    assert!(there, "it was there");
    let run = world.send(0, &read(0, PAGE));
    run.met(Verdict::NoMemory)
        .refused(compute(0), Refusal::Unreachable);
}

fn a_memory_blade_that_goes_is_noticed_at_once(world: &mut World) {
    is_fetched(world, &read(0, PAGE), 0, OFFSET);
    let switch = &mut world.bed.switch;
    switch
        .set_memory(0, Peer::default())
        .expect("a blade can go");
    let run = world.send(0, &read(0, PAGE));
    run.met(Verdict::NoMemory)
        .refused(compute(0), Refusal::Unreachable);
}

/// Makes all pages of `region` find slot `slot`, or none for 0.
fn assign(world: &World, region: Region, slot: u32) {
    let directory = world.bed.switch.directory();
    let retired = directory.assign(region, slot).expect("it can be changed");
    directory.give_retired(retired);
}

/// Gives all pages of `region` to slot `slot`, which gets that region.
fn give(world: &World, region: Region, slot: u32) {
    let directory = world.bed.switch.directory();
    assign(world, region, slot);
    directory.slot(slot).expect("a slot").set_region(region);
}

fn a_longer_prefix_inside_the_region_is_not_hidden(world: &mut World) {
    // A region of twice the size: one half of it is the outlier.
    let wide = Region::containing(OUTLIER, 3).expect("order 3 is a region's");
    let beside = after(OUTLIER, 4);
    assert!(wide.contains(beside));
    give(world, wide, 3);
    is_fetched(world, &read(0, beside), 0, OFFSET + (beside.0 - PAGE.0));
    let (memo, now) = (memo_of(world, 3), now(world));
    assert!(memo.allows(&now, DOMAIN, MAY_READ), "one entry covers it");
    assert_eq!(memo.location(&now, beside), None, "two entries do");
    is_fetched(world, &read(0, OUTLIER), 1, OUTLIER_OFFSET);
    is_fetched(world, &read(0, beside), 0, OFFSET + (beside.0 - PAGE.0));
    assign(world, wide, 0);
    give(world, region(OUTLIER), 3);
}

/// Slot 1, which has a memo that [`PAGE`] may be written, becomes the slot of the region at
/// [`READ_ONLY`], which may not.
fn used_elsewhere(world: &mut World, change: fn(&World, Region)) {
    world.send(0, &acquire(0, PAGE)).met(Verdict::Fetch);
    let other = region(READ_ONLY);
    world.set_held(Prior::Invalid, []);
    change(world, other);
    assign(world, region(PAGE), 0);
    assign(world, other, SLOT);
    world.set_word(State::Invalid, []);
    is_denied(world, 0, &acquire(0, READ_ONLY));
    let offset = OFFSET + (READ_ONLY.0 - PAGE.0);
    is_fetched(world, &read(0, READ_ONLY), 0, offset);
    assign(world, other, 2);
    assign(world, region(PAGE), SLOT);
}

fn a_slot_that_gets_another_region_has_no_memo(world: &mut World) {
    used_elsewhere(world, |world, region| world.slot().set_region(region));
}

fn a_slot_that_is_used_again_has_no_memo(world: &mut World) {
    used_elsewhere(world, |world, region| {
        let held_up = world.slot().memo();
        world.slot().reset(Slot::new(world.word(), region));
        // A packet that was delayed meanwhile.
        world.slot().set_memo(held_up);
    });
}

fn a_memo_is_not_valid_for_a_page_that_left_the_region(world: &mut World) {
    // The table still says the slot, the slot has the region no more.
    world.send(0, &read(0, after(PAGE, 3))).met(Verdict::Fetch);
    let half = Region::containing(PAGE, 1).expect("order 1 is a region's");
    world.slot().set_region(half);
    mislead(world);
    let run = world.send(0, &read(0, after(PAGE, 3)));
    run.met(Verdict::Moved).refused(compute(0), Refusal::Busy);
}

fn a_denied_page_without_a_slot_is_denied(world: &mut World) {
    is_denied(world, 1, &lonely(read(1, SLOTLESS)));
}
