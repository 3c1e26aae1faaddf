//! A switch takes the place of one that is pinned: what it has then, and what there is when whoever does it dies in
//! between. No port is attached; that links lead to the new programs is seen in a testbed.

use std::path::Path;

use anyhow::{Context as _, Result};
use mind_common::{
    addr::{BLOCK_SHIFT, Prefix, Region, Va, WINDOW_BASE},
    directory::{Origin, State, Word},
    id::{BladeId, BladeSet, DomainId},
    serial::{Episode, Seq},
    table::{FreeKind, MAY_READ, MAY_WRITE, Permission, Port, Slot, Translation},
};
use mind_dataplane::{Switch, SwitchLimits, harness::Pins, object_layout, replace};
use mind_machines::switch::Carry;

const IPV4: [u8; 4] = [198, 18, 0, 1];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DOMAIN: DomainId = DomainId(3);

/// Whether the kernel loads programs for this process; prints the reason if not.
fn may_load() -> bool {
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: this loads eBPF programs, which takes root");
    }
    is_root
}

fn limits(slots: u32) -> SwitchLimits {
    SwitchLimits {
        slots: slots + 1,
        interfaces: 16,
        domains: 8,
        protection: 64,
        translation: 64,
        ..SwitchLimits::default()
    }
}

fn region(block: u64, page: u64, order: u8) -> Region {
    let va = Va(WINDOW_BASE + (block << BLOCK_SHIFT) + (page << 12));
    Region::containing(va, order).expect("a region")
}

fn prefix(region: Region) -> Prefix {
    Prefix {
        base: region.base(),
        shift: 12 + u32::from(region.order()),
    }
}

/// The regions of [`old`], with their slots' numbers.
fn regions() -> Vec<(Region, u32)> {
    vec![
        (region(0, 0, 2), 1),
        (region(0, 4, 2), 2),
        (region(0, 9, 0), 3),
        (region(7, 0, 9), 4),
        (region(9, 128, 2), 30),
    ]
}

fn word(slot: u32) -> Word {
    Word::new(
        State::Shared,
        BladeId::from_low_bits(0),
        Episode::new(40 + slot),
        BladeSet::from_bits(slot),
    )
}

/// A switch with 32 slots that is in use, pinned in `folder`.
fn old(folder: &Path) -> Result<Switch> {
    let mut switch = Switch::load(&limits(32))?;
    switch.pin(folder)?;
    switch.set_identity(IPV4.into(), MAC)?;
    switch.set_port(5, Port::memory(2))?;
    switch.set_fans_out(5, true)?;
    switch.place(DOMAIN, BladeSet::from_bits(0b101))?;
    switch.protect(
        DOMAIN,
        prefix(region(0, 0, 9)),
        Permission {
            bits: MAY_READ | MAY_WRITE,
        },
    )?;
    let translation = Translation {
        blade: 2,
        ..Translation::default()
    };
    switch.translate(prefix(region(0, 0, 9)), translation)?;
    let directory = switch.directory();
    let _ = directory.drain(FreeKind::Slots);
    for (region, number) in regions() {
        let slot = Slot {
            origin: Origin::new(Episode::new(40 + number), Seq::new(7), region.base()).raw(),
            queue: 5,
            accesses: 100 + number,
            permit: u64::MAX,
            ..Slot::new(word(number), region)
        };
        directory.slot(number)?.reset(slot);
        let retired = directory.assign(region, number)?;
        directory.give_retired(retired);
    }
    Ok(switch)
}

fn carried(old: &Switch, new: &mut Switch) -> Result<()> {
    let slots = u32::try_from(new.directory().slots() - 1)?;
    let carry = Carry::new(old.directory().words(), slots)?;
    new.take_over(old, carry.slots(), carry.free_word())?;
    Ok(())
}

/// What is pinned in `folder` has what [`old`] has, with `slots` slots; the slot 30 has become `last`.
fn has_everything(folder: &Path, slots: u32, last: u32) -> Result<()> {
    let switch = Switch::open(folder)?;
    assert_eq!(switch.identity()?, (IPV4.into(), MAC));
    let port = switch.port(5)?;
    assert_eq!(
        (port.number, port.fans_out()),
        (Port::memory(2).number, true)
    );
    assert_eq!(switch.placements(), [(DOMAIN, BladeSet::from_bits(0b101))]);
    assert_eq!(switch.protections()?.len(), 1);
    assert_eq!(switch.translations()?.len(), 1);
    let directory = switch.directory();
    assert_eq!(directory.slots(), slots as usize + 1);
    for (region, before) in regions() {
        let number = if before == 30 { last } else { before };
        let slot = directory.slot(number)?;
        assert_eq!((slot.region(), slot.word()), (Some(region), word(before)));
        assert_eq!(
            (slot.queue(), slot.accesses()),
            (5, u64::from(100 + before))
        );
        let origin = slot.origin().of(Episode::new(40 + before), region);
        assert_eq!(origin, Some((Seq::new(7), region.base())));
        // It is of the old directory's generation.
        assert_eq!(slot.memo().permit, 0);
        for page in region.pages() {
            assert_eq!(directory.slot_of(page)?, number, "{page:?}");
        }
    }
    let count: usize = directory.blocks()?.len();
    assert_eq!(count, 3);
    let mut free = directory.drain(FreeKind::Slots);
    free.sort_unstable();
    let used: Vec<_> = [1, 2, 3, 4, last].into();
    let unused: Vec<_> = (1..=slots)
        .filter(|number| !used.contains(number))
        .collect();
    assert_eq!(free, unused);
    // The latest episode of all is that of slot 30.
    for number in free {
        let word = directory.slot(number)?.word();
        assert_eq!(
            (word.state(), word.episode()),
            (State::Free, Episode::new(70))
        );
    }
    Ok(())
}

#[test]
fn a_switch_with_more_slots_or_fewer_has_what_the_old_one_had() -> Result<()> {
    if !may_load() {
        return Ok(());
    }
    for (slots, last) in [(64, 30), (32, 30), (29, 5), (5, 5)] {
        let pins = Pins::new()?;
        let folder = pins.folder().join("switch");
        let mut old = old(&folder)?;
        let mut new = Switch::load(&limits(slots))?;
        old.stop()?;
        assert_eq!(old.identity()?, ([0; 4].into(), [0; 6]));
        carried(&old, &mut new)?;
        replace::install(&mut new, &folder, IPV4.into(), MAC)?;
        assert!(!replace::finish(&folder)?, "nothing is left to be finished");
        drop((old, new));
        has_everything(&folder, slots, last).with_context(|| format!("{slots} slots"))?;
        Switch::unpin(&folder)?;
        assert!(!folder.exists(), "something stays pinned");
    }
    Ok(())
}

#[test]
fn the_old_one_stays_if_the_new_one_has_too_few_slots() -> Result<()> {
    if !may_load() {
        return Ok(());
    }
    let pins = Pins::new()?;
    let folder = pins.folder().join("switch");
    let mut old = old(&folder)?;
    let mut new = Switch::load(&limits(4))?;
    old.stop()?;
    let error = carried(&old, &mut new).unwrap_err().to_string();
    assert!(error.contains("5 directory slots are in use"), "{error}");
    Ok(())
}

#[test]
fn whoever_comes_next_finishes_what_was_begun() -> Result<()> {
    if !may_load() {
        return Ok(());
    }
    let pins = Pins::new()?;
    let folder = pins.folder().join("switch");
    let next = folder.join("next");
    let mut old = old(&folder)?;
    old.stop()?;

    // Without an identity, it is not what counts.
    let mut new = Switch::load(&limits(64))?;
    carried(&old, &mut new)?;
    new.pin(&next)?;
    assert!(!replace::finish(&folder)?);
    assert!(!next.exists());
    assert_eq!(Switch::open(&folder)?.directory().slots(), 33);

    // With one, it is: also if some of its pins were moved.
    let mut new = Switch::load(&limits(64))?;
    carried(&old, &mut new)?;
    new.pin(&next)?;
    new.set_identity(IPV4.into(), MAC)?;
    for name in ["mind_switch", "PORTS", "SLOTS"] {
        std::fs::rename(next.join(name), folder.join(name))?;
    }
    assert!(replace::finish(&folder)?);
    has_everything(&folder, 64, 30)?;

    // What was never finished goes with the rest.
    let mut new = Switch::load(&limits(64))?;
    new.pin(&next)?;
    Switch::unpin(&folder)?;
    assert!(!folder.exists());
    Ok(())
}

#[test]
fn the_layout_has_a_name() -> Result<()> {
    let layout = object_layout()?;
    assert_eq!(layout.len(), 64);
    assert_eq!(layout, object_layout()?);
    Ok(())
}
