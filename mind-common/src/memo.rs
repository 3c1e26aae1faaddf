//! The copy of trie lookups that a directory slot keeps, so that the fast path need not search the
//! tries: what a protection domain may do with the slot's region, and where the region is stored.
//!
//! The tries stay the authority. A memo is written by a packet that searched them, and is valid
//! while nothing has changed since that concerns it. Numbers count such changes up, the generations:
//!
//! * that of the block, for every change of a translation entry that covers part of the block, and of the region of a slot
//!   in it;
//! * that of the domain, for every change of a protection entry of its.
//!
//! A memo has their sum. Neither ever counts down, so the sum is the same only if both are. There are [`GENERATIONS`] of
//! each kind: blocks, and domains, whose numbers have the same low bits share one, and cost each other their memos.
//!
//! # When a memo is valid
//!
//! A packet that searches the tries does so in this order: it reads the generations, reads the
//! slot's region, searches the tries, and writes the memo with the generations that it read. A
//! packet that uses a memo reads the memo, reads the slot's region, and reads the generations last,
//! which must be the memo's. So neither changed between the moment before the search
//! and the moment after the region was read, which means:
//!
//! * Every change of a trie that was complete when the memo is used was complete when the trie was
//!   searched, since its generation counts up *after* the change. A packet that is delayed between
//!   searching and writing leaves a memo of an old generation, which is not valid.
//! * The slot's region is the one for which the memo was written, since between two regions of a block a slot
//!   has none, and the block's generation counts up meanwhile. To another block a slot comes only when no packet can find
//!   it, and without a memo.
//!
//! The sum has so many bits that it never comes round: at a million changes a second, two
//! years. Should it outgrow its field, no memo is valid any more, and every packet searches the
//! tries.
//!
//! # What a memo may hold
//!
//! Only what holds for the region as a whole. A protection entry that covers the region does so
//! because the entries of one domain do not overlap at rest. Translation entries do, so the
//! smallest one that there ever was in the block is known ([`Generation::finest`]): a region that is no larger
//! than that lies in one entry as a whole.
//!
//! Only permission is kept; what is denied is denied by the trie.

use crate::{
    addr::{PAGE_SHIFT, Region, Va, WINDOW_BASE, WINDOW_SIZE},
    id::{DomainId, MAX_BLADES},
    table::{Generation, Permission, Protection, Translation},
};

/// Generations of blocks, and of domains: few enough to stay in a processor's first cache.
pub const GENERATIONS: u32 = 1024;

/// Bits of a permission class.
const CLASS_BITS: u32 = 2;
/// Bits of a protection domain. Domains with larger numbers get no memo.
const DOMAIN_BITS: u32 = 16;
/// Bits of the generations' sum in the first word.
const GENERATION_BITS: u32 = u64::BITS - CLASS_BITS - DOMAIN_BITS;

/// Bits of a memory blade's number.
const BLADE_BITS: u32 = 5;
/// Bits of a distance in pages, modulo the window's.
const DELTA_BITS: u32 = u32::BITS;
/// How many low bits of the block's generation go into the second word.
const STAMP_BITS: u32 = u64::BITS - BLADE_BITS - DELTA_BITS - 1;
/// Bit of the second word: it says where the region is stored.
const PLACED: u64 = 1 << (BLADE_BITS + DELTA_BITS);

const _: () = assert!(GENERATIONS.is_power_of_two());
const _: () = assert!(MAX_BLADES <= 1 << BLADE_BITS);
const _: () = assert!(WINDOW_SIZE >> PAGE_SHIFT == 1 << DELTA_BITS);

/// A memo: two words of a slot, as they are stored. All zeros: no memo.
///
/// The words are not written at once. The second is written first, so a reader that finds the first
/// valid reads the second of the same writer or of a later one; the second carries part of the block's
/// generation, since one of an earlier generation may be written late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memo {
    /// `sum of the generations 46 | domain 16 | class 2`
    pub permit: u64,
    /// `generation of the block 26 | placed 1 | distance in pages 32 | memory blade 5`
    pub place: u64,
}

/// The generations that a memo depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// The block's, and the smallest translation entry there.
    pub block: Generation,
    /// The domain's.
    pub domain: u64,
}

impl Current {
    /// What a memo of these generations has.
    #[inline(always)]
    const fn sum(&self) -> u64 {
        self.block.number.wrapping_add(self.domain)
    }
}

/// Which of the blocks' generations the block of `va` has.
#[inline(always)]
pub const fn generation_of_block(va: Va) -> u32 {
    va.block() as u32 & (GENERATIONS - 1)
}

/// Which of the domains' generations a domain has.
#[inline(always)]
pub const fn generation_of_domain(domain: DomainId) -> u32 {
    domain.0 & (GENERATIONS - 1)
}

/// Where an address is stored: at which offset of which memory blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The memory blade's number.
    pub blade: u32,
    /// The offset in its store, in bytes.
    pub offset: Va,
}

impl Memo {
    /// The memo of `protection` and `translation`, which the tries returned at the generations `current` or
    /// later for a page of `region` in `domain`; `None` if they do not hold for the region as a
    /// whole or do not fit.
    #[inline(always)]
    pub fn new(
        current: &Current,
        region: Region,
        domain: DomainId,
        protection: &Protection,
        translation: Option<&Translation>,
    ) -> Option<Self> {
        let number = current.sum();
        let shift = PAGE_SHIFT + region.order() as u32;
        let fits = domain.0 >> DOMAIN_BITS == 0 && number >> GENERATION_BITS == 0;
        if !fits || protection.shift < shift {
            return None;
        }
        let class = (protection.permission.bits & ((1 << CLASS_BITS) - 1)) as u64;
        let place = match translation {
            Some(entry) if current.block.finest >= shift => {
                Self::pack_place(current.block.number, region, entry)
            }
            _ => 0,
        };
        Some(Self {
            permit: Self::subject(number, domain) | class,
            place,
        })
    }

    /// The first word without the class.
    #[inline(always)]
    const fn subject(number: u64, domain: DomainId) -> u64 {
        number << (DOMAIN_BITS + CLASS_BITS) | (domain.0 as u64) << CLASS_BITS
    }

    #[inline(always)]
    const fn pack_place(number: u64, region: Region, entry: &Translation) -> u64 {
        let first = region.base();
        let offset = entry.apply(first).0;
        let fits = offset & ((1 << PAGE_SHIFT) - 1) == 0
            && offset <= WINDOW_SIZE - region.size()
            && entry.blade >> BLADE_BITS == 0;
        if !fits {
            return 0;
        }
        let delta = ((offset >> PAGE_SHIFT) as u32).wrapping_sub(window_page(first));
        number << (u64::BITS - STAMP_BITS)
            | PLACED
            | (delta as u64) << BLADE_BITS
            | entry.blade as u64
    }

    /// Whether it says that `domain` may do `class`, and is valid at the generations `current`.
    #[inline(always)]
    pub const fn allows(&self, current: &Current, domain: DomainId, class: u32) -> bool {
        let generation = current.sum();
        let permission = Permission {
            bits: self.permit as u32 & ((1 << CLASS_BITS) - 1),
        };
        let known = self.permit >> CLASS_BITS == Self::subject(generation, domain) >> CLASS_BITS;
        // What does not fit would be cut off, and pass for something else.
        let fits = domain.0 >> DOMAIN_BITS == 0 && generation >> GENERATION_BITS == 0;
        known && fits && permission.allows(class)
    }

    /// Where `va` is stored, if the memo says so; for a memo that is [valid](Self::allows) at
    /// the generations `current`.
    #[inline(always)]
    pub const fn location(&self, current: &Current, va: Va) -> Option<Location> {
        let stamped = current.block.number << (u64::BITS - STAMP_BITS) | PLACED;
        if (self.place ^ stamped) >> (BLADE_BITS + DELTA_BITS) != 0 {
            return None;
        }
        let page = window_page(va).wrapping_add((self.place >> BLADE_BITS) as u32);
        Some(Location {
            blade: self.place as u32 & ((1 << BLADE_BITS) - 1),
            offset: Va((page as u64) << PAGE_SHIFT | va.0 & ((1 << PAGE_SHIFT) - 1)),
        })
    }
}

/// Which page of the window `va`, an address there, is in.
#[inline(always)]
const fn window_page(va: Va) -> u32 {
    (va.0.wrapping_sub(WINDOW_BASE) >> PAGE_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        addr::{BLOCK_SHIFT, MAX_REGION_ORDER},
        table::{MAY_READ, MAY_WRITE},
    };
    use proptest::prelude::*;

    const DOMAIN: DomainId = DomainId(7);
    const NOW: u64 = 1000;
    const NOW_OF_DOMAIN: u64 = 77;
    const BOTH: u32 = MAY_READ | MAY_WRITE;

    fn at(block: u64, domain: u64) -> Current {
        let block = Generation {
            number: block,
            finest: 21,
            reserved: 0,
        };
        Current { block, domain }
    }

    fn now() -> Current {
        at(NOW, NOW_OF_DOMAIN)
    }

    fn region() -> Region {
        Region::containing(Va(WINDOW_BASE + 0x40_0000), 2).unwrap()
    }

    fn protection(bits: u32, shift: u32) -> Protection {
        Protection {
            permission: Permission { bits },
            shift,
        }
    }

    fn kept_at(blade: u8, offset: u64) -> Translation {
        Translation::new(blade, region().base(), offset)
    }

    fn memo(bits: u32) -> Memo {
        let entry = kept_at(3, 0x9000);
        Memo::new(
            &now(),
            region(),
            DOMAIN,
            &protection(bits, 20),
            Some(&entry),
        )
        .unwrap()
    }

    #[test]
    fn what_was_allowed_is_allowed_again() {
        assert!(memo(BOTH).allows(&now(), DOMAIN, MAY_READ));
        assert!(memo(BOTH).allows(&now(), DOMAIN, MAY_WRITE));
        assert!(memo(MAY_READ).allows(&now(), DOMAIN, MAY_READ));
        assert!(!memo(MAY_READ).allows(&now(), DOMAIN, MAY_WRITE));
    }

    #[test]
    fn a_slot_of_zeros_allows_nothing_and_is_nowhere() {
        let nothing = Memo::default();
        assert!(!nothing.allows(&at(0, 0), DomainId(0), MAY_READ));
        assert!(!nothing.allows(&at(0, 0), DomainId(0), MAY_WRITE));
        assert_eq!(nothing.location(&at(0, 0), region().base()), None);
    }

    #[test]
    fn a_memo_is_not_valid_in_another_domain() {
        for other in [0, 6, 8, DOMAIN.0 | 1 << 16, u32::MAX] {
            assert!(!memo(BOTH).allows(&now(), DomainId(other), MAY_READ));
        }
    }

    #[test]
    fn a_memo_is_not_valid_at_another_generation() {
        for other in [0, NOW - 1, NOW + 1, NOW | 1 << GENERATION_BITS, u64::MAX] {
            let of_block = at(other, NOW_OF_DOMAIN);
            assert!(!memo(BOTH).allows(&of_block, DOMAIN, MAY_READ));
        }
        for other in [NOW - 1, NOW + 1] {
            let of_block = at(other, NOW_OF_DOMAIN);
            assert_eq!(memo(BOTH).location(&of_block, region().base()), None);
        }
        for other in [0, NOW_OF_DOMAIN - 1, NOW_OF_DOMAIN + 1, u64::MAX] {
            let of_domain = at(NOW, other);
            assert!(!memo(BOTH).allows(&of_domain, DOMAIN, MAY_READ));
            assert!(memo(BOTH).location(&of_domain, region().base()).is_some());
        }
    }

    #[test]
    fn each_block_and_domain_has_a_generation() {
        for number in [0, 1, 1023, 1024, u64::from(u32::MAX) - 1] {
            let va = Va(WINDOW_BASE + (number << BLOCK_SHIFT));
            assert!(generation_of_block(va) < GENERATIONS);
            assert_eq!(
                generation_of_block(va),
                generation_of_block(Va(va.0 + 4096))
            );
            assert_ne!(
                generation_of_block(va),
                generation_of_block(Va(va.0 + (1 << BLOCK_SHIFT)))
            );
            assert!(generation_of_domain(DomainId(number as u32)) < GENERATIONS);
        }
    }

    #[test]
    fn what_does_not_fit_gets_no_memo() {
        let allowed = protection(BOTH, 20);
        let wide = DomainId(1 << DOMAIN_BITS);
        assert_eq!(Memo::new(&now(), region(), wide, &allowed, None), None);
        for late in [at(1 << GENERATION_BITS, 0), at(0, 1 << GENERATION_BITS)] {
            assert_eq!(Memo::new(&late, region(), DOMAIN, &allowed, None), None);
        }
    }

    #[test]
    fn an_entry_smaller_than_the_region_gets_no_memo() {
        let memo_of = |shift| Memo::new(&now(), region(), DOMAIN, &protection(BOTH, shift), None);
        assert_eq!(memo_of(12), None);
        assert_eq!(memo_of(13), None);
        assert!(memo_of(14).is_some());
    }

    #[test]
    fn a_place_gets_no_memo_where_a_smaller_entry_may_override_it() {
        let entry = kept_at(3, 0x9000);
        let placed = |finest| {
            let mut current = now();
            current.block.finest = finest;
            Memo::new(
                &current,
                region(),
                DOMAIN,
                &protection(BOTH, 20),
                Some(&entry),
            )
            .unwrap()
            .location(&now(), region().base())
        };
        assert_eq!(placed(13), None);
        assert!(placed(14).is_some());
    }

    #[test]
    fn a_place_that_does_not_fit_gets_no_memo() {
        let beyond = [
            kept_at(32, 0),
            kept_at(0, 0x1001),
            kept_at(0, WINDOW_SIZE),
            kept_at(0, WINDOW_SIZE - 0x1000),
            kept_at(0, u64::MAX - 0xfff),
        ];
        for entry in beyond {
            let memo = Memo::new(
                &now(),
                region(),
                DOMAIN,
                &protection(BOTH, 20),
                Some(&entry),
            );
            let memo = memo.unwrap();
            assert!(memo.allows(&now(), DOMAIN, MAY_READ));
            assert_eq!(memo.location(&now(), region().base()), None, "{entry:?}");
        }
    }

    /// What a packet, another one and the controller do at the same time, step by step: the order
    /// in which each does its own is the one that this file's text asks for.
    mod at_the_same_time {
        use super::*;
        use std::{collections::HashSet, vec::Vec};

        /// A page that may be written, and one that may not.
        const PAGES: [Va; 2] = [Va(WINDOW_BASE), Va(WINDOW_BASE + 0x10_0000)];

        /// Tries, tables and the slot; and what the two packets know.
        #[derive(Clone, Default, PartialEq, Eq, Hash)]
        struct World {
            /// The generations of both pages' block, and of the domain.
            block: u64,
            domain: u64,
            /// Whether each page may be written.
            writable: [bool; 2],
            /// Whether the table has the slot for each page.
            assigned: [bool; 2],
            /// Which page's region the slot is for.
            region: Option<usize>,
            memo: Memo,
            writer: Writer,
            reader: Reader,
        }

        /// A packet for the first page: searches the tries and writes the memo.
        #[derive(Clone, Default, PartialEq, Eq, Hash)]
        struct Writer {
            found: bool,
            block: u64,
            domain: u64,
            region: bool,
            allowed: bool,
        }

        /// A packet for one of the pages: uses the memo.
        #[derive(Clone, Default, PartialEq, Eq, Hash)]
        struct Reader {
            found: bool,
            /// Whether the page could be written when it came.
            was_writable: bool,
            memo: Memo,
            region: bool,
            block: u64,
        }

        type Step = fn(&mut World, usize);

        fn packed(block: u64, domain: u64) -> Memo {
            let region = Region::containing(PAGES[0], 2).unwrap();
            let entry = protection(BOTH, 20);
            Memo::new(&at(block, domain), region, DOMAIN, &entry, None).unwrap()
        }

        const WRITER: &[Step] = &[
            |world, _| world.writer.found = world.assigned[0],
            |world, _| world.writer.block = world.block,
            |world, _| world.writer.domain = world.domain,
            |world, _| world.writer.region = world.region == Some(0),
            |world, _| world.writer.allowed = world.writable[0],
            |world, _| {
                let Writer {
                    found,
                    block,
                    domain,
                    region,
                    allowed,
                } = world.writer;
                if found && region && allowed {
                    world.memo = packed(block, domain);
                }
            },
        ];

        const READER: &[Step] = &[
            |world, page| {
                world.reader.found = world.assigned[page];
                world.reader.was_writable = world.writable[page];
            },
            |world, _| world.reader.memo = world.memo,
            |world, page| world.reader.region = world.region == Some(page),
            |world, _| world.reader.block = world.block,
            |world, page| {
                let Reader {
                    found,
                    was_writable,
                    memo,
                    region,
                    block,
                } = world.reader;
                let current = at(block, world.domain);
                let used = found && region && memo.allows(&current, DOMAIN, MAY_WRITE);
                assert!(!used || was_writable, "page {page} must not be written");
            },
        ];

        /// The first page is mapped; then it is unmapped, and its slot becomes the other page's.
        const REUSE: &[Step] = &[
            |world, _| world.writable[0] = false,
            |world, _| world.domain += 1,
            |world, _| world.assigned[0] = false,
            |world, _| world.region = None,
            |world, _| world.block += 1,
            |world, _| world.region = Some(1),
            |world, _| world.assigned[1] = true,
        ];

        /// The slot becomes the other page's, and protection stays as it is.
        const MOVE: &[Step] = &[
            |world, _| world.assigned = [true; 2],
            |world, _| world.region = None,
            |world, _| world.block += 1,
            |world, _| world.region = Some(1),
            |world, _| world.assigned[0] = false,
        ];

        /// The slot was the other page's, and becomes the first one's.
        const MOVE_BACK: &[Step] = &[
            |world, _| world.region = None,
            |world, _| world.block += 1,
            |world, _| world.region = Some(0),
            |world, _| world.assigned[1] = false,
        ];

        /// The first page may no more be written, then again, then no more.
        const PROTECT: &[Step] = &[
            |world, _| world.writable[0] = false,
            |world, _| world.domain += 1,
            |world, _| world.writable[0] = true,
            |world, _| world.domain += 1,
            |world, _| world.writable[0] = false,
            |world, _| world.domain += 1,
        ];

        /// Runs the three in every order, each in its own; from the same state on once. Returns from how many.
        fn interleave(world: World, page: usize, rest: [&[Step]; 3]) -> usize {
            let mut seen = HashSet::new();
            let mut to_do = Vec::from([(world, rest)]);
            while let Some((world, rest)) = to_do.pop() {
                if !seen.insert((world.clone(), rest.map(<[Step]>::len))) {
                    continue;
                }
                for number in 0..rest.len() {
                    let mut rest = rest;
                    if let Some((step, after)) = rest[number].split_first() {
                        let mut world = world.clone();
                        step(&mut world, page);
                        rest[number] = after;
                        to_do.push((world, rest));
                    }
                }
            }
            seen.len()
        }

        fn mapped() -> World {
            World {
                writable: [true, false],
                assigned: [true, false],
                region: Some(0),
                ..World::default()
            }
        }

        #[test]
        fn a_slot_that_moves_takes_no_permission_along() {
            let back = World {
                assigned: [true; 2],
                region: Some(1),
                ..mapped()
            };
            for (world, controller) in [(mapped(), REUSE), (mapped(), MOVE), (back, MOVE_BACK)] {
                let states = interleave(world, 1, [WRITER, READER, controller]);
                assert!(states > 500, "{states}");
            }
        }

        #[test]
        fn a_change_that_is_complete_when_a_packet_comes_counts_for_it() {
            // The packet comes when the change is complete, the other one at any time.
            for after in [2, 6] {
                let (before, then) = PROTECT.split_at(after);
                let steps: Vec<Step> = before.iter().chain(READER).chain(then).copied().collect();
                interleave(mapped(), 0, [WRITER, &steps, &[]]);
            }
        }
    }

    proptest! {
        #[test]
        fn a_memo_says_what_the_entries_said(
            page in 0u64..1 << 32, order in 0..=MAX_REGION_ORDER, place in 0u64..1 << 32,
            blade in 0u8..32, number in 0u64..1 << GENERATION_BITS, domain in 0u32..1 << DOMAIN_BITS,
            bits in 0u32..4, class in 1u32..4, inside: u64,
        ) {
            let va = Va(WINDOW_BASE + (page << PAGE_SHIFT));
            let region = Region::containing(va, order).unwrap();
            let last = (WINDOW_SIZE - region.size()) >> PAGE_SHIFT;
            let entry = Translation::new(blade, region.base(), place.min(last) << PAGE_SHIFT);
            let current = at(number - number / 3, number / 3);
            let domain = DomainId(domain);
            let memo = Memo::new(&current, region, domain, &protection(bits, 21), Some(&entry)).unwrap();
            let va = Va(region.base().0 + inside % region.size());
            let expected = Location { blade: blade.into(), offset: entry.apply(va) };
            prop_assert_eq!(memo.location(&current, va), Some(expected));
            prop_assert_eq!(memo.allows(&current, domain, class), bits & class == class);
        }

        #[test]
        fn a_memo_is_valid_at_its_own_generation_in_its_own_domain_only(
            number in 0u64..1 << GENERATION_BITS, domain in 0u32..1 << DOMAIN_BITS,
            later: u64, other: u32,
        ) {
            let memo = Memo::new(&at(number, 0), region(), DomainId(domain), &protection(BOTH, 20), None).unwrap();
            let same = (later, other) == (number, domain);
            prop_assert_eq!(memo.allows(&at(later, 0), DomainId(other), MAY_READ), same);
        }
    }
}
