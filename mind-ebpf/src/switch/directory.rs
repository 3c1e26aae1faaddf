//! The directory: finding a page's slot, its memo, and taking its word from one state to the next.
//!
//! Every step reads the word first, then the region, and only then swaps the word: the controller
//! locks a slot before it gives it to another region, which begins an episode, so a step that read
//! the old region finds another word when it swaps.

use mind_common::{
    addr::{Region, Va},
    directory::{
        Answer, AnswerVerdict, Invalidations, Origin, Queue, Request, RequestVerdict, Transition,
        Word, admit,
        index::{
            Head,
            opening::{self, Entries, Finding},
        },
        machine::on_answer,
    },
    id::DomainId,
    memo::{self, Current, Location, Memo},
    serial::Seq,
    stop,
    table::{Generation, Protection, Slot, Translation},
    verdict::{Staged, Stop, Verdict},
    wire::Cost,
};

use crate::{atomics, maps, trace};

/// A slot of the directory: a pointer into its map, where other processors and the controller
/// work at the same time.
#[derive(Clone, Copy)]
pub struct SlotRef(*mut Slot);

/// What the page at `va` finds in the [index](mind_common::directory::index): its slot's number, 0 for none, or
/// [`CLOSED`](mind_common::directory::index::CLOSED).
///
/// Apart from the slot, and not optional: a number beside the pointer in one `Option` is compiled
/// to a register that nothing was written to where there is none, which the verifier refuses.
#[inline(always)]
pub fn number(va: Va) -> u32 {
    opening::find(&Index, va)
}

/// The directory's index, in the program's maps.
pub struct Index;

impl Entries for Index {
    type EntryAt = *mut u32;

    #[inline(always)]
    fn unit_at(&self, table: u32, unit: usize) -> Option<*mut u32> {
        let table = maps::TABLES.get_ptr_mut(table)?;
        // SAFETY: the pointer is a lookup's, and a unit's place in its block is below their number.
        Some(unsafe { (&raw mut (*table)[0]).add(unit) })
    }

    #[inline(always)]
    fn page_at(&self, group: u32, page: usize) -> Option<*mut u32> {
        let group = maps::GROUPS.get_ptr_mut(group)?;
        // SAFETY: likewise, a page's place in its unit.
        Some(unsafe { (&raw mut (*group)[0]).add(page) })
    }

    #[inline(always)]
    fn entry(&self, at: *mut u32) -> u32 {
        // SAFETY: the pointer is a lookup's.
        unsafe { atomics::load(at) }
    }
}

impl Finding for Index {
    type HeadAt = *mut u64;

    #[inline(always)]
    fn head_of(&self, va: Va) -> Option<*mut u64> {
        // SAFETY: the value is one aligned word, which is replaced at once if at all.
        let number = unsafe { maps::BLOCKS.get(va.block()) }?;
        maps::HEADS.get_ptr_mut(*number)
    }

    #[inline(always)]
    fn head(&self, at: *mut u64) -> Head {
        // SAFETY: the pointer is a lookup's.
        Head::from_raw(unsafe { atomics::load(at) })
    }
}

/// The slot of that number.
#[inline(always)]
pub fn slot(number: u32) -> Option<SlotRef> {
    if number == 0 {
        return None;
    }
    maps::SLOTS.get_ptr_mut(number).map(SlotRef)
}

/// The current generations of a domain and of the block of `va`. The numbers are read first: what else is known of
/// translation holds for that number or for a later one.
#[inline(always)]
pub fn current(domain: DomainId, va: Va) -> Option<Current> {
    let at = maps::BLOCK_GENERATIONS.get_ptr(memo::generation_of_block(va))?;
    let domain = maps::DOMAIN_GENERATIONS.get_ptr(memo::generation_of_domain(domain))?;
    // SAFETY: the pointers are lookups'.
    unsafe {
        Some(Current {
            domain: atomics::load(domain),
            block: Generation {
                number: atomics::load(&raw const (*at).number),
                finest: atomics::load(&raw const (*at).finest),
                reserved: 0,
            },
        })
    }
}

/// Notes that pages of a slot's region were falsely invalidated.
#[inline(always)]
fn note_invalidated(slot: u32) {
    let bit = 1 << (slot % u64::BITS);
    if let Some(at) = maps::INVALIDATED.get_ptr_mut(slot / u64::BITS) {
        // SAFETY: the pointer is a lookup's.
        unsafe {
            // Mostly it is noted, by another processor as well.
            if atomics::load(at) & bit == 0 {
                atomics::set(at, bit);
            }
        }
    }
}

impl SlotRef {
    /// `Some` if the slot's memo is valid and says that `domain` may do `class` with `va`; with
    /// where `va` is stored, if the memo says that as well.
    ///
    /// Memo, region, generations, in this order (see [`mind_common::memo`]). Loads stay in order on
    /// x86; a processor that swaps them would need a barrier after each of the first two.
    #[inline(always)]
    pub fn memo_of(self, domain: DomainId, va: Va, class: u32) -> Option<Option<Location>> {
        // SAFETY: the pointer is a lookup's.
        let memo = unsafe {
            Memo {
                permit: atomics::load(&raw const (*self.0).permit),
                place: atomics::load(&raw const (*self.0).place),
            }
        };
        self.region(va)?;
        let current = current(domain, va)?;
        memo.allows(&current, domain, class)
            .then(|| memo.location(&current, va))
    }

    /// Writes the memo of what the tries returned; `current` was read before they were searched.
    #[inline(always)]
    pub fn write_memo(
        self,
        current: &Current,
        region: Region,
        domain: DomainId,
        protection: &Protection,
        translation: Option<&Translation>,
    ) {
        if let Some(memo) = Memo::new(current, region, domain, protection, translation) {
            // SAFETY: the pointer is a lookup's. The place is written first, because a reader that
            // finds the permit valid reads it.
            unsafe {
                (&raw mut (*self.0).place).write_volatile(memo.place);
                (&raw mut (*self.0).permit).write_volatile(memo.permit);
            }
        }
    }

    #[inline(always)]
    fn word(self) -> Word {
        // SAFETY: the pointer is a lookup's.
        Word::from_raw(unsafe { atomics::load(&raw const (*self.0).word) })
    }

    #[inline(always)]
    fn swap_word(self, old: Word, new: Word) -> bool {
        // SAFETY: the pointer is a lookup's.
        unsafe { atomics::swap(&raw mut (*self.0).word, old.raw(), new.raw()) }
    }

    #[inline(always)]
    fn queue(self) -> Queue {
        // SAFETY: the pointer is a lookup's.
        Queue::from_raw(unsafe { atomics::load(&raw const (*self.0).queue) })
    }

    /// A hint: where another processor has changed it meanwhile, this change is lost.
    #[inline(always)]
    fn swap_queue(self, old: Queue, new: Queue) {
        // SAFETY: the pointer is a lookup's.
        let _ = unsafe { atomics::swap(&raw mut (*self.0).queue, old.raw(), new.raw()) };
    }

    /// The slot's region, if `va` is in it.
    #[inline(always)]
    pub fn region(self, va: Va) -> Option<Region> {
        Slot::region_with(self.raw_region(), va)
    }

    /// The slot's region as it stands there.
    #[inline(always)]
    pub fn raw_region(self) -> u64 {
        // SAFETY: the pointer is a lookup's.
        unsafe { atomics::load(&raw const (*self.0).region) }
    }

    #[inline(always)]
    fn origin(self) -> Origin {
        // SAFETY: the pointer is a lookup's.
        Origin::from_raw(unsafe { atomics::load(&raw const (*self.0).origin) })
    }

    /// A request for the page at `va`: what to do, its region, and the transition if it is granted.
    #[inline(always)]
    pub fn request(self, va: Va, request: Request) -> Staged<(RequestVerdict, Region, Transition)> {
        for _ in atomics::tries() {
            let word = self.word();
            let region = self.region(va).ok_or(stop!(Moved))?;
            let queue = self.queue();
            let step = admit(word, queue, request);
            if step.next.raw() == word.raw() || self.swap_word(word, step.next) {
                if step.queue.raw() != queue.raw() {
                    self.swap_queue(queue, step.queue);
                }
                trace::change(word, step.next);
                return Ok((step.verdict, region, Transition::between(word, step.next)));
            }
        }
        Err(stop!(Contended))
    }

    /// An answer to an invalidation for the page at `va`, where this is the page's slot, number
    /// `number`, and what the invalidation cost the blade: what to do, and the transition if it was
    /// the last answer.
    #[inline(always)]
    pub fn answer(
        self,
        number: u32,
        va: Va,
        answer: Answer,
        cost: Cost,
    ) -> Staged<(AnswerVerdict, Transition)> {
        for _ in atomics::tries() {
            let word = self.word();
            if self.region(va).is_none() {
                return Err(stop!(StaleAnswer));
            }
            let step = on_answer(number, word, answer);
            if matches!(step.verdict, AnswerVerdict::Stale) {
                return Err(stop!(StaleAnswer));
            }
            if self.swap_word(word, step.next) {
                self.charge(number, cost);
                trace::change(word, step.next);
                return Ok((step.verdict, Transition::between(word, step.next)));
            }
        }
        // An answer cannot be refused like a request; the requester's retry makes the switch ask
        // for it again.
        Err(Stop::Drop(Verdict::Contended))
    }

    /// The word, for a packet that does not change it.
    #[inline(always)]
    pub fn look(self, va: Va) -> Staged<Word> {
        let word = self.word();
        if self.region(va).is_none() {
            return Err(stop!(Moved));
        }
        trace::change(word, word);
        Ok(word)
    }

    /// The request that began the invalidations in `order` of `region`: the request at hand, for
    /// `page` and with number `seq`, or for repeated ones the origin that was noted.
    #[inline(always)]
    pub fn origin_of(
        self,
        invalidations: &Invalidations,
        region: Region,
        page: Va,
        seq: Seq,
    ) -> Staged<(Seq, Va)> {
        if invalidations.repeated {
            return self
                .origin()
                .of(invalidations.episode, region)
                .ok_or(stop!(NoOrigin));
        }
        self.note(Origin::new(invalidations.episode, seq, page));
        // SAFETY: the pointer is a lookup's.
        unsafe { atomics::add(&raw mut (*self.0).invalidations, 1) };
        Ok((seq, page))
    }

    /// Notes `origin`, unless that of a later episode is there: a processor that is delayed between
    /// swapping the word and getting here must not overwrite what came after.
    #[inline(always)]
    fn note(self, origin: Origin) {
        for _ in atomics::tries() {
            let there = self.origin();
            // SAFETY: the pointer is a lookup's.
            let at = unsafe { &raw mut (*self.0).origin };
            // SAFETY: as above.
            if !origin.replaces(there) || unsafe { atomics::swap(at, there.raw(), origin.raw()) } {
                return;
            }
        }
    }

    /// Counts an access that needed no invalidation.
    #[inline(always)]
    pub fn touch(self) {
        // SAFETY: the pointer is a lookup's. Not atomic: a hint, on the fast transition.
        unsafe {
            let at = &raw mut (*self.0).accesses;
            at.write_volatile(at.read_volatile().wrapping_add(1));
        }
    }

    /// Counts what an invalidation cost a blade. The controller is told of slots where pages were falsely invalidated
    /// after they are counted.
    #[inline(always)]
    fn charge(self, number: u32, cost: Cost) {
        // SAFETY: the pointer is a lookup's.
        unsafe {
            if cost.dropped != 0 {
                atomics::add(&raw mut (*self.0).dropped, cost.dropped as u32);
                note_invalidated(number);
            }
            if cost.flushed != 0 {
                atomics::add(&raw mut (*self.0).flushed, cost.flushed as u32);
            }
        }
    }
}
