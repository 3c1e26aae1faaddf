//! Tests of the bookkeeping of slots and tables.

use super::*;
use mind_common::addr::WINDOW_BASE;
use proptest::prelude::*;

const PAGE: u64 = PAGE_SIZE as u64;
const BLOCK: u64 = 1 << BLOCK_SHIFT;

fn kinds(steps: &[Step]) -> Vec<&'static str> {
    let mut kinds: Vec<_> = steps
        .iter()
        .map(|step| match step {
            Step::Zero(_) => "zero",
            Step::Open(_) => "open",
            Step::Blank(_) => "blank",
            Step::Fill { .. } => "fill",
            Step::Publish { .. } => "publish",
            Step::Grant { .. } => "grant",
            Step::Revoke { .. } => "revoke",
            Step::Protect { .. } => "protect",
            Step::Change(_) => "change",
            Step::Clear { .. } => "clear",
            Step::Withdraw { .. } => "withdraw",
            Step::Cover(_) => "cover",
        })
        .collect();
    kinds.dedup();
    kinds
}

#[test]
fn the_last_partial_region_is_smaller() {
    let orders: Vec<_> = initial_regions(Va(WINDOW_BASE), 11 * PAGE)
        .map(Region::order)
        .collect();
    assert_eq!(orders, [2, 2, 1, 0]);
}

#[test]
fn a_slot_is_ready_before_a_table_names_it_and_a_table_before_it_is_found() {
    let mut directory = Directory::new(600, 2);
    let va = Va(WINDOW_BASE);
    let steps = directory.open(va, BLOCK + PAGE).unwrap();
    assert_eq!(kinds(&steps), ["open", "blank", "fill", "publish"]);
    assert_eq!(directory.used(), 129);
    let [Step::Change(regions)] = &directory.close(va, BLOCK + PAGE)[..] else {
        panic!("all regions of a vma are freed at once");
    };
    assert_eq!(regions.change, Change::Free);
    assert_eq!(regions.entries.len(), 129);
    assert_eq!(kinds(&regions.rewire), ["withdraw", "clear"]);
}

#[test]
fn what_is_split_can_be_merged_again() {
    let mut directory = Directory::new(3, 1);
    let va = Va(WINDOW_BASE);
    directory.open(va, 4 * PAGE).unwrap();
    let before = directory.regions.clone();
    let at = |page: u64| Va(va.0 + page * PAGE);
    assert_eq!(directory.merge(va), None, "there is no other half");
    assert_eq!(directory.split(at(4)), Ok(None), "there is no region");

    let split = directory.split(at(1)).unwrap().unwrap();
    assert_eq!(kinds(&split.rewire), ["cover", "open", "fill"]);
    assert_eq!(directory.at(at(3)), Some(split.entries[0].0));
    directory.was_split(&split);
    let halves: Vec<_> = directory
        .regions
        .values()
        .map(|e| e.region.order())
        .collect();
    assert_eq!(halves, [1, 1]);
    assert_eq!(directory.at(at(3)), split.entries[0].1);
    let over = |page, pages| directory.entries_over(at(page), pages * PAGE).len();
    assert_eq!(
        [over(0, 1), over(1, 1), over(1, 2), over(2, 9), over(4, 9)],
        [1, 1, 2, 1, 0]
    );

    let again = directory.split(va).unwrap().unwrap();
    let full = directory.split(at(3)).unwrap_err();
    assert_eq!(full.to_string(), "the directory has no 1 slots left");
    directory.was_split(&again);
    assert_eq!(directory.split(va), Ok(None), "a page has no halves");
    assert_eq!(directory.merge(at(3)), None, "the other half is in parts");
    for va in [at(1), at(3)] {
        let merge = directory.merge(va).unwrap();
        assert_eq!(kinds(&merge.rewire), ["fill", "cover"]);
        directory.was_merged(&merge);
    }
    assert_eq!(directory.regions, before);
    assert_eq!(directory.slots.left(), 2);
    assert_eq!(directory.blocks.values().next().unwrap().regions, 1);

    let left = directory.split(va).unwrap().unwrap();
    directory.was_left(&left);
    assert_eq!(
        (directory.regions.clone(), directory.slots.left()),
        (before, 2)
    );
}

#[test]
fn a_table_is_withdrawn_with_its_last_region_only() {
    let mut directory = Directory::new(8, 1);
    let first = Va(WINDOW_BASE);
    let second = Va(WINDOW_BASE + 4 * PAGE);
    directory.open(first, 4 * PAGE).unwrap();
    let steps = directory.open(second, 4 * PAGE).unwrap();
    assert_eq!(
        kinds(&steps),
        ["open", "fill"],
        "the block is found already"
    );
    let rewires = |directory: &mut Directory, va| match &directory.close(va, 4 * PAGE)[..] {
        [Step::Change(regions)] => kinds(&regions.rewire),
        other => panic!("{other:?}"),
    };
    let mut other = directory.clone();
    assert_eq!(rewires(&mut directory, first), ["clear"]);
    directory.forget(first, 4 * PAGE);
    assert_eq!(rewires(&mut directory, second), ["withdraw", "clear"]);
    // Both in one plan, as when a program ends.
    assert_eq!(rewires(&mut other, first), ["clear"]);
    assert_eq!(rewires(&mut other, second), ["withdraw", "clear"]);
}

#[test]
fn a_full_directory_says_of_what_and_stays_as_it_was() {
    let mut directory = Directory::new(2, 1);
    let va = Va(WINDOW_BASE);
    let error = directory.open(va, 12 * PAGE).unwrap_err();
    assert_eq!(error.to_string(), "the directory has no 3 slots left");
    let error = directory
        .open(Va(va.0 + BLOCK - PAGE), 2 * PAGE)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the directory has no 2 block tables left"
    );
    assert_eq!(directory.used(), 0);
    assert!(directory.open(va, 8 * PAGE).is_ok());
}

proptest! {
    #[test]
    fn the_regions_of_a_vma_cover_it_exactly(first in 0u64..2000, pages in 1u64..2000) {
        let start = WINDOW_BASE + first * PAGE;
        let mut next = start;
        for region in initial_regions(Va(start), pages * PAGE) {
            prop_assert_eq!(region.base().0, next);
            prop_assert!(region.order() <= INITIAL_REGION_ORDER);
            next += region.size();
        }
        prop_assert_eq!(next, start + pages * PAGE);
    }

    #[test]
    fn no_slot_or_table_is_used_twice_or_lost(
        actions in prop::collection::vec((0u64..6, 1u64..1200, any::<bool>()), 1..40),
    ) {
        // Six places for vmas, far enough apart.
        let mut directory = Directory::new(1500, 8);
        let mut vmas: BTreeMap<u64, u64> = BTreeMap::new();
        for (place, pages, open) in actions {
            let va = Va(WINDOW_BASE + place * 1201 * PAGE);
            if open {
                if !vmas.contains_key(&place) && directory.open(va, pages * PAGE).is_ok() {
                    vmas.insert(place, pages);
                }
            } else if let Some(pages) = vmas.remove(&place) {
                directory.forget(va, pages * PAGE);
            }
            let mut slots: Vec<_> = directory.regions.values().map(|entry| entry.slot).collect();
            slots.sort_unstable();
            slots.dedup();
            prop_assert_eq!(slots.len(), directory.regions.len());
            prop_assert_eq!(slots.len() + directory.slots.left(), 1500);
            let mut tables: Vec<_> = directory.blocks.values().map(|block| block.table).collect();
            tables.sort_unstable();
            tables.dedup();
            prop_assert_eq!(tables.len(), directory.blocks.len());
            prop_assert_eq!(tables.len() + directory.tables.left(), 8);
        }
    }
}
