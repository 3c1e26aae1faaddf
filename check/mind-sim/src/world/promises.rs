//! What programs rely on: memory that was answered as mapped may be accessed until its end is asked for, memory that was
//! answered as read-only is not written, and a named area is found under its name until that is removed.
//!
//! Independent of the controller's books and the switch's tables; a promise outlives the controller that gave it.

use std::collections::BTreeMap;

use mind_api::{
    errno::Errno,
    message::{Access as Class, Reply, Request},
};
use mind_common::{
    addr::Va,
    id::{BladeId, DomainId},
    table::{MAY_READ, MAY_WRITE},
};
use mind_machines::{
    compute::Access, controller::books::Answer, datagram::PageRequest, switch::Tables,
};

use crate::{Failure, world::World};

/// What a domain may do with mapped memory, as its programs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise {
    domain: DomainId,
    /// The address after its last.
    end: Va,
    /// When it was answered as mapped, in nanoseconds.
    mapped: u64,
    /// What it may do, if that is known, and since when, in nanoseconds.
    class: Option<Class>,
    since: u64,
    /// Requests for another class that have no answer.
    asked: u32,
    /// Several of them were under way at once: which was carried out last is not known.
    is_mixed: bool,
}

/// What is known of a name in a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Name {
    /// Where its area is, while it is promised.
    va: Option<Va>,
    /// Whether a request to remove it may be carried out at any time: its blade is gone.
    is_uncertain: bool,
}

/// All promises.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    vmas: BTreeMap<Va, Promise>,
    names: BTreeMap<(u32, String), Name>,
    /// Requests that have no answer, for a class and for the end of a mapping: from which address, and how many bytes. One
    /// that comes late is carried out on what is mapped there by then.
    asked: Vec<(u64, u64)>,
    ends: Vec<(u64, u64)>,
}

impl Promises {
    fn at(&self, page: PageRequest) -> Option<&Promise> {
        let (_, promise) = self.vmas.range(..=page.page).next_back()?;
        (page.page < promise.end && promise.domain == page.domain).then_some(promise)
    }

    /// What is promised of memory in a range.
    fn over(&mut self, va: u64, length: u64) -> impl Iterator<Item = (Va, &mut Promise)> {
        let before = self.vmas.range_mut(..Va(va.saturating_add(length)));
        let over = before.filter(move |(_, promise)| promise.end.0 > va);
        over.map(|(start, promise)| (*start, promise))
    }

    /// Memory is mapped from now on.
    fn promise(&mut self, now: u64, domain: u32, (va, length): (u64, u64), class: Option<Class>) {
        let end = va + length;
        let is_over = |(from, length): &&(u64, u64)| *from < end && from + length > va;
        if self.ends.iter().any(|of| is_over(&of)) {
            return;
        }
        let asked = self.asked.iter().filter(is_over).count() as u32;
        let promise = Promise {
            domain: DomainId(domain),
            end: Va(end),
            mapped: now,
            class: class.filter(|_| asked == 0),
            since: now,
            asked,
            is_mixed: asked > 0,
        };
        self.vmas.insert(Va(va), promise);
    }

    /// A program makes a request.
    pub(crate) fn asked(&mut self, request: &Request) {
        match request {
            Request::Unmap { va, length, .. } => {
                self.ends.push((*va, *length));
                self.vmas.remove(&Va(*va));
            }
            Request::UnlinkArea { domain, name } => {
                let known = self.names.entry((*domain, name.clone())).or_default();
                if let Some(va) = known.va.take() {
                    self.vmas.remove(&va);
                }
            }
            Request::Protect { va, length, .. } => {
                self.asked.push((*va, *length));
                for (_, promise) in self.over(*va, *length) {
                    promise.is_mixed |= promise.asked > 0;
                    promise.asked += 1;
                    promise.class = None;
                }
            }
            _ => {}
        }
    }

    /// A program gets an answer, at `now`.
    ///
    /// # Errors
    ///
    /// A promise is broken.
    pub(crate) fn answered(
        &mut self,
        now: u64,
        request: &Request,
        answer: &Answer,
    ) -> Result<(), Failure> {
        match (request, answer) {
            (Request::Map { domain, access, .. }, Ok(Reply::Mapped { va, length })) => {
                self.promise(now, *domain, (*va, *length), Some(*access));
            }
            (Request::OpenArea { domain, name, .. }, answer) => {
                return self.opened(now, (*domain, name.clone()), answer);
            }
            (
                Request::Protect {
                    va, length, access, ..
                },
                answer,
            ) => {
                remove(&mut self.asked, (*va, *length));
                for (start, promise) in self.over(*va, *length) {
                    promise.asked = promise.asked.saturating_sub(1);
                    if promise.asked == 0 {
                        // A request that comes late may be about a part of what is mapped there by then.
                        let is_whole = *va <= start.0 && promise.end.0 <= va + length;
                        let is_known = answer.is_ok() && !promise.is_mixed && is_whole;
                        promise.class = is_known.then_some(*access);
                        promise.since = now;
                        promise.is_mixed = false;
                    }
                }
            }
            (Request::Unmap { va, length, .. }, _) => remove(&mut self.ends, (*va, *length)),
            _ => {}
        }
        Ok(())
    }

    fn opened(
        &mut self,
        now: u64,
        (domain, name): (u32, String),
        answer: &Answer,
    ) -> Result<(), Failure> {
        let known = self.names.entry((domain, name.clone())).or_default();
        match (known.va, answer) {
            (Some(at), Ok(Reply::Mapped { va, .. })) if at.0 == *va => {}
            (Some(at), Ok(Reply::Mapped { .. })) => return Err(Failure::Forgotten(name, at)),
            (Some(at), Err(refused)) if refused.errno == Errno::ENOENT => {
                return Err(Failure::Forgotten(name, at));
            }
            (None, Ok(Reply::Mapped { va, length })) if !known.is_uncertain => {
                known.va = Some(Va(*va));
                // It may have been there before: what its domain may do with it is not known.
                self.promise(now, domain, (*va, *length), None);
            }
            _ => {}
        }
        Ok(())
    }

    /// A request will have no answer, since its blade is gone; it may be carried out at any time.
    pub(crate) fn unanswered(&mut self, request: &Request) {
        if let Request::UnlinkArea { domain, name } = request {
            let known = self.names.entry((*domain, name.clone())).or_default();
            known.is_uncertain = true;
        }
    }

    /// Whether the access of a program to a page, which began at `since`, must not be denied.
    pub(crate) fn allows(&self, page: PageRequest, access: Access, since: u64) -> bool {
        self.at(page).is_some_and(|promise| match access {
            Access::Read => promise.mapped <= since,
            Access::Write => promise.class == Some(Class::Write) && promise.since <= since,
        })
    }

    /// The first memory of which the switch's tables allow less than was promised, or more.
    fn broken(&self, tables: &Tables) -> Option<Va> {
        let is_kept = |(va, promise): &(&Va, &Promise)| {
            let may = tables.permission(promise.domain, **va);
            // Accesses to what is lost fail as such.
            if may.is_some_and(|may| may.is_lost()) {
                return true;
            }
            let may = |class| may.is_some_and(|may| may.allows(class));
            may(MAY_READ)
                && match promise.class {
                    Some(Class::Write) => may(MAY_WRITE),
                    Some(_) => !may(MAY_WRITE),
                    None => true,
                }
        };
        let broken = self.vmas.iter().find(|promise| !is_kept(promise));
        broken.map(|(va, _)| *va)
    }

    /// Whether programs of the domain must not write the page.
    pub(crate) fn forbids_writing(&self, page: PageRequest) -> bool {
        let promise = self.at(page);
        promise.is_some_and(|promise| promise.class == Some(Class::Read))
    }
}

/// Takes one of those ranges out that are the same.
fn remove(ranges: &mut Vec<(u64, u64)>, range: (u64, u64)) {
    if let Some(at) = ranges.iter().position(|other| *other == range) {
        ranges.swap_remove(at);
    }
}

impl World<'_> {
    /// A program's access to a page is denied, which began at `since`.
    pub(crate) fn check_denied(
        &mut self,
        blade: BladeId,
        page: PageRequest,
        access: Access,
        since: u64,
    ) {
        let is_heard = self.host(blade).is_some_and(|host| !host.is_cut);
        if is_heard && self.promises.allows(page, access, since) {
            self.fail(Failure::Denied(blade, page.page));
        }
    }

    /// The switch's tables allow what was promised whenever the controller has nothing to do.
    pub(crate) fn check_promises(&mut self) {
        if self.controller.is_idle()
            && let Some(va) = self.promises.broken(self.switch.tables())
        {
            self.fail(Failure::Broken(va));
        }
    }

    /// A program writes a page.
    pub(crate) fn check_written(&mut self, blade: BladeId, page: PageRequest) {
        if self.promises.forbids_writing(page) {
            self.fail(Failure::Written(blade, page.page));
        }
    }
}

#[cfg(test)]
mod tests {
    use mind_api::errno::Failure as Refused;
    use mind_common::{
        addr::{Prefix, WINDOW_BASE},
        table::Permission,
    };

    use super::*;

    const BASE: u64 = WINDOW_BASE;
    const LENGTH: u64 = 0x2000;
    const PAGE: PageRequest = PageRequest {
        page: Va(BASE + 0x1000),
        domain: DomainId(1),
    };

    fn mapped() -> Answer {
        Ok(Reply::Mapped {
            va: BASE,
            length: LENGTH,
        })
    }

    const MAP: Request = Request::Map {
        domain: 1,
        length: LENGTH,
        access: Class::Write,
    };

    const fn protect(access: Class) -> Request {
        Request::Protect {
            domain: 1,
            va: BASE,
            length: LENGTH,
            access,
        }
    }

    const UNMAP: Request = Request::Unmap {
        domain: 1,
        pid: 7,
        va: BASE,
        length: LENGTH,
    };

    /// Memory that may be written, since time 10.
    fn promised() -> Promises {
        let mut promises = Promises::default();
        promises.asked(&MAP);
        assert_eq!(promises.answered(10, &MAP, &mapped()), Ok(()));
        promises
    }

    #[test]
    fn what_was_answered_as_mapped_may_be_accessed_until_its_end_is_asked_for() {
        let mut promises = promised();
        let beyond = PageRequest {
            page: Va(BASE + LENGTH),
            ..PAGE
        };
        let foreign = PageRequest {
            domain: DomainId(2),
            ..PAGE
        };
        assert!(!promises.allows(PAGE, Access::Read, 9), "it began before");
        assert!(promises.allows(PAGE, Access::Read, 10));
        assert!(promises.allows(PAGE, Access::Write, 10));
        assert!(!promises.allows(beyond, Access::Read, 10));
        assert!(!promises.allows(foreign, Access::Read, 10));
        promises.asked(&UNMAP);
        assert!(!promises.allows(PAGE, Access::Read, 10));
    }

    #[test]
    fn what_was_answered_as_read_only_must_not_be_written_until_that_is_asked_for() {
        let mut promises = promised();
        let (read, write) = (protect(Class::Read), protect(Class::Write));
        assert!(!promises.forbids_writing(PAGE));
        promises.asked(&read);
        assert!(!promises.forbids_writing(PAGE), "it is not answered");
        assert!(!promises.allows(PAGE, Access::Write, 10));
        promises
            .answered(20, &read, &Ok(Reply::Done))
            .expect("it is kept");
        assert!(promises.forbids_writing(PAGE));
        assert!(promises.allows(PAGE, Access::Read, 10));
        promises.asked(&write);
        assert!(!promises.forbids_writing(PAGE));
        promises
            .answered(30, &write, &Ok(Reply::Done))
            .expect("it is kept");
        assert!(!promises.allows(PAGE, Access::Write, 29));
        assert!(promises.allows(PAGE, Access::Write, 30));
    }

    #[test]
    fn tables_that_allow_less_or_more_than_was_promised_break_it() {
        let set = |bits| {
            let mut tables = Tables::default();
            let prefix = Prefix {
                base: Va(BASE),
                shift: 13,
            };
            tables
                .protection
                .insert((PAGE.domain, prefix), Permission { bits });
            tables
        };
        let broken = Some(Va(BASE));
        let mut promises = promised();
        assert_eq!(promises.broken(&Tables::default()), broken);
        assert_eq!(promises.broken(&set(MAY_READ)), broken);
        assert_eq!(promises.broken(&set(MAY_READ | MAY_WRITE)), None);
        let read = protect(Class::Read);
        promises.asked(&read);
        assert_eq!(promises.broken(&set(MAY_READ)), None);
        promises
            .answered(20, &read, &Ok(Reply::Done))
            .expect("it is kept");
        assert_eq!(promises.broken(&set(MAY_READ)), None);
        assert_eq!(promises.broken(&set(MAY_READ | MAY_WRITE)), broken);
        promises.asked(&UNMAP);
        assert_eq!(promises.broken(&Tables::default()), None);
    }

    #[test]
    fn of_requests_that_were_under_way_at_once_nothing_is_known() {
        let mut promises = promised();
        let (read, write) = (protect(Class::Read), protect(Class::Write));
        promises.asked(&read);
        promises.asked(&write);
        for (now, request) in [(20, &write), (21, &read)] {
            promises
                .answered(now, request, &Ok(Reply::Done))
                .expect("it is kept");
        }
        assert!(!promises.forbids_writing(PAGE));
        assert!(!promises.allows(PAGE, Access::Write, 30));
        promises.asked(&read);
        promises
            .answered(40, &read, &Ok(Reply::Done))
            .expect("it is kept");
        assert!(promises.forbids_writing(PAGE));
    }

    #[test]
    fn a_request_that_comes_late_is_for_what_is_mapped_there_by_then() {
        let mut promises = promised();
        let read = protect(Class::Read);
        promises.asked(&read);
        promises.asked(&UNMAP);
        promises
            .answered(15, &UNMAP, &Ok(Reply::Done))
            .expect("it is kept");
        promises.answered(20, &MAP, &mapped()).expect("it is kept");
        assert!(promises.allows(PAGE, Access::Read, 20));
        assert!(!promises.allows(PAGE, Access::Write, 20));
        promises
            .answered(30, &read, &Ok(Reply::Done))
            .expect("it is kept");
        assert!(!promises.forbids_writing(PAGE) && !promises.allows(PAGE, Access::Write, 30));
        promises.asked(&UNMAP);
        promises.answered(40, &MAP, &mapped()).expect("it is kept");
        assert!(!promises.allows(PAGE, Access::Read, 40));
    }

    #[test]
    fn a_name_is_found_at_its_place_until_its_end_is_asked_for() {
        let name = || "area".to_owned();
        let open = Request::OpenArea {
            domain: 1,
            pid: 7,
            name: name(),
            length: LENGTH,
            access: Class::Write,
            open: mind_api::message::Open::Existing,
        };
        let unlink = Request::UnlinkArea {
            domain: 1,
            name: name(),
        };
        let gone = || Err(Refused::new(Errno::ENOENT, String::new()));
        let elsewhere = Ok(Reply::Mapped {
            va: BASE + LENGTH,
            length: LENGTH,
        });
        let mut promises = Promises::default();
        assert_eq!(promises.answered(1, &open, &gone()), Ok(()));
        assert_eq!(promises.answered(2, &open, &mapped()), Ok(()));
        assert_eq!(promises.answered(3, &open, &mapped()), Ok(()));
        assert!(promises.allows(PAGE, Access::Read, 2));
        let forgotten = Err(Failure::Forgotten(name(), Va(BASE)));
        assert_eq!(promises.clone().answered(4, &open, &gone()), forgotten);
        assert_eq!(promises.clone().answered(4, &open, &elsewhere), forgotten);
        promises.asked(&unlink);
        assert!(!promises.allows(PAGE, Access::Read, 2));
        assert_eq!(promises.answered(5, &open, &gone()), Ok(()));
        promises.unanswered(&unlink);
        assert_eq!(promises.answered(6, &open, &mapped()), Ok(()));
        assert_eq!(
            promises.answered(7, &open, &gone()),
            Ok(()),
            "it may be removed late"
        );
    }
}
