//! What only happens when two processors work at the same time: another thread changes the mapped
//! tables while frames are sent, until the case has come up.

use mind_machines::datagram::Body;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use mind_common::{
    addr::{PAGE_SIZE, Va},
    directory::{State, Word},
    id::DomainId,
    refusal::Refusal,
    serial::{Episode, Version},
    table::PageTag,
    verdict::Verdict,
};
use mind_dataplane::harness::Packet;
use mind_machines::datagram::PageRequest;

use crate::world::{
    Expect as _, PAGE, SLOT, SWITCH, World, blade, blades, cases, memory, qp, read,
};

cases![
    a_word_that_changes_again_and_again_refuses,
    a_page_that_changes_while_it_is_read_is_torn,
];

/// How long to try. Each try takes a few microseconds, and many of them succeed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends the other thread, also when an assertion fails: the scope waits for it.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn a_word_that_changes_again_and_again_refuses(world: &mut World) {
    let stop = AtomicBool::new(false);
    let directory = world
        .bed
        .switch
        .open_directory()
        .expect("it can be mapped twice");
    thread::scope(|scope| {
        scope.spawn(|| {
            let slot = directory.slot(SLOT).expect("the slot is there");
            let mut episode = Episode::new(0);
            while !stop.load(Ordering::Relaxed) {
                episode = episode.next();
                let word = Word::new(State::Shared, blade(0), episode, blades([1]));
                let _ = slot.swap_word(slot.word(), word);
            }
        });
        let ended = Ended(&stop);
        let start = Instant::now();
        let seen = loop {
            let counted = world.send_often(0, &read(0, PAGE), 100_000);
            assert!(counted.of_verdict(Verdict::Fetch) > 0);
            if counted.of_verdict(Verdict::Contended) > 0 {
                break true;
            }
            if start.elapsed() > PATIENCE {
                break false;
            }
        };
        drop(ended);
        assert!(seen, "the word never changed often enough");
    });
}

fn a_page_that_changes_while_it_is_read_is_torn(world: &mut World) {
    let stop = AtomicBool::new(false);
    let store = world
        .bed
        .responder
        .open_store()
        .expect("it can be mapped twice");
    let request = PageRequest {
        page: Va(PAGE_SIZE as u64),
        domain: DomainId(0),
    };
    let packet = Packet::new(&Body::read(request), SWITCH, memory(0), qp(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = Version::new(0);
            while !stop.load(Ordering::Relaxed) {
                version = version.next();
                store
                    .set_tag(1, PageTag::settled(version))
                    .expect("the page is there");
            }
        });
        let ended = Ended(&stop);
        let start = Instant::now();
        let seen = loop {
            let run = world.serve(&packet);
            match run.verdict {
                Verdict::Torn => {
                    run.refused(SWITCH, Refusal::Busy);
                    break true;
                }
                verdict => assert_eq!(verdict, Verdict::Read),
            }
            if start.elapsed() > PATIENCE {
                break false;
            }
        };
        drop(ended);
        assert!(seen, "no page was changed while it was read");
    });
}
