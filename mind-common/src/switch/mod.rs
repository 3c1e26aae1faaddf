//! The switch: the stages of a packet, in the order in which it meets them, and how it leaves.
//!
//! Written once, for the XDP program and for the switch as a state machine. What differs between the two (where headers
//! lie, how a slot's word is swapped, what a table is) is a [`Passage`]; what is asked, in which order, and what becomes
//! of the packet is here. The program's stages before this (is it RoCEv2, is it for the switch) and the way out (to
//! which device) are the program's.
//!
//! | Stage | Asks |
//! |---|---|
//! | `dispatch` | which blade is behind the port, and does such a blade send such a message? |
//! | `admission` | may this blade, in this domain, touch this address; where is it stored? |
//! | `request`, `answer`, `to_memory` | what does the region's word say, what does it become, what is sent? |
//! | [`Exit`] | to which port? |
//!
//! A stage that ends a packet's way early returns a [`Stop`]. Everything is inlined: the verifier
//! follows each way through the program by itself.

mod admission;
mod answer;
mod request;
mod to_memory;

use crate::{
    addr::{Region, Va},
    directory::{
        Answer, AnswerVerdict, Invalidations, Request, RequestVerdict, Transition, Want, Word,
    },
    id::{BladeId, Connection, DomainId},
    memo::Location,
    serial::{Seq, Version},
    stop,
    table::{Port, PortKind},
    verdict::{Staged, Stop, Verdict},
    wire::{AtomicEth, Bth, Ceth, Cost, Opcode, Reth, Syndrome},
};

/// A packet on its way through a switch: what the stages read and write of the packet, ask of the tables, and do to the
/// directory.
///
/// Headers are read as the opcode says; a method that writes a header writes the BTH with it.
pub trait Passage {
    /// A slot of the directory.
    type Slot: Copy;
    /// The address and port of a blade that is present.
    type Peer: Copy;

    /// Its base transport header.
    fn bth(&self) -> Bth;
    /// Bytes of its UDP payload.
    fn payload_len(&self) -> usize;
    /// Whether its time to live is used up.
    fn is_expired(&self) -> bool;
    /// READ, ACQUIRE, UPGRADE, WRITE: which page.
    fn reth(&self) -> Reth;
    /// CmpSwap, FetchAdd: which word, and what to do.
    fn atomic(&self) -> AtomicEth;
    /// Answers to an INVALIDATE.
    fn ceth(&self) -> Ceth;
    /// Replaces the BTH; what follows it stays.
    fn put_bth(&mut self, bth: Bth);
    /// Makes it a message with a RETH.
    fn put_reth(&mut self, bth: Bth, reth: Reth);
    /// Makes it a message with an AtomicETH.
    fn put_atomic(&mut self, bth: Bth, atomic: AtomicEth);
    /// Makes it a message with a coherence header.
    fn put_ceth(&mut self, bth: Bth, ceth: Ceth);
    /// Makes it an acknowledgement.
    fn put_aeth(&mut self, bth: Bth, syndrome: Syndrome, version: Version);

    /// The port at which it came in.
    fn port(&self) -> &Port;
    /// The compute blade's address, and its connection; `None` if it is not present.
    fn compute(&self, blade: BladeId) -> Option<(Self::Peer, Connection)>;
    /// The memory blade's address; `None` if it is not present.
    fn memory(&self, number: u32) -> Option<Self::Peer>;
    /// Whether processes of the domain run on the blade.
    fn is_placed(&self, domain: DomainId, blade: BladeId) -> bool;
    /// Refuses unless `domain` has permission class `class` for `va`. Returns where `va` is stored, if the check found
    /// that out. `slot` is the page's, if it has one.
    ///
    /// # Errors
    ///
    /// [`Verdict::Protected`]; [`Verdict::Lost`] where the memory is lost.
    fn admit(
        &mut self,
        slot: Option<Self::Slot>,
        domain: DomainId,
        va: Va,
        class: u32,
    ) -> Staged<Option<Location>>;
    /// Where `va` is stored, as the translation trie says.
    fn translate(&self, va: Va) -> Option<Location>;

    /// The number of the page's slot; 0 if it has none, [`CLOSED`](crate::directory::index::CLOSED) if that cannot be
    /// said just now.
    ///
    /// Apart from the slot, and not optional: a number beside a pointer in one `Option` is compiled to a register that
    /// nothing was written to where there is none, which the verifier refuses.
    fn slot_number(&self, va: Va) -> u32;
    /// The slot of that number; `None` for 0 and for numbers beyond the last.
    fn slot(&self, number: u32) -> Option<Self::Slot>;
    /// Gives the region of a page that had none a slot, with the word of a region that no blade has, unless another
    /// packet did so meanwhile. The slot's number; 0 if none is left, `CLOSED` as for
    /// [`slot_number`](Self::slot_number).
    fn open(&mut self, va: Va) -> u32;
    /// A request for the page at `va`: changes the word as the directory's machine says. Returns what to do, the page's
    /// region, and the transition if the request is granted.
    ///
    /// # Errors
    ///
    /// [`Verdict::Moved`] where the slot belongs to another region by now, [`Verdict::Contended`]
    /// where the word changed too often meanwhile.
    fn request(
        &mut self,
        slot: Self::Slot,
        va: Va,
        request: Request,
    ) -> Staged<(RequestVerdict, Region, Transition)>;
    /// An answer to an invalidation for the page at `va`, whose slot is `slot` with that number: likewise.
    ///
    /// # Errors
    ///
    /// [`Verdict::StaleAnswer`], [`Verdict::Contended`].
    fn answer(
        &mut self,
        slot: Self::Slot,
        number: u32,
        va: Va,
        answer: Answer,
        cost: Cost,
    ) -> Staged<(AnswerVerdict, Transition)>;
    /// The slot's word, for a packet that does not change it.
    ///
    /// # Errors
    ///
    /// [`Verdict::Moved`].
    fn word(&self, slot: Self::Slot, va: Va) -> Staged<Word>;
    /// The request that began these invalidations of `region`: the request at hand, for `page` and with number `seq`,
    /// or for repeated ones the origin noted in the slot.
    ///
    /// # Errors
    ///
    /// [`Verdict::NoOrigin`].
    fn origin_of(
        &mut self,
        slot: Self::Slot,
        invalidations: &Invalidations,
        region: Region,
        page: Va,
        seq: Seq,
    ) -> Staged<(Seq, Va)>;
    /// Counts an access that needed no invalidation.
    fn touch(&mut self, slot: Self::Slot);
}

/// How a packet leaves, its transport headers in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit<P> {
    /// To a blade.
    To(P),
    /// Back to the port at which it came in, source and destination swapped.
    Back,
    /// Up to TC, which sends one INVALIDATE to each blade that it lists.
    Up,
    /// To the controller, which does the same.
    Over,
}

/// The verdict on a packet that passed all stages, and how it leaves.
pub type Left<P> = (Verdict, Exit<P>);

/// Takes a packet through all stages. A request that is refused leaves as its own refusal.
///
/// # Errors
///
/// A [`Stop`]: the packet is dropped, or the host's network stack gets it.
#[inline(always)]
pub fn pass<P: Passage>(passage: &mut P) -> Staged<Left<P::Peer>> {
    match dispatch(passage) {
        Err(Stop::Refuse(verdict, refusal)) => {
            let bth = crate::rewrite::answer(&passage.bth(), Opcode::Acknowledge);
            passage.put_aeth(bth, Syndrome::Refused(refusal), Version::new(0));
            Ok((verdict, Exit::Back))
        }
        other => other,
    }
}

#[inline(always)]
fn dispatch<P: Passage>(passage: &mut P) -> Staged<Left<P::Peer>> {
    let opcode = Opcode::from_u8(passage.bth().opcode).ok_or(stop!(UnknownOpcode))?;
    if matches!(opcode, Opcode::FanOut) {
        return Err(stop!(Internal));
    }
    if passage.is_expired() {
        return Err(stop!(Expired));
    }
    match passage.port().kind() {
        PortKind::None => Err(stop!(UnknownPort)),
        PortKind::Compute => sent_by_compute(passage, opcode),
        PortKind::Memory => sent_by_memory(passage, opcode),
    }
}

/// The port says which compute blade sent the packet; the packet's connection must say the same.
#[inline(always)]
fn sent_by_compute<P: Passage>(passage: &mut P, opcode: Opcode) -> Staged<Left<P::Peer>> {
    if passage.bth().dest_qp() != passage.port().connection {
        return Err(stop!(Impostor));
    }
    let from = BladeId::from_low_bits(passage.port().number as u64);
    match opcode {
        Opcode::Read | Opcode::Acquire | Opcode::Upgrade => {
            let want = opcode.want().ok_or(stop!(UnexpectedOpcode))?;
            request::request(passage, from, want)
        }
        Opcode::Write => to_memory::write_back(passage, from),
        Opcode::CmpSwap | Opcode::FetchAdd => to_memory::operate(passage, from),
        Opcode::InvalidateAck | Opcode::InvalidateAckFetch | Opcode::Forward => {
            let source = opcode.source().ok_or(stop!(UnexpectedOpcode))?;
            answer::answer(passage, from, source)
        }
        Opcode::ReadResponse
        | Opcode::Acknowledge
        | Opcode::AtomicAcknowledge
        | Opcode::Invalidate
        | Opcode::FanOut => Err(stop!(UnexpectedOpcode)),
    }
}

/// A memory blade only answers; the connection, which it echoes, names the blade that it answers.
#[inline(always)]
fn sent_by_memory<P: Passage>(passage: &mut P, opcode: Opcode) -> Staged<Left<P::Peer>> {
    match opcode {
        Opcode::ReadResponse | Opcode::Acknowledge | Opcode::AtomicAcknowledge => {}
        Opcode::Write
        | Opcode::Read
        | Opcode::CmpSwap
        | Opcode::FetchAdd
        | Opcode::Acquire
        | Opcode::Upgrade
        | Opcode::Invalidate
        | Opcode::InvalidateAck
        | Opcode::InvalidateAckFetch
        | Opcode::Forward
        | Opcode::FanOut => return Err(stop!(UnexpectedOpcode)),
    }
    let qp = passage.bth().dest_qp();
    let connection = Connection::from_qp(qp).ok_or(stop!(StaleConnection))?;
    let present = passage.compute(connection.blade);
    let (requester, present) = present.ok_or(stop!(StaleConnection))?;
    if present.to_qp() != qp {
        return Err(stop!(StaleConnection));
    }
    Ok((Verdict::Delivered, Exit::To(requester)))
}

/// Bytes that a request must have, and the permission that it takes.
#[inline(always)]
const fn needs(want: Want) -> (usize, u32) {
    use crate::{
        table::{MAY_READ, MAY_WRITE},
        wire::{PAGE_REQUEST_LEN, SHORT_REQUEST_LEN},
    };
    match want {
        Want::Read => (PAGE_REQUEST_LEN, MAY_READ),
        Want::Acquire => (PAGE_REQUEST_LEN, MAY_WRITE),
        Want::Upgrade => (SHORT_REQUEST_LEN, MAY_WRITE),
    }
}
