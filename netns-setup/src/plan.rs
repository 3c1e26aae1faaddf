//! What a testbed consists of: blades, names, addresses. Pure; the same sizes give the same plan.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Most blades of a kind, as many as a switch has ports for.
pub const MAX_BLADES: u8 = 32;

/// What the names of all namespaces of a testbed begin with.
pub const PREFIX: &str = "mind-";

/// The name of the switch, on the command line and in [`PREFIX`]ed form its namespace.
pub const SWITCH: &str = "sw";

/// The bridge in the switch's namespace.
pub const BRIDGE: &str = "br0";

/// A blade's only interface.
pub const INTERFACE: &str = "eth0";

/// Bytes of a frame's payload on all links: a page and its headers in one frame.
pub const MTU: u32 = 9000;

/// Leading bits of an address that all of the testbed share.
pub const PREFIX_LENGTH: u8 = 16;

/// The controller's TCP port.
pub const CONTROLLER_PORT: u16 = 4790;

/// The TCP port at which the controller and each agent show metrics, at their own addresses.
const METRICS_PORT: u16 = 9790;

/// The first two bytes of all addresses; 198.18.0.0/15 is for such networks (RFC 2544).
const NETWORK: [u8; 2] = [198, 18];

const _: () = assert!(NETWORK[0] == 198 && NETWORK[1] & !1 == 18);
const _: () = assert!(
    MAX_BLADES < u8::MAX,
    "a blade's number and one fit in a byte"
);

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// One of the testbed's: locally administered, and recognizable.
    const fn new(group: u8, number: u8) -> Self {
        Self([0x02, b'M', b'I', b'N', group, number])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let bytes: Option<Vec<u8>> = text
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).ok())
            .collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no Ethernet address"))
    }
}

/// What a blade is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Runs programs.
    Compute,
    /// Holds pages.
    Memory,
}

impl Kind {
    fn letter(self) -> char {
        match self {
            Self::Compute => 'c',
            Self::Memory => 'm',
        }
    }

    /// The third byte of IP addresses and the fifth of Ethernet addresses.
    const fn group(self) -> u8 {
        match self {
            Self::Compute => 1,
            Self::Memory => 2,
        }
    }
}

/// A blade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blade {
    /// `c0`, `m0` and so on; also the name of the switch's port to it.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
    /// The Ethernet address of its interface.
    pub mac: Mac,
    /// The Ethernet address of the switch's port to it.
    pub port_mac: Mac,
}

impl Blade {
    /// Where its agent shows metrics.
    pub fn metrics(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, METRICS_PORT)
    }

    fn new(kind: Kind, number: u8) -> Self {
        let name = format!("{}{number}", kind.letter());
        Self {
            namespace: format!("{PREFIX}{name}"),
            address: Ipv4Addr::new(NETWORK[0], NETWORK[1], kind.group(), number + 1),
            mac: Mac::new(kind.group(), number),
            port_mac: Mac::new(0x80 | kind.group(), number),
            name,
            kind,
        }
    }
}

/// All of a testbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Compute blades, then memory blades.
    pub blades: Vec<Blade>,
}

impl Plan {
    /// A testbed of so many blades.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] for more blades than a switch has ports, or none at all.
    pub fn new(compute: u8, memory: u8) -> Result<Self> {
        for (what, value) in [("--compute", compute), ("--memory", memory)] {
            if value > MAX_BLADES {
                return Err(Error::Size {
                    what,
                    value: value.to_string(),
                    expected: format!("at most {MAX_BLADES}"),
                });
            }
        }
        let compute = (0..compute).map(|number| Blade::new(Kind::Compute, number));
        let memory = (0..memory).map(|number| Blade::new(Kind::Memory, number));
        Ok(Self {
            blades: compute.chain(memory).collect(),
        })
    }

    /// The switch's namespace.
    pub fn switch_namespace() -> String {
        format!("{PREFIX}{SWITCH}")
    }

    /// The switch's address, the controller's and that to which compute blades send their requests.
    pub fn switch_address() -> Ipv4Addr {
        Ipv4Addr::new(NETWORK[0], NETWORK[1], 0, 1)
    }

    /// Where the controller shows metrics.
    pub fn controller_metrics() -> SocketAddrV4 {
        SocketAddrV4::new(Self::switch_address(), METRICS_PORT)
    }

    /// The switch's Ethernet address, that of its bridge.
    pub fn switch_mac() -> Mac {
        Mac::new(0, 0)
    }

    /// Where the controller listens.
    pub fn controller() -> SocketAddrV4 {
        SocketAddrV4::new(Self::switch_address(), CONTROLLER_PORT)
    }

    /// All namespaces, the switch's first.
    pub fn namespaces(&self) -> impl Iterator<Item = String> {
        let blades = self.blades.iter().map(|blade| blade.namespace.clone());
        std::iter::once(Self::switch_namespace()).chain(blades)
    }

    /// The blades of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Blade> {
        self.blades.iter().filter(move |blade| blade.kind == kind)
    }

    /// The blade called `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBlade`], with the names there are.
    pub fn blade(&self, name: &str) -> Result<&Blade> {
        let blade = self.blades.iter().find(|blade| blade.name == name);
        blade.ok_or_else(|| {
            let names = self.blades.iter().map(|blade| blade.name.as_str());
            let names: Vec<_> = std::iter::once(SWITCH).chain(names).collect();
            Error::NoSuchBlade {
                name: name.to_owned(),
                known: names.join(", "),
            }
        })
    }

    /// The namespace of a blade or of the switch.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchBlade`], with the names there are.
    pub fn namespace_of(&self, name: &str) -> Result<String> {
        if name == SWITCH {
            return Ok(Self::switch_namespace());
        }
        self.blade(name).map(|blade| blade.namespace.clone())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |kind| self.of_kind(kind).count();
        write!(
            f,
            "{} compute and {} memory blades",
            count(Kind::Compute),
            count(Kind::Memory)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_things_of_the_largest_testbed_share_a_name_or_an_address() {
        let plan = Plan::new(MAX_BLADES, MAX_BLADES).unwrap();
        let count = 2 * usize::from(MAX_BLADES);
        let names: HashSet<_> = plan.namespaces().collect();
        assert_eq!(names.len(), count + 1);
        let addresses: HashSet<_> = plan
            .blades
            .iter()
            .map(|blade| blade.address)
            .chain([Plan::switch_address()])
            .collect();
        assert_eq!(addresses.len(), count + 1);
        let macs: HashSet<_> = plan
            .blades
            .iter()
            .flat_map(|blade| [blade.mac, blade.port_mac])
            .chain([Plan::switch_mac()])
            .collect();
        assert_eq!(macs.len(), 2 * count + 1);
    }

    #[test]
    fn every_address_lies_in_the_network_set_aside_for_tests() {
        let plan = Plan::new(MAX_BLADES, MAX_BLADES).unwrap();
        let addresses = plan.blades.iter().map(|blade| blade.address);
        for address in addresses.chain([Plan::switch_address()]) {
            let [a, b, _, last] = address.octets();
            assert!(a == 198 && (b == 18 || b == 19), "{address}");
            assert!(last != 0 && last != 255, "{address}");
        }
        for blade in &plan.blades {
            assert_eq!(
                blade.mac.0[0] & 3,
                2,
                "{} is not local and unicast",
                blade.mac
            );
        }
    }

    #[test]
    fn a_blade_is_where_the_documentation_says() {
        let plan = Plan::new(4, 4).unwrap();
        let blade = plan.blade("m3").unwrap();
        assert_eq!(blade.namespace, "mind-m3");
        assert_eq!(blade.address.to_string(), "198.18.2.4");
        assert_eq!(blade.mac.to_string(), "02:4d:49:4e:02:03");
        assert_eq!(blade.port_mac.to_string(), "02:4d:49:4e:82:03");
        assert_eq!(plan.namespace_of("sw").unwrap(), "mind-sw");
    }

    #[test]
    fn an_unknown_blade_is_answered_with_the_names_there_are() {
        let error = Plan::new(1, 1).unwrap().namespace_of("c1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no blade `c1`; this testbed has sw, c0, m0"
        );
    }

    #[test]
    fn more_blades_than_ports_are_refused() {
        let error = Plan::new(2, 33).unwrap_err();
        assert_eq!(error.to_string(), "--memory is 33; expected at most 32");
    }
}
