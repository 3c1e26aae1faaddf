//! What the controller knows: pure state and its changes, without the order in which tables and blades follow.
//!
//! * [`blades`]: blades and their incarnations,
//! * [`domains`]: protection domains, processes, vmas, areas; [`protection`]: what they may do,
//! * [`memory`]: what memory is given out, and at which addresses; [`ranges`]: sets of ranges, of which it makes use;
//!   [`places`]: addresses that are not where the slices of memory blades say,
//! * [`tables`]: what the switch's tables should hold, as a function of all that,
//! * [`records`]: what of it outlives the controller.
//!
//! The directory is not here: slots and words are in the switch's tables only, and change under traffic.

pub mod blades;
pub mod domains;
pub mod memory;
pub mod places;
pub mod protection;
pub mod ranges;
pub mod records;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet};

use mind_api::{errno::Failure, message::Reply};
use mind_common::addr::{PAGE_SIZE, Region, Va};

use blades::{Blades, Incarnation, slice_of};
use domains::Domains;
use memory::{Memory, Piece};
use places::Places;
use ranges::Ranges;

/// Bytes of a page.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// The answer to a request.
pub type Answer = Result<Reply, Failure>;

/// All that the controller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Books {
    /// Blades.
    pub blades: Blades,
    /// Domains and vmas.
    pub domains: Domains,
    /// Memory blades' memory.
    pub memory: Memory,
    /// Where addresses are kept that are at home nowhere.
    pub places: Places,
    /// Memory that was freed and is not zeroed yet, by its first address.
    pub unclean: BTreeMap<u64, Piece>,
    /// The same, by memory blade and first address.
    unclean_of: BTreeSet<(u8, u64)>,
    /// Answers that their blades may ask for again, by incarnation and request.
    pub answers: BTreeMap<(Incarnation, u64), Answer>,
    /// What has changed since it was last recorded.
    changed: BTreeSet<records::Key>,
    /// Whether some of what has changed is recorded only when other changes are, or soon.
    is_recorded_later: bool,
}

impl Books {
    /// Notes that what has that key has changed: it is to be recorded.
    pub fn touch(&mut self, key: records::Key) {
        self.changed.insert(key);
    }

    /// The piece of a vma that has an address, or of memory that was freed and is not zeroed yet.
    pub fn piece_at(&self, va: Va) -> Option<Piece> {
        let vma = self.domains.vma_with(va);
        vma.and_then(|vma| vma.piece_at(va)).or_else(|| {
            let (_, unclean) = self.unclean.range(..=va.0).next_back()?;
            unclean.contains(va).then_some(*unclean)
        })
    }

    /// Whether a region is within one piece of a vma, or of memory that was freed and is not zeroed yet.
    pub fn has_memory_for(&self, region: Region) -> bool {
        let piece = self.piece_at(region.base());
        piece.is_some_and(|piece| region.base().0 + region.size() <= piece.end())
    }

    /// Memory of a blade that was freed and is not zeroed yet, by address.
    pub fn unclean_of(&self, blade: u8) -> impl Iterator<Item = Piece> {
        let its = self.unclean_of.range((blade, 0)..=(blade, u64::MAX));
        its.filter_map(|(_, va)| self.unclean.get(va).copied())
    }

    /// The addresses of which a memory blade keeps the pages: first ones, and those after the last, by address.
    pub fn kept_by(&self, memory: u8) -> Vec<(u64, u64)> {
        let (slice, _) = slice_of(memory);
        let mut kept = Ranges::default();
        kept.join(slice.base.0, slice.size());
        for piece in self.places.pieces() {
            kept.take(piece.va, piece.extent.length);
        }
        let its = self.places.pieces();
        for piece in its.filter(|piece| piece.extent.blade == memory) {
            kept.join(piece.va, piece.extent.length);
        }
        let ranges = kept.iter();
        ranges.map(|(from, length)| (from, from + length)).collect()
    }

    /// Memory was freed and is not zeroed yet.
    pub fn put_unclean(&mut self, piece: Piece) {
        self.unclean_of.insert((piece.extent.blade, piece.va));
        self.unclean.insert(piece.va, piece);
    }

    /// Memory that was freed is zeroed, or is taken apart.
    pub fn take_unclean(&mut self, va: u64) -> Option<Piece> {
        let piece = self.unclean.remove(&va)?;
        self.unclean_of.remove(&(piece.extent.blade, va));
        Some(piece)
    }

    /// Forgets what has no effect but on controllers that follow and on requests that are made twice, for a model
    /// checker.
    #[cfg(feature = "model")]
    pub fn forget_history(&mut self) {
        self.answers.clear();
        self.changed.clear();
        self.is_recorded_later = false;
        self.domains.forget_losses();
    }

    /// What is to be recorded before an operation goes on: what has changed since this was last asked. None if all that
    /// has changed is recorded.
    pub fn take_changes(&mut self) -> Option<Vec<records::Change>> {
        // Another operation may have had this one's changes recorded soon: they have to be recorded now.
        let is_recorded_later = std::mem::take(&mut self.is_recorded_later);
        let changes = self.changes();
        (is_recorded_later || !changes.is_empty()).then_some(changes)
    }

    /// What is to be recorded with what is recorded next, or soon.
    pub fn take_changes_for_later(&mut self) -> Vec<records::Change> {
        let changes = self.changes();
        self.is_recorded_later |= !changes.is_empty();
        changes
    }

    fn changes(&mut self) -> Vec<records::Change> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|key| (key, self.record(key))).collect()
    }
}
