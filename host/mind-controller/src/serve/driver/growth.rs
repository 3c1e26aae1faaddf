//! Whether there are to be more slots, or fewer: then another data plane takes the place of this one, which the next
//! controller does when it begins. Fewer can be had when no more are in use: until then those that regions give up are
//! withdrawn, so that no packet opens them.

use mind_common::table::FreeKind;
use mind_machines::controller::{Input, books::blades::Blade};
use tokio::sync::oneshot;

use super::Driver;
use crate::serve::plane::Slots;

/// Slots that are withdrawn before messages are looked at again.
const AT_ONCE: u32 = 1 << 14;

/// What is known about it.
pub(super) struct Growth {
    slots: Slots,
    outgrown: Option<oneshot::Sender<()>>,
    /// Slots in no use that are in no list. The next controller finds them.
    withdrawn: u32,
}

impl Growth {
    pub(super) const fn new(slots: Slots, outgrown: oneshot::Sender<()>) -> Self {
        Self {
            slots,
            outgrown: Some(outgrown),
            withdrawn: 0,
        }
    }

    /// Slots that are in no use, and in no list.
    pub(super) const fn withdrawn(&self) -> usize {
        self.withdrawn as usize
    }
}

impl Driver {
    /// Sees to it that there are as many slots as there are to be; whether it is to be asked again soon.
    pub(super) fn grow(&mut self) -> bool {
        if self.growth.outgrown.is_none() || !self.controller.is_serving() {
            return false;
        }
        let now = self.tables.slots() - 1;
        let is_time = match self.growth.slots.fewer {
            Some(fewer) => {
                let spare = now.saturating_sub(fewer);
                let most = spare.min(self.growth.withdrawn.saturating_add(AT_ONCE));
                if self.withdraw(most) && most < spare {
                    return true;
                }
                self.growth.withdrawn >= spare
            }
            None => {
                let offered = self.controller.books().blades.all().map(Blade::offers);
                let wanted = self.growth.slots.rule.wanted(offered.sum(), Some(now));
                wanted != now && self.growth.slots.refused != Some(wanted)
            }
        };
        if is_time && let Some(outgrown) = self.growth.outgrown.take() {
            tracing::info!(
                slots = now,
                "the controller begins again, for another data plane"
            );
            // Whoever waits for it ends this task.
            let _ = outgrown.send(());
        }
        false
    }

    /// Withdraws slots that are in no use until there are so many. If there are fewer, has regions give up theirs; whether
    /// there are as many.
    fn withdraw(&mut self, number: u32) -> bool {
        let directory = self.tables.switch().directory();
        while self.growth.withdrawn < number {
            if directory.take(FreeKind::Slots).is_none() {
                self.give(Input::Short);
                return false;
            }
            self.growth.withdrawn += 1;
        }
        true
    }
}
