//! The memory that the load shares: areas, their sizes, and which threads write what in them.

use mind_client::{Access, Open, Process};
use mind_common::addr::INITIAL_REGION_ORDER;
use mind_e2e::area::{Area, PAGE};

/// The protection domain of the load.
pub const DOMAIN: &str = "soak";
/// Compute blades of the load.
pub const BLADES: usize = 4;
/// Memory blades.
pub const MEMORY_BLADES: u8 = 2;
/// Bytes of each memory blade. More than [`KEPT_BOUND`](crate::machine::KEPT_BOUND), so that memory that is not given
/// back is found.
pub const MEMORY_SIZE: u64 = 2 << 30;
/// Directory slots: a tenth of the regions that [`Part::Roam`] touches.
pub const SLOTS: u32 = ROAM as u32 / 10;
/// Bytes of each compute blade's page cache.
pub const CACHE: u64 = 4 << 20;
/// Pages of the initial region, in which pages change hands together.
pub const REGION: usize = 1 << INITIAL_REGION_ORDER;

/// An area of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Words of which each thread has its own on every page: [`work::lanes`](crate::work::lanes).
    Lanes,
    /// Words to which every thread adds: [`work::tickets`](crate::work::tickets).
    Tickets,
    /// Pages with one writer and many readers: [`work::board`](crate::work::board).
    Board,
    /// More pages of each blade's own than its cache holds: [`work::sweep`](crate::work::sweep).
    Sweep,
    /// Pages written under a lock that lies on them: [`work::locked`](crate::work::locked).
    Locked,
    /// A page of each of many regions: [`work::roam`](crate::work::roam).
    Roam,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Lanes,
        Self::Tickets,
        Self::Board,
        Self::Sweep,
        Self::Locked,
        Self::Roam,
    ];

    /// The area's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lanes => "lanes",
            Self::Tickets => "tickets",
            Self::Board => "board",
            Self::Sweep => "sweep",
            Self::Locked => "locked",
            Self::Roam => "roam",
        }
    }

    /// Its pages.
    pub const fn pages(self) -> usize {
        match self {
            Self::Lanes => 64,
            Self::Tickets => 16,
            Self::Board => 16 * BLADES * REGION,
            Self::Sweep => BLADES * SWEEP,
            Self::Locked => 64,
            Self::Roam => ROAM * REGION,
        }
    }
}

/// Regions that are touched in turn: far more than there are slots.
pub const ROAM: usize = 100_000;

/// Pages of the sweep that are one blade's: twice its cache.
pub const SWEEP: usize = 2 * CACHE as usize / PAGE;

const _: () = assert!(SWEEP.is_multiple_of(REGION));

/// All areas, as a process sees them.
#[derive(Clone, Copy, Debug)]
pub struct Areas([Area; Part::ALL.len()]);

impl Areas {
    /// Opens them; the first process makes them.
    ///
    /// # Errors
    ///
    /// When an area cannot be opened.
    pub fn open(process: &Process) -> anyhow::Result<Self> {
        let open = |part: Part| -> Result<Area, mind_client::Error> {
            let length = (part.pages() * PAGE) as u64;
            let memory = process.open_area(part.name(), length, Access::Write, Open::OrCreate)?;
            Ok(Area::new(memory))
        };
        let mut areas = Vec::with_capacity(Part::ALL.len());
        for part in Part::ALL {
            areas.push(open(part).map_err(|error| {
                anyhow::anyhow!("cannot open the area `{}`: {error}", part.name())
            })?);
        }
        let areas = areas.try_into();
        areas
            .map(Self)
            .map_err(|_| anyhow::anyhow!("an area is missing"))
    }

    /// One of them.
    pub fn of(self, part: Part) -> Area {
        self.0[part as usize]
    }
}
