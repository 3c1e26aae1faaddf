//! A denial holds for threads that had faulted when the switch sent it: a thread that faults later
//! is not denied what its domain was permitted meanwhile.

use mind_common::{
    addr::{Va, WINDOW_BASE},
    id::{BladeId, Connection, DomainId},
    refusal::Refusal,
    serial::Version,
    wire::Syndrome,
};
use mind_machines::{
    compute::{Access, Action, Blade, Config},
    datagram::{Body, Datagram, Envelope, PageRequest},
};

const PAGE: PageRequest = PageRequest {
    page: Va(WINDOW_BASE),
    domain: DomainId(7),
};
const FAILED: Action = Action::Fail {
    page: PAGE,
    access: Access::Read,
    refusal: Refusal::Denied,
};

fn blade() -> Blade {
    let connection = Connection {
        blade: BladeId::new(3).expect("3 is a blade"),
        incarnation: 1,
    };
    Blade::new(Config::new(connection, 16))
}

fn read(blade: &mut Blade) -> Vec<Action> {
    let mut out = Vec::new();
    blade.fault(1, PAGE, Access::Read, &mut out);
    out
}

fn deny(blade: &mut Blade, request: Envelope) -> Vec<Action> {
    let mut out = Vec::new();
    let denied = Body::Acknowledge {
        syndrome: Syndrome::Refused(Refusal::Denied),
        version: Version::new(0),
    };
    blade.receive(
        2,
        Datagram {
            envelope: request,
            body: denied,
        },
        &mut out,
    );
    out
}

fn request(actions: &[Action]) -> Envelope {
    match actions {
        [
            Action::Send(Datagram {
                envelope,
                body: Body::Request { .. },
            }),
        ] => *envelope,
        other => panic!("a request should be sent, and nothing else done: {other:?}"),
    }
}

#[test]
fn a_thread_that_waits_alone_is_denied_at_once() {
    let mut blade = blade();
    let first = request(&read(&mut blade));
    assert_eq!(deny(&mut blade, first), [FAILED]);
    assert!(blade.is_quiet());
}

#[test]
fn for_a_thread_that_came_later_the_request_is_sent_again_once() {
    let mut blade = blade();
    let first = request(&read(&mut blade));
    assert_eq!(read(&mut blade), []);
    let second = request(&deny(&mut blade, first));
    assert_ne!(
        first.seq, second.seq,
        "a repeat of the first denial must not count"
    );
    assert_eq!(deny(&mut blade, first), []);
    assert_eq!(deny(&mut blade, second), [FAILED]);
    assert!(blade.is_quiet());
}
