//! The switch's addresses, what is behind its ports, and the addresses and ports of blades.

use mind_common::{
    id::{BladeId, MAX_BLADES},
    table::{self, PORT_FANS_OUT, PORT_HANDS_OVER, Peer, Port},
};

use super::{COMPUTE, DEVICES, MEMORY, PORTS, SWITCH, Switch};
use crate::{Error, PacketCounters, Result};

impl Switch {
    /// Sets a compute blade behind an interface to which nothing can be redirected.
    #[cfg(feature = "harness")]
    pub(crate) fn misplace_compute(&mut self, blade: BladeId, peer: Peer) -> Result<()> {
        self.maps.set(COMPUTE, blade.get().into(), peer)
    }

    /// Sets the switch's addresses. Until then, it takes no packet for its own, and lets no RoCEv2
    /// past.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_identity(&mut self, ipv4: std::net::Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        let value = table::Switch {
            ipv4: ipv4.octets(),
            mac,
            reserved: 0,
        };
        self.maps.set(SWITCH, 0, value)
    }

    /// The switch's addresses.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn identity(&self) -> Result<(std::net::Ipv4Addr, [u8; 6])> {
        let value: table::Switch = self.maps.get(SWITCH, 0)?;
        Ok((value.ipv4.into(), value.mac))
    }

    /// What is behind the interface `ifindex`.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an interface beyond [`SwitchLimits::interfaces`](crate::SwitchLimits::interfaces).
    pub fn port(&self, ifindex: u32) -> Result<Port> {
        self.check_interface(ifindex)?;
        self.maps.get(PORTS, ifindex)
    }

    /// Sets what is behind the interface `ifindex`. A zeroed [`Port`] removes it.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an interface beyond [`SwitchLimits::interfaces`](crate::SwitchLimits::interfaces).
    pub fn set_port(&mut self, ifindex: u32, port: Port) -> Result<()> {
        self.check_interface(ifindex)?;
        self.maps.set(PORTS, ifindex, port)
    }

    /// Sets whether the TC program is attached to the interface `ifindex`.
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

    /// The compute blade's address and port.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn compute(&self, blade: BladeId) -> Result<Peer> {
        self.maps.get(COMPUTE, blade.get().into())
    }

    /// The address and port of the memory blade `number` (below 32).
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn memory(&self, number: u8) -> Result<Peer> {
        self.maps.get(MEMORY, number.into())
    }

    /// Sets whether a packet for several blades that comes in at the interface `ifindex` is handed over to the reader
    /// of [`Copies`](crate::Copies), if no TC program takes it.
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

    /// Sets the compute blade's address and port. A zeroed [`Peer`] removes it.
    ///
    /// # Errors
    ///
    /// When its interface does not exist in this network namespace, or is beyond the limit.
    pub fn set_compute(&mut self, blade: BladeId, peer: Peer) -> Result<()> {
        self.set_peer(COMPUTE, blade.get().into(), peer)
    }

    /// Sets the address and port of the memory blade `number` (below 32). A zeroed [`Peer`] removes
    /// it.
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

    /// The addresses and ports of all blades, as another switch has them.
    pub(crate) fn take_over_peers(&mut self, other: &Self) -> Result<()> {
        for number in 0..MAX_BLADES as u8 {
            let compute = BladeId::from_low_bits(number.into());
            for (map, peer) in [
                (COMPUTE, other.compute(compute)?),
                (MEMORY, other.memory(number)?),
            ] {
                if peer.is_present() {
                    self.set_peer(map, number.into(), peer)?;
                }
            }
        }
        Ok(())
    }

    fn set_peer(&mut self, map: &'static str, number: u32, peer: Peer) -> Result<()> {
        if peer.is_present() {
            self.check_interface(peer.ifindex)?;
            self.maps.set_device(DEVICES, peer.ifindex, peer.ifindex)?;
        }
        self.maps.set(map, number, peer)
    }

    /// How many interfaces there can be: one more than the highest index of a port's.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn interfaces(&self) -> Result<u32> {
        self.maps.capacity(PORTS)
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

    /// The packets that came in at the interface `ifindex`, by verdict; interfaces beyond the limit
    /// are counted as interface 0.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an interface beyond [`SwitchLimits::interfaces`](crate::SwitchLimits::interfaces).
    pub fn packet_counters(&self, ifindex: u32) -> Result<PacketCounters> {
        self.check_interface(ifindex)?;
        PacketCounters::of(&self.maps, ifindex)
    }
}
