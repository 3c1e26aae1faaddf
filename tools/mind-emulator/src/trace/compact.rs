//! Addresses of a program as page numbers from 0 on. Its memory lies in few places of a large address space, and the
//! window is a smaller one: blocks of 2 MiB are numbered in the order in which they are accessed first, and pages keep
//! their place in their block. So pages of one region are neighbours in both, whatever the region's size.

use mind_common::addr::{BLOCK_SHIFT, PAGES_PER_BLOCK, Va};
use rustc_hash::FxHashMap;

use super::{Error, format::MAX_PAGES};

/// The numbers of a program's blocks.
#[derive(Clone, Debug, Default)]
pub struct Compact {
    blocks: FxHashMap<u64, u32>,
    /// The block of the last address: most are in the same.
    last: Option<(u64, u32)>,
}

impl Compact {
    /// The number of the page that an address is in.
    ///
    /// # Errors
    ///
    /// When the program has more blocks than the window.
    pub fn page(&mut self, address: u64) -> Result<u32, Error> {
        let block = address >> BLOCK_SHIFT;
        let number = match self.last {
            Some((last, number)) if last == block => number,
            _ => self.number(block)?,
        };
        Ok(number * PAGES_PER_BLOCK as u32 + Va(address).page_in_block() as u32)
    }

    fn number(&mut self, block: u64) -> Result<u32, Error> {
        let next = self.blocks.len() as u64;
        let number = match self.blocks.get(&block) {
            Some(number) => *number,
            None if next < MAX_PAGES / PAGES_PER_BLOCK as u64 => {
                self.blocks.insert(block, next as u32);
                next as u32
            }
            None => {
                return Err(Error::Unfit(
                    "the program uses more than 16 TiB of addresses",
                ));
            }
        };
        self.last = Some((block, number));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_numbered_as_they_come_and_pages_keep_their_place() {
        let mut compact = Compact::default();
        let mut page = |address| compact.page(address).expect("there is room");
        assert_eq!(page(0x7fff_ffff_f000), 511);
        assert_eq!(page(0x40_1234), 512 + 1);
        assert_eq!(page(0x7fff_ffe0_0fff), 0);
        assert_eq!(page(0x40_0000), 512);
    }
}
