//! The bridge's forwarding database, in sysfs: behind which port an Ethernet address is. A blade is whoever is behind
//! a port, so this is what makes a registration believable.

use std::fs;

use anyhow::{Context as _, Result, bail};

/// An entry of `/sys/class/net/BRIDGE/brforward` (`struct __fdb_entry`, `linux/if_bridge.h`).
const ENTRY: usize = 16;

/// The Ethernet address of the interface called `name`.
pub(super) fn address_of(name: &str) -> Result<[u8; 6]> {
    let path = format!("/sys/class/net/{name}/address");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let bytes: Option<Vec<u8>> = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .with_context(|| format!("{path} holds no Ethernet address: `{}`", text.trim()))
}

/// Which of `ports` the address is behind.
pub(super) fn port_of<'a>(bridge: &str, ports: &'a [String], mac: [u8; 6]) -> Result<&'a str> {
    let path = format!("/sys/class/net/{bridge}/brforward");
    let entries =
        fs::read(&path).with_context(|| format!("cannot read {path}: is `{bridge}` a bridge?"))?;
    let Some(number) = find(&entries, mac) else {
        bail!("bridge {bridge} knows no port that leads to {mac:02x?}");
    };
    for port in ports {
        let path = format!("/sys/class/net/{port}/brport/port_no");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {path}: is `{port}` a port of {bridge}?"))?;
        let text = text.trim().trim_start_matches("0x");
        if u16::from_str_radix(text, 16) == Ok(number) {
            return Ok(port);
        }
    }
    bail!(
        "the port that leads to {mac:02x?} is none of {}",
        ports.join(", ")
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
