//! A switch that takes the place of the one that is pinned, while packets come: with other limits, or of another build
//! whose maps have the same layout ([`object_layout`](crate::object_layout)).
//!
//! 1. The old one is [stopped](Switch::stop): every packet of the protocol is dropped, and blades ask again.
//! 2. The new one [takes over](Switch::take_over) slots and tables.
//! 3. It is pinned in a folder inside the one of the old one. As soon as it has an identity, it is what counts.
//! 4. The links of ports lead to its programs, and its pins replace those of the old one.
//!
//! Whoever dies in between leaves the old one, stopped, or what [`finish`] finishes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use mind_common::{
    directory::Word,
    losses::LossPoint,
    table::{self, Port},
    verdict::Counters,
};

use crate::{
    Error, Result, Switch, attach, counters,
    maps::Maps,
    object::{self, program},
    switch::{LOSSES, MAPS, PORTS, SWITCH},
    wait_for_packets,
};

/// The folder of the new switch, in that of the old one.
const NEXT: &str = "next";
/// Its programs.
const PROGRAMS: [&str; 2] = [program::SWITCH, program::FAN_OUT];

impl Switch {
    /// Has it take no packet of the protocol any more, and returns when none is in it.
    /// [`set_identity`](Self::set_identity) undoes that.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn stop(&mut self) -> Result<()> {
        self.maps.set(SWITCH, 0, table::Switch::default())?;
        wait_for_packets()
    }

    /// Takes over from `old`, which is [stopped](Self::stop): all tables, the ports' counters, and the slots listed, each
    /// with the number that it has there and the one that it gets here. All other slots can be opened, and have the word
    /// `free`. Packets that are to be copied and records of traced packets that were not read are lost.
    ///
    /// # Errors
    ///
    /// When a table is too small for what is in the old one.
    pub fn take_over(&mut self, old: &Self, slots: &[(u32, u32)], free: Word) -> Result<()> {
        self.directory.carry(&old.directory, slots, free)?;
        for ifindex in 0..old.maps.capacity(PORTS)? {
            let port = old.port(ifindex)?;
            if port != Port::default() {
                self.set_port(ifindex, port)?;
            }
        }
        self.maps
            .copy_per_cpu::<Counters>(&old.maps, counters::MAP)?;
        for number in 0..LossPoint::COUNT {
            let packets: u64 = old.maps.get(LOSSES, number)?;
            if packets > 0 {
                self.maps.set(LOSSES, number, packets)?;
            }
        }
        self.take_over_peers(old)?;
        for (domain, blades) in old.placements() {
            self.place(domain, blades)?;
        }
        for (domain, prefix, permission) in old.protections()? {
            self.protect(domain, prefix, permission)?;
        }
        for (prefix, translation) in old.translations()? {
            self.translate(prefix, translation)?;
        }
        Ok(())
    }
}

/// Puts `new`, which has [taken over](Switch::take_over), in the place of the switch pinned in `folder`, with these
/// addresses.
///
/// # Errors
///
/// When the address is none, and when the kernel refuses; then either of both is what is pinned, and [`finish`] says
/// which.
pub fn install(
    new: &mut Switch,
    folder: &Path,
    ipv4: std::net::Ipv4Addr,
    mac: [u8; 6],
) -> Result<()> {
    new.pin(&folder.join(NEXT))?;
    new.set_identity(ipv4, mac)?;
    match finish(folder)? {
        true => Ok(()),
        false => Err(Error::Pin {
            action: "put another switch in the place of the one in",
            path: folder.to_owned(),
            reason: format!("{ipv4} is no address of a switch"),
        }),
    }
}

/// Finishes what a process began that has ended: if a switch in `folder` was being replaced, the one that has an identity
/// stays. Whether it is the new one. The old one may be [stopped](Switch::stop).
///
/// # Errors
///
/// When the kernel refuses. To be tried again.
pub fn finish(folder: &Path) -> Result<bool> {
    let next = folder.join(NEXT);
    if !next.exists() {
        return Ok(false);
    }
    let maps = Maps::open(&next, &[SWITCH]);
    let identity = maps.and_then(|maps| maps.get::<table::Switch>(SWITCH, 0));
    if !identity.is_ok_and(|identity| identity != table::Switch::default()) {
        remove(folder)?;
        return Ok(false);
    }
    // Pins move only when all links lead to the new programs.
    if PROGRAMS.iter().all(|name| next.join(name).exists()) {
        attach::lead(folder, &next)?;
    }
    // What says that it is the new one that counts, last.
    let others = PROGRAMS
        .into_iter()
        .chain(MAPS.into_iter().filter(|name| *name != SWITCH));
    for name in others.chain([SWITCH]) {
        move_pin(next.join(name), folder.join(name))?;
    }
    remove(folder)?;
    Ok(true)
}

/// Removes what is pinned of a switch that was to take the place of the one in `folder`.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    let next = folder.join(NEXT);
    object::unpin(&next, MAPS.into_iter().chain(PROGRAMS))
}

fn move_pin(from: PathBuf, to: PathBuf) -> Result<()> {
    match fs::rename(&from, to) {
        Ok(()) => Ok(()),
        // It was moved before.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::Pin {
            action: "move",
            path: from,
            reason: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps of which the new switch has what the old one had.
    const TAKEN_OVER: [&str; 16] = [
        SWITCH,
        PORTS,
        LOSSES,
        counters::MAP,
        "DEVICES",
        "COMPUTE",
        "MEMORY",
        "GRANTS",
        "PROTECTION",
        "TRANSLATION",
        "BLOCKS",
        "HEADS",
        "TABLES",
        "GROUPS",
        "SLOTS",
        "FREE",
    ];
    /// Those that begin empty: rings and the packets in them, what is traced, and the generations of memos, of which
    /// none is taken over.
    const EMPTY: [&str; 9] = [
        "HANDED_OVER",
        "SHORT",
        "TRACING",
        "TRACED",
        "RECORDS",
        "LOST_RECORDS",
        "BLOCK_GENERATIONS",
        "DOMAIN_GENERATIONS",
        "INVALIDATED",
    ];

    #[test]
    fn of_each_map_it_is_known_what_becomes_of_it() {
        let mut known = [&TAKEN_OVER[..], &EMPTY[..]].concat();
        known.sort_unstable();
        let mut maps = MAPS.to_vec();
        maps.sort_unstable();
        assert_eq!(known, maps);
    }
}
