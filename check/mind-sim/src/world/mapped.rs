//! Which areas are mapped, by the switch's table, and since when.

use std::collections::BTreeMap;

use mind_common::{
    addr::Va,
    table::{MAY_READ, MAY_WRITE, Permission},
};
use mind_machines::{compute::Access, controller::Request, datagram::PageRequest, switch::Tables};

use crate::plan::{Area, Mapping, Plan};

/// The table's entry of an area.
#[derive(Clone, Copy, Debug, Default)]
struct Right {
    /// Its domain's permissions.
    bits: u32,
    /// When that last changed, in nanoseconds.
    changed: u64,
    /// When it was last mapped, counted in changes.
    mapped: u64,
}

/// The entries of all areas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    rights: Vec<Right>,
    changes: u64,
    /// Until when a memory blade cannot zero pages.
    unzeroed: BTreeMap<u8, u64>,
}

/// The request for a mapping.
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
        Mapping::MakeReadOnly => Request::Protect {
            domain,
            region,
            permission: of(MAY_READ),
        },
        Mapping::MakeWritable => Request::Protect {
            domain,
            region,
            permission: of(MAY_READ | MAY_WRITE),
        },
    }
}

impl Mapped {
    /// Notes changes of the table by the controller.
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

#[cfg(test)]
mod tests {
    use mind_common::{
        addr::{PAGE_SHIFT, Prefix},
        id::DomainId,
    };

    use super::*;
    use crate::plan::calm;

    const OTHER: DomainId = DomainId(2);

    /// The same memory of one domain, and of another later.
    fn plan() -> Plan {
        let mut plan = calm(0);
        let area = plan.areas[0];
        plan.areas.push(Area {
            domain: OTHER,
            is_mapped: false,
            ..area
        });
        plan
    }

    fn set(tables: &mut Tables, area: &Area, bits: u32) {
        let prefix = Prefix {
            base: area.region.base(),
            shift: PAGE_SHIFT + u32::from(area.region.order()),
        };
        let right = (area.domain, prefix);
        match bits {
            0 => tables.protection.remove(&right),
            _ => tables.protection.insert(right, Permission { bits }),
        };
    }

    #[test]
    fn an_address_is_in_the_area_that_was_mapped_last() {
        let (plan, mut tables, mut mapped) = (plan(), Tables::default(), Mapped::default());
        let va = plan.areas[0].region.base();
        let owner = |mapped: &Mapped| mapped.area(&plan, va).map(|area| area.domain);
        mapped.notice(&plan, &tables, 1);
        assert_eq!(owner(&mapped), None);
        for (number, now) in [(0, 2), (1, 3), (0, 4)] {
            let area = &plan.areas[number];
            set(&mut tables, &plan.areas[1 - number], 0);
            set(&mut tables, area, MAY_READ);
            mapped.notice(&plan, &tables, now);
            assert_eq!(owner(&mapped), Some(area.domain));
        }
        // It is still the area that was mapped last.
        set(&mut tables, &plan.areas[0], 0);
        mapped.notice(&plan, &tables, 5);
        assert_eq!(owner(&mapped), Some(plan.areas[0].domain));
    }

    #[test]
    fn an_access_is_denied_that_is_not_allowed_or_was_not_since_it_began() {
        let (plan, mut tables, mut mapped) = (plan(), Tables::default(), Mapped::default());
        let area = &plan.areas[0];
        let page = PageRequest {
            page: area.region.base(),
            domain: area.domain,
        };
        set(&mut tables, area, MAY_READ);
        mapped.notice(&plan, &tables, 10);
        let denies = |mapped: &Mapped, tables: &Tables, access, since| {
            mapped.denies(&plan, tables, page, access, since)
        };
        assert!(denies(&mapped, &tables, Access::Write, 20));
        assert!(!denies(&mapped, &tables, Access::Read, 20));
        assert!(
            denies(&mapped, &tables, Access::Read, 10),
            "it began before"
        );
        set(&mut tables, area, MAY_READ | MAY_WRITE);
        mapped.notice(&plan, &tables, 30);
        assert!(!denies(&mapped, &tables, Access::Write, 31));
        assert!(denies(&mapped, &tables, Access::Write, 30));
    }

    #[test]
    fn a_memory_blade_cannot_zero_until_its_time() {
        let mut mapped = Mapped::default();
        mapped.unzero(1, 7);
        assert_eq!([0, 1].map(|memory| mapped.unzeroed(memory)), [0, 7]);
    }
}
