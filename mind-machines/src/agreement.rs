//! What controller and switch agree on whenever the controller rests: the tables hold what the books want, and slots,
//! regions and vmas belong together.
//!
//! Tests, the simulator and the model ask for it. Not every page of a vma needs a slot.

use std::{collections::BTreeMap, fmt};

use mind_common::{
    addr::{Region, Va},
    directory::{Prior, State, Word},
    id::{BladeId, BladeSet},
};

use crate::{
    controller::{
        Controller,
        books::tables::{Key, Value},
    },
    switch::{Slot, Switch},
};

/// What controller and switch do not agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// A table holds something else than the books want.
    Entry {
        /// Which entry.
        key: Key,
        /// What the books want.
        wanted: Option<Value>,
        /// What is there.
        found: Option<Value>,
    },
    /// A vma is closing, and no operation unmaps it.
    Closing(Va),
    /// A slot is in use and covers no region of a vma that is not closing.
    Stray {
        /// The slot's number.
        slot: u32,
        /// What it covers.
        region: Option<Region>,
    },
    /// A page of a slot's region finds another slot, or none.
    Elsewhere {
        /// The slot's number.
        slot: u32,
        /// The page.
        page: Va,
        /// The number of the slot that it finds.
        found: Option<u32>,
    },
    /// A page finds a slot that is free, or does not cover the page.
    Uncovered {
        /// The page.
        page: Va,
        /// The number of the slot that it finds.
        slot: u32,
    },
    /// A word is locked though its region is not lost.
    Locked {
        /// The slot's number.
        slot: u32,
        /// Its word.
        word: Word,
    },
    /// A word names a blade that is gone.
    Gone {
        /// The slot's number.
        slot: u32,
        /// Its word.
        word: Word,
        /// The blade.
        blade: BladeId,
    },
    /// Slots that are in use, and those that packets can open, are not all.
    Slots {
        /// How many are in use.
        used: usize,
        /// How many packets can open.
        free: usize,
        /// How many there are.
        all: usize,
    },
}

impl Disagreement {
    /// An address that it is about, if it is about one.
    pub const fn page(&self) -> Option<Va> {
        match self {
            Self::Closing(page) | Self::Elsewhere { page, .. } | Self::Uncovered { page, .. } => {
                Some(*page)
            }
            Self::Stray {
                region: Some(region),
                ..
            } => Some(region.base()),
            Self::Entry { .. }
            | Self::Stray { region: None, .. }
            | Self::Locked { .. }
            | Self::Gone { .. }
            | Self::Slots { .. } => None,
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { key, wanted, found } => {
                write!(f, "{key:?} is {found:?} and should be {wanted:?}")
            }
            Self::Closing(va) => write!(f, "the vma at {va} is closing, and nothing unmaps it"),
            Self::Stray { slot, region } => {
                let region = region.map_or_else(|| "nothing".to_owned(), |it| it.to_string());
                write!(
                    f,
                    "slot {slot} is in use and covers {region}, which is in no vma"
                )
            }
            Self::Elsewhere { slot, page, found } => {
                write!(f, "slot {slot} covers {page}, which finds slot {found:?}")
            }
            Self::Uncovered { page, slot } => {
                write!(f, "{page} finds slot {slot}, which does not cover it")
            }
            Self::Locked { slot, word } => write!(f, "slot {slot} is locked: {word:?}"),
            Self::Gone { slot, word, blade } => {
                write!(f, "slot {slot} names {blade}, which is gone: {word:?}")
            }
            Self::Slots { used, free, all } => {
                write!(
                    f,
                    "of {all} slots {used} are in use, and packets can open {free}"
                )
            }
        }
    }
}

/// What controller and switch do not agree on, though nothing is left to do; `None` while something is, or if they agree.
pub fn disagreement(controller: &Controller, switch: &Switch) -> Option<Disagreement> {
    if !controller.is_idle() {
        return None;
    }
    let vmas = &controller.books().domains;
    let closing = vmas.vmas_from(Va(0)).find(|vma| vma.is_closing);
    let closing = closing.map(|vma| Disagreement::Closing(vma.va()));
    closing
        .or_else(|| of_tables(controller, switch))
        .or_else(|| of_slots(controller, switch))
        .or_else(|| of_pages(switch))
}

fn of_tables(controller: &Controller, switch: &Switch) -> Option<Disagreement> {
    let wanted = controller.books().all_wanted();
    let mut wanted: BTreeMap<_, _> = wanted
        .map(|(key, value)| (key, Switch::kept(value)))
        .collect();
    for (key, value) in switch.tables().entries() {
        let (wanted, found) = (wanted.remove(&key), Some(value));
        if wanted != found {
            return Some(Disagreement::Entry { key, wanted, found });
        }
    }
    let (key, value) = wanted.pop_first()?;
    Some(Disagreement::Entry {
        key,
        wanted: Some(value),
        found: None,
    })
}

fn of_slots(controller: &Controller, switch: &Switch) -> Option<Disagreement> {
    let here = controller.books().blades.computes();
    let all = switch.slots().len();
    let mut used = 0;
    for (slot, at) in (1..).zip(switch.slots()) {
        if at.word.state() == State::Free {
            continue;
        }
        used += 1;
        let wrong = of_word(slot, at.word, here).or_else(|| of_region(slot, at, controller));
        if wrong.is_some() {
            return wrong;
        }
        let found = |page| switch.tables().slot(page).map(|index| index as u32 + 1);
        let pages = at.region.into_iter().flat_map(Region::pages);
        let elsewhere = pages
            .map(|page| (page, found(page)))
            .find(|(_, found)| *found != Some(slot));
        if let Some((page, found)) = elsewhere {
            return Some(Disagreement::Elsewhere { slot, page, found });
        }
    }
    let free = switch.free_slots();
    (used + free != all).then_some(Disagreement::Slots { used, free, all })
}

fn of_word(slot: u32, word: Word, here: BladeSet) -> Option<Disagreement> {
    if word.state() == State::Locked && word.prior() != Some(Prior::Lost) {
        return Some(Disagreement::Locked { slot, word });
    }
    let requester = word.state().is_busy().then(|| word.requester());
    let named = requester.into_iter().fold(word.blades(), BladeSet::with);
    let blade = named.minus(here).first()?;
    Some(Disagreement::Gone { slot, word, blade })
}

/// The region is in a vma, or in memory that was freed, as long as that waits for its blade to come back to be zeroed:
/// what late packets have opened there is freed before.
fn of_region(slot: u32, at: &Slot, controller: &Controller) -> Option<Disagreement> {
    let books = controller.books();
    let vmas = &books.domains;
    let is_mapped = |region: Region| {
        let vma = vmas.vma_with(region.base());
        vma.is_some_and(|vma| {
            let piece = vma.piece_at(region.base());
            let end = piece.map_or(0, |piece| piece.end());
            !vma.is_closing && region.base().0 + region.size() <= end
        })
    };
    let waits_for_blade = |region: Region| {
        let blade = books
            .piece_at(region.base())
            .map(|piece| piece.extent.blade);
        blade.is_some_and(|blade| books.blades.here_memory(blade).is_none())
            && vmas.vma_with(region.base()).is_none()
            && books.has_memory_for(region)
    };
    let region = at.region;
    let is_known = region.is_some_and(|region| is_mapped(region) || waits_for_blade(region));
    (!is_known).then_some(Disagreement::Stray { slot, region })
}

fn of_pages(switch: &Switch) -> Option<Disagreement> {
    let covers = |page: Va, slot: &Slot| {
        slot.word.state() != State::Free && slot.region.is_some_and(|region| region.contains(page))
    };
    let mut pages = switch.tables().pages.iter();
    let (page, index) = pages.find(|(page, index)| {
        let slot = switch.slots().get(**index);
        !slot.is_some_and(|slot| covers(**page, slot))
    })?;
    Some(Disagreement::Uncovered {
        page: *page,
        slot: *index as u32 + 1,
    })
}
