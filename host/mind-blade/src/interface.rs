//! The addresses of the interface that leads to the switch.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail};

/// An interface's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: [u8; 6],
}

impl Interface {
    /// The addresses of the interface called `name`.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let mut found = Self {
            address: Ipv4Addr::UNSPECIFIED,
            mac: [0; 6],
        };
        let mut exists = false;
        let all = nix::ifaddrs::getifaddrs().context("cannot list the interfaces")?;
        for entry in all.filter(|entry| entry.interface_name == name) {
            exists = true;
            let Some(address) = entry.address else {
                continue;
            };
            if let Some(address) = address.as_sockaddr_in()
                && found.address.is_unspecified()
            {
                found.address = address.ip();
            }
            if let Some(mac) = address.as_link_addr().and_then(|link| link.addr()) {
                found.mac = mac;
            }
        }
        if !exists {
            bail!("there is no interface `{name}` here");
        }
        if found.address.is_unspecified() {
            bail!("interface `{name}` has no IPv4 address");
        }
        Ok(found)
    }
}
