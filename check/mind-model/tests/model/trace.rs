//! The table of a path says each step.

use mind_model::{model::Protocol, setting::Setting, trace::table};
use stateright::Model as _;

#[test]
fn every_step_has_a_row_that_says_where_it_was_and_what_the_directory_says_then() {
    let protocol = Protocol::new(Setting::SMALLEST);
    let mut state = protocol.init_states().remove(0);
    let mut path = Vec::new();
    for _ in 0..4 {
        let mut possible = Vec::new();
        protocol.actions(&state, &mut possible);
        // A read fault, and the steps that follow.
        let action = possible.remove(0);
        let next = protocol.next_state(&state, action.clone());
        path.push((state, Some(action)));
        state = next.expect("something happens");
    }
    path.push((state, None));
    let table = table(&path);
    let text = table.to_string();
    assert_eq!(table.row_count(), 4, "{text}");
    for part in ["c1", "Read fault p0", "Read p0 #1", "Shared {0}"] {
        assert!(text.contains(part), "{part} should be in\n{text}");
    }
}
