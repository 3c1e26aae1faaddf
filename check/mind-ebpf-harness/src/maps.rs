//! The maps of benches and tests. The sizes given here are the least; the loader sets the real ones.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, DevMap, ProgramArray},
};
use mind_common::table::{BlockTable, FreeKind, FreeList, PageValue, Slot, Template};

/// Where the bare switch redirects what comes in at an interface: a map of its own, or, beside a switch, that switch's,
/// which the loader finds by its pin.
#[map]
pub static DEVICES: DevMap = DevMap::with_max_entries(1, 0);
/// The page that the bare memory blade answers with.
#[map]
pub static PAGES: Array<PageValue> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The directory's slots: the map of the switch under test, which the loader finds by its pin. So are the next two.
#[map]
pub static SLOTS: Array<Slot> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The slots of blocks' units.
#[map]
pub static TABLES: Array<BlockTable> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// What is in no use.
#[map]
pub static FREE: Array<FreeList> =
    Array::with_max_entries(FreeKind::ALL.len() as u32, BPF_F_MMAPABLE);
/// The pages' tags: the map of the memory blade under test, which the loader finds by its pin.
#[map]
pub static TAGS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// What is put back before each run.
#[map]
pub static TEMPLATE: Array<Template> = Array::with_max_entries(1, 0);
/// How many runs there were that are each for another region.
#[map]
pub static RUNS: Array<u64> = Array::with_max_entries(1, 0);
/// The switch's XDP program.
#[map]
pub static XDP_STAGE: ProgramArray = ProgramArray::with_max_entries(1, 0);
/// The memory blade's program.
#[map]
pub static RESPONDER_STAGE: ProgramArray = ProgramArray::with_max_entries(1, 0);
/// The switch's TC program.
#[map]
pub static TC_STAGE: ProgramArray = ProgramArray::with_max_entries(1, 0);
