//! The programs that are timed, with tables as full as the bench documents, and what is put back before each run of a
//! path.

use anyhow::{Context as _, Result, ensure};
use mind_common::{
    addr::{INITIAL_REGION_ORDER, PAGE_SHIFT, Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::{State, index::free::FreeTop},
    id::{BladeId, BladeSet, Connection, DomainId},
    serial::Version,
    table::{
        FirstTouch, FreeKind, Headers, MAY_READ, MAY_WRITE, PEER_PRESENT, PageTag, Peer,
        Permission, Slot, Template, Translation,
    },
};
use mind_dataplane::{
    MemoryLimits, PacketCounters, Responder, Switch, SwitchLimits,
    harness::{Bed, Host},
};

use super::paths::{Path, Place, word};

/// The loopback, which every network namespace has. Nothing is attached to it or sent to it.
pub(super) const INTERFACE: u32 = 1;
/// The switch.
pub(super) const SWITCH: Host = Host::numbered(254);
/// Compute blades that are there.
const COMPUTE_BLADES: u8 = 5;
/// Memory blades.
const MEMORY_BLADES: u8 = 8;
/// A memory blade's version of its page before each run.
pub(super) const STORED: Version = Version::new(1);

/// How full a switch's tables are.
pub(super) struct Filling {
    /// Regions that have a slot: so many from the first one of the window on, each with the slot of its number, from 1.
    pub(super) regions: u32,
    /// Slots more, which are free.
    free: u32,
    /// Protection entries, from the first address of the window on.
    protection: u32,
    /// log2 of the bytes that each covers.
    vma_shift: u32,
    /// Domains, which have them by turns.
    domains: u32,
}

/// As full as a rack's.
pub(super) const RACK: Filling = Filling {
    regions: 30_000,
    // So many that the controller is not told that few are left.
    free: 4096,
    protection: 2000,
    vma_shift: 18,
    domains: 10,
};

/// log2 of the regions of [`SPREAD`].
pub(super) const SPREAD_BITS: u32 = 20;

/// A million regions, all of one domain, so that one frame has pages of any.
pub(super) const SPREAD: Filling = Filling {
    regions: 1 << SPREAD_BITS,
    free: 0,
    protection: 2048,
    vma_shift: 23,
    domains: 1,
};

/// A domain that has nothing.
pub(super) const STRANGER: DomainId = DomainId(0);

const _: () = assert!(RACK.covers(RACK.regions) && SPREAD.covers(SPREAD.regions - 1));

impl Filling {
    /// The first page of the region with that number, from 0.
    pub(super) const fn page(region: u32) -> Va {
        Va(WINDOW_BASE + ((region as u64) << (PAGE_SHIFT + INITIAL_REGION_ORDER as u32)))
    }

    /// Whether a domain may use the region with that number.
    const fn covers(&self, region: u32) -> bool {
        Self::page(region).0 - WINDOW_BASE < (self.protection as u64) << self.vma_shift
    }

    /// The domain that may use `va`.
    pub(super) const fn domain_of(&self, va: Va) -> DomainId {
        DomainId(1 + ((va.0 - WINDOW_BASE) >> self.vma_shift) as u32 % self.domains)
    }
}

/// The programs: a switch and a memory blade each.
pub(super) struct Beds {
    rack: Bed,
    spread: Bed,
    /// What is put back before a region's first touch.
    untouched: Template,
}

impl Beds {
    /// Loads the programs and fills the tables.
    pub(super) fn load() -> Result<Self> {
        let rack = bed(&RACK)?;
        let untouched = untouched(&rack.switch)?;
        Ok(Self {
            rack,
            spread: bed(&SPREAD)?,
            untouched,
        })
    }

    /// Has the slots of the regions that a path is spread over remember what the tries say: a run for each.
    pub(super) fn warm(&mut self, path: &Path) -> Result<()> {
        self.prepare(path)?;
        let (program, frame) = (path.program(), path.packet.bytes());
        let bed = self.of(path);
        bed.time(program, INTERFACE, frame, SPREAD.regions)?;
        let directory = bed.switch.directory();
        for slot in 1..=SPREAD.regions {
            let accesses = directory.slot(slot)?.accesses();
            ensure!(
                accesses == 1,
                "{} must be spread over all regions, but slot {slot} was accessed {accesses} times in {} runs",
                path.name,
                SPREAD.regions
            );
        }
        Ok(())
    }

    /// After runs of a path that takes a free slot: fails if a run found the slot of the one before.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        if path.place == Place::Untouched {
            let slot = self.untouched.slot;
            let accesses = self.rack.switch.directory().slot(slot)?.accesses();
            ensure!(
                accesses == 1,
                "every run of {} must open slot {slot}, but it was accessed {accesses} times since it was opened",
                path.name
            );
        }
        Ok(())
    }

    /// The switches.
    pub(super) fn switches(&self) -> [&Switch; 2] {
        [&self.rack.switch, &self.spread.switch]
    }

    /// The programs of a path.
    pub(super) fn of(&mut self, path: &Path) -> &mut Bed {
        match path.place {
            Place::Spread => &mut self.spread,
            Place::Kept | Place::Untouched | Place::Memory => &mut self.rack,
        }
    }

    /// The counters of what becomes of a path's packets.
    pub(super) fn counters(&mut self, path: &Path) -> Result<PacketCounters> {
        let bed = self.of(path);
        Ok(match path.place {
            Place::Memory => bed.responder.packet_counters(INTERFACE)?,
            Place::Kept | Place::Untouched | Place::Spread => {
                bed.switch.packet_counters(INTERFACE)?
            }
        })
    }

    /// Has what a run of this path changes put back before each run, and the path's blade be behind the port.
    pub(super) fn prepare(&mut self, path: &Path) -> Result<()> {
        let headers = Headers::of(path.packet.bytes());
        let headers =
            headers.with_context(|| format!("the frame of {} is too short", path.name))?;
        let common = Template {
            word: path.word.raw(),
            clear_memo: path.clears_memo.into(),
            headers,
            ..Template::default()
        };
        let template = match path.place {
            Place::Kept => Template {
                slot: slot_of(path.page),
                ..common
            },
            Place::Spread => Template {
                slot: slot_of(path.page),
                scatter: SPREAD_BITS,
                ..common
            },
            Place::Untouched => Template {
                slot: self.untouched.slot,
                first_touch: self.untouched.first_touch,
                ..common
            },
            Place::Memory => Template {
                tag: PageTag::settled(STORED).raw(),
                ..common
            },
        };
        let bed = self.of(path);
        bed.switch.set_port(INTERFACE, path.port)?;
        Ok(bed.set_template(template)?)
    }
}

/// A compute blade.
pub(super) fn blade(number: u8) -> BladeId {
    BladeId::from_low_bits(number.into())
}

/// Its address.
pub(super) const fn compute(number: u8) -> Host {
    Host::numbered(1 + number)
}

/// A memory blade's address.
pub(super) const fn memory(number: u8) -> Host {
    Host::numbered(101 + number)
}

/// A compute blade's connection.
pub(super) fn connection(number: u8) -> Connection {
    Connection {
        blade: blade(number),
        incarnation: 1,
    }
}

/// The slot of a page's region, if it has one.
pub(super) const fn slot_of(page: Va) -> u32 {
    1 + ((page.0 - WINDOW_BASE) >> (PAGE_SHIFT + INITIAL_REGION_ORDER as u32)) as u32
}

/// The region that a page is in.
pub(super) fn region_of(page: Va) -> Result<Region> {
    Region::containing(page, INITIAL_REGION_ORDER).context("no region has that order")
}

fn peer(host: Host, connection: u32) -> Peer {
    Peer {
        ipv4: host.ipv4.octets(),
        mac: host.mac,
        flags: PEER_PRESENT,
        ifindex: INTERFACE,
        connection,
    }
}

fn bed(filling: &Filling) -> Result<Bed> {
    let mut switch = Switch::load(&SwitchLimits {
        slots: 1 + filling.regions + filling.free,
        ..SwitchLimits::default()
    })?;
    switch.set_identity(SWITCH.ipv4, SWITCH.mac)?;
    for number in 0..COMPUTE_BLADES {
        let peer = peer(compute(number), connection(number).to_qp());
        switch.set_compute(blade(number), peer)?;
    }
    for number in 0..MEMORY_BLADES {
        switch.set_memory(number, peer(memory(number), 0))?;
        let base = Va(WINDOW_BASE + (u64::from(number) << SLICE_SHIFT));
        let prefix = Prefix {
            base,
            shift: SLICE_SHIFT,
        };
        switch.translate(prefix, Translation::new(number, base, 0))?;
    }
    for domain in 0..=filling.domains {
        switch.place(DomainId(domain), BladeSet::from_bits(u32::MAX))?;
    }
    for entry in 0..filling.protection {
        let base = Va(WINDOW_BASE + (u64::from(entry) << filling.vma_shift));
        let prefix = Prefix {
            base,
            shift: filling.vma_shift,
        };
        let permission = Permission {
            bits: MAY_READ | MAY_WRITE,
        };
        switch.protect(filling.domain_of(base), prefix, permission)?;
    }
    fill(&switch, filling)?;
    let mut responder = Responder::load(&MemoryLimits::for_pages(1))?;
    responder.set_identity(memory(0).ipv4, SWITCH.ipv4)?;
    Ok(Bed::new(switch, responder)?)
}

/// Gives the regions their slots; the others are free.
fn fill(switch: &Switch, filling: &Filling) -> Result<()> {
    let directory = switch.directory();
    directory.drain(FreeKind::Slots);
    for number in 0..filling.regions {
        let region = region_of(Filling::page(number))?;
        let slot = slot_of(region.base());
        let invalid = Slot::new(word(State::Invalid, []), region);
        directory.slot(slot)?.reset(invalid);
        directory.assign(region, slot)?;
    }
    for slot in (1..=filling.free).rev() {
        directory.give(FreeKind::Slots, filling.regions + slot);
    }
    Ok(())
}

/// What is put back before the first touch of the region behind the last one that has a slot: another one of its block has
/// one, so the block has a table.
fn untouched(switch: &Switch) -> Result<Template> {
    let directory = switch.directory();
    let page = Filling::page(RACK.regions);
    let table = directory.table_of(page)?;
    let (table, unit) = table.with_context(|| format!("the block of {page} has no table"))?;
    let (list, next) = directory.free_list(FreeKind::Slots);
    Ok(Template {
        slot: FreeTop::from_raw(list.top).number(),
        first_touch: FirstTouch {
            top: list.top,
            taken: list.taken,
            next,
            table,
            unit: unit as u32,
            reserved: 0,
        },
        ..Template::default()
    })
}
