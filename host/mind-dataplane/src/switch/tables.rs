//! Where domains are placed, what they may do, and where addresses are stored.

use std::sync::atomic::{AtomicU64, Ordering};

use mind_common::{
    addr::{Prefix, Va},
    id::{BladeSet, DomainId},
    table::{Permission, Protection, ProtectionKey, Translation, TranslationKey},
};

use super::{PROTECTION, Switch, TRANSLATION};
use crate::{Error, Result};

impl Switch {
    /// Sets on which blades processes of `domain` are placed.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a domain beyond [`SwitchLimits::domains`](crate::SwitchLimits::domains).
    pub fn place(&mut self, domain: DomainId, blades: BladeSet) -> Result<()> {
        let limit = self.grants.len();
        let entry = self.grant(domain).ok_or(Error::Limit {
            what: "protection domain",
            index: domain.0.into(),
            limit: limit as u64,
        })?;
        entry.store(blades.bits().into(), Ordering::Release);
        Ok(())
    }

    /// The domains that have processes, each with the blades they are placed on. Reads one entry for each possible
    /// domain, in memory.
    pub fn placements(&self) -> Vec<(DomainId, BladeSet)> {
        let domains = (0..self.grants.len() as u32).map(DomainId);
        let placed = domains.filter_map(|domain| {
            let bits = self.grant(domain)?.load(Ordering::Acquire);
            // A bit for each blade: the upper half has none.
            Some((domain, BladeSet::from_bits(bits as u32)))
        });
        placed.filter(|(_, blades)| !blades.is_empty()).collect()
    }

    /// What the programs read about a domain's blades.
    fn grant(&self, domain: DomainId) -> Option<&AtomicU64> {
        let at = self.grants.at(domain.0 as usize)?;
        // SAFETY: a value of the mapping, which lives as long as `self`; aligned, and reached through atomics only.
        Some(unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }

    /// All protection entries, in no order.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn protections(&self) -> Result<Vec<(DomainId, Prefix, Permission)>> {
        let entries = self.maps.prefixes(PROTECTION)?;
        let entry = |(len, key, value): (u32, ProtectionKey, Protection)| {
            let prefix = Prefix {
                base: key.va(),
                shift: ProtectionKey::shift(len),
            };
            (key.domain(), prefix, value.permission)
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    /// Inserts a protection entry: `domain` has `permission` for the addresses of `prefix`. It
    /// counts for every packet that comes after this returns.
    ///
    /// The prefixes of a domain must not overlap, but for the time between the first step of a
    /// change and its last: until then, a slot's memo may be of either of the overlapping prefixes.
    ///
    /// # Errors
    ///
    /// When there are more entries than [`SwitchLimits::protection`](crate::SwitchLimits::protection).
    pub fn protect(
        &mut self,
        domain: DomainId,
        prefix: Prefix,
        permission: Permission,
    ) -> Result<()> {
        let key = ProtectionKey::new(domain, prefix.base);
        let len = ProtectionKey::prefix_len(prefix.shift);
        let protection = Protection {
            permission,
            shift: prefix.shift,
        };
        let done = self.maps.insert_prefix(PROTECTION, len, key, protection);
        self.directory.invalidate_domain(domain);
        done
    }

    /// Removes an entry of [`protect`](Self::protect); returns whether it was there.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn unprotect(&mut self, domain: DomainId, prefix: Prefix) -> Result<bool> {
        let key = ProtectionKey::new(domain, prefix.base);
        let len = ProtectionKey::prefix_len(prefix.shift);
        let done = self
            .maps
            .remove_prefix::<_, Protection>(PROTECTION, len, key);
        self.directory.invalidate_domain(domain);
        done
    }

    /// Inserts a translation entry: the addresses of `prefix` are stored where `translation` says;
    /// of nested prefixes the longest counts.
    ///
    /// # Errors
    ///
    /// When there are more entries than [`SwitchLimits::translation`](crate::SwitchLimits::translation).
    pub fn translate(&mut self, prefix: Prefix, translation: Translation) -> Result<()> {
        let key = TranslationKey::new(prefix.base);
        let len = TranslationKey::prefix_len(prefix.shift);
        self.directory.note_finest(prefix);
        let done = self.maps.insert_prefix(TRANSLATION, len, key, translation);
        self.directory.invalidate_prefix(prefix);
        done
    }

    /// All translation entries, in no order.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn translations(&self) -> Result<Vec<(Prefix, Translation)>> {
        let entries = self.maps.prefixes(TRANSLATION)?;
        let entry = |(len, key, value): (u32, TranslationKey, Translation)| {
            let prefix = Prefix {
                base: Va(key.va.get()),
                shift: TranslationKey::shift(len),
            };
            (prefix, value)
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    /// Removes an entry of [`translate`](Self::translate); returns whether it was there.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn untranslate(&mut self, prefix: Prefix) -> Result<bool> {
        let key = TranslationKey::new(prefix.base);
        let len = TranslationKey::prefix_len(prefix.shift);
        let done = self
            .maps
            .remove_prefix::<_, Translation>(TRANSLATION, len, key);
        self.directory.invalidate_prefix(prefix);
        done
    }
}
