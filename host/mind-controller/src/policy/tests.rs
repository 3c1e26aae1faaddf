//! What plans consist of, and that they leave nothing behind.

use super::*;
use mind_api::message::RegionChange;
use mind_common::addr::Region;
use mind_machines::controller::procedure::Change;
use std::net::Ipv4Addr;

const DOMAIN: u32 = 5;

fn blade(number: u8) -> BladeId {
    BladeId::new(number).unwrap()
}

/// The process of the domain on that blade.
fn member(blade: u8) -> Member {
    Member { blade, pid: 100 }
}

/// Two compute blades with a process of the domain each, and a memory blade of 64 pages.
fn policy() -> Policy {
    let mut policy = Policy::new(64, 4);
    for (port, kind) in [
        (1, BladeKind::Compute),
        (2, BladeKind::Compute),
        (3, BladeKind::Memory),
    ] {
        let registration = Registration {
            kind,
            name: format!("port {port}"),
            address: Ipv4Addr::new(198, 18, 0, port as u8),
            mac: [2, 0, 0, 0, 0, port as u8],
            pages: 64,
        };
        policy.register(Port(port), registration).unwrap();
    }
    for number in 0..2 {
        let plan = policy.enter(blade(number), DOMAIN, 100).unwrap();
        assert_eq!(
            plan.steps,
            [Step::Grant {
                domain: DOMAIN,
                blade: blade(number)
            }]
        );
    }
    policy
}

fn position(steps: &[Step], test: impl Fn(&Step) -> bool) -> Option<usize> {
    steps.iter().position(test)
}

fn last_position(steps: &[Step], test: impl Fn(&Step) -> bool) -> Option<usize> {
    steps.iter().rposition(test)
}

#[test]
fn memory_is_zeroed_and_known_to_the_directory_before_anybody_may_touch_it() {
    let mut policy = policy();
    let plan = policy
        .map(blade(0), DOMAIN, 5 * PAGE, Access::Write)
        .unwrap();
    assert_eq!(plan.result.length, 5 * PAGE);
    assert!(matches!(plan.steps[0], Step::Zero(extent) if extent.pages() == 8));
    let published = last_position(&plan.steps, |step| matches!(step, Step::Publish { .. }));
    let protected = position(&plan.steps, |step| matches!(step, Step::Protect { .. }));
    assert!(published.unwrap() < protected.unwrap());
    assert_eq!(policy.status().slots_used, 2);
}

#[test]
fn nobody_may_touch_memory_before_it_is_flushed_and_it_is_free_only_after() {
    let mut policy = policy();
    let mapped = policy
        .map(blade(0), DOMAIN, 64 * PAGE, Access::Write)
        .unwrap()
        .result;
    let plan = policy
        .unmap(member(1), DOMAIN, mapped.va, mapped.length)
        .unwrap();
    let protected = last_position(&plan.steps, |step| matches!(step, Step::Protect { .. }));
    let freed = position(
        &plan.steps,
        |step| matches!(step, Step::Change(regions) if regions.change == Change::Free),
    );
    assert!(protected.unwrap() < freed.unwrap());
    assert_eq!(freed.unwrap() + 1, plan.steps.len());
    let error = policy
        .map(blade(0), DOMAIN, PAGE, Access::Read)
        .unwrap_err();
    assert_eq!(error.errno, Errno::ENOMEM, "the steps are not done yet");
    policy.finish(plan.given_up);
    assert_eq!(policy.status().slots_used, 0);
    let again = policy
        .map(blade(0), DOMAIN, 64 * PAGE, Access::Read)
        .unwrap();
    assert_eq!(again.result, mapped);
}

#[test]
fn errors_are_those_of_linux() {
    let mut policy = policy();
    let mapped = policy
        .map(blade(0), DOMAIN, 3 * PAGE, Access::Write)
        .unwrap()
        .result;
    let va = mapped.va;
    let inside = Va(va.0 + PAGE);
    let here = blade(0);
    let cases = [
        (
            policy.map(here, DOMAIN, 0, Access::Read).map(drop),
            Errno::EINVAL,
        ),
        (
            policy.map(here, DOMAIN, u64::MAX, Access::Read).map(drop),
            Errno::EFBIG,
        ),
        (
            policy.map(here, DOMAIN, 65 * PAGE, Access::Read).map(drop),
            Errno::ENOMEM,
        ),
        (
            policy.map(here, 6, PAGE, Access::Read).map(drop),
            Errno::ESRCH,
        ),
        (
            policy.unmap(member(0), DOMAIN, inside, PAGE).map(drop),
            Errno::EINVAL,
        ),
        (
            policy.unmap(member(0), DOMAIN, va, PAGE).map(drop),
            Errno::EINVAL,
        ),
        (
            policy.unmap(member(0), DOMAIN, va, u64::MAX).map(drop),
            Errno::EINVAL,
        ),
        (
            policy
                .protect(here, DOMAIN, Va(va.0 + 1), PAGE, Access::Read)
                .map(drop),
            Errno::EINVAL,
        ),
        (
            policy
                .protect(here, DOMAIN, va, u64::MAX, Access::Read)
                .map(drop),
            Errno::EINVAL,
        ),
        (
            policy
                .protect(here, DOMAIN, va, 4 * PAGE, Access::Read)
                .map(drop),
            Errno::ENOMEM,
        ),
        (
            policy.unlink_area(here, DOMAIN, "x").map(drop),
            Errno::ENOENT,
        ),
    ];
    for (number, (result, errno)) in cases.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().errno, errno, "case {number}");
    }
    assert!(policy.unmap(member(0), DOMAIN, va, 3 * PAGE - 1).is_ok());
}

#[test]
fn a_full_directory_gives_the_memory_back() {
    let mut policy = policy();
    policy.directory = Directory::new(1, 1);
    let error = policy
        .map(blade(0), DOMAIN, 8 * PAGE, Access::Read)
        .unwrap_err();
    assert_eq!(error.errno, Errno::ENOMEM);
    assert_eq!(policy.allocator.slice(0).unwrap().used(), 0);
}

#[test]
fn part_of_a_vma_can_be_protected_and_nothing_changes_twice() {
    let mut policy = policy();
    let mapped = policy
        .map(blade(0), DOMAIN, 4 * PAGE, Access::Write)
        .unwrap()
        .result;
    let middle = Va(mapped.va.0 + PAGE);
    let plan = policy
        .protect(blade(1), DOMAIN, middle, PAGE, Access::None)
        .unwrap();
    assert!(
        plan.steps
            .iter()
            .all(|step| matches!(step, Step::Protect { .. }))
    );
    assert_eq!(
        plan.steps.len(),
        3,
        "two entries come, one goes: {:?}",
        plan.steps
    );
    let plan = policy
        .protect(blade(1), DOMAIN, middle, PAGE, Access::None)
        .unwrap();
    assert_eq!(plan.steps, []);
}

#[test]
fn an_area_is_at_one_address_for_all_and_goes_with_its_name_and_its_last_user() {
    let mut policy = policy();
    let mut open = |number, length, open| {
        policy.open_area(member(number), DOMAIN, "ranks", length, Access::Write, open)
    };
    assert_eq!(
        open(0, PAGE, Open::Existing).unwrap_err().errno,
        Errno::ENOENT
    );
    let made = open(0, 2 * PAGE, Open::New).unwrap();
    assert!(!made.steps.is_empty());
    assert_eq!(open(1, PAGE, Open::New).unwrap_err().errno, Errno::EEXIST);
    assert_eq!(
        open(1, 3 * PAGE, Open::OrCreate).unwrap_err().errno,
        Errno::EINVAL
    );
    let opened = open(1, 0, Open::OrCreate).unwrap();
    assert_eq!((opened.result, opened.steps), (made.result, vec![]));

    let Mapped { va, length } = made.result;
    let unmap = |policy: &mut Policy, number| {
        let plan = policy.unmap(member(number), DOMAIN, va, length).unwrap();
        !plan.given_up.is_empty()
    };
    assert!(!unmap(&mut policy, 0));
    assert!(!unmap(&mut policy, 1), "it has its name");
    let plan = policy.unlink_area(blade(0), DOMAIN, "ranks").unwrap();
    assert_eq!(plan.given_up.len(), 1);
}

#[test]
fn a_process_that_ends_has_no_area_open_any_more() {
    let mut policy = policy();
    policy.enter(blade(0), DOMAIN, 101).unwrap().steps.clear();
    let second = Member { blade: 0, pid: 101 };
    let mut open = |member| {
        let plan = policy.open_area(member, DOMAIN, "x", PAGE, Access::Read, Open::OrCreate);
        plan.unwrap().result
    };
    let area = open(member(0));
    assert_eq!([open(second), open(second), open(member(1))], [area; 3]);
    let users = |policy: &Policy| policy.vmas(Va(0), 1).0[0].users;
    assert_eq!(users(&policy), 4);
    assert!(
        policy
            .exit(blade(0), DOMAIN, 101)
            .unwrap()
            .given_up
            .is_empty()
    );
    assert_eq!(users(&policy), 2);
    let others = policy.unmap(second, DOMAIN, area.va, area.length);
    assert_eq!(others.unwrap_err().errno, Errno::EINVAL);
    assert!(
        policy.evict(blade(1)).given_up.is_empty(),
        "it has its name"
    );
    assert_eq!(users(&policy), 1);
    let plan = policy.unlink_area(blade(0), DOMAIN, "x").unwrap();
    assert!(plan.given_up.is_empty(), "it has its last user");
    policy.enter(blade(0), DOMAIN, 102).unwrap().steps.clear();
    let plan = policy.exit(blade(0), DOMAIN, 100).unwrap();
    assert_eq!(plan.given_up.len(), 1);
}

#[test]
fn a_name_that_cannot_be_is_refused() {
    let mut policy = policy();
    let mut open = |name: &str| {
        let plan = policy.open_area(member(0), DOMAIN, name, PAGE, Access::Read, Open::New);
        plan.map(drop).map_err(|failure| failure.errno)
    };
    assert_eq!(open(""), Err(Errno::EINVAL));
    assert_eq!(open(&"x".repeat(256)), Err(Errno::ENAMETOOLONG));
    assert_eq!(open(&"x".repeat(255)), Ok(()));
}

#[test]
fn the_processes_of_a_lost_blade_are_gone_and_those_of_others_stay() {
    let mut policy = policy();
    policy.enter(blade(0), 6, 7).unwrap().steps.clear();
    let map = policy.map(blade(0), 6, PAGE, Access::Write).unwrap();
    assert_eq!(map.result.length, PAGE);
    let plan = policy.evict(blade(0));
    assert_eq!(plan.given_up.len(), 1, "domain 6 was on that blade only");
    let domains = policy.status().domains;
    assert_eq!(domains.len(), 1);
    assert_eq!((domains[0].domain, domains[0].processes), (DOMAIN, 1));
}

#[test]
fn a_domain_gives_everything_up_with_its_last_process() {
    let mut policy = policy();
    let map = policy.map(blade(0), DOMAIN, PAGE, Access::Write).unwrap();
    let area = policy
        .open_area(member(0), DOMAIN, "x", PAGE, Access::Read, Open::New)
        .unwrap();
    assert_ne!(map.result, area.result);
    let plan = policy.exit(blade(0), DOMAIN, 100).unwrap();
    assert_eq!(
        plan.steps,
        [Step::Revoke {
            domain: DOMAIN,
            blade: blade(0)
        }]
    );
    let plan = policy.exit(blade(1), DOMAIN, 100).unwrap();
    assert_eq!(plan.given_up.len(), 2);
    policy.finish(plan.given_up);
    let status = policy.status();
    assert_eq!((status.domains.len(), status.slots_used), (0, 0));
    assert!(policy.protection.is_empty());
    assert!(status.blades.iter().all(|blade| blade.allocated == 0));
}

#[test]
fn a_region_is_split_and_merged_within_its_vma_only() {
    let mut policy = policy();
    let map = |policy: &mut Policy, pages| {
        let plan = policy.map(blade(0), DOMAIN, pages * PAGE, Access::Write);
        plan.unwrap().result.va
    };
    let first = map(&mut policy, 4);
    let second = map(&mut policy, 4);
    assert_eq!(second.0, first.0 + 4 * PAGE, "they are neighbours");
    let outside = Va(first.0 + 64 * PAGE);
    let error = policy
        .change_region(outside, RegionChange::Reset)
        .unwrap_err();
    assert_eq!(error.errno, Errno::EFAULT);

    let merge = policy.change_region(first, RegionChange::Merge);
    assert_eq!(merge, Ok(None), "the other half is somebody else's");
    for (change, made, slots) in [
        (RegionChange::Split, false, 2),
        (RegionChange::Split, true, 3),
        (RegionChange::Merge, false, 3),
        (RegionChange::Merge, true, 2),
        (RegionChange::Reset, true, 2),
    ] {
        let regions = policy.change_region(first, change).unwrap().unwrap();
        policy.changed(&regions, made);
        assert_eq!(policy.status().slots_used, slots, "{change:?} {made}");
    }
}

#[test]
fn what_is_lost_is_on_the_books_until_it_is_unmapped() {
    let mut policy = policy();
    let domain = policy
        .enter_named(blade(0), "careful", 7, Some(OnLoss::Fail))
        .unwrap()
        .result;
    let mapped = policy
        .map(blade(0), domain, 8 * PAGE, Access::Write)
        .unwrap()
        .result;
    let region = |page: u64| Region::containing(Va(mapped.va.0 + page * PAGE), 2).unwrap();
    assert_eq!(policy.on_loss(region(0)), OnLoss::Fail);
    for page in [4, 0] {
        let (owner, vma) = policy.note_loss(region(page), "c1").unwrap();
        assert_eq!((owner, vma.va()), (domain, mapped.va));
    }
    let losses = |policy: &Policy| -> Vec<_> {
        let domains = policy.status().domains;
        domains
            .into_iter()
            .flat_map(|domain| domain.losses)
            .collect()
    };
    let [loss] = &losses(&policy)[..] else {
        panic!("one vma has lost something");
    };
    assert_eq!((loss.regions, loss.last), (2, mapped.va.0));
    assert_eq!((loss.va, &loss.blade[..]), (mapped.va.0, "c1"));
    let _ = policy
        .unmap(member(0), domain, mapped.va, mapped.length)
        .unwrap();
    assert_eq!(losses(&policy), []);
    assert_eq!(policy.note_loss(region(0), "c1"), None);
}
