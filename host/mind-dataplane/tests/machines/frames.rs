//! Packets of the machines as frames, and back; the hosts' addresses.

use std::rc::Rc;

use mind_common::{
    addr::{PAGE_SIZE, Page},
    id::BladeId,
    wire::Opcode,
};
use mind_dataplane::harness::{Host, Packet as Frame, Seen};
use mind_machines::{
    Node,
    datagram::{Body, Content, Datagram},
};

/// The switch.
pub const SWITCH: Host = Host::numbered(254);

/// A whole page.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Bytes(pub Rc<Page>);

/// Its beginning: a failure prints packets.
impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?}..", &self.0[..16])
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self(Rc::new([0; PAGE_SIZE]))
    }
}

impl Bytes {
    /// A page whose words differ.
    pub fn drawn(random: &mut fastrand::Rng) -> Self {
        let salt = random.u8(..);
        Self(Rc::new(std::array::from_fn(|at| {
            (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ salt
        })))
    }
}

impl Content for Bytes {
    fn word(&self, index: usize) -> u64 {
        let bytes = self.0[index * 8..][..8].try_into();
        u64::from_ne_bytes(bytes.expect("a word has 8 bytes"))
    }

    fn set_word(&mut self, index: usize, value: u64) {
        Rc::make_mut(&mut self.0)[index * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
}

/// The compute blade with that number.
pub fn blade(number: u8) -> BladeId {
    BladeId::new(number).expect("a blade's number is below 32")
}

/// The addresses of a node.
pub fn host(node: Node) -> Host {
    match node {
        Node::Compute(blade) => Host::numbered(1 + blade.get()),
        Node::Memory(number) => Host::numbered(101 + number),
    }
}

/// `packet` on its way between two hosts. What never leaves the switch looks like an INVALIDATE.
pub fn frame(packet: &Datagram<Bytes>, from: Host, to: Host) -> Frame {
    let envelope = packet.envelope;
    let page: &Page = packet.data().map_or(&[0; PAGE_SIZE], |data| &data.0);
    let message = match packet.body.clone() {
        Body::FanOut { invalidation, .. } => Body::Invalidate(invalidation),
        body => body.map(|_| page),
    };
    let frame = Frame::new(&message, from, to, envelope.qp)
        .seq(envelope.seq.get())
        .attempt(envelope.attempt);
    match packet.body {
        Body::FanOut { .. } => frame.opcode(Opcode::FanOut as u8),
        _ => frame,
    }
}

/// The packet that a frame is.
pub fn packet(seen: &Seen) -> Datagram<Bytes> {
    let datagram = seen.datagram().expect("a datagram that blades get");
    datagram.map(|page| Bytes(Rc::new(*page)))
}
