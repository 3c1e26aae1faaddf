//! Fan-out, in TC: one packet that XDP passed up becomes an exact INVALIDATE to every blade that
//! it lists.
//!
//! Here a frame may be trimmed: it is a socket buffer by now, and `bpf_skb_change_tail` accounts
//! for its memory correctly, unlike XDP (see `packet`). What is sent follows from the packet alone;
//! only the blades' addresses are looked up. A copy that cannot be sent counts as lost on the wire:
//! the requester's retry sends it again.

use aya_ebpf::{
    EbpfContext,
    bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::generated::bpf_skb_change_tail,
    programs::TcContext,
};
use mind_common::{
    id::{BladeId, BladeSet, MAX_BLADES},
    losses::LossPoint,
    rewrite,
    table::{HEADERS_LEN, Peer, Switch},
    verdict::Verdict,
    wire::{Opcode, SHORT_REQUEST_LEN},
};

use crate::{decision::count, losses, maps, packet};

/// Copies what XDP passed up; passes everything else on to the next TC program.
#[inline(always)]
pub fn ingress(ctx: &TcContext) -> i32 {
    // SAFETY: the context is the one that the kernel gave to this program.
    let (ifindex, tagged) = unsafe { ((*ctx.skb.skb).ifindex, (*ctx.skb.skb).vlan_present != 0) };
    let Some((switch, pending)) = passed_up(ctx, ifindex) else {
        return TC_ACT_UNSPEC;
    };
    // The kernel has taken a VLAN tag off, and XDP passes up no tagged frame of this protocol: this
    // one comes from outside, or from a blade on a VLAN whose tag XDP does not see.
    let verdict = if tagged {
        Verdict::Internal
    } else {
        multiply(ctx, switch, pending)
    };
    count(ctx, ifindex, verdict);
    TC_ACT_SHOT
}

/// The blades that get a copy, if XDP passed the frame up to be copied.
#[inline(always)]
fn passed_up(ctx: &TcContext, ifindex: u32) -> Option<(&'static Switch, BladeSet)> {
    let port = maps::PORTS.get(ifindex)?;
    let switch = maps::SWITCH.get(0)?;
    if !port.fans_out() {
        return None;
    }
    let frame = packet::headers(ctx)?;
    let is_one = frame.outer.is_for(switch.ipv4)
        && frame.outer.payload_len(ctx.len() as u64).is_some()
        && frame.bth.opcode == Opcode::FanOut as u8;
    is_one.then(|| (switch, BladeSet::from_bits(frame.ceth().pending.get())))
}

/// Trims the frame to its headers, and sends a copy to every blade in `pending`.
#[inline(always)]
fn multiply(ctx: &TcContext, switch: &Switch, pending: BladeSet) -> Verdict {
    // SAFETY: the context is the one that the kernel gave to this program; no pointer into the
    // packet is kept across the call.
    if unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), HEADERS_LEN as u32, 0) } != 0 {
        return Verdict::CopyFailed;
    }
    match packet::headers(ctx) {
        Some(frame) => {
            frame.outer.set_payload_len(SHORT_REQUEST_LEN);
            frame.outer.hop();
        }
        None => return Verdict::CopyFailed,
    }
    let mut verdict = Verdict::FannedOut;
    for copy in 0..MAX_BLADES as u8 {
        let Some(blade) = rewrite::fan_out(pending, copy) else {
            continue;
        };
        match maps::COMPUTE.get(blade.get() as u32) {
            Some(peer) if peer.is_present() => {
                if !send(ctx, switch, blade, peer) {
                    verdict = Verdict::CopyFailed;
                }
            }
            _ => verdict = Verdict::DeadBlade,
        }
    }
    verdict
}

/// Sends a copy of the frame to `blade` at `peer`; returns whether it was sent. The kernel restores
/// the frame's own headers after each copy (`bpf_clone_redirect`).
#[inline(always)]
fn send(ctx: &TcContext, switch: &Switch, blade: BladeId, peer: &Peer) -> bool {
    if losses::is_lost(LossPoint::before(Opcode::Invalidate)) {
        return false;
    }
    let Some(frame) = packet::headers(ctx) else {
        return false;
    };
    frame.bth = rewrite::invalidate(peer.connection_of(blade), frame.bth.seq());
    frame.outer.address_to(switch, peer);
    ctx.clone_redirect(peer.ifindex, 0).is_ok()
}
