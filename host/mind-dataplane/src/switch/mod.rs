//! The switch's programs and maps: loaded, pinned, opened again.
//!
//! * [`ports`]: the switch's addresses, and the addresses and ports of blades,
//! * [`tables`]: what domains may do, and where addresses are stored.

mod ports;
mod tables;

use std::path::Path;

use aya::{
    Ebpf,
    programs::{SchedClassifier, Xdp},
};
use mind_common::losses::LossPoint;

use crate::{
    Copies, Directory, Result, Shortages, SwitchLimits, TraceControl, Traces, counters, directory,
    mapped::Mapped,
    maps::Maps,
    object::{self, program},
    replace, traces,
};

pub(crate) const SWITCH: &str = "SWITCH";
pub(crate) const PORTS: &str = "PORTS";
const DEVICES: &str = "DEVICES";
const COMPUTE: &str = "COMPUTE";
const MEMORY: &str = "MEMORY";
const GRANTS: &str = "GRANTS";
const PROTECTION: &str = "PROTECTION";
const TRANSLATION: &str = "TRANSLATION";
pub(crate) const LOSSES: &str = "LOSSES";
const HANDED_OVER: &str = "HANDED_OVER";
/// Bytes of the ring of packets that the controller is to copy: about 4,000 of them.
const RING: u32 = 1 << 18;

const SHORT: &str = "SHORT";
/// Bytes of the ring by which the controller is told that little is left of something: one message a kind at most.
const SHORT_RING: u32 = 4096;

/// All maps that belong to a switch.
pub(crate) const MAPS: [&str; OWN_MAPS.len() + directory::MAPS.len()] = {
    let mut all = [""; OWN_MAPS.len() + directory::MAPS.len()];
    let (own, directory) = all.split_at_mut(OWN_MAPS.len());
    own.copy_from_slice(&OWN_MAPS);
    directory.copy_from_slice(&directory::MAPS);
    all
};

/// Those that are not the directory's.
const OWN_MAPS: [&str; 16] = [
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
    counters::MAP,
    SHORT,
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
    pub(crate) maps: Maps,
    pub(crate) directory: Directory,
    /// The blades on which a domain is placed, one bit each, by domain.
    grants: Mapped<u64>,
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
        let directory = Directory::new(&maps)?;
        directory.fill_lists();
        Ok(Self {
            programs: Programs::Object(Box::new(ebpf)),
            directory,
            grants: maps.mapped(GRANTS)?,
            maps,
        })
    }

    /// Makes the switch drop so many of the packets that come to `place`; it must have been [loaded
    /// for that](SwitchLimits::lose_on_purpose).
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn lose(&mut self, place: LossPoint, packets: u64) -> Result<()> {
        self.maps.set(LOSSES, place.index(), packets)
    }

    /// How many of the packets that come to `place` are still to be dropped.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn to_lose(&self, place: LossPoint) -> Result<u64> {
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

    /// Whether a switch is pinned in `folder`, of this build or of another.
    pub fn is_pinned(folder: &Path) -> bool {
        folder.join(program::SWITCH).exists()
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
            grants: maps.mapped(GRANTS)?,
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
        replace::remove(folder)?;
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

    /// The maps.
    #[cfg(feature = "harness")]
    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// How much kernel memory the directory takes, in bytes.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    #[cfg(feature = "harness")]
    pub fn directory_memory(&self) -> Result<u64> {
        let maps = directory::MAPS.iter();
        maps.map(|name| self.maps.memory(name)).sum()
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

    /// The packets that are handed over to be copied, from now on. To be opened once: a packet is read by one reader
    /// only.
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

    /// The records of packets. To be opened once: a record is read by one reader only.
    ///
    /// # Errors
    ///
    /// When the map cannot be opened again.
    pub fn open_traces(&self) -> Result<Traces> {
        Traces::new(self.maps.open_again(traces::RECORDS)?)
    }

    /// Turns records on and off.
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

    /// What tells that little is left of slots or tables. To be opened once: a message is read by one reader only.
    ///
    /// # Errors
    ///
    /// When the map cannot be opened again.
    pub fn open_shortages(&self) -> Result<Shortages> {
        Shortages::new(self.maps.open_again(SHORT)?)
    }
}

fn sizes(limits: &SwitchLimits) -> Vec<(&'static str, u32)> {
    let own = [
        (HANDED_OVER, RING),
        (SHORT, SHORT_RING),
        (traces::RECORDS, traces::RING),
        (PORTS, limits.interfaces),
        (DEVICES, limits.interfaces),
        (counters::MAP, limits.interfaces),
        (GRANTS, limits.domains),
        (PROTECTION, limits.protection),
        (TRANSLATION, limits.translation),
    ];
    own.into_iter()
        .chain(directory::sizes(limits.slots))
        .collect()
}
