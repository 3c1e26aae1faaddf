//! Whether a request is well-formed, allowed, and can be served: what is asked before the
//! directory is.

use aya_ebpf::maps::lpm_trie::Key;
use mind_common::{
    addr::{PAGE_SIZE, Va},
    id::{BladeId, DomainId},
    table::{Peer, ProtectionKey, TranslationKey},
    wire::Reth,
};

use super::send;
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

/// Refuses unless `domain` is placed on `blade` and may do with `va` what `class` says.
#[inline(always)]
pub fn admit(blade: BladeId, domain: DomainId, va: Va, class: u32) -> Staged<()> {
    let placed = maps::GRANTS.get(domain.0).copied().unwrap_or(0);
    if placed >> blade.get() & 1 == 0 {
        return Err(stop!(NotPlaced));
    }
    let lookup = Lookup::new(ProtectionKey::BITS, ProtectionKey::new(domain, va));
    match maps::PROTECTION.get(&lookup.key) {
        Some(permission) if permission.allows(class) => Ok(()),
        _ => Err(stop!(Protected)),
    }
}

/// Where `va` is kept; `None` where no memory blade serves it, or it is gone.
#[inline(always)]
pub fn translate(va: Va) -> Option<Place> {
    let lookup = Lookup::new(TranslationKey::BITS, TranslationKey::new(va));
    let entry = maps::TRANSLATION.get(&lookup.key)?;
    Some(Place {
        peer: send::memory(entry.blade)?,
        offset: entry.apply(va),
    })
}
