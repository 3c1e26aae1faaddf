//! Small settings, searched to their ends: everything holds in every state that they can reach.

use mind_model::{
    model::Protocol,
    setting::{Budget, Setting},
};
use stateright::{Checker, HasDiscoveries, Model};

fn search(setting: Setting) {
    let checker = Protocol::new(setting)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    assert!(checker.is_done(), "searched to the end");
    checker.assert_properties();
}

#[test]
fn two_blades_share_a_page() {
    search(Setting::SMALLEST);
}

#[test]
fn a_packet_is_lost() {
    let budget = Budget {
        losses: 1,
        ..Setting::SMALLEST.budget
    };
    search(Setting {
        budget,
        ..Setting::SMALLEST
    });
}
