//! Where areas are mapped, as programs know it; whose pages are and since when, by the switch's table.

use std::collections::BTreeMap;

use mind_api::message::{Access as Class, Open, Request};
use mind_common::{
    addr::{PAGE_SHIFT, PAGE_SIZE, Prefix, Va},
    id::DomainId,
    table::{MAY_READ, MAY_WRITE},
};
use mind_machines::{compute::Access, datagram::PageRequest, switch::Tables};

use crate::{
    plan::{Mapping, Place, Plan},
    trace::Cell,
};

/// What a named area is called.
fn name(number: usize) -> String {
    format!("area {number}")
}

/// An area, as programs know it.
#[derive(Clone, Copy, Debug, Default)]
struct Where {
    /// Where it is, or was last.
    base: Option<Va>,
    is_mapped: bool,
    /// A request to map or unmap it is under way.
    is_asked: bool,
}

/// A page in the switch's table of protection.
#[derive(Clone, Copy, Debug)]
struct Right {
    /// The domain that may access it, or could last.
    owner: DomainId,
    /// When what a domain may do with it last changed, in nanoseconds.
    changed: u64,
}

/// All areas, and all pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    areas: Vec<Where>,
    pages: BTreeMap<Va, Right>,
    /// Until when a memory blade cannot zero pages.
    unzeroed: BTreeMap<u8, u64>,
}

impl Mapped {
    /// So many areas, none of which is mapped.
    pub(crate) fn new(areas: usize) -> Self {
        Self {
            areas: vec![Where::default(); areas],
            ..Self::default()
        }
    }

    /// The address of a word, if its area has been mapped; the last one, if it is not mapped any more.
    pub(crate) fn cell(&self, place: Place) -> Option<Cell> {
        let base = self.areas.get(place.area)?.base?;
        Some(Cell {
            page: Va(base.0 + (place.page << PAGE_SHIFT)),
            word: place.word,
        })
    }

    /// The address of a word of an area that is mapped from the beginning.
    pub(crate) fn fixed(&self, place: Place) -> Cell {
        self.cell(place)
            .unwrap_or_else(|| unreachable!("{place:?} is not mapped from the beginning"))
    }

    /// The request of a process for a mapping, unless it makes no sense now.
    pub(crate) fn request(
        &mut self,
        plan: &Plan,
        (domain, pid): (DomainId, i32),
        mapping: Mapping,
        number: usize,
    ) -> Option<Request> {
        let (area, known) = (plan.areas.get(number)?, self.areas.get_mut(number)?);
        let (domain, length) = (domain.0, area.length());
        if mapping == Mapping::Map {
            let makes_sense = area.is_named || !known.is_mapped;
            if !makes_sense || std::mem::replace(&mut known.is_asked, true) {
                return None;
            }
            let access = match area.is_writable {
                true => Class::Write,
                false => Class::Read,
            };
            if area.is_named {
                return Some(Request::OpenArea {
                    domain,
                    pid,
                    name: name(number),
                    length,
                    access,
                    open: match known.is_mapped {
                        true => Open::Existing,
                        false => Open::OrCreate,
                    },
                });
            }
            return Some(Request::Map {
                domain,
                length,
                access,
            });
        }
        let va = known.base.filter(|_| known.is_mapped)?.0;
        let protect = |access| Request::Protect {
            domain,
            va,
            length,
            access,
        };
        Some(match mapping {
            Mapping::MakeReadOnly => protect(Class::Read),
            Mapping::MakeWritable => protect(Class::Write),
            Mapping::Map | Mapping::Unmap => {
                if std::mem::replace(&mut known.is_asked, true) {
                    return None;
                }
                match area.is_named {
                    // It goes with its name, as no process keeps it open.
                    true => Request::UnlinkArea {
                        domain,
                        name: name(number),
                    },
                    false => Request::Unmap {
                        domain,
                        pid,
                        va,
                        length,
                    },
                }
            }
        })
    }

    /// The request for a mapping is over: where the area is mapped now, if it is. `None` if that is not known.
    pub(crate) fn answered(&mut self, mapping: Mapping, number: usize, at: Option<Option<Va>>) {
        let Some(known) = self.areas.get_mut(number) else {
            return;
        };
        if let Mapping::Map | Mapping::Unmap = mapping {
            known.is_asked = false;
            if let Some(at) = at {
                known.is_mapped = at.is_some();
                known.base = at.or(known.base);
            }
        }
    }

    /// The table of protection says something else of the pages of a prefix.
    pub(crate) fn changed(&mut self, domain: u32, prefix: Prefix, is_allowed: bool, now: u64) {
        let pages = (prefix.base.0..prefix.base.0 + prefix.size()).step_by(PAGE_SIZE);
        for page in pages.map(Va) {
            let owner = DomainId(domain);
            let right = self.pages.entry(page).or_insert(Right {
                owner,
                changed: now,
            });
            right.changed = now;
            if is_allowed {
                right.owner = owner;
            }
        }
    }

    /// The domain that may access the page, or could last.
    pub(crate) fn owner(&self, page: Va) -> Option<DomainId> {
        self.pages.get(&page).map(|right| right.owner)
    }

    /// Whether an access may be denied that began then.
    pub(crate) fn denies(
        &self,
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
        let right = self.pages.get(&page.page);
        permission.is_none_or(|permission| !permission.allows(class))
            || right.is_some_and(|right| right.changed >= since)
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
    use mind_common::{addr::WINDOW_BASE, table::Permission};

    use super::*;
    use crate::plan::calm;

    const PAGE: Va = Va(WINDOW_BASE);
    const PREFIX: Prefix = Prefix {
        base: PAGE,
        shift: PAGE_SHIFT + 1,
    };

    #[test]
    fn an_area_is_where_it_was_mapped_last_and_is_not_mapped_twice() {
        let plan = calm(0);
        let mut mapped = Mapped::new(1);
        let place = Place {
            area: 0,
            page: 1,
            word: 3,
        };
        let ask = |mapped: &mut Mapped, what| mapped.request(&plan, (DomainId(1), 7), what, 0);
        assert_eq!(mapped.cell(place), None);
        assert_eq!(ask(&mut mapped, Mapping::Unmap), None);
        assert!(matches!(
            ask(&mut mapped, Mapping::Map),
            Some(Request::Map { .. })
        ));
        assert_eq!(ask(&mut mapped, Mapping::Map), None, "that is under way");
        mapped.answered(Mapping::Map, 0, Some(Some(PAGE)));
        let cell = Cell {
            page: Va(PAGE.0 + 0x1000),
            word: 3,
        };
        assert_eq!(mapped.cell(place), Some(cell));
        assert_eq!(ask(&mut mapped, Mapping::Map), None);
        let unmap = Request::Unmap {
            domain: 1,
            pid: 7,
            va: PAGE.0,
            length: 0x2000,
        };
        assert_eq!(ask(&mut mapped, Mapping::Unmap), Some(unmap));
        mapped.answered(Mapping::Unmap, 0, Some(None));
        assert_eq!(ask(&mut mapped, Mapping::MakeReadOnly), None);
        assert_eq!(mapped.cell(place), Some(cell), "a stale pointer");
    }

    #[test]
    fn a_page_is_of_the_domain_that_could_access_it_last() {
        let mut mapped = Mapped::default();
        assert_eq!(mapped.owner(PAGE), None);
        mapped.changed(1, PREFIX, true, 1);
        mapped.changed(1, PREFIX, false, 2);
        assert_eq!(mapped.owner(PAGE), Some(DomainId(1)));
        mapped.changed(2, PREFIX, true, 3);
        assert_eq!(mapped.owner(PAGE), Some(DomainId(2)));
    }

    #[test]
    fn an_access_is_denied_that_is_not_allowed_or_was_not_since_it_began() {
        let (mut tables, mut mapped) = (Tables::default(), Mapped::default());
        let page = PageRequest {
            page: PAGE,
            domain: DomainId(1),
        };
        let set = |mapped: &mut Mapped, tables: &mut Tables, bits, now| {
            tables
                .protection
                .insert((page.domain, PREFIX), Permission { bits });
            mapped.changed(1, PREFIX, true, now);
        };
        set(&mut mapped, &mut tables, MAY_READ, 10);
        assert!(mapped.denies(&tables, page, Access::Write, 20));
        assert!(!mapped.denies(&tables, page, Access::Read, 20));
        assert!(
            mapped.denies(&tables, page, Access::Read, 10),
            "it began before"
        );
        set(&mut mapped, &mut tables, MAY_READ | MAY_WRITE, 30);
        assert!(!mapped.denies(&tables, page, Access::Write, 31));
        assert!(mapped.denies(&tables, page, Access::Write, 30));
    }

    #[test]
    fn a_memory_blade_cannot_zero_until_its_time() {
        let mut mapped = Mapped::default();
        mapped.unzero(1, 7);
        assert_eq!([0, 1].map(|memory| mapped.unzeroed(memory)), [0, 7]);
    }
}
