//! What translates and protects by pages of one size instead: the baseline of MIND (SOSP 2021), section 7.2.

use std::collections::BTreeMap;

use mind_api::message::Access;

use super::request::Request;

/// A page table of a process, with one entry for each page, and pages spread over memory blades.
///
/// It is a page table at its best: allocations with the same permissions lie behind each other, so of its pages only the
/// last one of each permission may be used in part. Each page is placed on the least loaded memory blade, all of which are
/// of one size and empty at first; as all pages are of one size, too, that is one blade after the other.
#[derive(Clone, Debug)]
pub struct PageTable {
    /// Bytes of a page, and of a blade.
    page: u64,
    capacity: u64,
    /// Pages on each blade.
    blades: Vec<u64>,
    /// Bytes that are left of the last page, by what may be done with it.
    left: BTreeMap<Access, u64>,
}

/// Memory blades have no place for so many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl PageTable {
    /// An empty one with pages of `page` bytes, over so many memory blades of `capacity` bytes each.
    pub fn new(page: u64, blades: u8, capacity: u64) -> Self {
        Self {
            page,
            capacity,
            blades: vec![0; usize::from(blades)],
            left: BTreeMap::new(),
        }
    }

    /// Allocates memory.
    ///
    /// # Errors
    ///
    /// There is no place.
    pub fn map(&mut self, request: &Request) -> Result<(), Full> {
        let left = self.left.entry(request.access).or_insert(0);
        let more = request.length.saturating_sub(*left).div_ceil(self.page);
        *left = *left + more * self.page - request.length;
        let count = self.blades.len() as u64;
        let all = self.entries() + more;
        if all > count * (self.capacity / self.page) {
            return Err(Full);
        }
        // Of the blades with the fewest pages, the first ones have one more.
        let (each, rest) = (all / count, all % count);
        for (blade, pages) in (0..count).zip(&mut self.blades) {
            *pages = each + u64::from(blade < rest);
        }
        Ok(())
    }

    /// Entries: pages.
    pub fn entries(&self) -> u64 {
        self.blades.iter().sum()
    }

    /// Bytes on each memory blade: of whole pages.
    pub fn loads(&self) -> Vec<u64> {
        self.blades.iter().map(|pages| pages * self.page).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(length: u64, access: Access) -> Request {
        Request {
            length,
            access,
            at: super::super::request::Place::default(),
        }
    }

    #[test]
    fn allocations_of_one_permission_share_pages() {
        let mut table = PageTable::new(100, 3, 1000);
        for (length, access, entries) in [
            (40, Access::Write, 1),
            (40, Access::Write, 1),
            (40, Access::Read, 2),
            // 20 are left, and 180 need two more pages.
            (200, Access::Write, 4),
            (20, Access::Write, 4),
            (1, Access::Write, 5),
        ] {
            table.map(&request(length, access)).unwrap();
            assert_eq!(table.entries(), entries);
        }
        assert_eq!(table.loads(), [200, 200, 100]);
    }

    #[test]
    fn blades_hold_whole_pages() {
        let mut table = PageTable::new(100, 2, 199);
        assert_eq!(table.map(&request(200, Access::Write)), Ok(()));
        assert_eq!(table.map(&request(1, Access::Write)), Err(Full));
    }

    proptest! {
        #[test]
        fn pages_are_as_if_each_were_placed_by_itself(
            lengths in prop::collection::vec(1u64..1000, 0..30), blades in 1u8..9,
        ) {
            let mut table = PageTable::new(100, blades, u64::MAX);
            let mut loads = vec![0; usize::from(blades)];
            let (mut mapped, mut used) = (0, 0);
            for length in lengths {
                table.map(&request(length, Access::Write)).unwrap();
                used += length;
                while mapped < used {
                    *loads.iter_mut().min().unwrap() += 100;
                    mapped += 100;
                }
                prop_assert_eq!(&table.loads(), &loads);
                prop_assert_eq!(table.entries() * 100, mapped);
            }
        }
    }
}
