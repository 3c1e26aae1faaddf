//! The switch's tables beside the directory: protection, translation, which blades are present. A slot's memo, while
//! valid, spares searching the tries.

use aya_ebpf::maps::lpm_trie::Key;
use mind_common::{
    addr::Va,
    id::{BladeId, Connection, DomainId},
    memo::Location,
    stop,
    table::{Peer, Protection, ProtectionKey, Slot, Translation, TranslationKey},
    verdict::Staged,
};

use super::directory::{self, SlotRef};
use crate::maps;

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

/// The compute blade's address and connection, if it is present.
#[inline(always)]
pub fn compute(blade: BladeId) -> Option<(&'static Peer, Connection)> {
    let peer = maps::COMPUTE
        .get(blade.get() as u32)
        .filter(|peer| peer.is_present())?;
    Some((peer, peer.connection_of(blade)))
}

/// The memory blade's address, if it is present.
#[inline(always)]
pub fn memory(number: u32) -> Option<&'static Peer> {
    maps::MEMORY.get(number).filter(|peer| peer.is_present())
}

/// Whether processes of the domain run on the blade.
#[inline(always)]
pub fn is_placed(domain: DomainId, blade: BladeId) -> bool {
    let placed = maps::GRANTS.get(domain.0).copied().unwrap_or(0);
    placed >> blade.get() & 1 != 0
}

/// Refuses unless `domain` has permission class `class` for `va`. Returns where `va` is stored, if
/// the check found that out. `slot` is the page's, if it has one: a valid memo spares the tries,
/// and what they return is written to the memo.
#[inline(always)]
pub fn admit(
    slot: Option<SlotRef>,
    domain: DomainId,
    va: Va,
    class: u32,
) -> Staged<Option<Location>> {
    if let Some(slot) = slot
        && let Some(location) = slot.memo_of(domain, va, class)
    {
        return Ok(location);
    }
    // Generations, region, tries, in this order (see `mind_common::memo`). The region as it stands,
    // since an `Option` of it is compiled to a register that nothing was written to where there is
    // none, which the verifier refuses once it is put on the stack.
    let current = directory::current(domain, va);
    let region = slot.map_or(0, SlotRef::raw_region);
    let protection = protection(domain, va).ok_or(stop!(Protected))?;
    if !protection.permission.allows(class) {
        return Err(if protection.permission.is_lost() {
            stop!(Lost)
        } else {
            stop!(Protected)
        });
    }
    let translation = translation(va);
    if let (Some(slot), Some(current)) = (slot, current)
        && let Some(region) = Slot::region_with(region, va)
    {
        slot.write_memo(&current, region, domain, protection, translation);
    }
    Ok(translation.map(|entry| Location {
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

/// Where `va` is stored, as the trie says.
#[inline(always)]
pub fn translate(va: Va) -> Option<Location> {
    let entry = translation(va)?;
    Some(Location {
        blade: entry.blade,
        offset: entry.apply(va),
    })
}
