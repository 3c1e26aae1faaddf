//! Threads of two domains at one address. Whose it is only the switch can say: until it has answered
//! the one's request, the other's threads wait here.

use std::vec::Vec;

use super::{Action, Blade};
use crate::{
    compute::page::{Access, Phase},
    datagram::PageRequest,
};
use mind_common::addr::Va;

impl Blade {
    /// Threads of this domain wait until it is known whether the page is another's.
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

    /// Whether it is known whose the page is, or nobody asks.
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

    /// Deals with one domain's threads that need not wait any more; whether there were any.
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
