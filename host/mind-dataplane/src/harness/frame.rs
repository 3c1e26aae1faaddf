//! Frames: built as blades build them, corrupted on purpose, and read back.

use mind_common::addr::Page;
use mind_machines::datagram::Body;
use std::net::Ipv4Addr;

use mind_common::{
    checksum,
    serial::Seq,
    wire::{BTH_LEN, Malformed, OUTER_LEN, UDP_PORT},
};
use mind_machines::datagram::{Datagram, Envelope};

/// A host's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IPv4 address.
    pub ipv4: Ipv4Addr,
}

impl Host {
    /// A host with that number, below 256.
    pub const fn numbered(number: u8) -> Self {
        Self {
            mac: [2, 0, 0, 0, 0, number],
            ipv4: Ipv4Addr::new(10, 0, 0, number),
        }
    }
}

const ETHERTYPE: usize = 12;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TTL: usize = ETHERNET + 8;
const CHECK: usize = ETHERNET + 10;
const START_TTL: u8 = 64;

/// A frame that is about to be sent: a message and its envelope, then whatever is changed about
/// the bytes.
#[derive(Clone, Debug)]
pub struct Packet {
    bytes: Vec<u8>,
}

impl Packet {
    /// A frame with `message`, from `from` to `to`, on the connection `qp`, as request number 1.
    pub fn new(message: &Body<&Page>, from: Host, to: Host, qp: u32) -> Self {
        let envelope = Envelope {
            qp,
            seq: Seq::new(1),
            attempt: 0,
        };
        let mut payload = vec![0; message.wire_len()];
        Datagram {
            envelope,
            body: *message,
        }
        .emit_into(&mut payload)
        .expect("the buffer is as long as the message");
        let mut bytes = Vec::with_capacity(OUTER_LEN + payload.len());
        bytes.extend(to.mac);
        bytes.extend(from.mac);
        bytes.extend([0x08, 0x00]);
        bytes.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, START_TTL, 17, 0, 0]);
        bytes.extend(from.ipv4.octets());
        bytes.extend(to.ipv4.octets());
        // RoCEv2 lets the sender choose.
        bytes.extend(0xc000_u16.to_be_bytes());
        bytes.extend(UDP_PORT.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        let mut packet = Self { bytes };
        packet.set_lengths();
        packet
    }

    /// With that sequence number.
    #[must_use]
    pub fn seq(self, seq: u32) -> Self {
        self.put(OUTER_LEN + 9, &seq.to_be_bytes()[1..])
    }

    /// Asked `attempt` times before.
    #[must_use]
    pub fn attempt(self, attempt: u8) -> Self {
        self.put(OUTER_LEN + 8, &[attempt])
    }

    /// On that connection.
    #[must_use]
    pub fn qp(self, qp: u32) -> Self {
        self.put(OUTER_LEN + 5, &qp.to_be_bytes()[1..])
    }

    /// With that opcode.
    #[must_use]
    pub fn opcode(self, opcode: u8) -> Self {
        self.put(OUTER_LEN, &[opcode])
    }

    /// With `bytes` at `at` of the header behind the BTH.
    #[must_use]
    pub fn extended(self, at: usize, bytes: &[u8]) -> Self {
        self.put(OUTER_LEN + BTH_LEN + at, bytes)
    }

    /// With `bytes` at `at` of the IPv4 header, whose checksum follows.
    #[must_use]
    pub fn ip(self, at: usize, bytes: &[u8]) -> Self {
        let mut packet = self.put(ETHERNET + at, bytes);
        packet.set_checksum();
        packet
    }

    /// With `bytes` at `at` of the UDP header.
    #[must_use]
    pub fn udp(self, at: usize, bytes: &[u8]) -> Self {
        self.put(ETHERNET + IPV4 + at, bytes)
    }

    /// With `bytes` at `at` of the frame; checksums and lengths stay as they are.
    #[must_use]
    pub fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// With that time to live.
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Self {
        self.ip(8, &[ttl])
    }

    /// With a UDP payload of `len` bytes: cut off, or padded with zeros.
    #[must_use]
    pub fn payload_len(mut self, len: usize) -> Self {
        self.bytes.resize(OUTER_LEN + len, 0);
        self.set_lengths();
        self
    }

    /// Cut off after `len` bytes; the headers' lengths stay as they are.
    #[must_use]
    pub fn cut_to(mut self, len: usize) -> Self {
        self.bytes.truncate(len);
        self
    }

    /// With a VLAN tag in its place, as it travels.
    #[must_use]
    pub fn vlan(self) -> Self {
        self.tag(0x8100, 5)
    }

    /// With a tag of the EtherType `kind` before all others, for the VLAN `vlan`; 0 is none.
    #[must_use]
    pub fn tag(mut self, kind: u16, vlan: u16) -> Self {
        let [kind, vlan] = [kind, vlan].map(u16::to_be_bytes);
        self.bytes
            .splice(ETHERTYPE..ETHERTYPE, [kind, vlan].concat());
        self
    }

    /// With IPv4 options: `options`, in whole words of four bytes, at most ten. To be called after
    /// all that changes the headers.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        let words = (IPV4 + options.len()) / 4;
        assert!(options.len().is_multiple_of(4) && words < 16);
        self.bytes[ETHERNET] = 0x40 | words as u8;
        let len = (self.bytes.len() - ETHERNET + options.len()) as u16;
        self.bytes[ETHERNET + 2..][..2].copy_from_slice(&len.to_be_bytes());
        let at = ETHERNET + IPV4;
        self.bytes.splice(at..at, options.iter().copied());
        self.bytes[CHECK..CHECK + 2].fill(0);
        let check = checksum::of(&self.bytes[ETHERNET..at + options.len()]);
        self.bytes[CHECK..CHECK + 2].copy_from_slice(&check);
        self
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn set_lengths(&mut self) {
        let ip = (self.bytes.len() - ETHERNET) as u16;
        let udp = ip - IPV4 as u16;
        self.bytes[ETHERNET + 2..][..2].copy_from_slice(&ip.to_be_bytes());
        self.bytes[ETHERNET + IPV4 + 4..][..2].copy_from_slice(&udp.to_be_bytes());
        self.set_checksum();
    }

    fn set_checksum(&mut self) {
        self.bytes[CHECK..CHECK + 2].fill(0);
        let check = checksum::of(&self.bytes[ETHERNET..ETHERNET + IPV4]);
        self.bytes[CHECK..CHECK + 2].copy_from_slice(&check);
    }
}

/// A frame that a program returned or sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    bytes: Vec<u8>,
}

impl Seen {
    /// The frame with these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The source addresses.
    pub fn from(&self) -> Host {
        Host {
            mac: self.array(6),
            ipv4: self.array::<4>(ETHERNET + 12).into(),
        }
    }

    /// The destination addresses.
    pub fn to(&self) -> Host {
        Host {
            mac: self.array(0),
            ipv4: self.array::<4>(ETHERNET + 16).into(),
        }
    }

    /// Whether its IPv4 header's checksum is right.
    pub fn has_right_checksum(&self) -> bool {
        checksum::of(&self.bytes[ETHERNET..ETHERNET + IPV4]) == [0; 2]
    }

    /// Whether it has made one hop since it was built.
    pub fn has_lowered_ttl(&self) -> bool {
        self.bytes[TTL] == START_TTL - 1
    }

    /// Whether the lengths of IPv4 and UDP are the frame's.
    pub fn has_right_lengths(&self) -> bool {
        let ip = u16::from_be_bytes(self.array(ETHERNET + 2));
        let udp = u16::from_be_bytes(self.array(ETHERNET + IPV4 + 4));
        usize::from(ip) + ETHERNET == self.bytes.len() && udp + IPV4 as u16 == ip
    }

    /// Whether it comes from RoCEv2's port and goes to it, as blades expect of the switch.
    pub fn has_right_ports(&self) -> bool {
        let ports: [[u8; 2]; 2] = [0, 2].map(|at| self.array(ETHERNET + IPV4 + at));
        ports == [UDP_PORT.to_be_bytes(); 2]
    }

    /// Its opcode, also one that never leaves the switch.
    pub fn opcode(&self) -> u8 {
        self.bytes[OUTER_LEN]
    }

    /// Its UDP payload.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[OUTER_LEN..]
    }

    /// The datagram in it.
    ///
    /// # Errors
    ///
    /// When it is not a datagram that a blade receives.
    pub fn datagram(&self) -> Result<Datagram<&Page>, Malformed> {
        Datagram::parse(self.payload())
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N]
            .try_into()
            .expect("the slice has that length")
    }
}
