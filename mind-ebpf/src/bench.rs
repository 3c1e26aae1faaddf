//! Programs of the bench and the tests; none of them is ever attached.
//!
//! A test run repeats a program on one frame without putting back what the program changed. So
//! the bench's program does it, from a map, and then calls the real one.

use aya_ebpf::{
    bindings::{TC_ACT_SHOT, xdp_action},
    helpers::generated::bpf_skb_vlan_push,
    programs::{TcContext, XdpContext},
};
use mind_common::table::{HEADERS_LEN, Headers};

use crate::maps;

/// The tag that a test puts on a frame: the protocol in network order, and some number.
const VLAN: (u16, u16) = (0x8100_u16.to_be(), 5);

/// Puts headers and slot back, then runs the XDP program under test.
#[inline(always)]
pub fn staged(ctx: &XdpContext) -> u32 {
    restore(ctx);
    // SAFETY: nothing is left to drop.
    unsafe { maps::XDP_STAGE.tail_call(ctx, 0) };
    xdp_action::XDP_ABORTED
}

/// Puts headers and slot back, and no more.
#[inline(always)]
pub fn restored(ctx: &XdpContext) -> u32 {
    restore(ctx);
    xdp_action::XDP_PASS
}

/// Sends the frame to the device under the ingress interface's number.
#[inline(always)]
pub fn redirected(ctx: &XdpContext) -> u32 {
    match maps::DEVICES.redirect(ctx.ingress_ifindex() as u32, 0) {
        Ok(action) | Err(action) => action,
    }
}

/// Tags the frame as the kernel does on its way from XDP to TC, then runs the TC program under
/// test.
#[inline(always)]
pub fn tagged(ctx: &TcContext) -> i32 {
    let (protocol, tag) = VLAN;
    // SAFETY: the context is the kernel's; nothing is left to drop.
    unsafe {
        if bpf_skb_vlan_push(ctx.skb.skb, protocol, tag) == 0 {
            maps::TC_STAGE.tail_call(ctx, 0);
        }
    }
    TC_ACT_SHOT
}

#[inline(always)]
fn restore(ctx: &XdpContext) {
    let (start, end) = (ctx.data(), ctx.data_end());
    let Some(template) = maps::TEMPLATE.get(0) else {
        return;
    };
    if start + HEADERS_LEN > end {
        return;
    }
    copy(start as *mut u8, &template.headers);
    if let Some(slot) = maps::SLOTS.get_ptr_mut(template.slot) {
        // SAFETY: the pointer is a lookup's.
        unsafe { (&raw mut (*slot).word).write_volatile(template.word) };
    }
}

/// Writes `headers` word by word; copied as a whole they go byte by byte, in a loop, and the bench
/// would time that.
#[inline(always)]
fn copy(to: *mut u8, headers: &Headers) {
    const WORD: usize = size_of::<u64>();
    const REST: usize = HEADERS_LEN % WORD;
    const { assert!(REST == 6) };
    let from = headers.0.as_ptr();
    // SAFETY: both have that many bytes, which the caller has checked for the packet.
    unsafe {
        for word in 0..HEADERS_LEN / WORD {
            let at = word * WORD;
            let value = from.add(at).cast::<u64>().read_unaligned();
            to.add(at).cast::<u64>().write_unaligned(value);
        }
        let at = HEADERS_LEN - REST;
        let value = from.add(at).cast::<u32>().read_unaligned();
        to.add(at).cast::<u32>().write_unaligned(value);
        let value = from.add(at + 4).cast::<u16>().read_unaligned();
        to.add(at + 4).cast::<u16>().write_unaligned(value);
    }
}
