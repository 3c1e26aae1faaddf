//! What becomes of single regions: reset, split, merged; and what was written into them and is lost.

use mind_api::errno::{Errno, Failure};
use mind_api::message::{OnLoss, RegionChange};
use mind_common::addr::{Region, Va};
use mind_machines::controller::procedure::Change;

use super::{Policy, from_directory};
use crate::{
    directory::Regions,
    records::Key,
    registry::{Lost, Vma},
};

impl Policy {
    /// How a region is reset, split or merged, for [`changed`](Self::changed) when that is over. `None`: it has no
    /// halves, or no other half in the same vma.
    ///
    /// # Errors
    ///
    /// `EFAULT`: no vma has that address. `ENOMEM`: a split finds no free slot.
    pub fn change_region(
        &mut self,
        va: Va,
        change: RegionChange,
    ) -> Result<Option<Regions>, Failure> {
        let (entry, vma) = self
            .directory
            .at(va)
            .zip(self.registry.vma_at(va).map(|(_, vma)| vma))
            .ok_or_else(|| Failure::new(Errno::EFAULT, format!("nothing is mapped at {va}")))?;
        match change {
            RegionChange::Reset => Ok(Some(Regions::of_words(Change::Reset, [entry]))),
            RegionChange::Split => self.directory.split(va).map_err(from_directory),
            RegionChange::Merge => {
                let fits = |whole: &Region| {
                    vma.va() <= whole.base() && whole.base().0 + whole.size() <= vma.end()
                };
                let merge = self.directory.merge(va);
                Ok(merge.filter(|_| entry.region.whole().as_ref().is_some_and(fits)))
            }
        }
    }

    /// A change of regions is over: the books follow, if it was made.
    pub fn changed(&mut self, regions: &Regions, made: bool) {
        match (regions.change, made) {
            (Change::Split, true) => self.directory.was_split(regions),
            (Change::Split, false) => self.directory.was_left(regions),
            (Change::Merge, true) => self.directory.was_merged(regions),
            (Change::Merge, false) | (Change::Reset | Change::Free | Change::MarkLost, _) => {}
        }
    }

    /// What the domain of a region chose for when writes are lost.
    pub fn on_loss(&self, region: Region) -> OnLoss {
        let owner = self.registry.vma_at(region.base());
        let domain = owner.and_then(|(domain, _)| self.registry.domains().get(&domain));
        domain.map_or_else(OnLoss::default, |domain| domain.on_loss)
    }

    /// What was written into a region went with a blade. The vma and domain that it is of, unless that is gone, too.
    pub fn note_loss(&mut self, region: Region, blade: &str) -> Option<(u32, &Vma)> {
        let (domain, vma) = self.registry.vma_at(region.base())?;
        let va = vma.va();
        self.registry.touch(Key::Vma(domain, va.0));
        let vma = self.registry.domain_mut(domain)?.vmas.get_mut(&va.0)?;
        let regions = vma.lost.as_ref().map_or(0, |lost| lost.regions) + 1;
        vma.lost = Some(Lost {
            regions,
            last: region.base(),
            blade: blade.to_owned(),
        });
        Some((domain, vma))
    }
}
