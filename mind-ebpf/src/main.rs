//! The eBPF programs of MIND, linked into one object. This file holds what an object has once (panic handler,
//! license) and the entry points; the stages live in modules of their own.

#![no_std]
#![no_main]
#![allow(
    missing_docs,
    reason = "aya's macros generate an entry point beside ours without its documentation"
)]

use aya_ebpf::{bindings::xdp_action, macros::xdp, programs::XdpContext};
use mind_common as _;

/// Passes every frame to the host's stack. The bench's floor: what running any XDP program costs.
#[xdp(frags)]
pub fn mind_floor(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// Never runs: the verifier accepts no program in which a panic is reachable.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel offers GPL-only helpers to a program whose object says so here.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
