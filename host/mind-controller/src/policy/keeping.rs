//! The books outlive the controller: records of them, and books made from records and from what the maps say.

use crate::directory::Directory;
use crate::records::{Broken, Change, Key};
use crate::registry::{Blade, Domain, Vma};
use crate::takeover::{Found, Takeover};

use super::{BladeKind, PAGE, Policy};

/// A record cannot be kept, or read: what is kept are numbers and names.
fn written<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers, names and maps with such keys are JSON")
}

impl Policy {
    /// What has changed since this was last asked: records to keep, or to forget.
    pub fn take_records(&mut self) -> Vec<Change> {
        let touched = self.registry.take_touched().into_iter();
        let with_record = |key| (key, self.record(key));
        touched.map(with_record).collect()
    }

    /// These could not be kept: they are to be taken again.
    pub fn touch(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            self.registry.touch(key);
        }
    }

    fn record(&self, key: Key) -> Option<Vec<u8>> {
        let domains = self.registry.domains();
        match key {
            Key::Blade(kind, number) => self.registry.blade(kind, number).map(written),
            Key::Domain(number) => domains.get(&number).map(written),
            Key::Vma(domain, va) => {
                let vmas = domains.get(&domain).map(|domain| &domain.vmas);
                vmas.and_then(|vmas| vmas.get(&va)).map(written)
            }
            Key::Protection(domain) => self.protection.get(&domain).map(written),
            Key::LastDomain => Some(written(&self.registry.last_domain())),
        }
    }

    /// Books made from records, for a directory of so many slots and block tables, of which nothing is known yet:
    /// [`take_over`](Self::take_over) looks at the maps for that.
    ///
    /// # Errors
    ///
    /// [`Broken`]: a record is no JSON of what it is of.
    pub fn restore(
        slots: u32,
        tables: u32,
        records: impl IntoIterator<Item = (Key, Vec<u8>)>,
    ) -> Result<Self, Broken> {
        let mut policy = Self::new(slots, tables);
        for (key, bytes) in records {
            let broken = |source| Broken { key, source };
            match key {
                Key::Blade(kind, _) => {
                    let blade: Blade = serde_json::from_slice(&bytes).map_err(broken)?;
                    policy.registry.restore_blade(kind, blade);
                }
                Key::Domain(number) => {
                    let domain: Domain = serde_json::from_slice(&bytes).map_err(broken)?;
                    policy.registry.restore_domain(number, domain);
                }
                Key::Vma(domain, _) => {
                    let vma: Vma = serde_json::from_slice(&bytes).map_err(broken)?;
                    policy.registry.restore_vma(domain, vma);
                }
                Key::Protection(domain) => {
                    let protection = serde_json::from_slice(&bytes).map_err(broken)?;
                    policy.protection.insert(domain, protection);
                }
                Key::LastDomain => {
                    let number = serde_json::from_slice(&bytes).map_err(broken)?;
                    policy.registry.restore_last_domain(number);
                }
            }
        }
        for blade in policy.registry.blades(BladeKind::Memory) {
            let bytes = blade.pages.saturating_mul(PAGE);
            policy.allocator.add(blade.number, bytes);
        }
        for vma in policy
            .registry
            .domains()
            .values()
            .flat_map(|domain| domain.vmas.values())
        {
            policy.allocator.claim(vma.extent);
        }
        Ok(policy)
    }

    /// Makes the directory's books from what the maps say, for restored books; and says what is to be changed in the
    /// maps, because a controller ended in the middle of something. What it had not answered has not happened.
    pub fn take_over(&mut self, found: &Found) -> Takeover {
        let domains = self.registry.domains().values();
        let mut vmas: Vec<_> = domains
            .flat_map(|domain| domain.vmas.values())
            .map(|vma| (vma.va(), vma.length))
            .collect();
        vmas.sort_unstable();
        let capacity = (self.directory.capacity(), self.directory.tables());
        let takeover = Takeover::of(&vmas, found, capacity);
        self.directory = Directory::restore(capacity, &takeover.entries, &takeover.blocks);
        takeover
    }
}
