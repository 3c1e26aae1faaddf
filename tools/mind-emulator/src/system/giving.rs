//! What blades give up: when they can, what it costs, and what becomes of requests of theirs that lose their copies.

use mind_common::{
    addr::Region,
    directory::{Target, Want},
    id::BladeId,
};

use super::{
    System,
    pages::Kind,
    requests::{Request, Stage},
};
use crate::trace::access::page_of;

/// What an invalidation cost a blade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) falsely: u32,
    pub(super) flushed: u32,
}

impl System {
    /// When a blade can give up what an invalidation takes: what has just come stays for a while, and what it was
    /// granted comes first. In nanoseconds; it may be later still.
    pub(super) fn ready_at(&mut self, blade: BladeId, region: Region, target: Target) -> u64 {
        let blade = &self.blades[usize::from(blade.get())];
        self.scratch.clear();
        blade
            .pages
            .of_region(page_of(region.base()), region.order(), &mut self.scratch);
        let ready = |page: &u32| {
            let state = blade.pages.get(*page);
            match state.kind() {
                Kind::Modified => state.value(),
                Kind::Shared if target == Target::Invalid => state.value(),
                Kind::Absent | Kind::Shared => 0,
                Kind::Reading if target == Target::Shared => 0,
                Kind::Reading | Kind::Acquiring | Kind::Upgrading => {
                    match self.requests[state.value() as usize].stage {
                        // It is there then, and looked at again.
                        Stage::Granted(at) => at + 1,
                        _ => 0,
                    }
                }
            }
        };
        self.scratch.iter().map(ready).max().unwrap_or(0)
    }

    /// Whether a page of the region is on its way to the blade.
    pub(super) fn awaits(&mut self, blade: BladeId, region: Region) -> bool {
        let blade = &self.blades[usize::from(blade.get())];
        self.scratch.clear();
        blade
            .pages
            .of_region(page_of(region.base()), region.order(), &mut self.scratch);
        self.scratch.iter().any(|page| {
            let state = blade.pages.get(*page);
            let is_asked_for = matches!(
                state.kind(),
                Kind::Reading | Kind::Acquiring | Kind::Upgrading
            );
            is_asked_for && !matches!(self.requests[state.value() as usize].stage, Stage::Asks)
        })
    }

    /// A blade gives up what an invalidation takes; pages that were put off lose their copies, and are asked for anew.
    pub(super) fn give_up(
        &mut self,
        now: u64,
        blade: BladeId,
        region: Region,
        target: Target,
        wanted: Option<u32>,
    ) -> Cost {
        let at = usize::from(blade.get());
        let mut pages = std::mem::take(&mut self.scratch);
        pages.clear();
        self.blades[at]
            .pages
            .of_region(page_of(region.base()), region.order(), &mut pages);
        let mut cost = Cost::default();
        for page in pages.iter().copied() {
            let state = self.blades[at].pages.get(page);
            let is_put_off = match state.kind() {
                Kind::Shared | Kind::Modified => false,
                Kind::Upgrading if target == Target::Invalid => true,
                _ => continue,
            };
            let is_wanted = wanted == Some(page);
            let given = self.blades[at].invalidate(page, target, is_wanted, now);
            cost.falsely += u32::from(given.is_dropped && !is_wanted);
            cost.flushed += u32::from(given.is_flushed);
            if is_put_off {
                self.take_again(at, page, state.value() as u32);
            }
        }
        self.scratch = pages;
        cost
    }

    /// The same for all of a region, for the controller; how many pages are gone.
    pub(super) fn flush(&mut self, now: u64, blade: BladeId, region: Region) -> u64 {
        let cost = self.give_up(now, blade, region, Target::Invalid, None);
        u64::from(cost.falsely)
    }

    /// A request of which the copy is gone asks for the page.
    fn take_again(&mut self, blade: usize, page: u32, number: u32) {
        let request = &mut self.requests[number as usize];
        let want = self.blades[blade].fault(page, request.is_write, number);
        request.want = want.unwrap_or(Want::Acquire);
    }

    /// The directory says that the blade has no copy to upgrade.
    pub(super) fn retake(&mut self, now: u64, number: u32) {
        let &Request { blade, page, .. } = &self.requests[number as usize];
        let at = usize::from(blade.get());
        self.blades[at].invalidate(page, Target::Invalid, false, now);
        self.take_again(at, page, number);
    }
}
