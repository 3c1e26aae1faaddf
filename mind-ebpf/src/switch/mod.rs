//! The switch: what happens to a frame that comes in at one of its ports. The stages are those of
//! [`mind_common::switch`], in its order; here are the maps and headers that they work on.
//!
//! | | |
//! |---|---|
//! | `packet::parse` | is it RoCEv2 for the switch? |
//! | [`bypass`] | if not, may it go over the bridge? |
//! | [`directory`] | slots, words, what began an invalidation |
//! | [`first_touch`] | a region gets its slot |
//! | [`tables`] | protection, translation, which blades are there |
//! | [`exit`] | where it leaves |

mod bypass;
mod directory;
mod exit;
mod first_touch;
mod tables;

use aya_ebpf::{bindings::xdp_action, programs::XdpContext};
use mind_common::{
    addr::{Region, Va},
    directory::{Answer, AnswerVerdict, Invalidations, Request, RequestVerdict, Transition, Word},
    frame::Frame,
    id::{BladeId, Connection, DomainId},
    losses::LossPoint,
    memo::Location,
    serial::{Seq, Version},
    stop, switch,
    table::{Peer, Port},
    verdict::{Staged, Stop, Verdict},
    wire::{AtomicEth, Bth, Ceth, Cost, Reth, Syndrome},
};

use crate::{
    decision::{Decision, count},
    losses, maps, packet, trace,
};
use directory::SlotRef;

/// A frame of this protocol on its way through the switch.
struct Passage<'a> {
    /// Its headers, in the packet.
    frame: &'a mut Frame,
    /// Bytes of its UDP payload.
    len: usize,
    /// The port at which it came in.
    port: &'a Port,
}

/// What becomes of the frame: an XDP action, counted.
#[inline(always)]
pub fn ingress(ctx: &XdpContext) -> u32 {
    let ifindex = ctx.ingress_ifindex() as u32;
    trace::begin(ifindex);
    let mut decision = match enter(ctx, ifindex) {
        Ok(decision) => decision,
        Err(Stop::Pass(verdict)) => Decision {
            verdict,
            action: xdp_action::XDP_PASS,
        },
        Err(Stop::Drop(verdict) | Stop::Refuse(verdict, _)) => Decision {
            verdict,
            action: xdp_action::XDP_DROP,
        },
    };
    if losses::is_lost(LossPoint::after(decision.verdict)) {
        decision = Decision {
            verdict: Verdict::LostOnPurpose,
            action: xdp_action::XDP_DROP,
        };
    }
    count(ctx, ifindex, decision.verdict);
    trace::end(decision.verdict);
    decision.action
}

#[inline(always)]
fn enter(ctx: &XdpContext, ifindex: u32) -> Staged<Decision> {
    let own = maps::SWITCH.get(0).ok_or(stop!(Foreign))?;
    let (frame, len) = match packet::parse(ctx, own.ipv4) {
        Err(Stop::Pass(_)) => return Err(bypass::judge(ctx, own.ipv4)),
        parsed => parsed?,
    };
    trace::frame(frame);
    if losses::is_lost(LossPoint::before_raw(frame.bth.opcode)) {
        return Err(stop!(LostOnPurpose));
    }
    let port = maps::PORTS.get(ifindex).ok_or(stop!(UnknownPort))?;
    let mut passage = Passage { frame, len, port };
    let left = switch::pass(&mut passage)?;
    exit::leave(left, passage.frame, own, ifindex)
}

impl switch::Passage for Passage<'_> {
    type Slot = SlotRef;
    type Peer = &'static Peer;

    #[inline(always)]
    fn bth(&self) -> Bth {
        self.frame.bth
    }

    #[inline(always)]
    fn payload_len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn is_expired(&self) -> bool {
        self.frame.outer.is_expired()
    }

    #[inline(always)]
    fn reth(&self) -> Reth {
        self.frame.reth()
    }

    #[inline(always)]
    fn atomic(&self) -> AtomicEth {
        self.frame.atomic()
    }

    #[inline(always)]
    fn ceth(&self) -> Ceth {
        self.frame.ceth()
    }

    #[inline(always)]
    fn put_bth(&mut self, bth: Bth) {
        self.frame.bth = bth;
    }

    #[inline(always)]
    fn put_reth(&mut self, bth: Bth, reth: Reth) {
        self.frame.put_reth(bth, reth);
    }

    #[inline(always)]
    fn put_atomic(&mut self, bth: Bth, atomic: AtomicEth) {
        self.frame.put_atomic(bth, atomic);
    }

    #[inline(always)]
    fn put_ceth(&mut self, bth: Bth, ceth: Ceth) {
        self.frame.put_ceth(bth, ceth);
    }

    #[inline(always)]
    fn put_aeth(&mut self, bth: Bth, syndrome: Syndrome, version: Version) {
        self.frame.put_aeth(bth, syndrome, version);
    }

    #[inline(always)]
    fn port(&self) -> &Port {
        self.port
    }

    #[inline(always)]
    fn compute(&self, blade: BladeId) -> Option<(&'static Peer, Connection)> {
        tables::compute(blade)
    }

    #[inline(always)]
    fn memory(&self, number: u32) -> Option<&'static Peer> {
        tables::memory(number)
    }

    #[inline(always)]
    fn is_placed(&self, domain: DomainId, blade: BladeId) -> bool {
        tables::is_placed(domain, blade)
    }

    #[inline(always)]
    fn admit(
        &mut self,
        slot: Option<SlotRef>,
        domain: DomainId,
        va: Va,
        class: u32,
    ) -> Staged<Option<Location>> {
        tables::admit(slot, domain, va, class)
    }

    #[inline(always)]
    fn translate(&self, va: Va) -> Option<Location> {
        tables::translate(va)
    }

    #[inline(always)]
    fn slot_number(&self, va: Va) -> u32 {
        directory::number(va)
    }

    #[inline(always)]
    fn slot(&self, number: u32) -> Option<SlotRef> {
        directory::slot(number)
    }

    #[inline(always)]
    fn open(&mut self, va: Va) -> u32 {
        first_touch::open(va)
    }

    #[inline(always)]
    fn request(
        &mut self,
        slot: SlotRef,
        va: Va,
        request: Request,
    ) -> Staged<(RequestVerdict, Region, Transition)> {
        slot.request(va, request)
    }

    #[inline(always)]
    fn answer(
        &mut self,
        slot: SlotRef,
        number: u32,
        va: Va,
        answer: Answer,
        cost: Cost,
    ) -> Staged<(AnswerVerdict, Transition)> {
        slot.answer(number, va, answer, cost)
    }

    #[inline(always)]
    fn word(&self, slot: SlotRef, va: Va) -> Staged<Word> {
        slot.look(va)
    }

    #[inline(always)]
    fn origin_of(
        &mut self,
        slot: SlotRef,
        invalidations: &Invalidations,
        region: Region,
        page: Va,
        seq: Seq,
    ) -> Staged<(Seq, Va)> {
        slot.origin_of(invalidations, region, page, seq)
    }

    #[inline(always)]
    fn touch(&mut self, slot: SlotRef) {
        slot.touch();
    }
}
