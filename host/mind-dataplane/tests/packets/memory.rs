//! Write-backs and atomic operations on their way through the switch.

use mind_common::{
    addr::Va,
    directory::{Prior, State},
    id::DomainId,
    refusal::Refusal,
    serial::Version,
    verdict::Verdict,
    wire::Atomic,
};
use mind_machines::datagram::{Body, PageRequest};

use crate::world::{
    ABSENT, Expect as _, OFFSET, PAGE, READ_ONLY, SLOTLESS, UNPERMITTED, World, cases, compute,
    memory, operate, pattern, qp, write_back,
};

cases![
    the_owners_write_back_goes_to_memory,
    an_owner_writes_back_while_it_is_invalidated,
    an_owner_writes_back_while_the_region_is_held,
    a_write_back_needs_no_permission_any_more,
    a_write_back_of_a_sharer_is_refused,
    a_write_back_of_a_former_owner_is_refused,
    a_write_back_that_finds_a_freed_slot_is_to_come_again,
    a_write_back_without_a_slot_is_refused,
    a_write_back_to_a_memory_blade_that_is_gone_is_refused,
    the_owners_operation_goes_to_memory,
    a_compare_and_swap_keeps_its_operands,
    an_operation_of_somebody_else_is_refused,
    an_operation_on_a_held_region_is_refused,
    an_operation_on_a_read_only_page_is_refused,
    an_operation_in_a_domain_that_is_not_placed_is_refused,
];

fn the_owners_write_back_goes_to_memory(world: &mut World) {
    world.set_word(State::Modified, [0]);
    let data = pattern(1);
    let run = world.send(0, &write_back(0, PAGE, 12, &data).seq(6));
    let message = run.met(Verdict::WriteBack).to(memory(0), qp(0), 6);
    let expected = Body::Write {
        page: PageRequest {
            page: Va(OFFSET),
            domain: DomainId(0),
        },
        version: Version::new(12),
        data: &data,
    };
    assert_eq!(message, expected);
}

fn an_owner_writes_back_while_it_is_invalidated(world: &mut World) {
    for state in [State::ModifiedToShared, State::ModifiedToModified] {
        world.set_busy(state, 1, [0]);
        let packet = write_back(0, PAGE, 12, &pattern(1));
        world.send(0, &packet).met(Verdict::WriteBack);
    }
}

fn an_owner_writes_back_while_the_region_is_held(world: &mut World) {
    world.set_held(Prior::Modified, [0]);
    let packet = write_back(0, PAGE, 12, &pattern(1));
    world.send(0, &packet).met(Verdict::WriteBack);
}

fn a_write_back_needs_no_permission_any_more(world: &mut World) {
    world.set_word_of(2, State::Modified, [0]);
    let packet =
        write_back(0, READ_ONLY, 12, &pattern(1)).extended(8, &UNPERMITTED.0.to_be_bytes());
    world.send(0, &packet).met(Verdict::WriteBack);
}

fn is_not_the_owner(world: &mut World) {
    let run = world.send(0, &write_back(0, PAGE, 12, &pattern(1)));
    run.met(Verdict::NotOwner)
        .refused(compute(0), Refusal::Stale);
}

fn a_write_back_of_a_sharer_is_refused(world: &mut World) {
    world.set_word(State::Shared, [0]);
    is_not_the_owner(world);
    world.set_busy(State::SharedToModified, 1, [0]);
    is_not_the_owner(world);
}

fn a_write_back_of_a_former_owner_is_refused(world: &mut World) {
    world.set_word(State::Modified, [1]);
    is_not_the_owner(world);
    for was in [Prior::Invalid, Prior::Shared, Prior::Lost] {
        world.set_held(was, [0]);
        is_not_the_owner(world);
    }
    world.set_held(Prior::Modified, [1]);
    is_not_the_owner(world);
}

fn a_write_back_that_finds_a_freed_slot_is_to_come_again(world: &mut World) {
    world.set_word(State::Free, [0]);
    let run = world.send(0, &write_back(0, PAGE, 12, &pattern(1)));
    run.met(Verdict::Moved).refused(compute(0), Refusal::Busy);
}

fn a_write_back_without_a_slot_is_refused(world: &mut World) {
    let run = world.send(0, &write_back(0, SLOTLESS, 12, &pattern(1)));
    run.met(Verdict::NotOwner)
        .refused(compute(0), Refusal::Stale);
}

fn a_write_back_to_a_memory_blade_that_is_gone_is_refused(world: &mut World) {
    world.set_word_of(4, State::Modified, [0]);
    let run = world.send(0, &write_back(0, ABSENT, 12, &pattern(1)));
    run.met(Verdict::NoMemory)
        .refused(compute(0), Refusal::Unreachable);
}

fn goes_to_memory(world: &mut World, operation: Atomic) {
    world.set_word(State::Modified, [0]);
    let run = world.send(0, &operate(0, Va(PAGE.0 + 16), operation).seq(8));
    let message = run.met(Verdict::Operate).to(memory(0), qp(0), 8);
    let expected = Body::Atomic {
        va: Va(OFFSET + 16),
        domain: DomainId(0),
        operation,
    };
    assert_eq!(message, expected);
}

fn the_owners_operation_goes_to_memory(world: &mut World) {
    goes_to_memory(world, Atomic::FetchAdd { addend: 5 });
}

fn a_compare_and_swap_keeps_its_operands(world: &mut World) {
    let operation = Atomic::CmpSwap {
        expected: 0x0102_0304_0506_0708,
        new: u64::MAX - 1,
    };
    goes_to_memory(world, operation);
}

fn an_operation_of_somebody_else_is_refused(world: &mut World) {
    for state in [State::Invalid, State::Shared] {
        world.set_word(state, [0]);
        let run = world.send(0, &operate(0, PAGE, Atomic::FetchAdd { addend: 5 }));
        run.met(Verdict::NoCopy)
            .refused(compute(0), Refusal::NoCopy);
    }
}

fn an_operation_on_a_held_region_is_refused(world: &mut World) {
    world.set_held(Prior::Modified, [0]);
    let run = world.send(0, &operate(0, PAGE, Atomic::FetchAdd { addend: 5 }));
    run.met(Verdict::Busy).refused(compute(0), Refusal::Busy);
}

fn an_operation_on_a_read_only_page_is_refused(world: &mut World) {
    world.set_word_of(2, State::Modified, [0]);
    let run = world.send(0, &operate(0, READ_ONLY, Atomic::FetchAdd { addend: 5 }));
    run.met(Verdict::Protected)
        .refused(compute(0), Refusal::Denied);
}

fn an_operation_in_a_domain_that_is_not_placed_is_refused(world: &mut World) {
    let packet = operate(0, PAGE, Atomic::FetchAdd { addend: 5 });
    let run = world.send(0, &packet.extended(8, &UNPERMITTED.0.to_be_bytes()));
    run.met(Verdict::NotPlaced)
        .refused(compute(0), Refusal::Denied);
}
