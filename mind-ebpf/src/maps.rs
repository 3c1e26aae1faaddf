//! The maps, one object's worth: a switch and a memory blade load the same object and leave the
//! other's maps at one entry. The sizes given here are the least; the loader sets the real ones.
//!
//! The layouts of keys and values are in [`mind_common::table`].

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    macros::map,
    maps::{Array, DevMap, HashMap, LpmTrie, PerCpuArray, RingBuf},
};
use mind_common::{
    id::MAX_BLADES,
    losses::LossPoint,
    memo::GENERATIONS,
    table::{
        BlockHead, BlockTable, FreeKind, FreeList, Generation, Operation, PageGroup, PageValue,
        Peer, Port, Protection, ProtectionKey, Responder, Slot, Switch, Translation,
        TranslationKey,
    },
    trace::{Record, Tracing},
    verdict::Counters,
};

/// Each port's counters, by ingress interface; those of interfaces beyond the end are entry 0's.
#[map]
pub static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(1, 0);

/// How many packets are still to be dropped on purpose, by [`LossPoint`].
#[map]
pub static LOSSES: Array<u64> = Array::with_max_entries(LossPoint::COUNT, 0);

/// The switch itself.
#[map]
pub static SWITCH: Array<Switch> = Array::with_max_entries(1, 0);
/// The ports, by interface.
#[map]
pub static PORTS: Array<Port> = Array::with_max_entries(1, 0);
/// Where frames can be redirected to, by interface.
#[map]
pub static DEVICES: DevMap = DevMap::with_max_entries(1, 0);
/// The compute blades, by number.
#[map]
pub static COMPUTE: Array<Peer> = Array::with_max_entries(MAX_BLADES as u32, 0);
/// The memory blades, by number.
#[map]
pub static MEMORY: Array<Peer> = Array::with_max_entries(MAX_BLADES as u32, 0);
/// The blades on which a protection domain is placed, one bit each, by domain.
#[map]
pub static GRANTS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// What a protection domain may do with an address.
#[map]
pub static PROTECTION: LpmTrie<ProtectionKey, Protection> = LpmTrie::with_max_entries(1, 0);
/// Where an address is stored.
#[map]
pub static TRANSLATION: LpmTrie<TranslationKey, Translation> = LpmTrie::with_max_entries(1, 0);
/// The generations of blocks, which say with those of domains whether a slot's memo is valid.
#[map]
pub static BLOCK_GENERATIONS: Array<Generation> =
    Array::with_max_entries(GENERATIONS, BPF_F_MMAPABLE);
/// The generations of protection domains.
#[map]
pub static DOMAIN_GENERATIONS: Array<u64> = Array::with_max_entries(GENERATIONS, BPF_F_MMAPABLE);
/// The directory's index: which head a block has, by the block's number. Entries take memory only while they are there.
#[map]
pub static BLOCKS: HashMap<u64, u32> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);
/// The directory's index: what a block's pages find. The first is never used; so it is with tables, groups and slots.
#[map]
pub static HEADS: Array<BlockHead> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The directory's index: the slots of a block's units.
#[map]
pub static TABLES: Array<BlockTable> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The directory's index: the slots of a unit's pages.
#[map]
pub static GROUPS: Array<PageGroup> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// What is in no use, by [`FreeKind`].
#[map]
pub static FREE: Array<FreeList> =
    Array::with_max_entries(FreeKind::ALL.len() as u32, BPF_F_MMAPABLE);
/// Tells the controller that little is left: the [`FreeKind`] of what, as a `u64`.
#[map]
pub static SHORT: RingBuf = RingBuf::with_byte_size(4096, 0);
/// The directory's slots.
#[map]
pub static SLOTS: Array<Slot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// A bit for each slot: whether pages of its region were falsely invalidated since the controller looked last.
#[map]
pub static INVALIDATED: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// What the controller is to copy, as [`HandedOver`](mind_common::table::HandedOver)s.
#[map]
pub static HANDED_OVER: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Which packets are traced.
#[map]
pub static TRACING: Array<Tracing> = Array::with_max_entries(1, 0);
/// The record of the packet at hand.
#[map]
pub static TRACED: PerCpuArray<Record> = PerCpuArray::with_max_entries(1, 0);
/// The records of traced packets.
#[map]
pub static RECORDS: RingBuf = RingBuf::with_byte_size(4096, 0);
/// How many records found no room there.
#[map]
pub static LOST_RECORDS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// A memory blade itself.
#[map]
pub static RESPONDER: Array<Responder> = Array::with_max_entries(1, 0);
/// A memory blade's pages.
#[map]
pub static PAGES: Array<PageValue> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// A [`PageTag`](mind_common::table::PageTag) for each.
#[map]
pub static TAGS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Each compute blade's latest atomic operation.
#[map]
pub static OPERATIONS: Array<Operation> =
    Array::with_max_entries(MAX_BLADES as u32, BPF_F_MMAPABLE);
