//! Who the switch is, what is behind its ports, and where blades are.

use mind_common::{
    id::{BladeId, MAX_BLADES},
    table::{self, PORT_FANS_OUT, PORT_HANDS_OVER, Peer, Port},
};

use super::{COMPUTE, DEVICES, MEMORY, PORTS, SWITCH, Switch};
use crate::{Error, Result, Tally};

impl Switch {
    /// Says that a compute blade is behind an interface to which nothing can be redirected.
    #[cfg(feature = "harness")]
    pub(crate) fn misplace_compute(&mut self, blade: BladeId, peer: Peer) -> Result<()> {
        self.maps.set(COMPUTE, blade.get().into(), peer)
    }

    /// Sets who the switch is. Until then, it takes no packet for its own, and lets no RoCEv2 past.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; so with all that set something below.
    pub fn set_identity(&mut self, ipv4: std::net::Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        let value = table::Switch {
            ipv4: ipv4.octets(),
            mac,
            reserved: 0,
        };
        self.maps.set(SWITCH, 0, value)
    }

    /// Who the switch is.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; so with all that read something below.
    pub fn identity(&self) -> Result<(std::net::Ipv4Addr, [u8; 6])> {
        let value: table::Switch = self.maps.get(SWITCH, 0)?;
        Ok((value.ipv4.into(), value.mac))
    }

    /// What is behind the interface `ifindex`.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an interface beyond [`SwitchLimits::interfaces`].
    pub fn port(&self, ifindex: u32) -> Result<Port> {
        self.check_interface(ifindex)?;
        self.maps.get(PORTS, ifindex)
    }

    /// Says what is behind the interface `ifindex`. A zeroed [`Port`] for nothing any more.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an interface beyond [`SwitchLimits::interfaces`].
    pub fn set_port(&mut self, ifindex: u32, port: Port) -> Result<()> {
        self.check_interface(ifindex)?;
        self.maps.set(PORTS, ifindex, port)
    }

    /// Says whether the TC program is attached to the interface `ifindex`.
    ///
    /// # Errors
    ///
    /// As for [`set_port`](Self::set_port).
    pub fn set_fans_out(&mut self, ifindex: u32, fans_out: bool) -> Result<()> {
        let mut port = self.port(ifindex)?;
        port.flags = if fans_out {
            port.flags | PORT_FANS_OUT
        } else {
            port.flags & !PORT_FANS_OUT
        };
        self.set_port(ifindex, port)
    }

    /// Where the compute blade is.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn compute(&self, blade: BladeId) -> Result<Peer> {
        self.maps.get(COMPUTE, blade.get().into())
    }

    /// Where the memory blade `number` (below 32) is.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn memory(&self, number: u8) -> Result<Peer> {
        self.maps.get(MEMORY, number.into())
    }

    /// Says whether a packet for several blades that comes in at the interface `ifindex` is handed over to whoever
    /// reads [`Copies`], where no TC program takes it.
    ///
    /// # Errors
    ///
    /// As for [`set_port`](Self::set_port).
    pub fn set_hands_over(&mut self, ifindex: u32, hands_over: bool) -> Result<()> {
        let mut port = self.port(ifindex)?;
        port.flags = if hands_over {
            port.flags | PORT_HANDS_OVER
        } else {
            port.flags & !PORT_HANDS_OVER
        };
        self.set_port(ifindex, port)
    }

    /// Says where the compute blade is. A zeroed [`Peer`] for nowhere any more.
    ///
    /// # Errors
    ///
    /// When its interface does not exist in this network namespace, or is beyond the limit.
    pub fn set_compute(&mut self, blade: BladeId, peer: Peer) -> Result<()> {
        self.set_peer(COMPUTE, blade.get().into(), peer)
    }

    /// Says where the memory blade `number` (below 32) is. A zeroed [`Peer`] for nowhere any more.
    ///
    /// # Errors
    ///
    /// As for [`set_compute`](Self::set_compute).
    pub fn set_memory(&mut self, number: u8, peer: Peer) -> Result<()> {
        if usize::from(number) >= MAX_BLADES {
            return Err(Error::Limit {
                what: "memory blade",
                index: number.into(),
                limit: MAX_BLADES as u64,
            });
        }
        self.set_peer(MEMORY, number.into(), peer)
    }

    fn set_peer(&mut self, map: &'static str, number: u32, peer: Peer) -> Result<()> {
        if peer.is_present() {
            self.check_interface(peer.ifindex)?;
            self.maps.set_device(DEVICES, peer.ifindex, peer.ifindex)?;
        }
        self.maps.set(map, number, peer)
    }

    fn check_interface(&self, ifindex: u32) -> Result<()> {
        let limit = self.maps.capacity(PORTS)?;
        if ifindex < limit {
            return Ok(());
        }
        Err(Error::Limit {
            what: "interface",
            index: ifindex.into(),
            limit: limit.into(),
        })
    }

    /// The packets that came in at the interface `ifindex`, by verdict; for interfaces beyond the
    /// limit, ask for 0.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an interface beyond [`SwitchLimits::interfaces`].
    pub fn tally(&self, ifindex: u32) -> Result<Tally> {
        self.check_interface(ifindex)?;
        Tally::of(&self.maps, ifindex)
    }
}
