//! Programs of the pipeline bench and the tests; none of them is ever attached.
//!
//! A test run (`BPF_PROG_TEST_RUN`) repeats a program on one frame without restoring what the
//! program changed. So the bench's program restores it, from a map, and then calls the program
//! under test.

use core::sync::atomic::{Ordering, compiler_fence};

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
        unsafe {
            (&raw mut (*slot).word).write_volatile(template.word);
            if template.clear_memo != 0 {
                (&raw mut (*slot).permit).write_volatile(0);
            }
        }
    }
}

/// Writes `headers` field by field, each in the width in which the switch reads it. Copied as a
/// whole they go byte by byte, in a loop; copied in wider words, the processor cannot hand what was
/// just written to reads across two of them, and waits. The bench would time either.
#[inline(always)]
fn copy(to: *mut u8, headers: &Headers) {
    let mut copy = Copy {
        from: headers.0.as_ptr(),
        to,
        at: 0,
    };
    // Ethernet: two addresses and the type.
    copy.next::<u32>().next::<u16>();
    copy.next::<u32>().next::<u16>().next::<u16>();
    // IPv4: version, service; length, identification, fragment; time to live, protocol; checksum;
    // two addresses.
    copy.next::<u8>().next::<u8>();
    copy.next::<u16>().next::<u16>().next::<u16>();
    copy.next::<u8>().next::<u8>().next::<u16>();
    copy.next::<u32>().next::<u32>();
    // UDP: ports, length, checksum.
    copy.next::<u16>().next::<u16>();
    copy.next::<u16>().next::<u16>();
    // BTH: read in bytes.
    copy.next::<u32>().next::<u32>().next::<u32>();
    // RETH: address, domain, length; and the rest.
    copy.next::<u64>().next::<u32>().next::<u32>();
    copy.next::<u64>().next::<u64>();
}

/// A copy under way.
struct Copy {
    from: *const u8,
    to: *mut u8,
    at: usize,
}

impl Copy {
    #[inline(always)]
    fn next<T>(&mut self) -> &mut Self {
        // SAFETY: the fields are those of the headers, so they end where the headers do, and the
        // caller has checked that the packet has so many bytes.
        unsafe {
            let value = self.from.add(self.at).cast::<T>().read_unaligned();
            self.to.add(self.at).cast::<T>().write_unaligned(value);
        }
        // Or the compiler would join the fields again.
        compiler_fence(Ordering::SeqCst);
        self.at += size_of::<T>();
        self
    }
}
