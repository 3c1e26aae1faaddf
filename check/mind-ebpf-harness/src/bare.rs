//! The bare network of the fault bench: a switch that decides nothing, and a memory blade that
//! always answers with the same page. Their latency is the lower limit of a remote page fault's.
//! They are attached in network namespaces of the bench only, never in a running system.
//!
//! They keep the rules of all programs here: no frame changes its length, and answers are not
//! answered, so no packet loops.

use aya_ebpf::{
    bindings::xdp_action, helpers::generated::bpf_xdp_store_bytes, programs::XdpContext,
};
use mind_common::{
    addr::PAGE_SIZE,
    frame::Frame,
    rewrite,
    serial::Version,
    table::HEADERS_LEN,
    wire::{AETH_LEN, BTH_LEN, OUTER_LEN, Opcode, Syndrome},
};

use crate::maps;

/// Where the page begins in an answer.
const PAGE_AT: u32 = (OUTER_LEN + BTH_LEN + AETH_LEN) as u32;

/// Sends the frame to the device under the ingress interface's number.
#[inline(always)]
pub fn redirected(ctx: &XdpContext) -> u32 {
    match maps::DEVICES.redirect(ctx.ingress_ifindex() as u32, 0) {
        Ok(action) | Err(action) => action,
    }
}

/// Sends a READ back with the first page of the store, as a memory blade's responder does but
/// without any check; passes everything else.
#[inline(always)]
pub fn answered(ctx: &XdpContext) -> u32 {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + HEADERS_LEN > end {
        return xdp_action::XDP_PASS;
    }
    // SAFETY: the packet has that many bytes, which nothing else reads while the program runs; any
    // bytes are a `Frame`.
    let frame = unsafe { &mut *(start as *mut Frame) };
    // Whatever address it is for.
    let own = frame.outer.ip.dst_addr;
    let is_read = frame.outer.is_for(own) && frame.bth.opcode == Opcode::Read as u8;
    if !is_read || frame.outer.is_expired() {
        return xdp_action::XDP_PASS;
    }
    let Some(page) = maps::PAGES.get_ptr_mut(0) else {
        return xdp_action::XDP_DROP;
    };
    // SAFETY: the context is the kernel's, the bytes are a whole page of a map. The helper changes
    // bytes only, in fragments, too; the headers stay where they are.
    let stored = unsafe { bpf_xdp_store_bytes(ctx.ctx, PAGE_AT, page.cast(), PAGE_SIZE as u32) };
    if stored != 0 {
        return xdp_action::XDP_DROP;
    }
    let bth = rewrite::answer(&frame.bth, Opcode::ReadResponse);
    frame.put_aeth(bth, Syndrome::Ack, Version::new(0));
    frame.outer.turn_back();
    xdp_action::XDP_TX
}
