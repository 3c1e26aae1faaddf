//! Whether a request is well-formed, allowed, and can be served: what is asked before the
//! directory is.

use aya_ebpf::maps::lpm_trie::Key;
use mind_common::{
    addr::{PAGE_SIZE, Va},
    id::{BladeId, DomainId},
    memo::Kept,
    table::{Peer, Protection, ProtectionKey, Slot, Translation, TranslationKey},
    wire::Reth,
};

use super::{
    directory::{self, SlotRef},
    send,
};
use crate::{
    decision::{Staged, stop},
    maps,
};

/// Where an address is kept: which memory blade, and at which offset.
pub struct Place {
    /// Where the memory blade is.
    pub peer: &'static Peer,
    /// The offset in its store, in bytes.
    pub offset: Va,
}

/// A trie's key with the 64 bits behind the prefix length aligned: the verifier allows no unaligned
/// access to the stack (unlike to packets and maps), and the kernel reads at once what is written
/// at once here.
#[repr(C, align(8))]
struct Lookup<K> {
    _gap: u32,
    key: Key<K>,
}

impl<K> Lookup<K> {
    #[inline(always)]
    const fn new(bits: u32, key: K) -> Self {
        const { assert!(size_of::<K>() == size_of::<u64>()) };
        Self {
            _gap: 0,
            key: Key::new(bits, key),
        }
    }
}

/// The page that `reth` names: one whole page of the window.
#[inline(always)]
pub fn page(reth: &Reth) -> Staged<Va> {
    let va = reth.va();
    let whole = reth.len.get() as usize == PAGE_SIZE
        && va.is_page_aligned()
        && va.is_in_window(PAGE_SIZE as u64);
    if whole { Ok(va) } else { Err(stop!(Invalid)) }
}

/// Refuses unless `domain` is placed on `blade`.
#[inline(always)]
pub fn placed(blade: BladeId, domain: DomainId) -> Staged<()> {
    let placed = maps::GRANTS.get(domain.0).copied().unwrap_or(0);
    if placed >> blade.get() & 1 == 0 {
        return Err(stop!(NotPlaced));
    }
    Ok(())
}

/// Refuses unless `domain` may do with `va` what `class` says; where `va` is kept, if that came up.
/// `slot` is the page's, if it has one: what it remembers spares the tries, and what they say is
/// remembered there.
#[inline(always)]
pub fn admit(slot: Option<SlotRef>, domain: DomainId, va: Va, class: u32) -> Staged<Option<Kept>> {
    if let Some(slot) = slot
        && let Some(kept) = slot.recall(domain, va, class)
    {
        return Ok(kept);
    }
    // Generation, region, tries, in this order (see `mind_common::memo`). The region as it stands,
    // since an `Option` of it is compiled to a register that nothing was written to where there is
    // none, which the verifier refuses once it is put on the stack.
    let generation = directory::generation();
    let region = slot.map_or(0, SlotRef::raw_region);
    let protection = protection(domain, va).ok_or(stop!(Protected))?;
    if !protection.permission.allows(class) {
        return Err(stop!(Protected));
    }
    let translation = translation(va);
    if let (Some(slot), Some(generation)) = (slot, generation)
        && let Some(region) = Slot::region_with(region, va)
    {
        slot.remember(&generation, region, domain, protection, translation);
    }
    Ok(translation.map(|entry| Kept {
        blade: entry.blade,
        offset: entry.apply(va),
    }))
}

#[inline(always)]
fn protection(domain: DomainId, va: Va) -> Option<&'static Protection> {
    let lookup = Lookup::new(ProtectionKey::BITS, ProtectionKey::new(domain, va));
    maps::PROTECTION.get(&lookup.key)
}

#[inline(always)]
fn translation(va: Va) -> Option<&'static Translation> {
    let lookup = Lookup::new(TranslationKey::BITS, TranslationKey::new(va));
    maps::TRANSLATION.get(&lookup.key)
}

/// Where `va` is kept, as the trie says; `None` where no memory blade serves it, or it is gone.
#[inline(always)]
pub fn translate(va: Va) -> Option<Place> {
    let entry = translation(va)?;
    Some(Place {
        peer: send::memory(entry.blade)?,
        offset: entry.apply(va),
    })
}

/// Where `va` is kept, if not as `kept` says then as the trie does; `None` as above.
#[inline(always)]
pub fn place(kept: Option<Kept>, va: Va) -> Option<Place> {
    match kept {
        Some(kept) => Some(Place {
            peer: send::memory(kept.blade)?,
            offset: kept.offset,
        }),
        None => translate(va),
    }
}
