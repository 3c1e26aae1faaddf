//! Threads of two domains fault at one address of a compute blade: each gets what its own domain is
//! permitted, in whichever order they come.

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

const OWNER: PageRequest = PageRequest {
    page: Va(WINDOW_BASE),
    domain: DomainId(7),
};
const STRANGER: PageRequest = PageRequest {
    domain: DomainId(8),
    ..OWNER
};
const PAGE: Body<()> = Body::ReadResponse {
    version: Version::new(4),
    data: (),
};
const DENIED: Body<()> = Body::Acknowledge {
    syndrome: Syndrome::Refused(Refusal::Denied),
    version: Version::new(0),
};

fn blade() -> Blade {
    let connection = Connection {
        blade: BladeId::new(3).expect("3 is a blade"),
        incarnation: 1,
    };
    Blade::new(Config::new(connection, 16))
}

fn fault(blade: &mut Blade, page: PageRequest, access: Access) -> Vec<Action> {
    let mut out = Vec::new();
    blade.fault(1, page, access, &mut out);
    out
}

fn answer(blade: &mut Blade, to: Envelope, answer: Body<()>) -> Vec<Action> {
    let mut out = Vec::new();
    blade.receive(
        2,
        Datagram {
            envelope: to,
            body: answer,
        },
        &mut out,
    );
    out.retain(|action| !matches!(action, Action::Served { .. }));
    out
}

/// The one request in `actions`, which must be for that page of that domain.
fn request(actions: &[Action], of: PageRequest) -> Envelope {
    let mut requests = actions.iter().filter_map(|action| match action {
        Action::Send(Datagram {
            envelope,
            body: Body::Request { page, .. },
        }) if *page == of => Some(*envelope),
        _ => None,
    });
    let envelope = requests.next().expect("a request should be sent");
    assert_eq!(requests.next(), None);
    envelope
}

fn failed(page: PageRequest, access: Access) -> Action {
    let refusal = Refusal::Denied;
    Action::Fail {
        page,
        access,
        refusal,
    }
}

#[test]
fn an_owner_is_not_denied_because_another_domain_asked_first() {
    let mut blade = blade();
    let first = request(&fault(&mut blade, STRANGER, Access::Read), STRANGER);
    assert_eq!(fault(&mut blade, OWNER, Access::Read), []);
    assert_eq!(fault(&mut blade, OWNER, Access::Write), []);
    assert!(!blade.is_quiet());

    let out = answer(&mut blade, first, DENIED);
    assert!(out.contains(&failed(STRANGER, Access::Read)), "{out:?}");
    let second = request(&out, OWNER);
    let installed = Action::Install {
        page: OWNER,
        writable: true,
    };
    assert_eq!(answer(&mut blade, second, PAGE), [installed]);
    assert!(blade.is_quiet());
}

#[test]
fn another_domain_is_denied_once_the_owner_has_the_page() {
    let mut blade = blade();
    let first = request(&fault(&mut blade, OWNER, Access::Read), OWNER);
    assert_eq!(fault(&mut blade, STRANGER, Access::Write), []);
    let installed = Action::Install {
        page: OWNER,
        writable: false,
    };
    let denied = failed(STRANGER, Access::Write);
    assert_eq!(answer(&mut blade, first, PAGE), [installed, denied]);
    assert_eq!(fault(&mut blade, STRANGER, Access::Write), [denied]);
    assert!(blade.is_quiet());
}
