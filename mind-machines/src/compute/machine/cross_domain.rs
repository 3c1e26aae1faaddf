//! Threads of two domains that fault at one address. Only the switch knows which domain the page
//! belongs to: until it has answered the request of one domain, the threads of the other wait here.

use std::vec::Vec;

use super::{Action, Blade};
use crate::{
    compute::page::{Access, Phase},
    datagram::PageRequest,
};
use mind_common::addr::Va;

impl Blade {
    /// Threads of this domain wait until it is known whether the page belongs to another domain.
    pub(super) fn contest(&mut self, page: PageRequest, access: Access) {
        match self
            .cross_domain
            .iter_mut()
            .find(|(known, _)| *known == page)
        {
            Some((_, known)) => *known = access.max(*known),
            None => self.cross_domain.push((page, access)),
        }
    }

    /// Whether it is known which domain the page belongs to, or no request for it is under way.
    pub(super) fn is_decided(&self, page: Va) -> bool {
        self.pages
            .get(&page)
            .is_none_or(|entry| match entry.page.phase {
                Phase::Absent => entry.page.waiting.is_none(),
                Phase::Reading | Phase::Acquiring => false,
                Phase::Shared
                | Phase::Upgrading
                | Phase::Modified
                | Phase::Cleaning { .. }
                | Phase::Leaving => true,
            })
    }

    /// Handles the faults of one domain's threads that need not wait any more; returns whether
    /// there were any.
    pub(super) fn decide_one(&mut self, now: u64, out: &mut Vec<Action>) -> bool {
        let mut pages = self.cross_domain.iter().map(|(page, _)| page.page);
        let Some(at) = pages.position(|page| self.is_decided(page)) else {
            return false;
        };
        let (page, access) = self.cross_domain.remove(at);
        self.take_up(now, page, access, out);
        true
    }
}
