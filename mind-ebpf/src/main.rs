//! The eBPF programs of a running system, linked into one object; those of benches and tests are another object,
//! `check/mind-ebpf-harness`. This file holds what an object has once (panic handler, license) and the entry points;
//! the stages live in modules of their own.

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
mod decision;
mod fan_out;
mod losses;
mod maps;
mod packet;
mod responder;
mod switch;
mod trace;

use aya_ebpf::{
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

/// Never runs: the verifier accepts no program in which a panic is reachable.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel offers GPL-only helpers only to programs of an object with such a license.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
