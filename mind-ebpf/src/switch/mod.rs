//! The switch: what happens to a frame that comes in at one of its ports. The stages are called
//! in the order in which a packet meets them:
//!
//! | Stage | Asks |
//! |---|---|
//! | `packet::parse` | is it RoCEv2 for the switch? |
//! | [`bypass`] | if not, may it go over the bridge? |
//! | [`ingress`] | whose port is it, and does such a blade send such a message? |
//! | [`directory`] | which slot is the page's, and what does it remember? |
//! | [`admission`] | may this blade, in this domain, touch this address; who keeps it? |
//! | [`directory`] | what does the region's word say, and what does it become? |
//! | [`request`], [`memory`], [`answer`] | what is sent for it? |
//! | [`send`] | to whom? |

mod admission;
mod answer;
mod bypass;
mod directory;
mod memory;
mod request;
mod send;

use aya_ebpf::{bindings::xdp_action, programs::XdpContext};
use mind_common::{
    directory::{Supply, Want},
    id::{BladeId, Connection},
    losses::Place,
    serial::Version,
    table::{Peer, Port, PortKind, Switch},
    verdict::Verdict,
    wire::{Opcode, Syndrome},
};

use crate::{
    decision::{Decision, Staged, Stop, count, stop},
    losses, maps,
    packet::{self, Frame},
    trace,
};

/// A frame of ours on its way through the switch.
pub struct Passage<'a> {
    /// Its headers, in the packet.
    frame: &'a mut Frame,
    /// Bytes of its UDP payload.
    len: usize,
    /// The switch itself.
    switch: &'a Switch,
    /// The interface it came in at.
    ifindex: u32,
    /// The port that this is.
    port: &'a Port,
    /// The compute blade behind that port, if there is one.
    from: BladeId,
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
    if losses::is_lost(Place::after(decision.verdict)) {
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
fn enter(ctx: &XdpContext, ifindex: u32) -> Staged {
    let switch = maps::SWITCH.get(0).ok_or(stop!(Foreign))?;
    let (frame, len) = match packet::parse(ctx, switch.ipv4) {
        Err(Stop::Pass(_)) => return Err(bypass::judge(ctx, switch.ipv4)),
        parsed => parsed?,
    };
    trace::frame(frame);
    if losses::is_lost(Place::before_raw(frame.bth.opcode)) {
        return Err(stop!(LostOnPurpose));
    }
    let port = maps::PORTS.get(ifindex).ok_or(stop!(UnknownPort))?;
    let mut passage = Passage {
        frame,
        len,
        switch,
        ifindex,
        port,
        from: BladeId::from_low_bits(port.number as u64),
    };
    match passage.dispatch() {
        Err(Stop::Refuse(verdict, refusal)) => {
            let syndrome = Syndrome::Refused(refusal);
            passage.frame.acknowledge(syndrome, Version::new(0));
            send::back(ifindex, verdict)
        }
        other => other,
    }
}

impl Passage<'_> {
    #[inline(always)]
    fn dispatch(&mut self) -> Staged {
        let opcode = Opcode::from_u8(self.frame.bth.opcode).ok_or(stop!(UnknownOpcode))?;
        if matches!(opcode, Opcode::FanOut) {
            return Err(stop!(Internal));
        }
        if self.frame.outer.is_expired() {
            return Err(stop!(Expired));
        }
        match self.port.kind() {
            PortKind::None => Err(stop!(UnknownPort)),
            PortKind::Compute => self.from_compute(opcode),
            PortKind::Memory => self.from_memory(opcode),
        }
    }

    /// A compute blade is who its port says, and must say the same.
    #[inline(always)]
    fn from_compute(&mut self, opcode: Opcode) -> Staged {
        if self.frame.bth.dest_qp() != self.port.connection {
            return Err(stop!(Impostor));
        }
        match opcode {
            Opcode::Read | Opcode::Acquire | Opcode::Upgrade => {
                let want = Want::of_request(opcode).ok_or(stop!(UnexpectedOpcode))?;
                self.request(want)
            }
            Opcode::Write => self.write_back(),
            Opcode::CmpSwap | Opcode::FetchAdd => self.operate(),
            Opcode::InvalidateAck | Opcode::InvalidateAckFetch | Opcode::Forward => {
                let supply = Supply::of_answer(opcode).ok_or(stop!(UnexpectedOpcode))?;
                self.answer(supply)
            }
            Opcode::ReadResponse
            | Opcode::Acknowledge
            | Opcode::AtomicAcknowledge
            | Opcode::Invalidate
            | Opcode::FanOut => Err(stop!(UnexpectedOpcode)),
        }
    }

    /// A memory blade only answers; the connection, which it echoes, says whom.
    #[inline(always)]
    fn from_memory(&mut self, opcode: Opcode) -> Staged {
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
        let qp = self.frame.bth.dest_qp();
        let connection = Connection::from_qp(qp).ok_or(stop!(StaleConnection))?;
        let requester = send::compute(connection.blade).ok_or(stop!(StaleConnection))?;
        if requester.connection != qp {
            return Err(stop!(StaleConnection));
        }
        self.redirect(requester, Verdict::Delivered)
    }

    /// Sends the frame, whose transport headers are in place, to `peer`.
    #[inline(always)]
    fn redirect(&mut self, peer: &Peer, verdict: Verdict) -> Staged {
        send::redirect(self.frame, self.switch, peer, verdict)
    }
}
