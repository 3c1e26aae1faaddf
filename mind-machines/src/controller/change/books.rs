//! What a change means for the switch's tables, while all words are held, and for the controller's books,
//! once it is over.

use std::collections::VecDeque;

use crate::controller::procedure::{Change, Do, Outcome};
#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use mind_common::directory::{Word, machine::Loss};
#[cfg(feature = "mutants")]
use mind_common::{directory::Prior, id::BladeSet};

use super::Changing;
use crate::controller::{Controller, Entry, Lost, Step};

impl Controller {
    /// What was lost is reported, and the books follow.
    pub(super) fn end(&mut self, changing: &Changing) {
        for run in &changing.runs {
            let Some(Do::Done(outcome)) = run.next else {
                continue;
            };
            if outcome == Outcome::Changed(Loss::Writes) && changing.change != Change::Free {
                let region = run.entry.region;
                // Either half may be the one.
                let joined = region.whole().filter(|_| changing.change == Change::Merge);
                self.lost.push(Lost {
                    region: joined.unwrap_or(region),
                    with: run.lost_with.or(changing.gone),
                });
            }
            let is_changed = matches!(outcome, Outcome::Changed(_));
            match (changing.change, run.upper) {
                (Change::Free, _) => {
                    self.regions.remove(&run.entry.region.base());
                    self.free.insert(run.entry.slot);
                }
                (Change::Split, Some(upper)) if is_changed => {
                    if let Some((lower, _)) = run.entry.region.halves() {
                        self.book(Entry {
                            region: lower,
                            ..run.entry
                        });
                        self.book(upper);
                    }
                }
                (Change::Split, Some(upper)) => {
                    self.free.insert(upper.slot);
                }
                (Change::Merge, Some(upper)) if is_changed => {
                    if let Some(whole) = run.entry.region.whole() {
                        self.regions.remove(&upper.region.base());
                        self.free.insert(upper.slot);
                        self.book(Entry {
                            region: whole,
                            ..run.entry
                        });
                    }
                }
                _ => {}
            }
        }
    }

    fn book(&mut self, entry: Entry) {
        self.regions.insert(entry.region.base(), entry);
    }
}

/// How the tables follow, once all words are held.
pub(super) fn rewiring(changing: &Changing, second: Word) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    for run in &changing.runs {
        let Entry { slot, region, .. } = run.entry;
        match (changing.change, run.upper) {
            (Change::Free, _) => steps.push_back(Step::Assign(region, None)),
            (Change::Split, Some(upper)) => {
                let lower = region.halves().map(|(lower, _)| lower);
                steps.push_back(Step::Cover(slot, None));
                steps.push_back(Step::Cover(slot, lower));
                #[cfg(feature = "mutants")]
                let second = if Mutant::SplitForgetsSharers.is_active() {
                    second.locked(Prior::Invalid, BladeSet::EMPTY)
                } else {
                    second
                };
                steps.push_back(Step::Open(upper.slot, upper.region, second));
                steps.push_back(Step::Assign(upper.region, Some(upper.slot)));
            }
            (Change::Merge, Some(upper)) => {
                steps.push_back(Step::Assign(upper.region, Some(slot)));
                steps.push_back(Step::Cover(slot, None));
                steps.push_back(Step::Cover(slot, region.whole()));
            }
            _ => {}
        }
    }
    steps
}
