//! The consequences of one page's transition ([`crate::compute::page::step`]) in the blade.

use std::vec::Vec;

use super::{Action, Blade, Timer, requests::Purpose};
#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use crate::{
    compute::page::{Event, Phase, Reaction, step},
    datagram::PageRequest,
};
use mind_common::{addr::Va, refusal::Refusal};

impl Blade {
    pub(super) fn apply(&mut self, now: u64, page: Va, event: Event, out: &mut Vec<Action>) {
        let Some(entry) = self.pages.get_mut(&page) else {
            return;
        };
        let before = entry.page;
        let (after, reactions) = step(before, event);
        #[cfg(feature = "mutants")]
        let (after, reactions) = crate::mutant::stepped(before, event, (after, reactions));
        entry.page = after;
        let named = PageRequest {
            page,
            domain: entry.domain,
        };
        self.account(before.phase, after.phase);
        if self.config.is_watched {
            out.push(Action::Stepped {
                page,
                before: before.phase,
                event,
            });
        }
        for reaction in reactions.iter() {
            match reaction {
                Reaction::Request(want) => self.begin(now, page, Purpose::Request(want), out),
                Reaction::WriteBack => {
                    self.cost(named, |cost, _| {
                        cost.flushed = cost.flushed.saturating_add(1)
                    });
                    let version = after.version.next();
                    #[cfg(feature = "mutants")]
                    let version = if Mutant::SameVersionWritten.is_active() {
                        after.version
                    } else {
                        version
                    };
                    self.begin(now, page, Purpose::WriteBack(version), out);
                }
                Reaction::Retry => self.pause(now, page),
                Reaction::Abandon => self.end(page),
                Reaction::Install { writable } => {
                    self.order.insert(page);
                    self.begin_residency(now, page);
                    out.push(Action::Install {
                        page: named,
                        writable,
                    });
                }
                Reaction::Map { writable } => {
                    if writable && before.phase == Phase::Upgrading {
                        self.begin_residency(now, page);
                    }
                    self.went_on(page);
                    out.push(Action::Map {
                        page: named,
                        writable,
                    });
                }
                Reaction::Protect => {
                    if after.owed.is_some() {
                        self.residency.on_given(page, now);
                    }
                    out.push(Action::Protect { page: named });
                }
                Reaction::Drop => {
                    let evicted =
                        event == Event::Evict || before.phase == Phase::Cleaning { evicting: true };
                    self.order.remove(page, evicted && before.owed.is_none());
                    if before.owed.is_some() || matches!(event, Event::Invalidate { .. }) {
                        self.residency.on_given(page, now);
                    }
                    self.cost(named, |cost, wanted| {
                        if !wanted {
                            cost.dropped = cost.dropped.saturating_add(1);
                        }
                    });
                    out.push(Action::Drop { page: named });
                }
                Reaction::Fail(access, refusal) => {
                    self.went_on(page);
                    out.push(Action::Fail {
                        page: named,
                        access,
                        refusal,
                    });
                }
                Reaction::Lost => {
                    self.counters.lost += 1;
                    let refusal = match event {
                        Event::NotStored(refusal) => refusal,
                        _ => Refusal::Unreachable,
                    };
                    out.push(Action::Lost {
                        page: named,
                        refusal,
                    });
                }
            }
        }
        match (before.owed, after.owed) {
            (_, Some(_)) if matches!(after.phase, Phase::Shared | Phase::Modified) => {
                if let Some(entry) = self.pages.get(&page) {
                    self.timers
                        .insert((entry.resident_until.max(now), Timer::Residency(page)));
                }
            }
            (Some(_), None) => self.note_if_yielded(page),
            _ => {}
        }
        if after.phase == Phase::Absent {
            self.begin_if_possible(now, page, out);
        }
    }

    /// Notes that no thread waits for the page, if so.
    fn went_on(&mut self, page: Va) {
        if let Some(entry) = self.pages.get_mut(&page)
            && entry.page.waiting.is_none()
        {
            entry.faulted_at = None;
        }
    }

    fn begin_residency(&mut self, now: u64, page: Va) {
        let residency = self.residency.on_install(page, now);
        if let Some(entry) = self.pages.get_mut(&page) {
            entry.resident_until = now.saturating_add(residency);
        }
    }
}
