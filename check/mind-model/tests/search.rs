//! The quick settings, searched to their ends: everything holds in every state that they can reach.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use mind_model::{
    search::search,
    settings::{Named, QUICK},
};

/// Settings that are searched at the same time.
const WORKERS: usize = 2;

#[test]
fn everything_holds_in_every_state_of_the_quick_settings() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(named) = QUICK.get(next.fetch_add(1, Ordering::Relaxed)) {
            everything_holds(named);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().expect("everything holds");
        }
    });
}

fn everything_holds(named: &Named) {
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
