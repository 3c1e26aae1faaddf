//! The checks when the controller has nothing to do, and when no event is left: all threads have finished, and directory,
//! caches and memory agree.

use mind_common::{
    addr::Va,
    directory::{Prior, State},
};
use mind_machines::agreement::disagreement;

use crate::{Failure, world::World};

impl World<'_> {
    /// Threads that have not finished, by number.
    pub(crate) fn unfinished(&self) -> Vec<usize> {
        let threads = self.threads.iter().enumerate();
        let left = threads.filter(|(_, thread)| !thread.is_done());
        left.map(|(number, _)| number).collect()
    }

    pub(crate) fn check_quiet(&mut self) {
        let unfinished = self.unfinished();
        if !unfinished.is_empty() {
            return self.fail(Failure::Stuck(unfinished));
        }
        if !self.controller.is_idle() {
            return self.fail(Failure::Busy("controller".into()));
        }
        self.check_agreement();
        let busy = self.machines.iter().find(|(_, machine)| {
            let host = machine.host.as_ref();
            host.is_some_and(|host| !host.blade.is_quiet())
        });
        if let Some((blade, _)) = busy {
            let blade = blade.to_string();
            return self.fail(Failure::Busy(blade));
        }
        for page in self.checker.pages() {
            if let Err(failure) = self.check_page(page) {
                return self.fail(failure);
            }
        }
        self.check_losses();
    }

    /// Controller and switch agree whenever the controller has nothing to do.
    pub(crate) fn check_agreement(&mut self) {
        if let Some(wrong) = disagreement(&self.controller, &self.switch) {
            self.fail(Failure::Disagreement(wrong));
        }
    }

    /// Copies are listed, and equal to the last write; so is memory, unless a blade has the page to
    /// write.
    fn check_page(&mut self, page: Va) -> Result<(), Failure> {
        let slot = self.switch.tables().slot(page);
        let word = slot.map(|slot| self.switch.slots()[slot].word);
        let word = word.unwrap_or_default();
        let is_vma_lost = self.is_vma_lost(page);
        let mut has_writer = false;
        for (blade, machine) in &self.machines {
            let host = machine.host.as_ref().filter(|host| !host.is_cut);
            let Some(cached) = host.and_then(|host| host.cache.get(&page)) else {
                continue;
            };
            let (is_named, reads) = (word.blades().contains(*blade), !cached.is_writable);
            let is_listed = match word.state() {
                // The requester that made it busy may be gone, and no blade repeats the request.
                State::Modified | State::ModifiedToShared | State::ModifiedToModified => is_named,
                State::Shared => is_named && reads,
                State::SharedToModified => reads && (is_named || word.requester() == *blade),
                // A region whose accesses fail stays so until it is unmapped.
                State::Locked => is_named && reads && word.prior() == Some(Prior::Lost),
                State::Free | State::Invalid => false,
            };
            if !is_listed && !is_vma_lost {
                let word = format!("{word:?}");
                return Err(Failure::Unlisted(*blade, page, word));
            }
            has_writer |= cached.is_writable;
            if self.checker.now(page) != Some(cached.image) {
                return Err(Failure::Disagrees(blade.to_string(), page));
            }
        }
        if !has_writer && slot.is_some() && !is_vma_lost {
            let image = self.in_memory(page);
            self.checker
                .installed(page, image)
                .map_err(|_| Failure::Disagrees("memory".into(), page))?;
        }
        Ok(())
    }

    /// Whether the controller has reported that writes to the page are lost.
    pub(crate) fn is_lost(&self, page: Va) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|(from, length)| (from.0..from.0 + length).contains(&page.0))
    }

    /// Lost writes are in the controller's report.
    fn check_losses(&mut self) {
        let mut lost = self.checker.lost().iter().copied();
        let silent = lost.find(|page| !self.is_lost(*page));
        if let Some(page) = silent {
            self.fail(Failure::Silent(page));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Failure,
        plan::{MILLISECOND, Op, Plan, Program, blade, calm},
        run,
    };

    #[test]
    fn programs_have_finished_within_six_seconds_after_faults_have_stopped() {
        let outcome = |seconds: u64| {
            let plan = calm(MILLISECOND);
            run(
                &Plan {
                    programs: vec![Program {
                        blade: blade(0),
                        domain: plan.areas[0].domain,
                        ops: vec![Op::Until(seconds * 1_000 * MILLISECOND)],
                    }],
                    ..plan
                },
                false,
            )
        };
        let well = outcome(5);
        assert_eq!(well.failure, None);
        assert!(well.recovery_nanos.abs_diff(4_999 * MILLISECOND) < MILLISECOND);
        assert_eq!(outcome(7).failure, Some(Failure::Endless(vec![0])));
    }
}
