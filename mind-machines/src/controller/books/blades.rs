//! Blades that are here or have been: by kind and number.
//!
//! A blade is the port of the switch that it is behind, whatever it says of itself: it keeps its number when it comes
//! back, with a new incarnation, so that packets of an earlier incarnation are told from those of the present one.

use std::{collections::BTreeMap, net::Ipv4Addr};

use mind_api::{
    errno::{Errno, Failure},
    message::{BladeKind, Registration},
};
use mind_common::{
    addr::{PAGE_SHIFT, Prefix, SLICE_SHIFT, Va, WINDOW_BASE},
    id::{BladeId, BladeSet, Connection, MAX_BLADES},
    table::{self, PEER_PRESENT, Peer, Translation},
};
use serde::{Deserialize, Serialize};

use super::domains::check_name;

/// A port of the switch: the index of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Port(pub u32);

/// One incarnation of a blade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// What it is for.
    pub kind: BladeKind,
    /// Its number among the blades of its kind.
    pub number: u8,
    /// Counts from 1 for each blade.
    pub incarnation: u16,
}

impl Incarnation {
    /// That of a compute blade.
    pub const fn compute(connection: Connection) -> Self {
        Self {
            kind: BladeKind::Compute,
            number: connection.blade.get(),
            incarnation: connection.incarnation,
        }
    }

    /// The connection to the switch that a compute blade has in it.
    pub const fn connection(self) -> Connection {
        Connection {
            blade: BladeId::from_low_bits(self.number as u64),
            incarnation: self.incarnation,
        }
    }
}

/// A blade that is here or has been.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blade {
    /// Which incarnation of which blade.
    pub incarnation: Incarnation,
    /// What makes it the same blade when it comes back.
    pub port: Port,
    /// Its name, for people.
    pub name: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
    /// The Ethernet address of its interface.
    pub mac: [u8; 6],
    /// Pages that it offers or caches at most.
    pub pages: u64,
    /// Whether this incarnation is here: joined and not fenced.
    pub is_here: bool,
}

impl Blade {
    /// Where the switch's tables say that it is.
    pub fn peer(&self) -> Peer {
        if !self.is_here {
            return Peer::default();
        }
        Peer {
            ipv4: self.address.octets(),
            mac: self.mac,
            flags: PEER_PRESENT,
            ifindex: self.port.0,
            connection: match self.incarnation.kind {
                BladeKind::Compute => self.incarnation.connection().to_qp(),
                BladeKind::Memory => 0,
            },
        }
    }

    /// Bytes of memory that it offers; 0 for a compute blade, and while it is not here.
    pub const fn offers(&self) -> u64 {
        match self.incarnation.kind {
            BladeKind::Memory if self.is_here => self.pages << PAGE_SHIFT,
            _ => 0,
        }
    }

    /// What they say of its port, but for the flags.
    pub const fn port_entry(&self) -> table::Port {
        match self.incarnation.kind {
            BladeKind::Compute => table::Port::compute(self.incarnation.connection()),
            BladeKind::Memory => table::Port::memory(self.incarnation.number),
        }
    }
}

/// The addresses that a memory blade keeps, and where.
pub fn slice_of(number: u8) -> (Prefix, Translation) {
    let base = Va(WINDOW_BASE + (u64::from(number) << SLICE_SHIFT));
    let slice = Prefix {
        base,
        shift: SLICE_SHIFT,
    };
    (slice, Translation::new(number, base, 0))
}

/// All blades.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Blades(BTreeMap<(BladeKind, u8), Blade>);

impl Blades {
    /// All of them, compute blades first, by number.
    pub fn all(&self) -> impl Iterator<Item = &Blade> {
        self.0.values()
    }

    /// Those of a kind, by number.
    pub fn of(&self, kind: BladeKind) -> impl Iterator<Item = &Blade> {
        self.0
            .range((kind, 0)..=(kind, u8::MAX))
            .map(|(_, blade)| blade)
    }

    /// A blade, in whichever incarnation.
    pub fn get(&self, kind: BladeKind, number: u8) -> Option<&Blade> {
        self.0.get(&(kind, number))
    }

    /// The blade, if this is its latest incarnation and it is here.
    pub fn here(&self, incarnation: Incarnation) -> Option<&Blade> {
        let blade = self.get(incarnation.kind, incarnation.number)?;
        (blade.is_here && blade.incarnation == incarnation).then_some(blade)
    }

    /// The present incarnation of a compute blade that is here.
    pub fn compute(&self, blade: BladeId) -> Option<Incarnation> {
        let blade = self.get(BladeKind::Compute, blade.get())?;
        blade.is_here.then_some(blade.incarnation)
    }

    /// The memory blade of that number, if it is here.
    pub fn here_memory(&self, number: u8) -> Option<Incarnation> {
        let blade = self.get(BladeKind::Memory, number)?;
        blade.is_here.then_some(blade.incarnation)
    }

    /// The compute blades that are here.
    pub fn computes(&self) -> BladeSet {
        let here = self.of(BladeKind::Compute).filter(|blade| blade.is_here);
        here.map(|blade| blade.incarnation.connection().blade)
            .collect()
    }

    /// Whether that memory blade is here.
    pub fn has_memory(&self, number: u8) -> bool {
        self.get(BladeKind::Memory, number)
            .is_some_and(|blade| blade.is_here)
    }

    /// The blade that is, or was last, behind a port.
    pub fn behind(&self, port: Port) -> Option<&Blade> {
        let mut behind = self.all().filter(|blade| blade.port == port);
        let first = behind.next()?;
        Some(behind.find(|blade| blade.is_here).unwrap_or(first))
    }

    /// The next incarnation of the blade behind `port`, which is not here yet: [`put`](Self::put) makes it known.
    ///
    /// # Errors
    ///
    /// `EEXIST`: the port is that of a blade of the other kind; or a blade that is here has the port with another
    /// address, or the address at another port. `ENOSPC`: all numbers are taken. `EINVAL`: it has no pages, or no name.
    /// `ENAMETOOLONG`.
    pub fn next(&self, port: Port, registration: Registration) -> Result<Blade, Failure> {
        let Registration {
            kind,
            name,
            address,
            mac,
            pages,
        } = registration;
        check_name("a blade", &name)?;
        if let Some(blade) = self
            .behind(port)
            .filter(|blade| blade.incarnation.kind != kind)
        {
            let message = format!("port {} is already that of {}", port.0, blade.name);
            return Err(Failure::new(Errno::EEXIST, message));
        }
        let contradicts =
            |blade: &&Blade| blade.is_here && (blade.port == port) != (blade.address == address);
        if let Some(blade) = self.all().find(contradicts) {
            let message = format!(
                "{name} registers from {address} at port {}; {} is here from {} at port {}",
                port.0, blade.name, blade.address, blade.port.0
            );
            return Err(Failure::new(Errno::EEXIST, message));
        }
        if pages == 0 {
            return Err(Failure::new(Errno::EINVAL, format!("{name} has no pages")));
        }
        let known = self.of(kind).find(|blade| blade.port == port);
        let incarnation = match known {
            Some(blade) => Incarnation {
                incarnation: blade.incarnation.incarnation.wrapping_add(1),
                ..blade.incarnation
            },
            None => {
                let mut numbers = 0..MAX_BLADES as u8;
                let number = numbers
                    .find(|number| self.get(kind, *number).is_none())
                    .ok_or_else(|| {
                        let message = format!("there are {MAX_BLADES} blades of that kind already");
                        Failure::new(Errno::ENOSPC, message)
                    })?;
                Incarnation {
                    kind,
                    number,
                    incarnation: 1,
                }
            }
        };
        Ok(Blade {
            incarnation,
            port,
            name,
            address,
            mac,
            pages,
            is_here: false,
        })
    }

    /// Makes an incarnation of a blade known, in place of any earlier one.
    pub fn put(&mut self, blade: Blade) {
        let key = (blade.incarnation.kind, blade.incarnation.number);
        self.0.insert(key, blade);
    }

    /// The incarnation is here from now on, or no longer; whether that is news. An earlier one's is none.
    pub fn set_here(&mut self, incarnation: Incarnation, is_here: bool) -> bool {
        let blade = self.0.get_mut(&(incarnation.kind, incarnation.number));
        let Some(blade) = blade.filter(|blade| blade.incarnation == incarnation) else {
            return false;
        };
        std::mem::replace(&mut blade.is_here, is_here) != is_here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(port: u32, kind: BladeKind, pages: u64) -> (Port, Registration) {
        let registration = Registration {
            kind,
            name: "blade".into(),
            address: Ipv4Addr::new(198, 18, 1, port as u8),
            mac: [2, 0, 0, 0, 0, port as u8],
            pages,
        };
        (Port(port), registration)
    }

    fn join(
        blades: &mut Blades,
        (port, registration): (Port, Registration),
    ) -> Result<Incarnation, Failure> {
        let blade = blades.next(port, registration)?;
        let incarnation = blade.incarnation;
        blades.put(blade);
        assert!(blades.set_here(incarnation, true));
        Ok(incarnation)
    }

    #[test]
    fn a_blade_is_its_port_and_counts_its_incarnations() {
        let mut blades = Blades::default();
        let mut joined = |port| {
            let incarnation =
                join(&mut blades, registration(port, BladeKind::Compute, 16)).unwrap();
            (incarnation.number, incarnation.incarnation)
        };
        assert_eq!(joined(7), (0, 1));
        assert_eq!(joined(9), (1, 1));
        assert_eq!(joined(7), (0, 2));
    }

    #[test]
    fn a_port_is_of_one_kind() {
        let mut blades = Blades::default();
        join(&mut blades, registration(7, BladeKind::Compute, 16)).unwrap();
        let error = join(&mut blades, registration(7, BladeKind::Memory, 16)).unwrap_err();
        assert_eq!(error.errno, Errno::EEXIST);
    }

    #[test]
    fn a_blade_that_is_here_keeps_port_and_address() {
        let mut blades = Blades::default();
        let first = join(&mut blades, registration(7, BladeKind::Compute, 16)).unwrap();
        let (_, of_seven) = registration(7, BladeKind::Compute, 16);
        let (_, of_nine) = registration(9, BladeKind::Compute, 16);
        assert_eq!(
            blades.next(Port(9), of_seven.clone()).unwrap_err().errno,
            Errno::EEXIST
        );
        assert_eq!(
            blades.next(Port(7), of_nine.clone()).unwrap_err().errno,
            Errno::EEXIST
        );
        blades.set_here(first, false);
        assert!(blades.next(Port(9), of_seven).is_ok());
        assert!(blades.next(Port(7), of_nine).is_ok());
    }

    #[test]
    fn the_thirty_third_blade_is_refused() {
        let mut blades = Blades::default();
        for port in 0..32 {
            join(&mut blades, registration(port, BladeKind::Compute, 1)).unwrap();
        }
        let error = join(&mut blades, registration(32, BladeKind::Compute, 1)).unwrap_err();
        assert_eq!(error.errno, Errno::ENOSPC);
        let error = join(&mut blades, registration(33, BladeKind::Memory, 0)).unwrap_err();
        assert_eq!(error.errno, Errno::EINVAL);
    }

    #[test]
    fn the_end_of_an_earlier_incarnation_is_no_news() {
        let mut blades = Blades::default();
        let first = join(&mut blades, registration(7, BladeKind::Compute, 1)).unwrap();
        let second = join(&mut blades, registration(7, BladeKind::Compute, 1)).unwrap();
        assert!(!blades.set_here(first, false));
        assert!(blades.here(second).is_some() && blades.here(first).is_none());
        assert!(blades.set_here(second, false));
        assert!(!blades.set_here(second, false));
        assert!(blades.computes().is_empty());
    }
}
