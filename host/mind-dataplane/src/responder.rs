//! A memory blade's program and pages.

use std::{net::Ipv4Addr, path::Path};

use aya::{Ebpf, programs::Xdp};
use mind_common::table::{self, MAX_TRIES};

use crate::{
    MemoryLimits, PacketCounters, Result, Store, counters,
    maps::Maps,
    object::{self, program},
    store,
};

const RESPONDER: &str = "RESPONDER";
const OPERATIONS: &str = "OPERATIONS";

/// All maps that belong to a memory blade.
const MAPS: [&str; 5] = [
    RESPONDER,
    counters::MAP,
    store::MAPS[0],
    store::MAPS[1],
    store::MAPS[2],
];

enum Program {
    /// In the object that this process loaded.
    Object(Box<Ebpf>),
    /// Opened where it was pinned.
    Pinned(Box<Xdp>),
}

/// A memory blade's data plane.
pub struct Responder {
    program: Program,
    maps: Maps,
    store: Store,
}

impl Responder {
    /// Loads program and maps; allocates and zeroes all pages, a second or so per GiB. Nothing is
    /// attached.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, for want of privileges or memory.
    pub fn load(limits: &MemoryLimits) -> Result<Self> {
        let sizes = [
            (counters::MAP, limits.interfaces),
            (store::MAPS[0], limits.pages),
            (store::MAPS[1], limits.pages),
        ];
        let mut ebpf = object::load(&sizes, MAX_TRIES, limits.log_verdicts, false)?;
        object::xdp(&mut ebpf, program::RESPONDER)?;
        let maps = Maps::take(&mut ebpf, &MAPS)?;
        Ok(Self {
            program: Program::Object(Box::new(ebpf)),
            store: Store::new(&maps)?,
            maps,
        })
    }

    /// Pins program and maps in `folder`, which is made.
    ///
    /// # Errors
    ///
    /// When `folder` is not in a BPF file system, or something is pinned there already.
    pub fn pin(&mut self, folder: &Path) -> Result<()> {
        object::make_folder(folder)?;
        self.maps.pin(folder)?;
        let program = self.xdp()?;
        object::pin(folder, program::RESPONDER, |path| program.pin(path))
    }

    /// Opens what [`pin`](Self::pin) pinned in `folder`.
    ///
    /// # Errors
    ///
    /// When something is missing there.
    pub fn open(folder: &Path) -> Result<Self> {
        let maps = Maps::open(folder, &MAPS)?;
        Ok(Self {
            program: Program::Pinned(Box::new(object::pinned_xdp(folder, program::RESPONDER)?)),
            store: Store::new(&maps)?,
            maps,
        })
    }

    /// Removes what [`pin`](Self::pin) pinned in `folder`, as far as it is there. The folder stays.
    ///
    /// # Errors
    ///
    /// When something is there and cannot be removed.
    pub fn remove_pins(folder: &Path) -> Result<()> {
        object::remove_pins(folder, MAPS.into_iter().chain([program::RESPONDER]))
    }

    /// The program.
    pub(crate) fn xdp(&mut self) -> Result<&mut Xdp> {
        match &mut self.program {
            Program::Object(ebpf) => object::xdp(ebpf, program::RESPONDER),
            Program::Pinned(program) => Ok(program),
        }
    }

    /// Its maps.
    #[cfg(feature = "harness")]
    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Sets the addresses of the memory blade and of the switch, the only host that it answers.
    /// Until then, it takes every packet for foreign.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_identity(&mut self, ipv4: Ipv4Addr, switch: Ipv4Addr) -> Result<()> {
        let value = table::Responder {
            ipv4: ipv4.octets(),
            switch_ipv4: switch.octets(),
        };
        self.maps.set(RESPONDER, 0, value)
    }

    /// Clears every compute blade's latest atomic operation.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn clear_operations(&mut self) -> Result<()> {
        for blade in 0..self.maps.capacity(OPERATIONS)? {
            self.maps
                .set(OPERATIONS, blade, table::Operation::default())?;
        }
        Ok(())
    }

    /// The pages.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The pages once more, for another thread.
    ///
    /// # Errors
    ///
    /// When they cannot be mapped into memory again.
    pub fn open_store(&self) -> Result<Store> {
        Store::new(&self.maps)
    }

    /// The packets that came in at the interface `ifindex`, by verdict; interfaces beyond the limit
    /// are counted as interface 0.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn packet_counters(&self, ifindex: u32) -> Result<PacketCounters> {
        PacketCounters::of(&self.maps, ifindex)
    }
}
