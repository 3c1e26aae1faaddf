//! What goes to memory without changing the directory: write-backs and atomic operations. Both
//! are the owner's alone.

use mind_common::{
    addr::{PAGE_SIZE, Va},
    id::DomainId,
    table::MAY_WRITE,
    verdict::Verdict,
    wire::{ATOMIC_REQUEST_LEN, AtomicEth, Reth, WRITE_LEN},
};

use super::{Passage, admission, directory};
use crate::decision::{Staged, stop};

/// Bytes of the word that an atomic operation is about.
const WORD: u64 = 8;

impl Passage<'_> {
    /// The blade behind the port writes a page back. Neither domain nor protection is asked: the
    /// page was written while it was allowed, and must not be lost because it no longer is.
    #[inline(always)]
    pub(super) fn write_back(&mut self) -> Staged {
        if self.len < WRITE_LEN {
            return Err(stop!(Invalid));
        }
        let page = admission::page(&self.frame.reth())?;
        let place = admission::translate(page).ok_or(stop!(NoMemory))?;
        let slot = directory::find(page).ok_or(stop!(NoSlot))?;
        slot.admit_write_back(page, self.from)?;
        let reth = Reth::new(place.offset, DomainId(0), PAGE_SIZE as u32);
        let bth = self.frame.bth;
        self.frame.put_reth(bth, reth);
        self.redirect(place.peer, Verdict::WriteBack)
    }

    /// The blade behind the port wants an atomic operation carried out.
    #[inline(always)]
    pub(super) fn operate(&mut self) -> Staged {
        let atomic = self.frame.atomic();
        let va = Va(atomic.va.get());
        // An aligned word crosses no page.
        if self.len < ATOMIC_REQUEST_LEN || va.0 % WORD != 0 || !va.is_in_window(WORD) {
            return Err(stop!(Invalid));
        }
        let domain = DomainId(atomic.rkey.get());
        admission::placed(self.from, domain)?;
        let slot = directory::find(va);
        let kept = admission::admit(slot, domain, va, MAY_WRITE)?;
        let place = admission::place(kept, va).ok_or(stop!(NoMemory))?;
        let slot = slot.ok_or(stop!(NoSlot))?;
        slot.admit_operation(va, self.from)?;
        let bth = self.frame.bth;
        let atomic = AtomicEth {
            va: place.offset.0.into(),
            rkey: 0.into(),
            ..atomic
        };
        self.frame.put_atomic(bth, atomic);
        self.redirect(place.peer, Verdict::Operate)
    }
}
