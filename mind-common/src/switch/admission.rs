//! Whether a request is well-formed, permitted and can be served: the checks before the directory.

use super::Passage;
use crate::{
    addr::{PAGE_SIZE, Va},
    id::{BladeId, DomainId},
    memo::Location,
    stop,
    verdict::Staged,
    wire::Reth,
};

/// Where an address is stored: a memory blade that is present, and the offset in its store, in
/// bytes.
pub(super) struct Destination<P> {
    pub(super) peer: P,
    pub(super) offset: Va,
}

/// The page that `reth` names: one whole page of the window.
#[inline(always)]
pub(super) fn page(reth: &Reth) -> Staged<Va> {
    let va = reth.va();
    let is_whole = reth.len.get() as usize == PAGE_SIZE
        && va.is_page_aligned()
        && va.is_in_window(PAGE_SIZE as u64);
    if is_whole {
        Ok(va)
    } else {
        Err(stop!(Invalid))
    }
}

/// Refuses unless processes of the domain run on the blade.
#[inline(always)]
pub(super) fn placed<P: Passage>(passage: &P, blade: BladeId, domain: DomainId) -> Staged<()> {
    if passage.is_placed(domain, blade) {
        Ok(())
    } else {
        Err(stop!(NotPlaced))
    }
}

/// Where `va` is stored: as `kept` says, or else as the translation trie says; `None` where no memory blade serves it,
/// or that blade is gone.
#[inline(always)]
pub(super) fn destination<P: Passage>(
    passage: &P,
    location: Option<Location>,
    va: Va,
) -> Option<Destination<P::Peer>> {
    let location = match location {
        Some(location) => location,
        None => passage.translate(va)?,
    };
    Some(Destination {
        peer: passage.memory(location.blade)?,
        offset: location.offset,
    })
}
