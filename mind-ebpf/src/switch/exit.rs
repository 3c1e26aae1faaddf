//! The one place at which a frame leaves the switch's XDP program: to which device, with which
//! addresses.

use aya_ebpf::bindings::xdp_action;
use mind_common::{
    frame::Frame,
    stop,
    switch::{Exit, Left},
    table::{HandedOver, Peer, Switch},
    verdict::Staged,
};

use crate::{decision::Decision, maps};

/// Sends `frame`, whose transport headers are in place and which came in at the interface `ifindex`.
#[inline(always)]
pub fn leave(
    (verdict, exit): Left<&'static Peer>,
    frame: &mut Frame,
    switch: &Switch,
    ifindex: u32,
) -> Staged<Decision> {
    let action = match exit {
        Exit::To(peer) => {
            frame.outer.send_to(switch, peer);
            redirect(peer.ifindex)?
        }
        // Redirected rather than `XDP_TX`: what a veth port transmits waits in the peer's ring until something else
        // wakes the peer, unless the peer has an XDP program (`veth_xdp_flush` in `drivers/net/veth.c`;
        // `veth_xdp_xmit`, which a redirect takes, asks for GRO only). Compute blades have none.
        Exit::Back => {
            frame.outer.turn_back();
            redirect(ifindex)?
        }
        Exit::Up => xdp_action::XDP_PASS,
        Exit::Over => {
            // Written in place: on the stack, parts of it would not be aligned as the verifier wants them.
            let mut entry = maps::HANDED_OVER
                .reserve::<HandedOver>(0)
                .ok_or(stop!(HandOverFull))?;
            entry.write(HandedOver {
                bth: frame.bth,
                ceth: frame.ceth(),
            });
            entry.submit(0);
            xdp_action::XDP_DROP
        }
    };
    Ok(Decision { verdict, action })
}

#[inline(always)]
fn redirect(ifindex: u32) -> Staged<u32> {
    maps::DEVICES
        .redirect(ifindex, 0)
        .map_err(|_| stop!(NoDevice))
}
