//! The maps of benches and tests. The sizes given here are the least; the loader sets the real ones.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, DevMap, ProgramArray},
};
use mind_common::table::{PageValue, Slot, Template};

/// Where the bare switch redirects what comes in at an interface.
#[map]
pub static DEVICES: DevMap = DevMap::with_max_entries(1, 0);
/// The page that the bare memory blade answers with.
#[map]
pub static PAGES: Array<PageValue> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The directory's slots: the map of the switch under test, which the loader finds by its pin.
#[map]
pub static SLOTS: Array<Slot> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// What is put back before each run.
#[map]
pub static TEMPLATE: Array<Template> = Array::with_max_entries(1, 0);
/// The XDP program under test.
#[map]
pub static XDP_STAGE: ProgramArray = ProgramArray::with_max_entries(1, 0);
/// The TC program under test.
#[map]
pub static TC_STAGE: ProgramArray = ProgramArray::with_max_entries(1, 0);
