//! What goes to memory without changing the directory: write-backs and atomic operations. Only the owner of the region
//! may send them.

use super::{Exit, Left, Passage, admission};
use crate::{
    addr::{PAGE_SIZE, Va},
    directory::{
        State,
        machine::{may_operate, may_write_back},
    },
    id::{BladeId, DomainId},
    stop,
    table::MAY_WRITE,
    verdict::{Staged, Stop, Verdict},
    wire::{ATOMIC_REQUEST_LEN, AtomicEth, Reth, WRITE_LEN},
};

/// Bytes of the word that an atomic operation changes.
const WORD: u64 = 8;

/// The blade behind the port writes a page back. Neither domain nor protection is checked: the page was written while
/// that was allowed, and the write must not be lost because it no longer is.
#[inline(always)]
pub(super) fn write_back<P: Passage>(passage: &mut P, from: BladeId) -> Staged<Left<P::Peer>> {
    if passage.payload_len() < WRITE_LEN {
        return Err(stop!(Invalid));
    }
    let page = admission::page(&passage.reth())?;
    let destination = admission::destination(passage, None, page).ok_or(stop!(NoMemory))?;
    let number = passage.slot_number(page);
    let slot = passage.slot(number).ok_or(match number {
        // A region without a slot has no owner.
        0 => stop!(NotOwner),
        _ => stop!(Moved),
    })?;
    let word = passage.word(slot, page)?;
    // The slot was freed since the packet found it: its region was merged into another one, whose owner this may be.
    if matches!(word.state(), State::Free) {
        return Err(stop!(Moved));
    }
    if !may_write_back(word, from) {
        return Err(stop!(NotOwner));
    }
    let bth = passage.bth();
    let reth = Reth::new(destination.offset, DomainId(0), PAGE_SIZE as u32);
    passage.put_reth(bth, reth);
    Ok((Verdict::WriteBack, Exit::To(destination.peer)))
}

/// The blade behind the port wants an atomic operation carried out.
#[inline(always)]
pub(super) fn operate<P: Passage>(passage: &mut P, from: BladeId) -> Staged<Left<P::Peer>> {
    let atomic = passage.atomic();
    let va = Va(atomic.va.get());
    // An aligned word crosses no page.
    if passage.payload_len() < ATOMIC_REQUEST_LEN
        || !va.0.is_multiple_of(WORD)
        || !va.is_in_window(WORD)
    {
        return Err(stop!(Invalid));
    }
    let domain = DomainId(atomic.rkey.get());
    admission::placed(passage, from, domain)?;
    let number = passage.slot_number(va);
    let slot = passage.slot(number);
    let location = passage.admit(slot, domain, va, MAY_WRITE)?;
    let destination = admission::destination(passage, location, va).ok_or(stop!(NoMemory))?;
    let slot = slot.ok_or(match number {
        0 => stop!(NoCopy),
        _ => stop!(Moved),
    })?;
    may_operate(passage.word(slot, va)?, from).map_err(Stop::directory)?;
    let bth = passage.bth();
    let atomic = AtomicEth {
        va: destination.offset.0.into(),
        rkey: 0.into(),
        ..atomic
    };
    passage.put_atomic(bth, atomic);
    Ok((Verdict::Operate, Exit::To(destination.peer)))
}
