//! Where domains are placed, what they may do, and where addresses are kept.

use mind_common::{
    addr::{Prefix, Va},
    id::{BladeSet, DomainId},
    table::{Permission, Protection, ProtectionKey, Translation, TranslationKey},
};

use super::{GRANTS, PROTECTION, Switch, TRANSLATION};
use crate::{Error, Result};

impl Switch {
    /// Says on which blades processes of `domain` are placed.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a domain beyond [`SwitchLimits::domains`].
    pub fn place(&mut self, domain: DomainId, blades: BladeSet) -> Result<()> {
        let limit = self.maps.capacity(GRANTS)?;
        if domain.0 >= limit {
            return Err(Error::Limit {
                what: "protection domain",
                index: domain.0.into(),
                limit: limit.into(),
            });
        }
        self.maps.set(GRANTS, domain.0, blades.bits())
    }

    /// The domains that processes are placed of, and on which blades. Reads one entry for each domain there may be.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn placements(&self) -> Result<Vec<(DomainId, BladeSet)>> {
        let mut placed = Vec::new();
        for domain in 0..self.maps.capacity(GRANTS)? {
            let blades = BladeSet::from_bits(self.maps.get(GRANTS, domain)?);
            if !blades.is_empty() {
                placed.push((DomainId(domain), blades));
            }
        }
        Ok(placed)
    }

    /// What all domains may do, in no order.
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

    /// Lets `domain` do with the addresses of `prefix` what `permission` says: from when this
    /// returns, for every packet that comes.
    ///
    /// The prefixes of a domain must not overlap, but for the time between the first step of a
    /// change and its last: until then, what a slot remembers of its region may be what one of the
    /// overlapping prefixes says.
    ///
    /// # Errors
    ///
    /// When there are more entries than [`SwitchLimits::protection`].
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
        self.directory.doubt();
        done
    }

    /// Takes back what [`protect`](Self::protect) said; whether it had.
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
        self.directory.doubt();
        done
    }

    /// Keeps the addresses of `prefix` where `translation` says; of nested prefixes the longest
    /// counts.
    ///
    /// # Errors
    ///
    /// When there are more entries than [`SwitchLimits::translation`].
    pub fn translate(&mut self, prefix: Prefix, translation: Translation) -> Result<()> {
        let key = TranslationKey::new(prefix.base);
        let len = TranslationKey::prefix_len(prefix.shift);
        self.directory.note_finest(prefix.shift);
        let done = self.maps.insert_prefix(TRANSLATION, len, key, translation);
        self.directory.doubt();
        done
    }

    /// Where all addresses are kept, in no order.
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

    /// Takes back what [`translate`](Self::translate) said; whether it had.
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
        self.directory.doubt();
        done
    }
}
