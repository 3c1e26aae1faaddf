//! What has to be changed on a host for it to be a switch, from how it is found. Pure.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// An address and the leading bits that its network shares, such as `198.18.0.1/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cidr {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix) = (address.parse().ok()?, prefix.parse().ok()?);
            (1..=31)
                .contains(&prefix)
                .then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is no address with a prefix length, such as 198.18.0.1/16")
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// An interface as it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
    /// The largest that its driver can; 0 where it does not say.
    pub(super) max_mtu: u32,
    pub(super) is_up: bool,
    pub(super) is_loopback: bool,
    pub(super) is_bridge: bool,
    /// The bridge or bond that it is enslaved to.
    pub(super) controller: Option<u32>,
    /// Those that others could reach it at; not the link-local ones.
    pub(super) addresses: Vec<IpAddr>,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub(super) bridge: &'a str,
    /// The bridge's address, if it is to be made; otherwise all must be there.
    pub(super) address: Option<Cidr>,
    pub(super) mtu: u32,
}

/// A change, and what was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Change {
    /// There is a bridge; its Ethernet address is that of [`mac_of`].
    Bridge { name: String, mac: Vec<u8> },
    /// An interface has an address.
    Address { link: String, address: Cidr },
    /// An interface takes frames of such payloads.
    Mtu { link: String, from: u32, to: u32 },
    /// A port is enslaved to the bridge.
    Enslave { port: String, bridge: String },
    /// An interface is up.
    Up { link: String },
}

impl Change {
    /// Of which interface it is.
    pub(super) fn interface(&self) -> &str {
        match self {
            Self::Bridge { name, .. } => name,
            Self::Address { link, .. } | Self::Mtu { link, .. } | Self::Up { link } => link,
            Self::Enslave { port, .. } => port,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bridge { name, .. } => write!(f, "make the bridge {name}"),
            Self::Address { link, address } => write!(f, "give {link} the address {address}"),
            Self::Mtu { link, from, to } => {
                write!(f, "change the MTU of {link} from {from} to {to}")
            }
            Self::Enslave { port, bridge } => write!(f, "enslave {port} to {bridge}"),
            Self::Up { link } => write!(f, "set {link} up"),
        }
    }
}

/// What has to be changed, in this order. Nothing, if the host is a switch already.
///
/// # Errors
///
/// When the host uses a port otherwise, or a port cannot carry a page in a frame, or the bridge is missing and no
/// option says which address it should get.
pub(super) fn plan(
    wanted: &Wanted<'_>,
    bridge: Option<&Link>,
    ports: &[Link],
) -> Result<Vec<Change>> {
    for port in ports {
        check(wanted, bridge, port)?;
    }
    let mut changes = Vec::new();
    match bridge {
        Some(found) => {
            ensure!(
                found.is_bridge,
                "{} is there and is no bridge: name another one with --bridge",
                found.name
            );
            if let Some(address) = wanted.address
                && !found.addresses.contains(&IpAddr::V4(address.address))
            {
                ensure!(
                    !found.addresses.iter().any(IpAddr::is_ipv4),
                    "the bridge {} is there and has the address {}, not {}: leave --address out, or name another bridge with --bridge",
                    found.name,
                    join(&found.addresses),
                    address.address
                );
                changes.push(Change::Address {
                    link: found.name.clone(),
                    address,
                });
            }
        }
        None => {
            let name = wanted.bridge.to_owned();
            let address = wanted.address.with_context(|| {
                format!("there is no bridge {name}: --address A.B.C.D/BITS has it made, with that address")
            })?;
            changes.push(Change::Bridge {
                name: name.clone(),
                mac: mac_of(address.address).into(),
            });
            changes.push(Change::Address {
                link: name,
                address,
            });
        }
    }
    for port in ports {
        if port.mtu < wanted.mtu {
            changes.push(Change::Mtu {
                link: port.name.clone(),
                from: port.mtu,
                to: wanted.mtu,
            });
        }
        if port.controller.is_none() {
            changes.push(Change::Enslave {
                port: port.name.clone(),
                bridge: wanted.bridge.to_owned(),
            });
        }
    }
    let down = ports.iter().filter(|port| !port.is_up);
    let bridge_up = bridge.is_some_and(|bridge| bridge.is_up);
    let down = down
        .map(|port| port.name.clone())
        .chain((!bridge_up).then(|| wanted.bridge.to_owned()));
    changes.extend(down.map(|link| Change::Up { link }));
    Ok(changes)
}

/// The Ethernet address of a bridge that is made: locally administered, and the same for the same IPv4 address. So blades
/// reach the next controller's bridge, whatever ports it has.
fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x4d, a, b, c, d]
}

/// Whether an interface may become a port.
fn check(wanted: &Wanted<'_>, bridge: Option<&Link>, port: &Link) -> Result<()> {
    let name = &port.name;
    ensure!(
        !port.is_loopback && !port.is_bridge,
        "{name} cannot be a port of a switch: it is {}",
        if port.is_bridge {
            "a bridge"
        } else {
            "the loopback"
        }
    );
    if !port.addresses.is_empty() {
        bail!(
            "this host uses {name} itself, with the address {}; as a port it would be cut off from it. Choose another \
             interface, or take the address away first (`ip addr flush dev {name}`)",
            join(&port.addresses)
        );
    }
    if let Some(controller) = port.controller {
        ensure!(
            bridge.is_some_and(|bridge| bridge.index == controller),
            "{name} belongs to another bridge or bond than {}: name that with --bridge, or take {name} out of it (`ip \
             link set {name} nomaster`)",
            wanted.bridge
        );
    }
    ensure!(
        port.max_mtu == 0 || port.mtu >= wanted.mtu || port.max_mtu >= wanted.mtu,
        "{name} cannot have an MTU of {}, its driver's limit is {}; --mtu {} would do if all blades have no more",
        wanted.mtu,
        port.max_mtu,
        port.max_mtu
    );
    Ok(())
}

fn join(addresses: &[IpAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
    addresses.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Cidr = Cidr {
        address: Ipv4Addr::new(198, 18, 0, 1),
        prefix: 16,
    };

    fn wanted(address: Option<Cidr>) -> Wanted<'static> {
        Wanted {
            bridge: "br0",
            address,
            mtu: 9000,
        }
    }

    fn port(number: u32) -> Link {
        Link {
            name: format!("eth{number}"),
            index: 10 + number,
            mtu: 1500,
            max_mtu: 9216,
            ..Link::default()
        }
    }

    fn bridge() -> Link {
        Link {
            name: "br0".to_owned(),
            index: 9,
            is_bridge: true,
            is_up: true,
            addresses: vec![IpAddr::V4(ADDRESS.address)],
            ..Link::default()
        }
    }

    fn told(changes: &[Change]) -> Vec<String> {
        changes.iter().map(Change::to_string).collect()
    }

    #[test]
    fn a_bare_host_gets_a_bridge_with_the_ports_on_it() {
        let changes = plan(&wanted(Some(ADDRESS)), None, &[port(1), port(2)]).unwrap();
        assert_eq!(
            told(&changes),
            [
                "make the bridge br0",
                "give br0 the address 198.18.0.1/16",
                "change the MTU of eth1 from 1500 to 9000",
                "enslave eth1 to br0",
                "change the MTU of eth2 from 1500 to 9000",
                "enslave eth2 to br0",
                "set eth1 up",
                "set eth2 up",
                "set br0 up",
            ]
        );
        assert!(matches!(&changes[0], Change::Bridge { mac, .. } if mac[2..] == [198, 18, 0, 1]));
    }

    #[test]
    fn a_switch_is_left_as_it_is() {
        let port = Link {
            mtu: 9000,
            is_up: true,
            controller: Some(9),
            ..port(1)
        };
        for address in [None, Some(ADDRESS)] {
            let changes = plan(
                &wanted(address),
                Some(&bridge()),
                std::slice::from_ref(&port),
            );
            assert_eq!(changes.unwrap(), []);
        }
    }

    #[test]
    fn a_bridge_that_is_there_gets_what_it_lacks() {
        let bare = Link {
            addresses: vec![],
            is_up: false,
            ..bridge()
        };
        let changes = plan(&wanted(Some(ADDRESS)), Some(&bare), &[]).unwrap();
        assert_eq!(
            told(&changes),
            ["give br0 the address 198.18.0.1/16", "set br0 up"]
        );
    }

    #[track_caller]
    fn refused(address: Option<Cidr>, bridge: Option<&Link>, port: Link, says: &str) {
        let error = plan(&wanted(address), bridge, &[port]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn an_interface_that_the_host_needs_is_no_port() {
        let own = Link {
            addresses: vec!["198.18.7.7".parse().unwrap()],
            ..port(1)
        };
        refused(
            Some(ADDRESS),
            None,
            own,
            "uses eth1 itself, with the address 198.18.7.7",
        );
        let loopback = Link {
            is_loopback: true,
            ..port(1)
        };
        refused(Some(ADDRESS), None, loopback, "it is the loopback");
        refused(Some(ADDRESS), None, bridge(), "it is a bridge");
        let other = Link {
            controller: Some(77),
            ..port(1)
        };
        for bridge in [None, Some(&bridge())] {
            refused(
                Some(ADDRESS),
                bridge,
                other.clone(),
                "belongs to another bridge",
            );
        }
    }

    #[test]
    fn what_cannot_work_is_said_before_anything_is_changed() {
        let small = Link {
            max_mtu: 4000,
            ..port(1)
        };
        refused(Some(ADDRESS), None, small, "its driver's limit is 4000");
        refused(None, None, port(1), "there is no bridge br0: --address");
        let other = Cidr {
            address: Ipv4Addr::new(198, 18, 0, 9),
            prefix: 16,
        };
        refused(
            Some(other),
            Some(&bridge()),
            port(1),
            "has the address 198.18.0.1, not 198.18.0.9",
        );
        let no_bridge = Link {
            is_bridge: false,
            ..bridge()
        };
        refused(None, Some(&no_bridge), port(1), "is no bridge");
    }

    #[test]
    fn an_address_needs_its_prefix_length() {
        assert_eq!("198.18.0.1/16".parse(), Ok(ADDRESS));
        for wrong in [
            "",
            "198.18.0.1",
            "198.18.0.1/0",
            "198.18.0.1/33",
            "::1/64",
            "198.18.0.1/x",
        ] {
            let error = wrong.parse::<Cidr>().unwrap_err();
            assert!(error.contains("such as 198.18.0.1/16"), "{error}");
        }
    }
}
