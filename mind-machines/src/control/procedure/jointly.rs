//! Changes of several regions at once: what comes before what.

use super::Do;
use mind_common::{directory::word::Word, id::BladeSet};

/// What to do next of changes that are made together, [`jointly`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jointly {
    /// Have these blades flush the regions of those that say [`Do::Flush`], and ask those again.
    Flush {
        /// Those that no change has asked yet.
        blades: BladeSet,
    },
    /// Have memory fence the regions of those that say [`Do::Fence`], and ask those again.
    Fence,
    /// Every word is held: change what all the slots cover, and ask all again.
    Rewire {
        /// What a split's second slot holds then.
        second: Word,
    },
    /// Come back at this time.
    Wait {
        /// In the caller's nanoseconds.
        until: u64,
    },
    /// All are over.
    Over,
}

/// What to do next, where each change of several says this once its swaps are made: blades flush
/// first, then memory fences, and the slots change once all words are held.
pub fn jointly(says: impl Iterator<Item = Do>) -> Jointly {
    let mut blades: Option<BladeSet> = None;
    let (mut is_fencing, mut rewire, mut wait) = (false, None, None::<u64>);
    for next in says {
        match next {
            Do::Flush { blades: some } => {
                let all = blades.unwrap_or(BladeSet::EMPTY);
                blades = Some(some.iter().fold(all, BladeSet::with));
            }
            Do::Fence => is_fencing = true,
            Do::Rewire { second } => rewire = rewire.or(Some(second)),
            Do::Wait { until } => wait = Some(wait.map_or(until, |sooner| sooner.min(until))),
            // It is to be made, and the change asked again.
            Do::Swap { .. } => wait = Some(0),
            Do::Done(_) => {}
        }
    }
    match (blades, rewire, wait) {
        (Some(blades), ..) => Jointly::Flush { blades },
        _ if is_fencing => Jointly::Fence,
        (_, _, Some(until)) => Jointly::Wait { until },
        (_, Some(second), None) => Jointly::Rewire { second },
        (_, None, None) => Jointly::Over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::procedure::Outcome;
    use mind_common::id::BladeId;

    const DONE: Do = Do::Done(Outcome::Nothing);

    fn only(blade: u8) -> BladeSet {
        BladeId::new(blade).map_or(BladeSet::EMPTY, BladeSet::only)
    }

    #[test]
    fn blades_of_all_changes_flush_before_memory_fences() {
        let says = [Do::Fence, Do::Flush { blades: only(1) }, DONE];
        let more = Do::Flush { blades: only(4) };
        let blades = jointly(says.into_iter().chain([more]));
        let both = only(1).iter().fold(only(4), BladeSet::with);
        assert_eq!(blades, Jointly::Flush { blades: both });
        assert_eq!(jointly([DONE, Do::Fence].into_iter()), Jointly::Fence);
    }

    #[test]
    fn nothing_is_rewired_while_one_waits() {
        let second = Word::default();
        let rewire = Do::Rewire { second };
        let (late, soon) = (Do::Wait { until: 9 }, Do::Wait { until: 7 });
        let says = [rewire, late, soon];
        assert_eq!(jointly(says.into_iter()), Jointly::Wait { until: 7 });
        assert_eq!(
            jointly([rewire, DONE].into_iter()),
            Jointly::Rewire { second }
        );
    }

    #[test]
    fn nothing_is_left_when_all_are_over() {
        assert_eq!(jointly([DONE, DONE].into_iter()), Jointly::Over);
        assert_eq!(jointly(core::iter::empty()), Jointly::Over);
    }
}
