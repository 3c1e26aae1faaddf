//! Where a frame's headers lie in the packet that the kernel hands to a program, on both hooks.
//!
//! Nothing here, nor anywhere in this crate, changes a frame's length in XDP. A frame of more than
//! about 3.5 KB that a socket sent into a veth reaches the peer's XDP program in fragments whose
//! memory the kernel accounts for wrongly (`skb_pp_cow_data`: the pages are a page pool's, the
//! receive queue says they are not). Releasing one, as `bpf_xdp_adjust_tail` does when it shrinks,
//! frees memory that is in use: the machine dies some time later. A test searches the object for
//! calls of helpers that change the length.

use aya_ebpf::{
    helpers::generated::bpf_xdp_get_buff_len,
    programs::{TcContext, XdpContext},
};
use mind_common::{
    frame::{Frame, Outer},
    stop,
    table::HEADERS_LEN,
    verdict::Staged,
    wire::OUTER_LEN,
};

/// The headers of a frame for `own`, where they lie in the packet, and the length of its UDP
/// payload.
///
/// The headers must be in the packet's linear part, which is where drivers put them; what lies in
/// fragments is reached by helpers only.
#[inline(always)]
pub fn parse(ctx: &XdpContext, own: [u8; 4]) -> Staged<(&mut Frame, usize)> {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + OUTER_LEN > end {
        return Err(stop!(Foreign));
    }
    // SAFETY: the packet has that many bytes, which nothing else reads while the program runs; any
    // bytes are an `Outer`.
    let outer = unsafe { &*(start as *const Outer) };
    if !outer.is_for(own) {
        return Err(stop!(Foreign));
    }
    if start + HEADERS_LEN > end {
        return Err(stop!(Truncated));
    }
    // SAFETY: as above; this is the only reference from here on.
    let frame = unsafe { &mut *(start as *mut Frame) };
    // SAFETY: the context is the one that the kernel gave to this program.
    let frame_len = unsafe { bpf_xdp_get_buff_len(ctx.ctx) };
    match frame.outer.payload_len(frame_len) {
        Some(len) => Ok((frame, len)),
        None => Err(stop!(Truncated)),
    }
}

/// The headers of a frame in TC, where they lie in the packet, if it has so many bytes. The
/// reference is invalid after every helper that may move the packet: call this again.
#[inline(always)]
pub fn headers(ctx: &TcContext) -> Option<&mut Frame> {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + HEADERS_LEN > end {
        return None;
    }
    // SAFETY: the packet has that many bytes, which nothing else reads while the program runs; any
    // bytes are a `Frame`.
    Some(unsafe { &mut *(start as *mut Frame) })
}
