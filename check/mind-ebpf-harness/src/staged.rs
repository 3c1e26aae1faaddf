//! Programs of the pipeline bench and the tests; none of them is ever attached.
//!
//! A test run (`BPF_PROG_TEST_RUN`) repeats a program on one frame without restoring what the
//! program changed. So the bench's programs restore it, from a map, and then call the program
//! under test.

use aya_ebpf::{
    bindings::{TC_ACT_SHOT, xdp_action},
    helpers::generated::bpf_skb_vlan_push,
    programs::{TcContext, XdpContext},
};
use mind_common::{
    addr::{INITIAL_REGION_ORDER, PAGE_SHIFT},
    directory::index::UNITS_PER_BLOCK,
    table::{FirstTouch, FreeKind, HEADERS_LEN, Template},
    wire::{BTH_LEN, OUTER_LEN},
};

use crate::{headers, maps};

/// The tag that a test puts on a frame: the protocol in network order, and some number.
const VLAN: (u16, u16) = (0x8100_u16.to_be(), 5);
/// Where a request's address is in its frame.
const VA_AT: usize = OUTER_LEN + BTH_LEN;
/// log2 of the bytes from one region to the next.
const REGION_SHIFT: u32 = PAGE_SHIFT + INITIAL_REGION_ORDER as u32;

/// Puts back what the switch changes, then runs its XDP program.
#[inline(always)]
pub fn staged(ctx: &XdpContext) -> u32 {
    restore(ctx);
    // SAFETY: nothing is left to drop.
    unsafe { maps::XDP_STAGE.tail_call(ctx, 0) };
    xdp_action::XDP_ABORTED
}

/// Puts back what the switch changes, and no more.
#[inline(always)]
pub fn restored(ctx: &XdpContext) -> u32 {
    restore(ctx);
    xdp_action::XDP_PASS
}

/// Puts back what a memory blade changes, then runs its program.
#[inline(always)]
pub fn served(ctx: &XdpContext) -> u32 {
    if let Some(template) = restore_headers(ctx)
        && let Some(tag) = maps::TAGS.get_ptr_mut(template.page)
    {
        // SAFETY: the pointer is a lookup's.
        unsafe { tag.write_volatile(template.tag) };
    }
    // SAFETY: nothing is left to drop.
    unsafe { maps::RESPONDER_STAGE.tail_call(ctx, 0) };
    xdp_action::XDP_ABORTED
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
    let Some(template) = restore_headers(ctx) else {
        return;
    };
    let mut number = template.slot;
    if template.scatter != 0 {
        let region = next_region(template.scatter);
        move_to(ctx, region);
        number += region as u32;
    }
    let Some(slot) = maps::SLOTS.get_ptr_mut(number) else {
        return;
    };
    // SAFETY: the pointer is a lookup's.
    unsafe {
        (&raw mut (*slot).word).write_volatile(template.word);
        if template.clear_memo != 0 {
            (&raw mut (*slot).permit).write_volatile(0);
        }
        if template.first_touch.table != 0 {
            (&raw mut (*slot).place).write_volatile(template.first_touch.next as u64);
            take_out(&template.first_touch);
        }
    }
}

/// The headers, and the template that they are from.
#[inline(always)]
fn restore_headers(ctx: &XdpContext) -> Option<&'static Template> {
    let (start, end) = (ctx.data(), ctx.data_end());
    let template = maps::TEMPLATE.get(0)?;
    if start + HEADERS_LEN > end {
        return None;
    }
    headers::copy(start as *mut u8, &template.headers);
    Some(template)
}

/// Which of 2^`bits` regions this run is for.
#[inline(always)]
fn next_region(bits: u32) -> u64 {
    let Some(runs) = maps::RUNS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the pointer is a lookup's; one bench runs at a time.
    let run = unsafe {
        let run = runs.read_volatile();
        runs.write_volatile(run.wrapping_add(1));
        run
    };
    Template::scattered(run, bits)
}

/// Makes the page in the frame's RETH that of the region with that number from the page's own on.
#[inline(always)]
fn move_to(ctx: &XdpContext, region: u64) {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + HEADERS_LEN > end {
        return;
    }
    let va = (start + VA_AT) as *mut u64;
    // SAFETY: the headers, which the packet has, have an address there.
    unsafe {
        let first = u64::from_be(va.read_unaligned());
        va.write_unaligned((first + (region << REGION_SHIFT)).to_be());
    }
}

/// Takes a region's slot out of the index, and gives it back to the list.
#[inline(always)]
fn take_out(first_touch: &FirstTouch) {
    if let Some(table) = maps::TABLES.get_ptr_mut(first_touch.table) {
        // SAFETY: the pointer is a lookup's, and the place below the table's length.
        unsafe {
            (&raw mut (*table)[0])
                .add(first_touch.unit as usize % UNITS_PER_BLOCK)
                .write_volatile(0);
        }
    }
    if let Some(list) = maps::FREE.get_ptr_mut(FreeKind::Slots as u32) {
        // SAFETY: the pointer is a lookup's.
        unsafe {
            (&raw mut (*list).top).write_volatile(first_touch.top);
            (&raw mut (*list).taken).write_volatile(first_touch.taken);
        }
    }
}
