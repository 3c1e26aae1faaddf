//! The last stage: whom a frame goes to, and how it gets there.

use mind_common::{
    id::BladeId,
    table::{Peer, Switch},
    verdict::Verdict,
};

use crate::{
    decision::{Decision, Staged, stop},
    maps,
    packet::Frame,
};

/// Where the compute blade is, if it is there.
#[inline(always)]
pub fn compute(blade: BladeId) -> Option<&'static Peer> {
    maps::COMPUTE
        .get(blade.get() as u32)
        .filter(|peer| peer.is_present())
}

/// Where the memory blade is, if it is there.
#[inline(always)]
pub fn memory(number: u32) -> Option<&'static Peer> {
    maps::MEMORY.get(number).filter(|peer| peer.is_present())
}

/// Sends `frame` to `peer`, whole.
#[inline(always)]
pub fn redirect(frame: &mut Frame, switch: &Switch, peer: &Peer, verdict: Verdict) -> Staged {
    frame.outer.send_to(switch, peer);
    match maps::DEVICES.redirect(peer.ifindex, 0) {
        Ok(action) => Ok(Decision { verdict, action }),
        Err(_) => Err(stop!(NoDevice)),
    }
}

/// Sends `frame`, which is addressed already, out of the port at which it came in.
///
/// Redirected rather than `XDP_TX`: what a veth port transmits waits in the peer's ring until something else wakes the
/// peer, unless the peer has an XDP program (`veth_xdp_flush` in `drivers/net/veth.c`; `veth_xdp_xmit`, which a redirect
/// takes, asks for GRO only). Compute blades have none.
#[inline(always)]
pub fn back(ifindex: u32, verdict: Verdict) -> Staged {
    match maps::DEVICES.redirect(ifindex, 0) {
        Ok(action) => Ok(Decision { verdict, action }),
        Err(_) => Err(stop!(NoDevice)),
    }
}
