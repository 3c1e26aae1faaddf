//! Packets for several blades that XDP hands over, and the copies that are to be sent for each.

use std::{
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
};

use aya::maps::{Array, Map, MapData, MapError, RingBuf};
use mind_common::{
    id::BladeId,
    rewrite,
    table::{HandedOver, Peer},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{Error, Result, value::Plain};

/// The ring of packets, and the addresses of blades. Readable ([`AsFd`]) when there is something to
/// copy.
pub struct Copies {
    ring: RingBuf<MapData>,
    compute: Array<MapData, Plain<Peer>>,
}

/// The result of [`Copies::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Packets that were handed over.
    pub packets: u64,
    /// Copies of them that were given out.
    pub copies: u64,
    /// Copies not made because the blade is not present.
    pub missing: u64,
}

impl Copies {
    pub(crate) fn new(ring: Map, compute: Map) -> Result<Self> {
        let unfit = |name| {
            move |source: MapError| Error::Map {
                name,
                source: Box::new(source),
            }
        };
        Ok(Self {
            ring: ring.try_into().map_err(unfit("HANDED_OVER"))?,
            compute: compute.try_into().map_err(unfit("COMPUTE"))?,
        })
    }

    /// Takes all packets out of the ring, and gives each copy, the UDP payload of an INVALIDATE, to `send` with the
    /// address of its blade.
    pub fn take(&mut self, mut send: impl FnMut(Ipv4Addr, &[u8])) -> Taken {
        let mut taken = Taken::default();
        while let Some(item) = self.ring.next() {
            // The programs write nothing else to the ring.
            let Ok(packet) = HandedOver::read_from_bytes(&item) else {
                continue;
            };
            taken.packets += 1;
            let peer = |blade: BladeId| {
                let peer = self.compute.get(&blade.get().into(), 0).ok()?.0;
                peer.is_present().then_some(peer)
            };
            let connection = |blade| peer(blade).map(|peer| peer.connection_of(blade));
            for (blade, copy) in rewrite::copies(packet, connection) {
                match copy.zip(peer(blade)) {
                    Some((copy, peer)) => {
                        taken.copies += 1;
                        send(peer.ipv4.into(), copy.as_bytes());
                    }
                    None => taken.missing += 1,
                }
            }
        }
        taken
    }
}

impl AsFd for Copies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
