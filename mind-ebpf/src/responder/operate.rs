//! CmpSwap and FetchAdd on aligned words of 8 bytes, each carried out once, however often its
//! request arrives.

use mind_common::{
    addr::{PAGE_SIZE, Va},
    id::Connection,
    memory::{Attempt, Claim, on_operation},
    stop,
    table::{Operation, PageTag},
    verdict::{Staged, Verdict},
    wire::{ATOMIC_REQUEST_LEN, AtomicEth, Opcode},
};

use super::{
    Service,
    page::{self, Page},
};
use crate::{atomics, maps};

impl Service<'_> {
    /// Carries the operation out and makes the frame its answer.
    #[inline(always)]
    pub(super) fn operate(&mut self, opcode: Opcode) -> Staged<Verdict> {
        let atomic = self.frame.atomic();
        let at = Va(atomic.va.get());
        if self.len < ATOMIC_REQUEST_LEN || at.0 % size_of::<u64>() as u64 != 0 {
            return Err(stop!(Invalid));
        }
        let page = page::find(at)?;
        let tag = page.tag()?;
        let qp = self.frame.bth.dest_qp();
        let connection = Connection::from_qp(qp).ok_or(stop!(StaleConnection))?;
        let latest = maps::OPERATIONS
            .get_ptr_mut(connection.blade.get() as u32)
            .ok_or(stop!(StaleConnection))?;
        // SAFETY: the pointer is a lookup's.
        let last = Claim::from_raw(unsafe { atomics::load(&raw const (*latest).claim) });
        match on_operation(last, connection, self.frame.bth.seq()) {
            Attempt::CarryOut(claim) => {
                take_claim(latest, last, claim)?;
                match carry_out(page, tag, at, opcode, &atomic) {
                    Ok(original) => {
                        // SAFETY: the pointer is a lookup's; the open claim is this program's.
                        unsafe { (&raw mut (*latest).original).write_volatile(original) };
                        let _ = take_claim(latest, claim, claim.closed());
                        self.frame.put_original(tag.version().next(), original);
                        Ok(Verdict::Operated)
                    }
                    Err(stop) => {
                        // The operation was not carried out: withdraw the claim, so that the next
                        // attempt is not taken for a repeat.
                        let _ = take_claim(latest, claim, last);
                        Err(stop)
                    }
                }
            }
            Attempt::Replay => {
                // SAFETY: the pointer is a lookup's; a closed claim's value is in place.
                let original = unsafe { atomics::load(&raw const (*latest).original) };
                self.frame.put_original(tag.version(), original);
                Ok(Verdict::Replayed)
            }
            Attempt::Ignore => Err(stop!(StaleOperation)),
        }
    }
}

/// Replaces the claim `old` by `new`; stops when another copy of the request was faster.
#[inline(always)]
fn take_claim(latest: *mut Operation, old: Claim, new: Claim) -> Staged<()> {
    // SAFETY: the pointer is a lookup's.
    if unsafe { atomics::swap(&raw mut (*latest).claim, old.raw(), new.raw()) } {
        Ok(())
    } else {
        Err(stop!(StaleOperation))
    }
}

/// Carries the operation out on the word at `at`, which is in `page`; returns the value before it.
#[inline(always)]
fn carry_out(page: Page, tag: PageTag, at: Va, opcode: Opcode, atomic: &AtomicEth) -> Staged<u64> {
    let taken = page.take(tag)?;
    let word = (at.0 as usize & (PAGE_SIZE - 1)) / size_of::<u64>();
    // SAFETY: an aligned word of a page that only this program may change now.
    let original = unsafe {
        let word = page.bytes().cast::<u64>().add(word);
        let original = word.read_volatile();
        match opcode {
            Opcode::FetchAdd => {
                word.write_volatile(original.wrapping_add(atomic.swap_or_add.get()));
            }
            _ if original == atomic.compare.get() => word.write_volatile(atomic.swap_or_add.get()),
            _ => {}
        }
        original
    };
    taken.publish(tag.version().next());
    Ok(original)
}
