//! The eBPF programs of MIND, linked into one object. This file holds what an object has once (panic handler,
//! license) and the entry points; the stages live in modules of their own.

#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(
    internal_features,
    reason = "compare-and-swap exists for the BPF target as an intrinsic only"
)]
#![allow(
    missing_docs,
    reason = "aya's macros generate an entry point beside ours without its documentation"
)]

mod atomics;
mod bare;
mod bench;
mod decision;
mod fan_out;
mod losses;
mod maps;
mod packet;
mod responder;
mod switch;
mod trace;

use aya_ebpf::{
    bindings::xdp_action,
    macros::{classifier, xdp},
    programs::{TcContext, XdpContext},
};

/// The switch, on every port: decides what becomes of a frame.
#[xdp(frags)]
#[inline(always)]
pub fn mind_switch(ctx: XdpContext) -> u32 {
    switch::ingress(&ctx)
}

/// The switch, on every port behind [`mind_switch`]: sends what has to go to several blades.
#[classifier]
#[inline(always)]
pub fn mind_fan_out(ctx: TcContext) -> i32 {
    fan_out::ingress(&ctx)
}

/// A memory blade: answers the switch from its pages.
#[xdp(frags)]
#[inline(always)]
pub fn mind_responder(ctx: XdpContext) -> u32 {
    responder::ingress(&ctx)
}

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

/// Answers every READ with the same page. A limit of the fault bench: what memory costs that decides
/// nothing.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bare_answer(ctx: XdpContext) -> u32 {
    bare::answered(&ctx)
}

/// The bench: puts back what a run changes, and runs the switch's program.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bench_staged(ctx: XdpContext) -> u32 {
    bench::staged(&ctx)
}

/// The bench: puts back what a run changes, and no more.
#[xdp(frags)]
#[inline(always)]
pub fn mind_bench_restored(ctx: XdpContext) -> u32 {
    bench::restored(&ctx)
}

/// A test: a frame that the kernel has taken a VLAN tag off, for the switch's TC program.
#[classifier]
#[inline(always)]
pub fn mind_test_tagged(ctx: TcContext) -> i32 {
    bench::tagged(&ctx)
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
