//! TC: one packet that XDP passed up becomes an INVALIDATE to every blade that it lists.

use mind_common::{id::MAX_BLADES, rewrite, verdict::Verdict};

use super::Switch;
use crate::{
    Node,
    datagram::{Body, Datagram},
};

impl Switch {
    /// The copies of `packet`, and the verdict that TC counts: `None` where it leaves the packet
    /// alone.
    pub fn fan_out<P, Q>(
        &self,
        packet: &Datagram<P>,
    ) -> (Option<Verdict>, Vec<(Node, Datagram<Q>)>) {
        let Body::FanOut {
            invalidation,
            pending,
        } = packet.body
        else {
            return (None, Vec::new());
        };
        let mut verdict = Verdict::FannedOut;
        let mut copies = Vec::new();
        for copy in 0..MAX_BLADES as u8 {
            let Some(blade) = rewrite::fan_out(pending, copy) else {
                continue;
            };
            match self.tables.compute.get(&blade) {
                Some(connection) => {
                    let bth = rewrite::invalidate(*connection, packet.seq());
                    let copy = Datagram::new(&bth, Body::Invalidate(invalidation));
                    copies.push((Node::Compute(blade), copy));
                }
                None => verdict = Verdict::DeadBlade,
            }
        }
        (Some(verdict), copies)
    }
}
