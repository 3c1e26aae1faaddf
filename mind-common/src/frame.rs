//! A frame's headers, laid over the packet: what is read from them, and what is written when a frame leaves for another
//! host. The programs of both hooks and of both kinds of blades use them.

use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr},
    udp::UdpHdr,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    checksum::Change,
    rewrite,
    serial::Version,
    table::{HEADERS_LEN, Peer, Switch},
    wire::{
        Aeth, AtomicEth, Bth, CETH_LEN, Ceth, OUTER_LEN, Opcode, Reth, SHORT_REQUEST_LEN, Syndrome,
        UDP_PORT,
    },
};

/// Version 4, header of 20 bytes: no options.
const VERSION_AND_LENGTH: u8 = 0x45;
/// What of the fragment field is set in fragments: "more fragments", and the offset.
const FRAGMENT: u16 = 0x3fff;

/// Ethernet, IPv4 and UDP.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Outer {
    /// Ethernet.
    pub eth: EthHdr,
    /// IPv4, without options.
    pub ip: Ipv4Hdr,
    /// UDP.
    pub udp: UdpHdr,
}

/// All headers of a frame of this protocol. Shorter ones than [`Ceth`] are followed by padding or
/// data.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Frame {
    /// Up to UDP.
    pub outer: Outer,
    /// The base transport header.
    pub bth: Bth,
    /// The header that the opcode says.
    extended: [u8; CETH_LEN],
}

const _: () = assert!(size_of::<Outer>() == OUTER_LEN);
const _: () = assert!(size_of::<Frame>() == HEADERS_LEN);
const _: () = assert!(OUTER_LEN + SHORT_REQUEST_LEN == HEADERS_LEN);

impl Outer {
    /// Whether this is an unfragmented RoCEv2 datagram for `own`.
    #[inline(always)]
    pub fn is_for(&self, own: [u8; 4]) -> bool {
        self.eth.ether_type == EtherType::Ipv4 as u16
            && self.ip.vihl == VERSION_AND_LENGTH
            && u16::from_be_bytes(self.ip.frags) & FRAGMENT == 0
            && self.ip.proto == IpProto::Udp as u8
            && self.ip.dst_addr == own
            && self.udp.dst == UDP_PORT.to_be_bytes()
    }

    /// Bytes of the UDP payload; `None` when the lengths of IPv4, UDP and a frame of `frame_len`
    /// bytes do not agree, or there is no room for any message.
    #[inline(always)]
    pub fn payload_len(&self, frame_len: u64) -> Option<usize> {
        let datagram = u16::from_be_bytes(self.udp.len) as usize;
        let packet = u16::from_be_bytes(self.ip.tot_len) as usize;
        let agree = packet == datagram + Ipv4Hdr::LEN
            && frame_len as usize >= packet + EthHdr::LEN
            && datagram >= UdpHdr::LEN + SHORT_REQUEST_LEN;
        agree.then(|| datagram - UdpHdr::LEN)
    }

    /// Sets the lengths to those of a UDP payload of `len` bytes.
    #[inline(always)]
    pub fn set_payload_len(&mut self, len: usize) {
        let datagram = len + UdpHdr::LEN;
        let packet = ((datagram + Ipv4Hdr::LEN) as u16).to_be_bytes();
        let change = Change::NONE.of2(self.ip.tot_len, packet);
        self.ip.check = change.apply(self.ip.check);
        self.ip.tot_len = packet;
        self.udp.len = (datagram as u16).to_be_bytes();
    }

    /// Addresses it to `peer`, from the switch, and lowers its time to live.
    #[inline(always)]
    pub fn send_to(&mut self, switch: &Switch, peer: &Peer) {
        self.hop();
        self.address_to(switch, peer);
    }

    /// Addresses it to `peer`, from the switch.
    #[inline(always)]
    pub fn address_to(&mut self, switch: &Switch, peer: &Peer) {
        let change = Change::NONE
            .of4(self.ip.src_addr, switch.ipv4)
            .of4(self.ip.dst_addr, peer.ipv4);
        self.ip.check = change.apply(self.ip.check);
        self.ip.src_addr = switch.ipv4;
        self.ip.dst_addr = peer.ipv4;
        copy_mac(&mut self.eth.src_addr, &switch.mac);
        copy_mac(&mut self.eth.dst_addr, &peer.mac);
        self.come_from_roce_port();
    }

    /// Sends it back to where it came from.
    #[inline(always)]
    pub fn turn_back(&mut self) {
        self.hop();
        // Swapping the addresses leaves the sum as it is.
        (self.ip.src_addr, self.ip.dst_addr) = (self.ip.dst_addr, self.ip.src_addr);
        let from = Mac::of(&self.eth.src_addr);
        copy_mac(&mut self.eth.src_addr, &self.eth.dst_addr);
        from.put(&mut self.eth.dst_addr);
        self.come_from_roce_port();
    }

    /// Blades listen to the switch's address *and* port. RoCEv2 lets a sender choose its port.
    #[inline(always)]
    fn come_from_roce_port(&mut self) {
        self.udp.src = UDP_PORT.to_be_bytes();
        self.udp.check = [0; 2];
    }

    /// Whether its time to live is used up. Two programs that answered each other's answers would
    /// otherwise do so for ever, in the driver.
    #[inline(always)]
    pub fn is_expired(&self) -> bool {
        self.ip.ttl <= 1
    }

    /// Lowers the time to live by the hop that it is about to make.
    #[inline(always)]
    pub fn hop(&mut self) {
        let old = [self.ip.ttl, self.ip.proto];
        self.ip.ttl = self.ip.ttl.wrapping_sub(1);
        let change = Change::NONE.of2(old, [self.ip.ttl, self.ip.proto]);
        self.ip.check = change.apply(self.ip.check);
    }
}

/// An Ethernet address on its way from one place to another, in two registers. Copied as an array
/// it goes byte by byte, in a loop.
struct Mac(u32, u16);

impl Mac {
    #[inline(always)]
    fn of(address: &[u8; 6]) -> Self {
        let at = address.as_ptr();
        // SAFETY: four bytes and two, of the six that there are.
        unsafe {
            Self(
                at.cast::<u32>().read_unaligned(),
                at.add(4).cast::<u16>().read_unaligned(),
            )
        }
    }

    #[inline(always)]
    fn put(self, address: &mut [u8; 6]) {
        let at = address.as_mut_ptr();
        // SAFETY: four bytes and two, of the six that there are.
        unsafe {
            at.cast::<u32>().write_unaligned(self.0);
            at.add(4).cast::<u16>().write_unaligned(self.1);
        }
    }
}

#[inline(always)]
fn copy_mac(to: &mut [u8; 6], from: &[u8; 6]) {
    Mac::of(from).put(to);
}

impl Frame {
    /// The extended header, whatever the opcode says that it is.
    #[inline(always)]
    fn extended<T: FromBytes + Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= CETH_LEN) };
        // SAFETY: any bytes are a `T`, and there are enough of them; none of the headers has an
        // alignment, but the read does not rely on it.
        unsafe { self.extended.as_ptr().cast::<T>().read_unaligned() }
    }

    /// Writes the extended header; what follows it stays.
    #[inline(always)]
    fn set_extended<T: IntoBytes + Immutable + Copy>(&mut self, header: T) {
        const { assert!(size_of::<T>() <= CETH_LEN) };
        // SAFETY: there is room for a `T`, and it has no padding that could leak.
        unsafe {
            self.extended
                .as_mut_ptr()
                .cast::<T>()
                .write_unaligned(header)
        };
    }

    /// READ, ACQUIRE, UPGRADE, WRITE: which page.
    #[inline(always)]
    pub fn reth(&self) -> Reth {
        self.extended()
    }

    /// WRITE: which page, and the immediate behind it.
    #[inline(always)]
    pub fn write(&self) -> WriteHeader {
        self.extended()
    }

    /// CmpSwap, FetchAdd: which word, and what to do.
    #[inline(always)]
    pub fn atomic(&self) -> AtomicEth {
        self.extended()
    }

    /// INVALIDATE and its answers.
    #[inline(always)]
    pub fn ceth(&self) -> Ceth {
        self.extended()
    }

    /// Makes it a message with a RETH.
    #[inline(always)]
    pub fn put_reth(&mut self, bth: Bth, reth: Reth) {
        self.bth = bth;
        self.set_extended(reth);
    }

    /// Makes it a message with an AtomicETH.
    #[inline(always)]
    pub fn put_atomic(&mut self, bth: Bth, atomic: AtomicEth) {
        self.bth = bth;
        self.set_extended(atomic);
    }

    /// Makes it a message with a coherence header.
    #[inline(always)]
    pub fn put_ceth(&mut self, bth: Bth, ceth: Ceth) {
        self.bth = bth;
        self.set_extended(ceth);
    }

    /// Makes it a message with an AETH.
    #[inline(always)]
    pub fn put_aeth(&mut self, bth: Bth, syndrome: Syndrome, version: Version) {
        self.bth = bth;
        self.set_extended(Aeth::new(syndrome, version));
    }

    /// Makes it an atomic acknowledgement.
    #[inline(always)]
    pub fn put_original(&mut self, version: Version, original: u64) {
        self.bth = rewrite::answer(&self.bth, Opcode::AtomicAcknowledge);
        self.set_extended(OriginalHeader {
            aeth: Aeth::new(Syndrome::Ack, version),
            original: zerocopy::big_endian::U64::new(original),
        });
    }

    /// Makes a request its own acknowledgement or refusal, and turns it back. It stays as long
    /// as it is: see this file's beginning.
    #[inline(always)]
    pub fn acknowledge(&mut self, syndrome: Syndrome, version: Version) {
        let bth = rewrite::answer(&self.bth, Opcode::Acknowledge);
        self.put_aeth(bth, syndrome, version);
        self.outer.turn_back();
    }
}

/// What follows the BTH of a WRITE with immediate.
#[derive(Clone, Copy, FromBytes)]
#[repr(C)]
pub struct WriteHeader {
    /// Which page.
    pub reth: Reth,
    /// Its version.
    pub immediate: zerocopy::big_endian::U32,
}

/// What follows the BTH of an atomic acknowledgement.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct OriginalHeader {
    aeth: Aeth,
    original: zerocopy::big_endian::U64,
}
