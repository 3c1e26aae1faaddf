//! The quick settings, searched to their ends: everything holds in every state that they can reach.

use mind_model::{search::search, settings::QUICK};

#[test]
fn everything_holds_in_every_state_of_the_quick_settings() {
    for named in QUICK {
        let found = search(named);
        let of = named.name;
        if let Some(failure) = found.failures.first() {
            panic!(
                "{of}: {} does not hold; see cargo xtask model",
                failure.property
            );
        }
        assert!(found.is_complete, "{of}: searched to the end");
        assert!(found.states > 1000, "{of}: something happens");
        println!("{of}: {} states, {:?}", found.states, found.took);
    }
}
