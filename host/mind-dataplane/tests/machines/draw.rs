//! Random packets, mostly for addresses, blades and domains of the tables.

use mind_common::{
    addr::{MAX_REGION_ORDER, PAGE_SHIFT, Region, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::{Source, Target, Want, Word},
    id::{BladeId, BladeSet, DomainId},
    refusal::Refusal,
    serial::{Episode, Seq, Version},
    wire::{Atomic, Cost, Invalidation, Syndrome},
};
use mind_machines::datagram::{Body, PageRequest};

use crate::frames::{Bytes, blade};

/// Compute blades that can be there.
pub const BLADES: u8 = 4;
/// Pages that most packets are about, from the window's beginning.
pub const PAGES: u64 = 48;

/// One of them.
pub fn one_of<T: Copy>(random: &mut fastrand::Rng, all: &[T]) -> T {
    all[random.usize(..all.len())]
}

/// Whether something happens that does one time in `times`.
pub fn once_in(random: &mut fastrand::Rng, times: u32) -> bool {
    random.u32(..times) == 0
}

/// The page with that number.
pub fn page(number: u64) -> Va {
    Va(WINDOW_BASE + (number << PAGE_SHIFT))
}

/// A blade, rarely one that is never there.
pub fn some_blade(random: &mut fastrand::Rng) -> BladeId {
    let strangers = u8::from(once_in(random, 8));
    blade(random.u8(..BLADES + strangers))
}

/// Some blades.
pub fn some_blades(random: &mut fastrand::Rng) -> BladeSet {
    match random.u32(..16) {
        0 => BladeSet::from_bits(random.u32(..)),
        1..6 => BladeSet::only(some_blade(random)),
        _ => BladeSet::from_bits(random.u32(..1 << BLADES)),
    }
}

/// An episode, of few, on both sides of where they wrap.
pub fn episode(random: &mut fastrand::Rng) -> Episode {
    Episode::new(one_of(random, &[0x00ff_ffff, 0, 1]))
}

/// A number of a request, of few.
pub fn seq(random: &mut fastrand::Rng) -> Seq {
    Seq::new(one_of(random, &[0, 1, 2, 0x00ff_ffff]))
}

/// A version, of few.
pub fn version(random: &mut fastrand::Rng) -> Version {
    Version::new(one_of(random, &[0, 1, 2, 3, 0x00ff_fffe, 0x00ff_ffff]))
}

/// An address: mostly a page of those that the tables are about.
pub fn address(random: &mut fastrand::Rng) -> Va {
    match random.u32(..32) {
        0 => Va(page(random.u64(..PAGES)).0 + random.u64(..4096)),
        1 => Va(random.u64(..)),
        2 => Va(WINDOW_BASE + (random.u64(..WINDOW_SIZE) & !0xfff)),
        3 => one_of(
            random,
            &[
                Va(WINDOW_BASE - 4096),
                Va(WINDOW_BASE + WINDOW_SIZE),
                Va(WINDOW_BASE + WINDOW_SIZE - 4096),
            ],
        ),
        _ => page(random.u64(..PAGES)),
    }
}

/// A domain, rarely one that does not exist.
pub fn domain(random: &mut fastrand::Rng) -> DomainId {
    DomainId(one_of(
        random,
        &[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 1 << 20],
    ))
}

/// An invalidation: mostly the one that a page's slot says, if it says one.
fn invalidation(
    random: &mut fastrand::Rng,
    slot_of: impl Fn(Va) -> Option<(u32, Word, Region)>,
) -> Invalidation {
    let target = one_of(random, &[Target::Invalid, Target::Shared]);
    let source = one_of(random, &[Source::Grant, Source::Fetch, Source::Forward]);
    let mut wanted = address(random);
    for _ in 0..8 {
        if slot_of(wanted).is_some_and(|(_, word, _)| word.state().is_busy()) {
            break;
        }
        wanted = address(random);
    }
    let any = random.u8(..=MAX_REGION_ORDER);
    let known = slot_of(wanted).filter(|_| !once_in(random, 6));
    let (slot, requester, episode, order) = match known {
        Some((slot, word, region)) => {
            let slot = slot + u32::from(once_in(random, 16));
            (slot, word.requester(), word.episode(), region.order())
        }
        None => (random.u32(..4), some_blade(random), episode(random), any),
    };
    Invalidation {
        page: wanted,
        region: Region::containing(wanted, order).expect("an order of a region"),
        slot,
        episode,
        requester,
        target,
        source,
    }
}

/// What is operated.
pub fn atomic(random: &mut fastrand::Rng) -> Atomic {
    let number = random.u64(..3);
    if random.bool() {
        Atomic::FetchAdd { addend: number }
    } else {
        let expected = random.u64(..3);
        Atomic::CmpSwap {
            expected,
            new: number,
        }
    }
}

/// A message: of any kind, where `slot_of` says which slot a page has and what it holds.
pub fn body(
    random: &mut fastrand::Rng,
    slot_of: impl Fn(Va) -> Option<(u32, Word, Region)>,
) -> Body<Bytes> {
    let cost = Cost {
        dropped: random.u16(..),
        flushed: random.u16(..),
    };
    let page = PageRequest {
        page: address(random),
        domain: domain(random),
    };
    let syndrome = match one_of(random, &Refusal::ALL) {
        Refusal::Busy => Syndrome::Ack,
        refusal => Syndrome::Refused(refusal),
    };
    let version = version(random);
    match random.u32(..34) {
        0..12 => Body::Request {
            want: one_of(random, &[Want::Read, Want::Acquire, Want::Upgrade]),
            page,
        },
        12..16 => Body::Write {
            page,
            version,
            data: Bytes::drawn(random),
        },
        16..20 => {
            let aligned = random.u64(..512) * 8;
            let odd = u64::from(once_in(random, 16));
            Body::Atomic {
                va: Va(page.page.0.wrapping_add(aligned + odd)),
                domain: page.domain,
                operation: atomic(random),
            }
        }
        20..26 => Body::Answer {
            invalidation: invalidation(random, slot_of),
            cost,
            fetch: random.bool(),
        },
        26..29 => Body::Forward {
            invalidation: invalidation(random, slot_of),
            cost,
            version,
            data: Bytes::drawn(random),
        },
        29 => Body::ReadResponse {
            version,
            data: Bytes::drawn(random),
        },
        30 => Body::Acknowledge { syndrome, version },
        31 => Body::AtomicAcknowledge {
            syndrome,
            original: random.u64(..),
        },
        32 => Body::Invalidate(invalidation(random, slot_of)),
        _ => Body::FanOut {
            invalidation: invalidation(random, slot_of),
            pending: BladeSet::EMPTY,
        },
    }
}
