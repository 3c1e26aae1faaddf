//! Recalls: regions being given up, because the directory invalidates them or the controller or
//! agent flushes them.

use crate::datagram::{Body, Datagram};
use core::ops::Range;
use std::{collections::BTreeSet, vec::Vec};

use super::{Action, Blade};
use crate::{
    compute::page::Event,
    datagram::{Envelope, PageRequest},
};
use mind_common::{
    addr::Va,
    directory::{Source, Target},
    id::DomainId,
    serial::Seq,
    wire::{Cost, Invalidation},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Directory(Seq, Invalidation),
    /// A flush by the controller or the agent, with its token.
    Flush(u64),
}

/// Which pages a recall covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub(super) range: Range<u64>,
    /// Of this domain only.
    pub(super) domain: Option<DomainId>,
}

impl Scope {
    pub(super) fn contains(&self, page: Va, domain: DomainId) -> bool {
        self.range.contains(&page.0) && self.domain.is_none_or(|only| only == domain)
    }
}

/// Pages that are being given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recall {
    pub(super) cause: Cause,
    pub(super) scope: Scope,
    pub(super) owing: BTreeSet<Va>,
    pub(super) cost: Cost,
}

impl Blade {
    pub(super) fn is_answering(&self, page: Va, domain: DomainId) -> bool {
        self.recalls
            .iter()
            .any(|recall| recall.scope.contains(page, domain))
    }

    /// The pages in scope that the blade has an entry of.
    fn pages_in(&self, scope: &Scope) -> Vec<Va> {
        self.pages
            .range(Va(scope.range.start)..Va(scope.range.end))
            .filter(|(page, entry)| scope.contains(**page, entry.domain))
            .map(|(page, _)| *page)
            .collect()
    }

    pub(super) fn invalidate(
        &mut self,
        now: u64,
        seq: Seq,
        invalidation: Invalidation,
        out: &mut Vec<Action>,
    ) {
        let known = self.recalls.iter().any(|recall| {
            matches!(recall.cause, Cause::Directory(_, other)
                if other.slot == invalidation.slot
                    && other.requester == invalidation.requester
                    && other.episode == invalidation.episode)
        });
        if known {
            return;
        }
        let base = invalidation.region.base().0;
        self.recall(
            now,
            Cause::Directory(seq, invalidation),
            Scope {
                range: base..base + invalidation.region.size(),
                domain: None,
            },
            invalidation.target,
            Some(invalidation.page),
            out,
        );
    }

    pub(super) fn recall(
        &mut self,
        now: u64,
        cause: Cause,
        scope: Scope,
        target: Target,
        wanted: Option<Va>,
        out: &mut Vec<Action>,
    ) {
        let pages = self.pages_in(&scope);
        self.recalls.push(Recall {
            cause,
            scope,
            owing: pages.iter().copied().collect(),
            cost: Cost::default(),
        });
        for page in pages {
            let resident_until = self
                .pages
                .get(&page)
                .map_or(0, |entry| entry.resident_until);
            let event = Event::Invalidate {
                target,
                wanted: wanted == Some(page),
                residency_over: resident_until <= now,
            };
            self.apply(now, page, event, out);
            self.note_if_yielded(page);
        }
    }

    /// Removes a page that owes nothing any more from every recall.
    pub(super) fn note_if_yielded(&mut self, page: Va) {
        let owes = self
            .pages
            .get(&page)
            .is_some_and(|entry| entry.page.owed.is_some());
        #[cfg(feature = "mutants")]
        let owes = owes && !self.answers_early(page);
        if !owes {
            for recall in &mut self.recalls {
                recall.owing.remove(&page);
            }
        }
    }

    /// Whether a bug makes it answer though the page's write-back is under way.
    #[cfg(feature = "mutants")]
    fn answers_early(&self, page: Va) -> bool {
        crate::mutant::Mutant::AnsweredBeforeStored.is_active()
            && matches!(
                self.page(page).0,
                crate::compute::page::Phase::Cleaning { .. }
            )
    }

    /// Answers one recall of which no page owes anything any more; returns whether there was one.
    pub(super) fn answer_one(&mut self, now: u64, out: &mut Vec<Action>) -> bool {
        let Some(at) = self.recalls.iter().position(|s| s.owing.is_empty()) else {
            return false;
        };
        let Recall {
            cause, scope, cost, ..
        } = self.recalls.remove(at);
        self.counters.invalidations += 1;
        self.counters.false_invalidations += u64::from(cost.dropped);
        out.push(match cause {
            Cause::Flush(token) => Action::Flushed { token },
            Cause::Directory(seq, invalidation) => Action::Send(Datagram {
                envelope: Envelope {
                    qp: self.config.connection.to_qp(),
                    seq,
                    attempt: 0,
                },
                body: self.answer(invalidation, cost),
            }),
        });
        for page in self.pages_in(&scope) {
            let Some(domain) = self.pages.get(&page).map(|entry| entry.domain) else {
                continue;
            };
            let more = self.is_answering(page, domain);
            self.apply(now, page, Event::Answered { more }, out);
            self.begin_if_possible(now, page, out);
        }
        true
    }

    fn answer(&self, invalidation: Invalidation, cost: Cost) -> Body<PageRequest> {
        let copy = self
            .pages
            .get(&invalidation.page)
            .filter(|entry| entry.page.phase.is_clean_copy());
        match (invalidation.source, copy) {
            (Source::Forward, Some(entry)) => Body::Forward {
                invalidation,
                cost,
                version: entry.page.version,
                data: PageRequest {
                    page: invalidation.page,
                    domain: entry.domain,
                },
            },
            (source, _) => Body::Answer {
                invalidation,
                cost,
                fetch: source != Source::Grant,
            },
        }
    }

    /// Adds to what the invalidations of a page cost.
    pub(super) fn cost(&mut self, page: PageRequest, add: impl Fn(&mut Cost, bool)) {
        for recall in &mut self.recalls {
            if recall.scope.contains(page.page, page.domain) {
                let wanted = matches!(recall.cause, Cause::Directory(_, invalidation)
                    if invalidation.page == page.page);
                add(&mut recall.cost, wanted);
            }
        }
    }
}
