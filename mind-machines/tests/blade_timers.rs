//! What a compute blade does while no answer comes: it repeats the request, reports it as stuck,
//! and gives it up in the end; but it never gives up a write-back.

use mind_common::{
    addr::{Va, WINDOW_BASE},
    id::{BladeId, Connection, DomainId},
    refusal::Refusal,
    serial::Version,
};
use mind_machines::{
    compute::{Access, Action, Blade, Config},
    datagram::{Body, Datagram, Envelope, PageRequest},
};

const SECOND: u64 = 1_000_000_000;
const PAGE: PageRequest = PageRequest {
    page: Va(WINDOW_BASE),
    domain: DomainId(7),
};

fn config() -> Config {
    let connection = Connection {
        blade: BladeId::new(3).expect("3 is a blade"),
        incarnation: 1,
    };
    Config::new(connection, 16)
}

/// Polls the blade whenever it wants to be, until `end`; what it did, and when.
fn wait(blade: &mut Blade, end: u64) -> Vec<(u64, Action)> {
    let mut happened = Vec::new();
    while let Some(now) = blade.next_deadline().filter(|at| *at <= end) {
        let mut actions = Vec::new();
        blade.poll(now, &mut actions);
        happened.extend(actions.into_iter().map(|action| (now, action)));
    }
    happened
}

fn times(happened: &[(u64, Action)], which: impl Fn(&Action) -> bool) -> Vec<u64> {
    let of = happened.iter().filter(|(_, action)| which(action));
    of.map(|(at, _)| *at).collect()
}

fn is_send(action: &Action) -> bool {
    matches!(action, Action::Send(_))
}

fn is_report(action: &Action) -> bool {
    matches!(action, Action::ReportStuck { page } if *page == PAGE)
}

#[test]
fn a_request_is_repeated_reported_stuck_and_given_up() {
    let mut blade = Blade::new(config());
    let mut actions = Vec::new();
    blade.fault(1, PAGE, Access::Read, &mut actions);
    assert!(matches!(actions[..], [Action::Send(_)]));
    let happened = wait(&mut blade, 60 * SECOND);

    let sent = times(&happened, is_send);
    let pauses: Vec<_> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = config().timeout.most;
    assert!(pauses[0] < longest / 2, "the first repeat comes soon");
    assert!(pauses.iter().all(|pause| *pause <= longest * 9 / 8));
    let limit = (config().deadline / longest) as usize;
    assert!(sent.len() > limit * 8 / 9 && sent.len() < limit * 2);

    let reported_at = times(&happened, is_report);
    assert_eq!(reported_at.len(), 4);
    for (number, at) in reported_at.iter().enumerate() {
        let earliest = (number as u64 + 1) * SECOND;
        assert!(
            (earliest..earliest + SECOND / 2).contains(at),
            "{reported_at:?}"
        );
    }

    let (at, last) = happened.last().expect("something happened");
    let given_up = Action::Fail {
        page: PAGE,
        access: Access::Read,
        refusal: Refusal::Unreachable,
    };
    assert_eq!(*last, given_up);
    assert!((config().deadline..config().deadline + SECOND / 5).contains(at));
    let counters = blade.counters();
    assert_eq!((counters.reported_stuck, counters.expired), (4, 1));
    assert!(blade.is_quiet() && blade.next_deadline().is_none());
}

#[test]
fn a_request_that_stays_busy_is_reported_stuck_and_waits_as_long_as_the_switch_says_so() {
    let mut blade = Blade::new(config());
    let mut actions = Vec::new();
    blade.fault(1, PAGE, Access::Write, &mut actions);
    let busy_until = 3 * config().deadline;
    let (mut now, mut reports) = (1, 0);
    while now < busy_until {
        let sent = actions.iter().find_map(|action| match action {
            Action::Send(datagram) => Some(datagram.envelope),
            _ => None,
        });
        let envelope = sent.expect("it asks again");
        let refused = Body::Acknowledge {
            syndrome: mind_common::wire::Syndrome::Refused(Refusal::Busy),
            version: Version::default(),
        };
        actions.clear();
        // The answer comes at once.
        blade.receive(
            now,
            Datagram {
                envelope,
                body: refused,
            },
            &mut actions,
        );
        assert_eq!(actions, []);
        now = blade.next_deadline().expect("it pauses");
        blade.poll(now, &mut actions);
        reports += actions.iter().filter(|action| is_report(action)).count() as u64;
    }
    let seconds = busy_until / SECOND;
    assert!((seconds - 1..=seconds).contains(&reports), "{reports}");
    assert_eq!(blade.counters().expired, 0);

    // From now on nothing is heard.
    let happened = wait(&mut blade, u64::MAX);
    let (at, last) = happened.last().expect("something happened");
    assert!(matches!(last, Action::Fail { .. }), "{last:?}");
    let limit = busy_until + config().deadline;
    assert!((limit..limit + SECOND / 5).contains(at), "{at}");
    assert_eq!(blade.counters().expired, 1);
}

#[test]
fn a_write_back_is_never_given_up() {
    let mut blade = Blade::new(config());
    let mut actions = Vec::new();
    blade.fault(1, PAGE, Access::Write, &mut actions);
    let Some(Action::Send(Datagram { envelope, .. })) = actions.first() else {
        panic!("a fault asks: {actions:?}");
    };
    let body = Body::ReadResponse {
        version: Version::new(4),
        data: (),
    };
    let envelope: Envelope = *envelope;
    actions.clear();
    blade.receive(1000, Datagram { envelope, body }, &mut actions);
    let range = PAGE.page.0..PAGE.page.0 + mind_common::addr::PAGE_SIZE as u64;
    blade.flush(SECOND, range, None, 9, &mut actions);
    let happened = wait(&mut blade, 600 * SECOND);
    assert!(!blade.is_quiet());
    assert_eq!(times(&happened, is_report), []);
    assert_eq!(times(&happened, |action| !is_send(action)), []);
    let is_write_back = |action: &Action| {
        matches!(action, Action::Send(Datagram { body: Body::Write { page, version, .. }, .. })
            if *page == PAGE && *version == Version::new(5))
    };
    assert!(times(&happened, is_write_back).len() > 5000);
}
