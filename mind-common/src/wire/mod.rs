//! The wire format: RoCEv2 datagrams (UDP port 4791), and the coherence header.
//!
//! Ethernet, IPv4 and UDP are the kernel's and `network-types`'; here begins the UDP payload:
//!
//! ```text
//! BTH 12 | RETH 16  | padding                READ request, ACQUIRE, UPGRADE
//! BTH 12 | RETH 16  | ImmDt 4 | page 4096    WRITE with immediate (a write-back)
//! BTH 12 | AETH  4  | page 4096              READ response
//! BTH 12 | AETH  4  | padding                acknowledgement and refusal
//! BTH 12 | AtomicETH 28                      CmpSwap, FetchAdd
//! BTH 12 | AETH  4  | value 8                atomic acknowledgement
//! BTH 12 | CETH 32  | padding or page 4096   INVALIDATE and what answers it
//! ```
//!
//! Opcodes and headers of RDMA are those of the InfiniBand Architecture Specification (volume 1,
//! chapter 9); coherence uses the manufacturer opcodes (0xC0 to 0xFF, table 38 there) with one
//! extended header of our own, [`ceth`]. UDP checksums are 0, ICRCs absent.
//!
//! An XDP program cannot grow a packet, so a request for a page is as long as the answer
//! ([`PAGE_REQUEST_LEN`]): the responder overwrites the padding. No program on the way shrinks a
//! packet either, so an answer may be followed by padding, too.
//!
//! Header structs are plain bytes in network order, of alignment 1: a program for the switch
//! lays them over the packet. The whole datagram, as blades see it, is `mind_machines::datagram`.

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod ceth;
pub mod malformed;
pub mod opcode;
pub mod reth;

use crate::addr::PAGE_SIZE;

pub use aeth::{Aeth, Syndrome};
pub use atomic::{Atomic, AtomicEth};
pub use bth::Bth;
pub use ceth::{Ceth, Cost, Invalidation};
pub use malformed::Malformed;
pub use opcode::Opcode;
pub use reth::Reth;

/// UDP destination port of RoCEv2 (assigned by IANA).
pub const UDP_PORT: u16 = 4791;

/// Bytes of Ethernet, IPv4 (without options) and UDP header before the BTH.
pub const OUTER_LEN: usize = 14 + 20 + 8;
/// Bytes of a BTH.
pub const BTH_LEN: usize = 12;
/// Bytes of a RETH.
pub const RETH_LEN: usize = 16;
/// Bytes of an AETH.
pub const AETH_LEN: usize = 4;
/// Bytes of an AtomicETH.
pub const ATOMIC_LEN: usize = 28;
/// Bytes of the immediate of a WRITE.
pub const IMM_LEN: usize = 4;
/// Bytes of the coherence header.
pub const CETH_LEN: usize = 32;

/// UDP payload of a READ response.
pub const READ_RESPONSE_LEN: usize = BTH_LEN + AETH_LEN + PAGE_SIZE;
/// UDP payload of a request for a page: padded to what answers it.
pub const PAGE_REQUEST_LEN: usize = READ_RESPONSE_LEN;
/// UDP payload of a WRITE with immediate.
pub const WRITE_LEN: usize = BTH_LEN + RETH_LEN + IMM_LEN + PAGE_SIZE;
/// UDP payload of a page that an owner forwards.
pub const FORWARD_LEN: usize = BTH_LEN + CETH_LEN + PAGE_SIZE;
/// Least UDP payload of a request without a page: the switch turns it into an INVALIDATE where
/// it stands, so there must be room for the coherence header.
pub const SHORT_REQUEST_LEN: usize = BTH_LEN + CETH_LEN;
/// UDP payload of an atomic request: padded to hold its answer and no shorter than other requests.
pub const ATOMIC_REQUEST_LEN: usize = SHORT_REQUEST_LEN;
/// The longest datagram without its page or padding.
pub const PAGELESS_LEN: usize = BTH_LEN + CETH_LEN;
/// The longest UDP payload of this protocol.
pub const MAX_LEN: usize = FORWARD_LEN;

const _: () = assert!(size_of::<Bth>() == BTH_LEN);
const _: () = assert!(size_of::<Reth>() == RETH_LEN);
const _: () = assert!(size_of::<Aeth>() == AETH_LEN);
const _: () = assert!(size_of::<AtomicEth>() == ATOMIC_LEN);
const _: () = assert!(size_of::<Ceth>() == CETH_LEN);
const _: () = assert!(BTH_LEN + ATOMIC_LEN <= ATOMIC_REQUEST_LEN);
// A frame must fit where jumbo frames are 9000 bytes, as on most Ethernet.
const _: () = assert!(20 + 8 + MAX_LEN <= 9000);
