//! The eBPF programs of benches and tests, linked into one object. This file holds what an object has once (panic
//! handler, license) and the entry points.

#![no_std]
#![no_main]
#![allow(
    missing_docs,
    reason = "aya's macros generate an entry point beside ours without its documentation"
)]

mod bare;
mod headers;
mod maps;
mod staged;

use aya_ebpf::{
    bindings::xdp_action,
    macros::{classifier, xdp},
    programs::{TcContext, XdpContext},
};

/// Passes every frame to the host's stack. The bench's floor: what running any XDP program costs.
#[xdp(frags)]
#[inline(always)]
pub fn mind_floor(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// Redirects every frame. A limit of both benches: what a switch costs that decides nothing.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bare_redirect(ctx: XdpContext) -> u32 {
    bare::redirected(&ctx)
}

/// Answers every READ with the same page. A limit of the fault bench: what memory costs that decides nothing.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bare_answer(ctx: XdpContext) -> u32 {
    bare::answered(&ctx)
}

/// The bench: puts back what a run of the switch changes, and runs the switch.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bench_staged(ctx: XdpContext) -> u32 {
    staged::staged(&ctx)
}

/// The bench: puts back what a run changes, and no more.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bench_restored(ctx: XdpContext) -> u32 {
    staged::restored(&ctx)
}

/// The bench: puts back what a run of the memory blade changes, and runs the memory blade.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bench_served(ctx: XdpContext) -> u32 {
    staged::served(&ctx)
}

/// A test: a frame that the kernel has taken a VLAN tag off, for the switch's TC program.
#[classifier]
#[inline(always)]
pub fn mind_test_tagged(ctx: TcContext) -> i32 {
    staged::tagged(&ctx)
}

/// Never runs: the verifier accepts no program in which a panic is reachable.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel offers GPL-only helpers only to programs of an object with such a license.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
