//! Programs of two domains on one blade: what one tries with an address that is not its domain's
//! takes nothing from the other.

use mind_common::{
    addr::{Va, WINDOW_BASE},
    blade::{Access, Action, Blade, Config, Outgoing},
    directory::Want,
    id::{BladeId, Connection, DomainId},
    serial::Version,
    wire::{
        Message, Refusal, Syndrome,
        message::{Envelope, PageRequest},
    },
};

const OWNERS: PageRequest = PageRequest {
    page: Va(WINDOW_BASE),
    domain: DomainId(1),
};
const STRANGERS: PageRequest = PageRequest {
    page: Va(WINDOW_BASE),
    domain: DomainId(2),
};

fn blade() -> Blade {
    let connection = Connection {
        blade: BladeId::new(3).expect("3 is a blade"),
        incarnation: 1,
    };
    Blade::new(Config::new(connection, 16))
}

fn fault(blade: &mut Blade, page: PageRequest, access: Access) -> Vec<Action> {
    let mut actions = Vec::new();
    blade.fault(1, page, access, &mut actions);
    actions
}

fn receive(blade: &mut Blade, envelope: &Envelope, message: &Message<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    blade.receive(2, envelope, message, &mut actions);
    actions
}

/// The request that was sent, alone.
fn request(actions: &[Action], page: PageRequest, want: Want) -> Envelope {
    let [Action::Send { envelope, message }] = actions else {
        panic!("one request is sent, not {actions:?}");
    };
    assert_eq!(*message, Outgoing::Request { want, page });
    *envelope
}

const DENIED: Message<'_> = Message::Acknowledge {
    syndrome: Syndrome::Refused(Refusal::Denied),
    version: Version::new(0),
};

fn fails(page: PageRequest, access: Access) -> Action {
    let refusal = Refusal::Denied;
    Action::Fail {
        page,
        access,
        refusal,
    }
}

#[test]
fn who_comes_while_a_stranger_waits_is_served_after_it() {
    let mut blade = blade();
    let first = fault(&mut blade, STRANGERS, Access::Write);
    let first = request(&first, STRANGERS, Want::Acquire);
    assert_eq!(fault(&mut blade, OWNERS, Access::Read), []);
    assert!(!blade.is_quiet());
    let actions = receive(&mut blade, &first, &DENIED);
    assert_eq!(actions[0], fails(STRANGERS, Access::Write));
    let second = request(&actions[1..], OWNERS, Want::Read);
    let page = [0; 4096];
    let data = Message::ReadResponse {
        version: Version::new(1),
        data: &page,
    };
    let actions = receive(&mut blade, &second, &data);
    let installed = Action::Install {
        page: OWNERS,
        writable: false,
    };
    assert!(actions.contains(&installed), "{actions:?}");
    assert!(blade.is_quiet());
}

#[test]
fn a_stranger_that_comes_while_the_owner_waits_is_denied_what_comes() {
    let mut blade = blade();
    let first = fault(&mut blade, OWNERS, Access::Write);
    let first = request(&first, OWNERS, Want::Acquire);
    assert_eq!(fault(&mut blade, STRANGERS, Access::Read), []);
    let page = [0; 4096];
    let data = Message::ReadResponse {
        version: Version::new(1),
        data: &page,
    };
    let actions = receive(&mut blade, &first, &data);
    assert_eq!(actions.last(), Some(&fails(STRANGERS, Access::Read)));
    // At once, now that the page is there.
    let actions = fault(&mut blade, STRANGERS, Access::Write);
    assert_eq!(actions, [fails(STRANGERS, Access::Write)]);
    assert!(blade.is_quiet());
}
