//! Frames that are not for the switch and must not get past it: memory blades' responders identify
//! the switch by its address alone, and agents accept what comes to their port. A frame that a
//! blade could take for one of the switch's is dropped here; all others go to the bridge.

use core::mem::offset_of;

use aya_ebpf::programs::XdpContext;
use mind_common::wire::UDP_PORT;
use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr},
    udp::UdpHdr,
};

use mind_common::{stop, verdict::Stop};

/// VLAN tags behind which a frame is looked at. The kernel takes one off on its way over a bridge
/// before the next XDP program sees it, and a host's stack any number that name no VLAN (802.1p);
/// 802.1ad defines two.
const MAX_TAGS: usize = 2;
/// Bytes of a VLAN tag.
const TAG_LEN: usize = 4;

/// What becomes of a frame that is not for the switch, which has address `own`. Called for every
/// port, also for those of blades that are not registered.
#[inline(always)]
pub fn judge(ctx: &XdpContext, own: [u8; 4]) -> Stop {
    // A frame whose headers cannot be read is dropped.
    if is_ordinary(ctx, own).unwrap_or(false) {
        stop!(Foreign)
    } else {
        stop!(Bypass)
    }
}

/// Whether no responder and no agent can take the frame for the switch's; `None` when it ends
/// before the headers that decide it.
#[inline(always)]
fn is_ordinary(ctx: &XdpContext, own: [u8; 4]) -> Option<bool> {
    let mut at = offset_of!(EthHdr, ether_type);
    let mut ether_type = ether_type(ctx, at)?;
    for _ in 0..MAX_TAGS {
        if is_tag(ether_type) {
            at += TAG_LEN;
            ether_type = self::ether_type(ctx, at)?;
        }
    }
    if ether_type != EtherType::Ipv4 as u16 {
        return Some(!is_tag(ether_type));
    }
    at += size_of::<u16>();
    let ip = header::<Ipv4Hdr>(ctx, at)?;
    if ip.src_addr == own {
        return Some(false);
    }
    // Without its first fragment, which has the UDP header, no datagram is put together again.
    if ip.proto != IpProto::Udp as u8 || ip.frag_offset() != 0 {
        return Some(true);
    }
    // Also frames addressed to the switch: a blade that routes would forward them with its own
    // source address, reassembled or without their tag.
    let udp = header::<UdpHdr>(ctx, at + ip.ihl() as usize)?;
    Some(udp.dst != UDP_PORT.to_be_bytes())
}

/// The EtherType at `at`, in network order.
#[inline(always)]
fn ether_type(ctx: &XdpContext, at: usize) -> Option<u16> {
    header::<[u8; 2]>(ctx, at).map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Whether this announces a tag that the kernel takes off by itself (`eth_type_vlan`).
#[inline(always)]
fn is_tag(ether_type: u16) -> bool {
    ether_type == EtherType::Ieee8021q as u16 || ether_type == EtherType::Ieee8021ad as u16
}

/// The header at `at`, if the packet's linear part has all of it.
#[inline(always)]
fn header<T: Copy>(ctx: &XdpContext, at: usize) -> Option<&T> {
    const { assert!(align_of::<T>() == 1) };
    let start = ctx.data() + at;
    if start + size_of::<T>() > ctx.data_end() {
        return None;
    }
    // SAFETY: the packet has that many bytes, which nothing else reads while the program runs; this
    // file's headers are bytes, and any are one.
    Some(unsafe { &*(start as *const T) })
}
