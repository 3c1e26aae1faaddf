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
