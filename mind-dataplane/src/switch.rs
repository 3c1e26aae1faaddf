//! The switch's programs and tables.

use std::path::Path;

use aya::{
    Ebpf,
    programs::{SchedClassifier, Xdp},
};
use mind_common::{
    addr::{Prefix, Va},
    id::{BladeId, BladeSet, DomainId, MAX_BLADES},
    losses::Place,
    table::{
        self, PORT_FANS_OUT, PORT_HANDS_OVER, Peer, Permission, Port, Protection, ProtectionKey,
        Translation, TranslationKey,
    },
};

use crate::{
    Copies, Directory, Error, Result, SwitchLimits, Tally, TraceControl, Traces, directory,
    maps::Maps,
    object::{self, program},
    tally, traces,
};

const SWITCH: &str = "SWITCH";
const PORTS: &str = "PORTS";
const DEVICES: &str = "DEVICES";
const COMPUTE: &str = "COMPUTE";
const MEMORY: &str = "MEMORY";
const GRANTS: &str = "GRANTS";
const PROTECTION: &str = "PROTECTION";
const TRANSLATION: &str = "TRANSLATION";
const LOSSES: &str = "LOSSES";
const HANDED_OVER: &str = "HANDED_OVER";
/// Bytes of the ring of packets that the controller is to copy: about 4,000 of them.
const RING: u32 = 1 << 18;

/// All maps that belong to a switch.
const MAPS: [&str; 19] = [
    SWITCH,
    PORTS,
    DEVICES,
    COMPUTE,
    MEMORY,
    GRANTS,
    PROTECTION,
    TRANSLATION,
    LOSSES,
    HANDED_OVER,
    traces::TRACING,
    traces::TRACED,
    traces::RECORDS,
    traces::LOST_RECORDS,
    tally::MAP,
    directory::MAPS[0],
    directory::MAPS[1],
    directory::MAPS[2],
    directory::MAPS[3],
];

/// Where the programs are.
enum Programs {
    /// In the object that this process loaded.
    Object(Box<Ebpf>),
    /// Opened where they were pinned.
    Pinned(Box<(Xdp, SchedClassifier)>),
}

/// A switch's data plane: its programs, and the tables that they read.
pub struct Switch {
    programs: Programs,
    maps: Maps,
    directory: Directory,
}

impl Switch {
    /// Loads programs and maps. Nothing is attached, and every table is empty: no packet is
    /// taken for the switch's.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, for want of privileges or memory.
    pub fn load(limits: &SwitchLimits) -> Result<Self> {
        let mut ebpf = object::load(
            &sizes(limits),
            limits.tries,
            limits.log_verdicts,
            limits.lose_on_purpose,
        )?;
        object::xdp(&mut ebpf, program::SWITCH)?;
        object::classifier(&mut ebpf, program::FAN_OUT)?;
        let maps = Maps::take(&mut ebpf, &MAPS)?;
        Ok(Self {
            programs: Programs::Object(Box::new(ebpf)),
            directory: Directory::new(&maps)?,
            maps,
        })
    }

    /// Has the switch lose so many of the packets that come to `place`; it must have been
    /// [loaded for that](SwitchLimits::lose_on_purpose).
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn lose(&mut self, place: Place, packets: u64) -> Result<()> {
        self.maps.set(LOSSES, place.index(), packets)
    }

    /// How many of the packets that come to `place` are still to be lost.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn to_lose(&self, place: Place) -> Result<u64> {
        self.maps.get(LOSSES, place.index())
    }

    /// Pins programs and maps in `folder`, which is made: they stay when this process ends.
    ///
    /// # Errors
    ///
    /// When `folder` is not in a BPF file system, or something is pinned there already.
    pub fn pin(&mut self, folder: &Path) -> Result<()> {
        object::make_folder(folder)?;
        self.maps.pin(folder)?;
        let switch = self.xdp()?;
        object::pin(folder, program::SWITCH, |path| switch.pin(path))?;
        let fan_out = self.fan_out()?;
        object::pin(folder, program::FAN_OUT, |path| fan_out.pin(path))
    }

    /// Opens what [`pin`](Self::pin) pinned in `folder`.
    ///
    /// # Errors
    ///
    /// When something is missing there.
    pub fn open(folder: &Path) -> Result<Self> {
        let maps = Maps::open(folder, &MAPS)?;
        Ok(Self {
            programs: Programs::Pinned(Box::new((
                object::pinned_xdp(folder, program::SWITCH)?,
                object::pinned_classifier(folder, program::FAN_OUT)?,
            ))),
            directory: Directory::new(&maps)?,
            maps,
        })
    }

    /// Removes what [`pin`](Self::pin) pinned in `folder`, as far as it is there. Detach the
    /// ports first.
    ///
    /// # Errors
    ///
    /// When something is there and cannot be removed.
    pub fn unpin(folder: &Path) -> Result<()> {
        let programs = [program::SWITCH, program::FAN_OUT];
        object::unpin(folder, MAPS.into_iter().chain(programs))
    }

    /// The object, when it is this process's own.
    #[cfg(feature = "harness")]
    pub(crate) fn object(&mut self) -> Option<&mut Ebpf> {
        match &mut self.programs {
            Programs::Object(ebpf) => Some(ebpf),
            Programs::Pinned(_) => None,
        }
    }

    /// Says that a compute blade is behind an interface to which nothing can be redirected.
    #[cfg(feature = "harness")]
    pub(crate) fn misplace_compute(&mut self, blade: BladeId, peer: Peer) -> Result<()> {
        self.maps.set(COMPUTE, blade.get().into(), peer)
    }

    /// The XDP program.
    pub(crate) fn xdp(&mut self) -> Result<&mut Xdp> {
        match &mut self.programs {
            Programs::Object(ebpf) => object::xdp(ebpf, program::SWITCH),
            Programs::Pinned(programs) => Ok(&mut programs.0),
        }
    }

    /// The TC program.
    pub(crate) fn fan_out(&mut self) -> Result<&mut SchedClassifier> {
        match &mut self.programs {
            Programs::Object(ebpf) => object::classifier(ebpf, program::FAN_OUT),
            Programs::Pinned(programs) => Ok(&mut programs.1),
        }
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

    /// The packets that are handed over to be copied, from now on. To be opened once: each is read by one.
    ///
    /// # Errors
    ///
    /// When the maps cannot be opened again.
    pub fn open_copies(&self) -> Result<Copies> {
        Copies::new(
            self.maps.open_again(HANDED_OVER)?,
            self.maps.open_again(COMPUTE)?,
        )
    }

    /// The records of packets. To be opened once: each is read by one.
    ///
    /// # Errors
    ///
    /// When the map cannot be opened again.
    pub fn open_traces(&self) -> Result<Traces> {
        Traces::new(self.maps.open_again(traces::RECORDS)?)
    }

    /// What turns records on and off.
    ///
    /// # Errors
    ///
    /// When the maps cannot be opened again.
    pub fn open_trace_control(&self) -> Result<TraceControl> {
        TraceControl::new(
            self.maps.open_again(traces::TRACING)?,
            self.maps.open_again(traces::LOST_RECORDS)?,
        )
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

    /// Says on which blades processes of `domain` are placed.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a domain beyond [`SwitchLimits::domains`].
    pub fn place(&mut self, domain: DomainId, blades: BladeSet) -> Result<()> {
        let limit = self.maps.capacity(GRANTS)?;
        if domain.0 >= limit {
            return Err(Error::Limit {
                what: "protection domain",
                index: domain.0.into(),
                limit: limit.into(),
            });
        }
        self.maps.set(GRANTS, domain.0, blades.bits())
    }

    /// The domains that processes are placed of, and on which blades. Reads one entry for each domain there may be.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn placements(&self) -> Result<Vec<(DomainId, BladeSet)>> {
        let mut placed = Vec::new();
        for domain in 0..self.maps.capacity(GRANTS)? {
            let blades = BladeSet::from_bits(self.maps.get(GRANTS, domain)?);
            if !blades.is_empty() {
                placed.push((DomainId(domain), blades));
            }
        }
        Ok(placed)
    }

    /// What all domains may do, in no order.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn protections(&self) -> Result<Vec<(DomainId, Prefix, Permission)>> {
        let entries = self.maps.prefixes(PROTECTION)?;
        let entry = |(len, key, value): (u32, ProtectionKey, Protection)| {
            let prefix = Prefix {
                base: key.va(),
                shift: ProtectionKey::shift(len),
            };
            (key.domain(), prefix, value.permission)
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    /// Lets `domain` do with the addresses of `prefix` what `permission` says: from when this
    /// returns, for every packet that comes.
    ///
    /// The prefixes of a domain must not overlap, but for the time between the first step of a
    /// change and its last: until then, what a slot remembers of its region may be what one of the
    /// overlapping prefixes says.
    ///
    /// # Errors
    ///
    /// When there are more entries than [`SwitchLimits::protection`].
    pub fn protect(
        &mut self,
        domain: DomainId,
        prefix: Prefix,
        permission: Permission,
    ) -> Result<()> {
        let key = ProtectionKey::new(domain, prefix.base);
        let len = ProtectionKey::prefix_len(prefix.shift);
        let protection = Protection {
            permission,
            shift: prefix.shift,
        };
        let done = self.maps.insert_prefix(PROTECTION, len, key, protection);
        self.directory.doubt();
        done
    }

    /// Takes back what [`protect`](Self::protect) said; whether it had.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn unprotect(&mut self, domain: DomainId, prefix: Prefix) -> Result<bool> {
        let key = ProtectionKey::new(domain, prefix.base);
        let len = ProtectionKey::prefix_len(prefix.shift);
        let done = self
            .maps
            .remove_prefix::<_, Protection>(PROTECTION, len, key);
        self.directory.doubt();
        done
    }

    /// Keeps the addresses of `prefix` where `translation` says; of nested prefixes the longest
    /// counts.
    ///
    /// # Errors
    ///
    /// When there are more entries than [`SwitchLimits::translation`].
    pub fn translate(&mut self, prefix: Prefix, translation: Translation) -> Result<()> {
        let key = TranslationKey::new(prefix.base);
        let len = TranslationKey::prefix_len(prefix.shift);
        self.directory.note_finest(prefix.shift);
        let done = self.maps.insert_prefix(TRANSLATION, len, key, translation);
        self.directory.doubt();
        done
    }

    /// Where all addresses are kept, in no order.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn translations(&self) -> Result<Vec<(Prefix, Translation)>> {
        let entries = self.maps.prefixes(TRANSLATION)?;
        let entry = |(len, key, value): (u32, TranslationKey, Translation)| {
            let prefix = Prefix {
                base: Va(key.va.get()),
                shift: TranslationKey::shift(len),
            };
            (prefix, value)
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    /// Takes back what [`translate`](Self::translate) said; whether it had.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn untranslate(&mut self, prefix: Prefix) -> Result<bool> {
        let key = TranslationKey::new(prefix.base);
        let len = TranslationKey::prefix_len(prefix.shift);
        let done = self
            .maps
            .remove_prefix::<_, Translation>(TRANSLATION, len, key);
        self.directory.doubt();
        done
    }

    /// The directory's tables and slots.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The directory's tables and slots once more, for another thread.
    ///
    /// # Errors
    ///
    /// When they cannot be mapped into memory again.
    pub fn open_directory(&self) -> Result<Directory> {
        Directory::new(&self.maps)
    }

    /// Lets the programs find block table `table` for the block that `va` is in, or none.
    ///
    /// # Errors
    ///
    /// When there are more blocks than [`SwitchLimits::blocks`].
    pub fn set_block(&mut self, va: Va, table: Option<u32>) -> Result<()> {
        Directory::set_block(&mut self.maps, va.block(), table)
    }

    /// The blocks, by number, that have a table, and which; in no order.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn blocks(&self) -> Result<Vec<(u64, u32)>> {
        Directory::blocks(&self.maps)
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

fn sizes(limits: &SwitchLimits) -> [(&'static str, u32); 11] {
    [
        (HANDED_OVER, RING),
        (traces::RECORDS, traces::RING),
        (PORTS, limits.interfaces),
        (DEVICES, limits.interfaces),
        (tally::MAP, limits.interfaces),
        (GRANTS, limits.domains),
        (PROTECTION, limits.protection),
        (TRANSLATION, limits.translation),
        (directory::MAPS[0], limits.blocks),
        (directory::MAPS[1], limits.blocks),
        (directory::MAPS[2], limits.slots),
    ]
}
