//! Where a host is, as the kernel knows it: behind which port of the bridge an Ethernet address is (the bridge's
//! forwarding database, in sysfs), and which Ethernet address an IP address has (its neighbours, in procfs). A blade is
//! the port that it is behind, so a registration is held against both.

use std::{fs, net::Ipv4Addr};

use anyhow::{Context as _, Result, bail};
use mind_dataplane::attach;

/// IPv4 neighbours of this network namespace (`arp_seq_show` in `net/ipv4/arp.c`).
const NEIGHBOURS: &str = "/proc/net/arp";

/// An entry of `/sys/class/net/BRIDGE/brforward` (`struct __fdb_entry`, `linux/if_bridge.h`).
const ENTRY: usize = 16;

/// The bridge that the switch's ports are enslaved to.
#[derive(Debug)]
pub(super) struct Bridge {
    name: String,
    /// The ports: their names, and the indices of their interfaces.
    ports: Vec<(String, u32)>,
}

impl Bridge {
    /// A bridge with these ports.
    ///
    /// # Errors
    ///
    /// When there is no interface of such a name.
    pub(super) fn new(name: &str, ports: &[String]) -> Result<Self> {
        let port = |name: &String| Ok((name.clone(), attach::index_of(name)?));
        Ok(Self {
            name: name.to_owned(),
            ports: ports.iter().map(port).collect::<Result<_>>()?,
        })
    }

    /// Its ports: their names, and the indices of their interfaces.
    pub(super) fn ports(&self) -> &[(String, u32)] {
        &self.ports
    }

    /// The name of the port whose interface has that index.
    pub(super) fn port(&self, ifindex: u32) -> Option<&str> {
        let mut ports = self.ports.iter();
        let port = ports.find(|(_, index)| *index == ifindex);
        port.map(|(name, _)| name.as_str())
    }

    /// Its Ethernet address.
    ///
    /// # Errors
    ///
    /// When there is no such bridge any more.
    pub(super) fn address(&self) -> Result<[u8; 6]> {
        address_of(&self.name)
    }

    /// The Ethernet address to which the kernel sends what is for `address`.
    ///
    /// # Errors
    ///
    /// When it is no neighbour on the bridge.
    pub(super) fn neighbour_of(&self, address: Ipv4Addr) -> Result<[u8; 6]> {
        neighbour_of(&self.name, address)
    }

    /// The index of the port that an Ethernet address is behind.
    ///
    /// # Errors
    ///
    /// When the bridge knows none, or it is none of the switch's.
    pub(super) fn port_of(&self, mac: [u8; 6]) -> Result<u32> {
        port_of(&self.name, &self.ports, mac)
    }
}

/// The Ethernet address of the interface called `name`.
pub(super) fn address_of(name: &str) -> Result<[u8; 6]> {
    let path = format!("/sys/class/net/{name}/address");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse(text.trim())
        .with_context(|| format!("{path} holds no Ethernet address: `{}`", text.trim()))
}

/// The Ethernet address to which the kernel sends what is for `address`, over the bridge.
fn neighbour_of(bridge: &str, address: Ipv4Addr) -> Result<[u8; 6]> {
    let text =
        fs::read_to_string(NEIGHBOURS).with_context(|| format!("cannot read {NEIGHBOURS}"))?;
    find_neighbour(&text, bridge, address)
        .with_context(|| format!("{address} is no neighbour on bridge {bridge}"))
}

fn find_neighbour(table: &str, bridge: &str, address: Ipv4Addr) -> Option<[u8; 6]> {
    let address = address.to_string();
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (ip, _type, _flags, mac) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        let device = fields.nth(1)?;
        (ip == address && device == bridge).then(|| parse(mac))?
    })
}

/// An Ethernet address as text.
fn parse(text: &str) -> Option<[u8; 6]> {
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// Which of `ports` the address is behind.
fn port_of(bridge: &str, ports: &[(String, u32)], mac: [u8; 6]) -> Result<u32> {
    let path = format!("/sys/class/net/{bridge}/brforward");
    let entries =
        fs::read(&path).with_context(|| format!("cannot read {path}: is `{bridge}` a bridge?"))?;
    let Some(number) = find(&entries, mac) else {
        bail!("bridge {bridge} knows no port that leads to {mac:02x?}");
    };
    for (port, ifindex) in ports {
        let path = format!("/sys/class/net/{port}/brport/port_no");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {path}: is `{port}` a port of {bridge}?"))?;
        let text = text.trim().trim_start_matches("0x");
        if u16::from_str_radix(text, 16) == Ok(number) {
            return Ok(*ifindex);
        }
    }
    bail!(
        "the port that leads to {mac:02x?} is none of {}",
        ports
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// The port number of an address that is not the bridge's own.
fn find(entries: &[u8], mac: [u8; 6]) -> Option<u16> {
    entries.chunks_exact(ENTRY).find_map(|entry| {
        let (low, local, high) = (entry[6], entry[7], entry[12]);
        (entry[..6] == mac && local == 0).then_some(u16::from(high) << 8 | u16::from(low))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_found_by_its_address_and_bridge() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     198.18.1.1       0x1         0x2         02:00:00:00:00:07     *        br1\n\
                     198.18.1.1       0x1         0x2         02:00:00:00:00:08     *        br0\n";
        let find = |bridge, last| find_neighbour(table, bridge, Ipv4Addr::new(198, 18, 1, last));
        assert_eq!(find("br0", 1), Some([2, 0, 0, 0, 0, 8]));
        assert_eq!(find("br0", 2), None);
        assert_eq!(find("eth0", 1), None);
    }

    #[test]
    fn an_address_is_found_by_its_port_and_the_bridges_own_are_not() {
        let mac = [2, 0, 0, 0, 0, 7];
        let mut entries = vec![0; 3 * ENTRY];
        entries[..6].copy_from_slice(&mac);
        entries[6] = 1;
        entries[7] = 1;
        assert_eq!(find(&entries, mac), None);
        entries[ENTRY..ENTRY + 6].copy_from_slice(&mac);
        entries[ENTRY + 6] = 3;
        entries[ENTRY + 12] = 1;
        assert_eq!(find(&entries, mac), Some(0x103));
        assert_eq!(find(&entries, [9; 6]), None);
    }
}
