//! What operators are told, and what the kernel is.

use mind_common::{
    id::Connection,
    trace::{KNOWS_VA, KNOWS_WORD},
    verdict::Verdict,
    wire::Opcode,
};
use mind_dataplane::{Switch, SwitchLimits};

use super::*;

fn record(blade: u8, va: u64, when: u64) -> Record {
    let connection = Connection {
        blade: BladeId::new(blade).unwrap(),
        incarnation: 1,
    };
    Record {
        when,
        va,
        qp: connection.to_qp(),
        opcode: Opcode::Acquire as u32,
        verdict: Verdict::Fetch as u32,
        known: KNOWS_BTH | KNOWS_VA,
        ..Record::default()
    }
}

fn range(va: u64, length: u64) -> AddressRange {
    AddressRange { va, length }
}

#[test]
fn several_ranges_are_wanted_without_what_is_between_them() {
    let wanted = Wanted::new(None, &[range(0x1000, 0x1000), range(0x5000, 0x1000)]);
    for (va, is_wanted) in [(0x1000, true), (0x3000, false), (0x5fff, true)] {
        let record = record(0, va, 0);
        assert_eq!(wanted.wants(&record), is_wanted, "{va:#x}");
        assert!(wanted.whole().wants(&record), "{va:#x}");
    }
    assert!(!wanted.whole().wants(&record(0, 0x6000, 0)));
}

#[test]
fn a_range_without_addresses_has_none() {
    let wanted = Wanted::new(None, &[range(0x1000, 0)]);
    assert!(!wanted.wants(&record(0, 0x1000, 0)));
    assert_eq!(wanted.whole(), Tracing::default());
    let last = Wanted::new(None, &[range(u64::MAX, u64::MAX)]);
    assert!(last.wants(&record(0, u64::MAX, 0)));
}

#[test]
fn an_operator_gets_what_it_wants_from_when_it_began() {
    let follower = Follower::new(Wanted::new(BladeId::new(1), &[]), 100);
    follower.note(&[record(1, 0, 99), record(0, 0, 100)], 0);
    assert_eq!(follower.take(), None);
    let mine = record(1, 0, 100);
    follower.note(&[mine, record(2, 0, 101)], 0);
    assert_eq!(follower.take(), Some((vec![mine], 0)));
    assert_eq!(follower.take(), None);
}

#[test]
fn what_an_operator_does_not_fetch_is_lost_and_counted() {
    let follower = Follower::new(Wanted::new(None, &[]), 0);
    let records = vec![record(0, 0, 1); WAITING + 5];
    follower.note(&records, 3);
    let mut count = 0;
    let mut lost = 0;
    while let Some((records, missing)) = follower.take() {
        assert!(records.len() <= MOST);
        count += records.len();
        lost += missing;
    }
    assert_eq!((count, lost), (WAITING, 8));
    // Nothing but a loss is told as well.
    follower.note(&[], 1);
    assert_eq!(follower.take(), Some((vec![], 1)));
}

/// A data plane that is attached nowhere; `None` where it cannot be loaded.
fn switch() -> Option<Switch> {
    if rustix::process::geteuid().is_root() {
        let limits = SwitchLimits {
            slots: 16,
            ..SwitchLimits::default()
        };
        return Some(Switch::load(&limits).unwrap());
    }
    assert!(std::env::var_os("CI").is_none(), "needs root");
    eprintln!("skipped: only root can load a data plane");
    None
}

#[test]
fn the_kernel_traces_what_somebody_wants_and_nothing_before_and_after() {
    let Some(switch) = switch() else { return };
    let mut control = switch.open_trace_control().unwrap();
    // As an earlier controller has left it.
    control.set(Tracing::EVERYTHING).unwrap();
    let opened = switch.open_trace_control().unwrap();
    let tracer = Tracer::start(switch.open_traces().unwrap(), opened).unwrap();
    assert_eq!(control.get().unwrap(), Tracing::default());
    let wanted = |blade, va| Wanted::new(BladeId::new(blade), &[range(va, 0x1000)]);
    let first = tracer.follow(wanted(1, 0x1000)).unwrap();
    let alone = Tracing {
        first: 0x1000,
        last: 0x1fff,
        on: 1,
        blade: 1,
    };
    assert_eq!(control.get().unwrap(), alone);
    let second = tracer.follow(wanted(2, 0x8000)).unwrap();
    let both = Tracing {
        last: 0x8fff,
        blade: EVERY_BLADE,
        ..alone
    };
    assert_eq!(control.get().unwrap(), both);
    drop(second);
    assert_eq!(control.get().unwrap(), alone);
    tracer.end();
    assert_eq!(control.get().unwrap(), Tracing::default());
    drop(first);
    assert_eq!(control.get().unwrap(), Tracing::default());
}

#[tokio::test]
async fn who_waits_is_told_when_there_is_something() {
    let Some(switch) = switch() else { return };
    let traces = switch.open_traces().unwrap();
    let tracer = Tracer::start(traces, switch.open_trace_control().unwrap()).unwrap();
    let following = tracer.follow(Wanted::new(None, &[])).unwrap();
    let follower = Arc::clone(&following.follower);
    let waiting = tokio::spawn(async move { following.next().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    follower.note(&[record(0, 0x1000, follower.since)], 0);
    let traced = waiting.await.unwrap();
    assert_eq!((traced.packets.len(), traced.lost), (1, 0));
    // And the operator has gone with its part.
    assert_eq!(lock(&tracer.0).all.len(), 0);
}

#[test]
fn an_answer_of_most_packets_fits_in_a_frame() {
    let record = Record {
        when: u64::MAX,
        va: u64::MAX,
        before: u64::MAX,
        after: u64::MAX,
        ifindex: u32::MAX,
        qp: u32::MAX,
        psn: u32::MAX,
        opcode: u8::MAX.into(),
        verdict: u32::MAX,
        known: KNOWS_BTH | KNOWS_VA | KNOWS_WORD,
    };
    let traced = Traced {
        packets: vec![told(&record, 0); MOST],
        lost: u64::MAX,
    };
    let body = Ok(mind_api::Reply::Traced(traced));
    let frame = mind_api::message::Frame::Reply { id: u64::MAX, body };
    mind_connection::frame::encode(&frame).unwrap();
}

#[test]
fn a_packet_is_told_with_the_time_of_day_and_without_what_it_had_not() {
    let full = told(&record(1, 0x1000, 5), 1_000);
    assert_eq!((full.when, full.va), (1_005, Some(0x1000)));
    assert_eq!(full.verdict, "fetch");
    assert_eq!(full.opcode, Some(Opcode::Acquire as u8));
    assert_eq!((full.before, full.after), (None, None));
    let foreign = Record {
        known: 0,
        verdict: Verdict::Foreign as u32,
        ..record(1, 0x1000, 5)
    };
    let foreign = told(&foreign, 0);
    assert_eq!(foreign.verdict, "foreign");
    assert_eq!(
        (foreign.opcode, foreign.qp, foreign.psn),
        (None, None, None)
    );
    assert_eq!(foreign.va, None);
}
