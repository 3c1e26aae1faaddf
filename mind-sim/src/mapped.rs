//! Which areas are mapped, as the switch's table says, and since when.

use std::collections::BTreeMap;

use mind_common::{
    addr::Va,
    blade::Access,
    table::{MAY_READ, MAY_WRITE, Permission},
    wire::message::PageRequest,
};
use mind_nodes::{controller::Request, switch::Tables};

use crate::plan::{Area, Mapping, Plan};

/// What the table says of an area.
#[derive(Clone, Copy, Debug, Default)]
struct Right {
    /// What its domain may do.
    bits: u32,
    /// When that last changed, in nanoseconds.
    changed: u64,
    /// When it was last mapped, counted in changes.
    mapped: u64,
}

/// Of all areas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    rights: Vec<Right>,
    changes: u64,
    /// Until when a memory blade cannot zero pages.
    unzeroed: BTreeMap<u8, u64>,
}

/// What the controller is asked for.
pub(crate) fn request(area: &Area, mapping: Mapping) -> Request {
    let (domain, region) = (area.domain, area.region);
    let of = |bits| Permission { bits };
    match mapping {
        Mapping::Map => Request::Map {
            domain,
            region,
            permission: of(if area.is_writable {
                MAY_READ | MAY_WRITE
            } else {
                MAY_READ
            }),
            fails: area.fails,
        },
        Mapping::Unmap => Request::Unmap { domain, region },
        Mapping::Freeze => Request::Protect {
            domain,
            region,
            permission: of(MAY_READ),
        },
        Mapping::Thaw => Request::Protect {
            domain,
            region,
            permission: of(MAY_READ | MAY_WRITE),
        },
    }
}

impl Mapped {
    /// The controller may have changed the table.
    pub(crate) fn notice(&mut self, plan: &Plan, tables: &Tables, now: u64) {
        self.rights.resize(plan.areas.len(), Right::default());
        for (area, right) in plan.areas.iter().zip(&mut self.rights) {
            let permission = tables.permission(area.domain, area.region.base());
            let bits = permission.map_or(0, |permission| permission.bits);
            if right.bits != bits {
                right.changed = now;
            }
            if right.bits == 0 && bits != 0 {
                self.changes += 1;
                right.mapped = self.changes;
            }
            right.bits = bits;
        }
    }

    /// The area that the address is in; of several, the one that was mapped last.
    pub(crate) fn area<'a>(&self, plan: &'a Plan, va: Va) -> Option<&'a Area> {
        let areas = plan.areas.iter().zip(&self.rights);
        let mapped = areas.filter(|(area, right)| area.region.contains(va) && right.mapped > 0);
        let last = mapped.max_by_key(|(_, right)| right.mapped);
        last.map(|(area, _)| area)
    }

    /// Whether an access may be denied that began then.
    pub(crate) fn denies(
        &self,
        plan: &Plan,
        tables: &Tables,
        page: PageRequest,
        access: Access,
        since: u64,
    ) -> bool {
        let class = match access {
            Access::Read => MAY_READ,
            Access::Write => MAY_WRITE,
        };
        let permission = tables.permission(page.domain, page.page);
        let mut areas = plan.areas.iter().zip(&self.rights);
        permission.is_none_or(|permission| !permission.allows(class))
            || areas.any(|(area, right)| {
                area.region.contains(page.page) && right.changed >= since && right.changed > 0
            })
    }

    /// A memory blade cannot zero pages until then.
    pub(crate) fn unzero(&mut self, memory: u8, until: u64) {
        self.unzeroed.insert(memory, until);
    }

    /// Until when a memory blade cannot zero pages, in nanoseconds.
    pub(crate) fn unzeroed(&self, memory: u8) -> u64 {
        self.unzeroed.get(&memory).copied().unwrap_or(0)
    }
}
