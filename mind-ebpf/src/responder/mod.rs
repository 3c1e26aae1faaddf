//! A memory blade's responder: serves READ, WRITE and atomic operations on its pages from XDP,
//! and sends every frame back whole, as the answer.
//!
//! It answers the switch only, and requests only: a program that answered answers could do so for
//! ever. Each page has a [tag](mind_common::table::PageTag): its version, and a bit that a writer
//! sets before it changes the page. A reader that finds another tag after copying than before has a
//! torn page, and refuses the request.

mod operate;
mod page;
mod read;
mod write;

use aya_ebpf::{bindings::xdp_action, programs::XdpContext};
use mind_common::{
    frame::Frame,
    serial::Version,
    stop,
    verdict::{Staged, Stop, Verdict},
    wire::{Opcode, Syndrome},
};

use crate::{
    decision::{Decision, count},
    maps, packet,
};

/// A frame of this protocol in a memory blade.
pub struct Service<'a> {
    /// What the kernel gave to the program, for reaching into fragments.
    ctx: &'a XdpContext,
    /// Its headers, in the packet.
    frame: &'a mut Frame,
    /// Bytes of its UDP payload.
    len: usize,
}

/// What becomes of the frame: an XDP action, counted.
#[inline(always)]
pub fn ingress(ctx: &XdpContext) -> u32 {
    let ifindex = ctx.ingress_ifindex() as u32;
    let decision = match enter(ctx) {
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
    count(ctx, ifindex, decision.verdict);
    decision.action
}

#[inline(always)]
fn enter(ctx: &XdpContext) -> Staged<Decision> {
    let own = maps::RESPONDER.get(0).ok_or(stop!(Foreign))?;
    let (frame, len) = packet::parse(ctx, own.ipv4)?;
    if frame.outer.ip.src_addr != own.switch_ipv4 {
        return Err(stop!(NotFromSwitch));
    }
    if frame.outer.is_expired() {
        return Err(stop!(Expired));
    }
    let mut service = Service { ctx, frame, len };
    let verdict = match service.dispatch() {
        Ok(verdict) => {
            service.frame.outer.turn_back();
            verdict
        }
        Err(Stop::Refuse(verdict, refusal)) => {
            let syndrome = Syndrome::Refused(refusal);
            service.frame.acknowledge(syndrome, Version::new(0));
            verdict
        }
        Err(stop) => return Err(stop),
    };
    Ok(Decision {
        verdict,
        action: xdp_action::XDP_TX,
    })
}

impl Service<'_> {
    #[inline(always)]
    fn dispatch(&mut self) -> Staged<Verdict> {
        let opcode = Opcode::from_u8(self.frame.bth.opcode).ok_or(stop!(UnknownOpcode))?;
        match opcode {
            Opcode::Read => self.read(),
            Opcode::Write => self.write(),
            Opcode::CmpSwap | Opcode::FetchAdd => self.operate(opcode),
            Opcode::ReadResponse
            | Opcode::Acknowledge
            | Opcode::AtomicAcknowledge
            | Opcode::Acquire
            | Opcode::Upgrade
            | Opcode::Invalidate
            | Opcode::InvalidateAck
            | Opcode::InvalidateAckFetch
            | Opcode::Forward
            | Opcode::FanOut => Err(stop!(UnexpectedOpcode)),
        }
    }
}
