//! The layouts of the BPF maps' keys and values: what the programs and their loader agree on.
//!
//! Every type is plain data in C layout without padding (`IntoBytes` refuses any), `u32` flags
//! instead of `bool`, and zero means "absent", as in a new map. Numbers are in host order, except
//! for the keys of the LPM tries, which the kernel compares bit by bit from the left.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U64};

use crate::{
    addr::{PAGE_SHIFT, PAGE_SIZE, Region, Va, WINDOW_BASE},
    directory::{
        Word,
        index::{PAGES_PER_UNIT, UNITS_PER_BLOCK},
    },
    id::{BladeId, Connection, DomainId},
    serial::Version,
    wire::{Bth, Ceth, OUTER_LEN, SHORT_REQUEST_LEN},
};

/// The version of what keys and values of the maps mean: one more with every change that their sizes do not show. A
/// data plane of one layout can take the place of another while programs run.
pub const LAYOUT: u32 = 1;

/// Declares a map's value: plain data, shared with the programs.
macro_rules! plain {
    ($(#[$meta:meta])* pub struct $name:ident { $($body:tt)* }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
        )]
        #[repr(C)]
        pub struct $name { $($body)* }
    };
}

mod template;

pub use template::{FirstTouch, Headers, Template};

plain! {
    /// The switch itself.
    pub struct Switch {
        /// Its IPv4 address, the only one that blades talk to.
        pub ipv4: [u8; 4],
        /// Its Ethernet address, the source of every frame that it sends.
        pub mac: [u8; 6],
        /// 0.
        pub reserved: u16,
    }
}

/// What is behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PortKind {
    /// Nothing of ours.
    None = 0,
    /// A compute blade.
    Compute = 1,
    /// A memory blade.
    Memory = 2,
}

impl PortKind {
    /// The kind with that number; [`None`](Self::None) for unknown numbers.
    #[inline(always)]
    pub const fn from_u32(number: u32) -> Self {
        match number {
            1 => Self::Compute,
            2 => Self::Memory,
            _ => Self::None,
        }
    }
}

/// Bit of [`Port::flags`]: the port's TC program is attached, so that a packet for several blades
/// may be passed up to it. Set last, cleared first.
pub const PORT_FANS_OUT: u32 = 1 << 0;

/// Bit of [`Port::flags`]: a packet for several blades may be handed over to the controller, which sends the copies.
/// Of no effect beside [`PORT_FANS_OUT`].
pub const PORT_HANDS_OVER: u32 = 1 << 1;

plain! {
    /// A port of the switch, by the index of its interface.
    pub struct Port {
        /// A [`PortKind`]'s number.
        pub kind: u32,
        /// [`PORT_FANS_OUT`], [`PORT_HANDS_OVER`] or 0.
        pub flags: u32,
        /// The blade's number among those of its kind.
        pub number: u32,
        /// Compute port: the queue pair of the blade's current [`Connection`].
        pub connection: u32,
    }
}

impl Port {
    /// The port of a compute blade, without TC.
    pub const fn compute(connection: Connection) -> Self {
        Self {
            kind: PortKind::Compute as u32,
            flags: 0,
            number: connection.blade.get() as u32,
            connection: connection.to_qp(),
        }
    }

    /// The port of the memory blade with that number.
    pub const fn memory(number: u8) -> Self {
        Self {
            kind: PortKind::Memory as u32,
            flags: 0,
            number: number as u32,
            connection: 0,
        }
    }

    /// What is behind it.
    #[inline(always)]
    pub const fn kind(&self) -> PortKind {
        PortKind::from_u32(self.kind)
    }

    /// Whether its TC program is attached.
    #[inline(always)]
    pub const fn fans_out(&self) -> bool {
        self.flags & PORT_FANS_OUT != 0
    }

    /// Whether the controller makes the copies of a packet for several blades.
    #[inline(always)]
    pub const fn hands_over(&self) -> bool {
        self.flags & PORT_HANDS_OVER != 0
    }
}

/// A packet that the controller is to copy: the headers that TC would find in one that is passed up to it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct HandedOver {
    /// As of [`rewrite::pass_up`](crate::rewrite::pass_up).
    pub bth: Bth,
    /// The coherence header, which lists the blades that get a copy.
    pub ceth: Ceth,
}

const _: () = assert!(size_of::<HandedOver>() == SHORT_REQUEST_LEN);

/// Bit of [`Peer::flags`]: the blade is present.
pub const PEER_PRESENT: u16 = 1 << 0;

plain! {
    /// Where a blade is: one table for compute blades, one for memory blades, by number.
    pub struct Peer {
        /// Its IPv4 address.
        pub ipv4: [u8; 4],
        /// Its Ethernet address.
        pub mac: [u8; 6],
        /// [`PEER_PRESENT`] or 0.
        pub flags: u16,
        /// Index of the switch's interface that leads to it; its key among the devices.
        pub ifindex: u32,
        /// Compute blade: the queue pair of its current [`Connection`].
        pub connection: u32,
    }
}

impl Peer {
    /// Whether the blade is present.
    #[inline(always)]
    pub const fn is_present(&self) -> bool {
        self.flags & PEER_PRESENT != 0
    }

    /// The compute blade's current connection. The table is by number, so the number is the
    /// caller's.
    #[inline(always)]
    pub const fn connection_of(&self, blade: BladeId) -> Connection {
        Connection {
            blade,
            incarnation: (self.connection >> 8) as u16,
        }
    }
}

/// Bit of a [permission class](Permission): pages may be read.
pub const MAY_READ: u32 = 1 << 0;
/// Bit of a [permission class](Permission): pages may be written.
pub const MAY_WRITE: u32 = 1 << 1;

/// Bit of a [permission class](Permission), alone: the memory is lost, and every access fails.
pub const IS_LOST: u32 = 1 << 2;

plain! {
    /// A permission class: what a protection domain may do with a vma (section 4.2 of the paper).
    pub struct Permission {
        /// [`MAY_READ`], [`MAY_WRITE`], both or none; or [`IS_LOST`].
        pub bits: u32,
    }
}

impl Permission {
    /// Whether all of `bits` are allowed.
    #[inline(always)]
    pub const fn allows(self, bits: u32) -> bool {
        self.bits & bits == bits
    }

    /// Whether the memory is lost.
    #[inline(always)]
    pub const fn is_lost(self) -> bool {
        self.bits & IS_LOST != 0
    }
}

plain! {
    /// A protection entry: what a domain may do with the pages of a prefix. Never changed in
    /// place: inserting a prefix again replaces the trie's node.
    pub struct Protection {
        /// What it may do.
        pub permission: Permission,
        /// log2 of the prefix's bytes, so that a program that finds the entry knows how much it
        /// covers.
        pub shift: u32,
    }
}

/// A protection entry's key, behind the prefix length: a vma's prefix in a domain.
///
/// An address is its page's number in the window, so that the key has the 64 bits that the kernel
/// compares in one step (`longest_prefix_match`): it does so at every level of the trie, and this
/// lookup is the dearest part of the fast path.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ProtectionKey {
    /// The protection domain in the upper half; which page of the window, from 0, in the lower.
    pub domain_and_page: U64,
}

impl ProtectionKey {
    /// Prefix length for a whole key, as in a lookup.
    pub const BITS: u32 = 64;

    /// The key of `va`, an address of the window, in `domain`.
    #[inline(always)]
    pub const fn new(domain: DomainId, va: Va) -> Self {
        let page = (va.0.wrapping_sub(WINDOW_BASE) >> PAGE_SHIFT) as u32;
        Self {
            domain_and_page: U64::new((domain.0 as u64) << u32::BITS | page as u64),
        }
    }

    /// Prefix length of an entry for 2^`shift` bytes, whole pages.
    pub const fn prefix_len(shift: u32) -> u32 {
        Self::BITS - (shift - PAGE_SHIFT)
    }

    /// The domain.
    pub const fn domain(&self) -> DomainId {
        DomainId((self.domain_and_page.get() >> u32::BITS) as u32)
    }

    /// The address.
    pub const fn va(&self) -> Va {
        let page = self.domain_and_page.get() as u32;
        Va(WINDOW_BASE + ((page as u64) << PAGE_SHIFT))
    }

    /// log2 of the bytes that an entry of that prefix length is for.
    pub const fn shift(prefix_len: u32) -> u32 {
        Self::BITS.saturating_sub(prefix_len) + PAGE_SHIFT
    }
}

const _: () = assert!(crate::addr::WINDOW_SIZE >> PAGE_SHIFT == 1 << u32::BITS);

/// A translation entry's key, behind the prefix length: part of the window.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TranslationKey {
    /// An address.
    pub va: U64,
}

impl TranslationKey {
    /// Prefix length for a whole key, as in a lookup.
    pub const BITS: u32 = 64;

    /// The key of `va`.
    #[inline(always)]
    pub const fn new(va: Va) -> Self {
        Self { va: U64::new(va.0) }
    }

    /// Prefix length of an entry for 2^`shift` bytes.
    pub const fn prefix_len(shift: u32) -> u32 {
        Self::BITS - shift
    }

    /// log2 of the bytes that an entry of that prefix length is for.
    pub const fn shift(prefix_len: u32) -> u32 {
        Self::BITS.saturating_sub(prefix_len)
    }
}

plain! {
    /// Where addresses of a prefix are stored. Never changed in place: inserting a prefix again
    /// replaces the trie's node.
    pub struct Translation {
        /// What to add (wrapping) to an address to get its offset in the memory blade's store.
        pub delta: u64,
        /// The memory blade's number.
        pub blade: u32,
        /// 0.
        pub reserved: u32,
    }
}

impl Translation {
    /// The entry that puts `first`, and what follows it, at `offset` bytes of a memory blade.
    pub const fn new(blade: u8, first: Va, offset: u64) -> Self {
        Self {
            delta: offset.wrapping_sub(first.0),
            blade: blade as u32,
            reserved: 0,
        }
    }

    /// Offset of `va` in the memory blade's store, in bytes.
    #[inline(always)]
    pub const fn apply(&self, va: Va) -> Va {
        Va(va.0.wrapping_add(self.delta))
    }
}

plain! {
    /// Which [memos](crate::memo) of the slots of some blocks are valid, and what else must be known of their translation.
    pub struct Generation {
        /// Counts up after every change of a translation entry of the blocks, and while a slot there changes its region;
        /// memos of an earlier number are not valid.
        pub number: u64,
        /// log2 of the bytes of the smallest translation entry that there has ever been in these blocks; 0 while
        /// there was none.
        pub finest: u32,
        /// 0.
        pub reserved: u32,
    }
}

/// A [`Head`](crate::directory::index::Head) of the directory's index.
pub type BlockHead = u64;

/// A table of the [directory's index](crate::directory::index): [`UnitEntry`](crate::directory::index::UnitEntry)s, by
/// [`unit_in_block`](crate::directory::index::unit_in_block). While it is in no use, the first entry is the number of
/// the next one in the list, and all others are 0.
pub type BlockTable = [u32; UNITS_PER_BLOCK];

/// A group of the [directory's index](crate::directory::index): the slots of a unit's pages, by
/// [`page_in_unit`](crate::directory::index::page_in_unit); 0 for none.
pub type PageGroup = [u32; PAGES_PER_UNIT];

plain! {
    /// A list of slots, heads or tables that are in no use.
    pub struct FreeList {
        /// A [`FreeTop`](crate::directory::index::free::FreeTop).
        pub top: u64,
        /// How many were taken from it so far. Wraps.
        pub taken: u64,
        /// How many were given to it so far; what is more than `taken` is in it. Wraps.
        pub given: u64,
        /// When fewer are in it, the controller is told.
        pub low: u32,
        /// Whether it has been told, and has given none back since: 1 or 0.
        pub is_told: u32,
    }
}

/// What a [`FreeList`] is of; its place among the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum FreeKind {
    /// Slots. The number of the next one is in [`Slot::place`].
    Slots = 0,
    /// Heads.
    Heads = 1,
    /// Tables.
    Tables = 2,
    /// Groups; only the controller takes them. The first entry is the number of the next one.
    Groups = 3,
}

impl FreeKind {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Slots, Self::Heads, Self::Tables, Self::Groups];

    /// The one that is stored as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::Slots,
            1 => Self::Heads,
            2 => Self::Tables,
            3 => Self::Groups,
            _ => return None,
        })
    }
}

plain! {
    /// A slot of the directory: a region's word, and what is kept beside it. One cache line.
    pub struct Slot {
        /// The [`Word`].
        pub word: u64,
        /// The region: its first address, its order in the low bits. 0 for none.
        pub region: u64,
        /// An [`Origin`](crate::directory::Origin).
        pub origin: u64,
        /// Requests for pages that were granted without an invalidation. A hint: two processors that count
        /// at once may count one. Wraps.
        pub accesses: u32,
        /// Invalidations begun. Wraps.
        pub invalidations: u32,
        /// A [`Queue`](crate::directory::Queue).
        pub queue: u64,
        /// Pages that blades dropped though the requester did not ask for them: false
        /// invalidations. Wraps.
        pub dropped: u32,
        /// Pages that blades wrote back because of an invalidation. Wraps.
        pub flushed: u32,
        /// First word of the region's [`Memo`](crate::memo::Memo): what a domain may do.
        pub permit: u64,
        /// Its second word: where the region is stored.
        pub place: u64,
    }
}

const REGION_ORDER_MASK: u64 = PAGE_SIZE as u64 - 1;

impl Slot {
    /// A fresh slot for `region`.
    pub const fn new(word: Word, region: Region) -> Self {
        Self {
            word: word.raw(),
            region: Self::pack(region),
            origin: 0,
            accesses: 0,
            invalidations: 0,
            queue: 0,
            dropped: 0,
            flushed: 0,
            permit: 0,
            place: 0,
        }
    }

    /// A region as a slot stores it.
    pub const fn pack(region: Region) -> u64 {
        region.base().0 | region.order() as u64
    }

    /// The region that a slot stores as `raw`; `None` for no region, and for values that [`pack`](Self::pack) does not
    /// return.
    pub const fn unpack(raw: u64) -> Option<Region> {
        match raw {
            0 => None,
            _ => Self::region_with(raw, Va(raw & !REGION_ORDER_MASK)),
        }
    }

    /// The region that a slot stores as `raw`, if `va` is in it.
    #[inline(always)]
    pub const fn region_with(raw: u64, va: Va) -> Option<Region> {
        match Region::containing(va, (raw & REGION_ORDER_MASK) as u8) {
            Some(region) if region.base().0 == raw & !REGION_ORDER_MASK => Some(region),
            _ => None,
        }
    }
}

plain! {
    /// A memory blade itself.
    pub struct Responder {
        /// Its IPv4 address.
        pub ipv4: [u8; 4],
        /// The switch's, the only one that it answers.
        pub switch_ipv4: [u8; 4],
    }
}

/// A page's tag in a memory blade: its version, and a bit while it is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTag(u64);

const TAG_WRITING: u64 = 1 << 63;

impl PageTag {
    /// The tag that the table stores as `raw`.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The tag of a page with that version that is not being written.
    #[inline(always)]
    pub const fn settled(version: Version) -> Self {
        Self(version.get() as u64)
    }

    /// The tag as it stands in the table.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The same, being written.
    #[inline(always)]
    #[must_use]
    pub const fn writing(self) -> Self {
        Self(self.0 | TAG_WRITING)
    }

    /// Whether the page is being written.
    #[inline(always)]
    pub const fn is_writing(self) -> bool {
        self.0 & TAG_WRITING != 0
    }

    /// The page's version.
    #[inline(always)]
    pub const fn version(self) -> Version {
        Version::new(self.0 as u32)
    }
}

plain! {
    /// A compute blade's latest atomic operation in a memory blade, by the blade's number.
    pub struct Operation {
        /// A [`Claim`](crate::memory::Claim).
        pub claim: u64,
        /// The value before it.
        pub original: u64,
    }
}

/// A page in a memory blade's store.
pub type PageValue = [u8; PAGE_SIZE];

/// How often a program tries at most to change a word that other processors change meanwhile.
pub const MAX_TRIES: u32 = 8;

/// Bytes of a frame from its first to the end of the longest header of the protocol. Every frame of it
/// has at least so many, and they are all that the switch ever writes to.
pub const HEADERS_LEN: usize = OUTER_LEN + SHORT_REQUEST_LEN;

const _: () = assert!(size_of::<Switch>() == 12);
const _: () = assert!(size_of::<Port>() == 16);
const _: () = assert!(size_of::<Peer>() == 20);
const _: () = assert!(size_of::<Permission>() == 4);
const _: () = assert!(size_of::<Protection>() == 8);
const _: () = assert!(size_of::<Generation>() == 16);
const _: () = assert!(size_of::<ProtectionKey>() * 8 == ProtectionKey::BITS as usize);
const _: () = assert!(size_of::<TranslationKey>() * 8 == TranslationKey::BITS as usize);
const _: () = assert!(size_of::<Translation>() == 16);
const _: () = assert!(size_of::<Slot>() == 64);
const _: () = assert!(size_of::<BlockTable>() == 512);
const _: () = assert!(size_of::<PageGroup>() == 16);
const _: () = assert!(size_of::<FreeList>() == 32);
const _: () = assert!(size_of::<Responder>() == 8);
const _: () = assert!(size_of::<Operation>() == 16);
const _: () = assert!(crate::addr::MAX_REGION_ORDER as u64 <= REGION_ORDER_MASK);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{MAX_REGION_ORDER, WINDOW_SIZE};
    use proptest::prelude::*;

    #[test]
    fn keys_of_tries_are_in_network_order() {
        let key = ProtectionKey::new(DomainId(0x0102_0304), Va(0x1000_0000_5000));
        assert_eq!(key.as_bytes(), [1, 2, 3, 4, 0, 0, 0, 5]);
        assert_eq!(ProtectionKey::prefix_len(PAGE_SHIFT), 64);
        assert_eq!(TranslationKey::prefix_len(PAGE_SHIFT), 52);
    }

    #[test]
    fn keys_of_tries_are_read_as_they_were_written() {
        let (domain, va) = (
            DomainId(0x0102_0304),
            Va(WINDOW_BASE + WINDOW_SIZE - 0x2000),
        );
        let key = ProtectionKey::new(domain, va);
        assert_eq!((key.domain(), key.va()), (domain, va));
        for shift in PAGE_SHIFT..40 {
            assert_eq!(
                ProtectionKey::shift(ProtectionKey::prefix_len(shift)),
                shift
            );
            assert_eq!(
                TranslationKey::shift(TranslationKey::prefix_len(shift)),
                shift
            );
        }
    }

    #[test]
    fn a_slot_of_zeros_holds_no_region() {
        let slot = Slot::default();
        assert_eq!(Slot::region_with(slot.region, Va(WINDOW_BASE)), None);
        assert_eq!(Slot::unpack(slot.region), None);
        let region = Region::containing(Va(WINDOW_BASE + 0x4000), 2).expect("a small order");
        assert_eq!(Slot::unpack(Slot::pack(region)), Some(region));
        assert_eq!(Slot::unpack(WINDOW_BASE + 0x1000 + 2), None, "not aligned");
    }

    #[test]
    fn a_port_of_zeros_is_nobodys() {
        assert_eq!(Port::default().kind(), PortKind::None);
        assert!(!Peer::default().is_present());
        assert_eq!(PortKind::from_u32(3), PortKind::None);
    }

    #[test]
    fn a_permission_class_allows_only_what_all_of_its_bits_say() {
        let read = Permission { bits: MAY_READ };
        assert!(read.allows(MAY_READ));
        assert!(!read.allows(MAY_READ | MAY_WRITE));
        assert!(!Permission::default().allows(MAY_READ));
    }

    proptest! {
        #[test]
        fn translation_puts_addresses_in_order(offset in 0..WINDOW_SIZE, at: u64) {
            let first = Va(WINDOW_BASE);
            let entry = Translation::new(3, first, at);
            prop_assert_eq!(entry.apply(Va(first.0 + offset)).0, at.wrapping_add(offset));
        }

        #[test]
        fn a_slot_has_its_regions_pages_and_no_others(
            offset in 0..WINDOW_SIZE, order in 0..=MAX_REGION_ORDER, other in 0..WINDOW_SIZE,
        ) {
            let region = Region::containing(Va(WINDOW_BASE + offset), order).unwrap();
            let va = Va(WINDOW_BASE + other);
            let found = Slot::region_with(Slot::pack(region), va);
            prop_assert_eq!(found, region.contains(va).then_some(region));
        }

        #[test]
        fn a_tag_keeps_its_version_while_the_page_is_written(version: u32) {
            let tag = PageTag::settled(Version::new(version));
            prop_assert!(!tag.is_writing());
            prop_assert!(tag.writing().is_writing());
            prop_assert_eq!(tag.writing().version(), Version::new(version));
        }
    }
}
