//! Makes states that behave alike equal: what has no effect is removed, and numbers that only count
//! up are renamed.
//!
//! Sequence numbers of a blade's are compared for equality, and for order by memory where they
//! number atomic operations; a new one is after all others. So any renaming that keeps their order
//! changes nothing. Episodes are compared in the same way, and a slot counts them up by one: those
//! of a slot that is alone are renamed in order, too. Two slots count separately, and a packet for
//! one may come to the other after a split: there, all numbers are shifted together, their
//! distances unchanged. The controller's words are renamed with the slots'. Versions of a page are
//! compared with what memory has, and are one above it at most: versions further behind never
//! matter again.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use mind_common::{
    addr::Va,
    directory::{Origin, Word},
    id::BladeId,
    memory::Claim,
    serial::{Episode, Seq, Version},
};
use mind_machines::{Node, compute::model::Numbers, datagram::Body};
use rustc_hash::FxHasher;

use crate::{
    controller::{Message, OVER},
    operation::{FLUSH, is_of_operation},
    value::Value,
    world::{Flight, Position, STORED, World, number, page},
};

/// Versions this far behind memory's are all the same.
const BEHIND: i32 = 3;
const SEQ_BITS: u64 = 0x00ff_ffff;

/// Makes `world` canonical.
pub fn canonical(world: &mut World) {
    forget(world);
    renumber(world);
    let mut known = Known::default();
    visit(world, &mut known);
    let mut renaming = Renaming::of(world, known);
    visit(world, &mut renaming);
    for number in 0..1 << world.setting.order {
        let mut stored = world.memory.page(number);
        stored.version = Version::new(STORED);
        if number >= world.books.len() as u64 {
            // No program accesses it.
            stored.data = Value::default();
        }
        world.memory.set_page(number, stored);
    }
    world.network.sort_by_cached_key(key);
    world.network.dedup();
}

fn key(flight: &Flight) -> u64 {
    let mut hasher = FxHasher::default();
    flight.hash(&mut hasher);
    hasher.finish()
}

/// Whether a packet will have no effect when it arrives.
pub(crate) fn is_noise(world: &World, flight: &Flight) -> bool {
    let packet = &flight.packet;
    let slots = world.switch.slots();
    match (flight.position, &packet.body) {
        (Position::To(Node::Compute(to)), body) => {
            let Some(Some(host)) = world.hosts.get(usize::from(to.get())) else {
                return true;
            };
            let seq = packet.envelope.seq;
            // A blade ignores answers to requests that it does not have, and uses no number twice.
            host.blade.connection().to_qp() != packet.envelope.qp
                || !matches!(body, Body::Invalidate(_))
                    && !host.blade.has_request(seq)
                    && host.operation.is_none_or(|it| it.seq != seq)
        }
        (
            Position::From(_),
            Body::Answer { invalidation, .. } | Body::Forward { invalidation, .. },
        ) if slots.len() == 1 => {
            // Episodes of a slot never come back.
            let word = slots[0].word;
            !word.state().is_busy() || word.episode() != invalidation.episode
        }
        _ => false,
    }
}

fn forget(world: &mut World) {
    for host in world.hosts.iter_mut().flatten() {
        host.blade.normalize();
    }
    let mut network = std::mem::take(&mut world.network);
    network.retain(|flight| !is_noise(world, flight));
    world.network = network;
    let World {
        network, switch, ..
    } = world;
    for flight in &mut *network {
        if let Body::Acknowledge { version, .. } = &mut flight.packet.body {
            *version = Version::default();
        }
    }
    for index in 0..switch.slots().len() {
        if let Some(slot) = switch.slot_mut(index)
            && !slot.word.state().is_busy()
        {
            // An origin of another episode is ignored, and replaced in the next.
            slot.origin = Origin::new(Episode::default(), Seq::default(), Va(0));
        }
    }
}

/// Forgets what the controller remembers without effect, and numbers its operations and orders anew. The order of
/// messages to different agents has no meaning.
fn renumber(world: &mut World) {
    world.links.sort_by_key(|(session, _)| *session);
    if world.controller.is_untouched() {
        return;
    }
    let controller = Arc::make_mut(&mut world.controller);
    controller.normalize();
    let numbers = controller.renumber();
    let rename = |order: &mut u64| {
        if *order != FLUSH {
            *order = numbers.get(order).copied().unwrap_or(OVER);
        }
    };
    for (_, message) in &mut world.links {
        if let Message::Order(order, _) = message {
            rename(order);
        }
    }
    for host in world.hosts.iter_mut().flatten() {
        host.blade.visit_flushes(rename);
    }
}

/// Visits all numbers of `world` with `numbers`.
fn visit(world: &mut World, numbers: &mut impl Numbers) {
    for host in world.hosts.iter_mut().flatten() {
        host.blade.visit(numbers);
    }
    for flight in &mut world.network {
        let packet = &mut flight.packet;
        let of = match packet.body {
            Body::Invalidate(invalidation)
            | Body::Answer { invalidation, .. }
            | Body::Forward { invalidation, .. } => Some(invalidation.requester),
            _ => {
                let connection = mind_common::id::Connection::from_qp(packet.envelope.qp);
                connection.map(|connection| connection.blade)
            }
        };
        if let Some(of) = of {
            numbers.seq(of, &mut packet.envelope.seq);
        }
        match &mut packet.body {
            Body::Write { version, data, .. } | Body::ReadResponse { version, data } => {
                numbers.version(page(data.page), version);
            }
            Body::Forward {
                invalidation,
                version,
                data,
                ..
            } => {
                numbers.version(page(data.page), version);
                numbers.episode(invalidation.page, &mut invalidation.episode);
            }
            Body::Invalidate(invalidation) | Body::Answer { invalidation, .. } => {
                numbers.episode(invalidation.page, &mut invalidation.episode);
            }
            _ => {}
        }
    }
    for index in 0..world.switch.slots().len() {
        let Some(slot) = world.switch.slot_mut(index) else {
            continue;
        };
        let word = slot.word;
        let region = slot.region;
        if word.state().is_busy()
            && let Some(region) = region
            && let Some((mut seq, page)) = slot.origin.of(word.episode(), region)
        {
            let mut episode = word.episode();
            numbers.seq(word.requester(), &mut seq);
            numbers.episode(page, &mut episode);
            slot.origin = Origin::new(episode, seq, page);
        }
        slot.word = renamed(word, numbers);
    }
    let mut rename = |word: &mut Word| *word = renamed(*word, numbers);
    if !world.controller.is_idle() {
        Arc::make_mut(&mut world.controller).visit_words(&mut rename);
    }
    for blade in (0..world.hosts.len() as u8).filter_map(BladeId::new) {
        let mut operation = world.memory.operation(blade);
        let raw = operation.claim.raw();
        if raw != 0 {
            let mut seq = Seq::new(raw as u32);
            numbers.seq(blade, &mut seq);
            operation.claim = Claim::from_raw(raw & !SEQ_BITS | u64::from(seq.get()));
            world.memory.set_operation(blade, operation);
        }
    }
}

fn renamed(word: Word, numbers: &mut impl Numbers) -> Word {
    let mut episode = word.episode();
    numbers.episode(Va(0), &mut episode);
    word.with_episode(episode)
}

/// The numbers in a state.
#[derive(Default)]
struct Known {
    seqs: BTreeMap<(u8, u32), Seq>,
    episodes: BTreeMap<u32, Episode>,
}

impl Numbers for Known {
    fn seq(&mut self, of: BladeId, seq: &mut Seq) {
        if is_of_operation(*seq) {
            return;
        }
        self.seqs.insert((of.get(), seq.get()), *seq);
    }

    fn version(&mut self, _: Va, _: &mut Version) {}

    fn episode(&mut self, _: Va, episode: &mut Episode) {
        self.episodes.insert(episode.get(), *episode);
    }
}

struct Renaming {
    known: Known,
    stored: Vec<u32>,
}

impl Renaming {
    fn of(world: &World, mut known: Known) -> Self {
        let (mut last, mut next) = (None, 1);
        for ((of, _), new) in &mut known.seqs {
            if last.replace(*of) != Some(*of) {
                next = 1;
            }
            *new = Seq::new(next);
            next += 1;
        }
        let is_single = world.switch.slots().len() == 1;
        let first = known.episodes.keys().next().copied().unwrap_or(0);
        for (place, (old, new)) in (1..).zip(&mut known.episodes) {
            *new = Episode::new(if is_single { place } else { 1 + old - first });
        }
        let pages = 0..world.books.len() as u64;
        let stored = pages.map(|page| world.memory.page(page).version.get());
        Self {
            known,
            stored: stored.collect(),
        }
    }
}

impl Numbers for Renaming {
    fn seq(&mut self, of: BladeId, seq: &mut Seq) {
        if let Some(new) = self.known.seqs.get(&(of.get(), seq.get())) {
            *seq = *new;
        }
    }

    fn version(&mut self, of: Va, version: &mut Version) {
        if let Some(stored) = self.stored.get(usize::from(number(of))) {
            let ahead = version.get() as i32 - *stored as i32;
            *version = Version::new((STORED as i32 + ahead.max(-BEHIND)) as u32);
        }
    }

    fn episode(&mut self, _: Va, episode: &mut Episode) {
        if let Some(new) = self.known.episodes.get(&episode.get()) {
            *episode = *new;
        }
    }
}
