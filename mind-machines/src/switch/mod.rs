//! The switch: its directory and its tables, and what becomes of a packet. The stages of a packet
//! are those of the XDP program, in its order; the copies that TC sends are here as well.
//!
//! Between two packets anything may change a slot or a table, as in the real switch; what one
//! packet does happens at once.

mod answer;
mod fan_out;
mod memory;
mod request;
mod slot;
mod tables;

use std::sync::Arc;

use mind_common::{
    addr::Region,
    directory::{Origin, Supply, Word},
    id::{BladeId, BladeSet, Connection, DomainId},
    rewrite,
    serial::{Seq, Version},
    verdict::{Kind, Verdict},
    wire::{Opcode, Syndrome},
};

pub use slot::Slot;
pub use tables::{Place, Port, Tables};

use crate::{
    Node,
    packet::{Body, Packet},
};

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Switch {
    slots: Vec<Slot>,
    tables: Arc<Tables>,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handled<P> {
    /// What XDP counts.
    pub verdict: Verdict,
    /// What TC counts, if XDP passed the packet up.
    pub fan_out: Option<Verdict>,
    /// What is sent, and to whom.
    pub sent: Vec<(Node, Packet<P>)>,
}

/// A stage's result: early, the verdict that ends the packet's way. Its kind says whether it is
/// dropped or goes back as a refusal.
type Staged<T> = Result<T, Verdict>;

/// A verdict, and what leaves XDP because of it.
type Left<P> = (Verdict, Exit<P>);

/// How a packet leaves XDP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Exit<P> {
    /// It ends here.
    Ends,
    /// It goes to a blade.
    To(Node, Packet<P>),
    /// TC gets it, and makes it one INVALIDATE to each blade that it lists.
    Up(Packet<P>),
    /// The controller gets it, and does the same.
    Over(Packet<P>),
}

impl Switch {
    /// A switch with that many slots, all of them free, and empty tables.
    pub fn new(slots: usize) -> Self {
        Self {
            slots: vec![Slot::default(); slots],
            tables: Arc::default(),
        }
    }

    /// What becomes of `packet`, come in at `port`.
    pub fn handle<P: Clone>(&mut self, port: Node, packet: Packet<P>) -> Handled<P> {
        let (verdict, exit) = self.ingress(port, packet);
        let (fan_out, sent) = match exit {
            Exit::Ends => (None, Vec::new()),
            Exit::To(node, packet) => (None, vec![(node, packet)]),
            Exit::Up(packet) => {
                let (verdict, copies) = self.fan_out(&packet);
                (verdict, copies)
            }
            Exit::Over(packet) => (None, self.fan_out(&packet).1),
        };
        Handled {
            verdict,
            fan_out,
            sent,
        }
    }

    /// The XDP program: what becomes of `packet`, come in at `port`.
    pub fn ingress<P>(&mut self, port: Node, packet: Packet<P>) -> (Verdict, Exit<P>) {
        let bth = packet.bth();
        match self.dispatch(port, packet) {
            Ok(left) => left,
            Err(verdict) => match verdict.kind() {
                Kind::Refused(refusal) => {
                    let bth = rewrite::answer(&bth, Opcode::Acknowledge);
                    let body = Body::Acknowledge {
                        syndrome: Syndrome::Refused(refusal),
                        version: Version::new(0),
                    };
                    (verdict, Exit::To(port, Packet::new(&bth, body)))
                }
                _ => (verdict, Exit::Ends),
            },
        }
    }

    fn dispatch<P>(&mut self, port: Node, packet: Packet<P>) -> Staged<Left<P>> {
        if packet.body.opcode() == Opcode::FanOut {
            return Err(Verdict::Internal);
        }
        match self.tables.ports.get(&port) {
            None => Err(Verdict::UnknownPort),
            Some(&Port::Compute(connection)) => self.sent_by_compute(port, connection, packet),
            Some(Port::Memory) => self.sent_by_memory(packet),
        }
    }

    /// A compute blade is who its port says, and must say the same.
    fn sent_by_compute<P>(
        &mut self,
        port: Node,
        connection: Connection,
        packet: Packet<P>,
    ) -> Staged<Left<P>> {
        if packet.envelope.qp != connection.to_qp() {
            return Err(Verdict::Impostor);
        }
        let from = connection.blade;
        match packet.body {
            Body::Request { want, page } => self.request(port, from, &packet.bth(), want, page),
            Body::Write { .. } => self.write_back(from, packet),
            Body::Atomic { .. } => self.operate(from, packet),
            Body::Answer {
                invalidation,
                fetch,
                ..
            } => {
                let supply = if fetch { Supply::Fetch } else { Supply::Grant };
                self.answer(from, supply, &invalidation, packet)
            }
            Body::Forward { invalidation, .. } => {
                self.answer(from, Supply::Forward, &invalidation, packet)
            }
            Body::ReadResponse { .. }
            | Body::Acknowledge { .. }
            | Body::AtomicAcknowledge { .. }
            | Body::Invalidate(_)
            | Body::FanOut { .. } => Err(Verdict::UnexpectedOpcode),
        }
    }

    /// A memory blade only answers; the connection, which it echoes, says whom.
    fn sent_by_memory<P>(&self, packet: Packet<P>) -> Staged<Left<P>> {
        match packet.body {
            Body::ReadResponse { .. }
            | Body::Acknowledge { .. }
            | Body::AtomicAcknowledge { .. } => {}
            _ => return Err(Verdict::UnexpectedOpcode),
        }
        let connection = Connection::from_qp(packet.envelope.qp).ok_or(Verdict::StaleConnection)?;
        let present = self.tables.compute.get(&connection.blade);
        if present != Some(&connection) {
            return Err(Verdict::StaleConnection);
        }
        let requester = Node::Compute(connection.blade);
        Ok((Verdict::Delivered, Exit::To(requester, packet)))
    }

    fn compute(&self, blade: BladeId) -> Staged<Connection> {
        let present = self.tables.compute.get(&blade);
        present.copied().ok_or(Verdict::DeadBlade)
    }

    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The tables, to be changed: one at a time, as the controller does it.
    pub fn tables_mut(&mut self) -> &mut Tables {
        Arc::make_mut(&mut self.tables)
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot at `index`, to be changed.
    pub fn slot_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    /// Puts the word `new` into the slot at `index` if `old` is there; whether it was.
    pub fn swap_word(&mut self, index: usize, old: Word, new: Word) -> bool {
        match self.slots.get_mut(index) {
            Some(slot) if slot.word == old => {
                slot.word = new;
                true
            }
            _ => false,
        }
    }

    /// The free slot at `index` becomes `region`'s, with that word, next episode: as the controller
    /// opens it.
    pub fn open(&mut self, index: usize, region: Region, word: Word) {
        if let Some(slot) = self.slots.get_mut(index) {
            let episode = slot.word.episode().next();
            *slot = Slot {
                word: Word::new(word.state(), word.requester(), episode, word.blades()),
                // Of this episode, so that those to come replace it.
                origin: Origin::new(episode, Seq::default(), region.base()),
                region: Some(region),
                ..Slot::default()
            };
        }
    }

    /// Makes the slot at `index` that of all pages of `region`; `None` for none.
    pub fn assign(&mut self, region: Region, index: Option<usize>) {
        let pages = &mut self.tables_mut().pages;
        for page in region.pages() {
            match index {
                Some(index) => pages.insert(page, index),
                None => pages.remove(&page),
            };
        }
    }

    /// Says on which blades `domain` is placed.
    pub fn place(&mut self, domain: DomainId, blades: BladeSet) {
        let grants = &mut self.tables_mut().grants;
        if blades.is_empty() {
            grants.remove(&domain);
        } else {
            grants.insert(domain, blades);
        }
    }
}
