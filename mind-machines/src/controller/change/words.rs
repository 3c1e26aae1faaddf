//! The words that the controller remembers, for a model checker that renames their episodes.

use crate::controller::procedure::Do;
use mind_common::directory::Word;

use super::{Changing, Run, Stage};
use crate::controller::{Controller, Step, Task};

impl Controller {
    /// Shows every word, and the word of every episode that is remembered alone, to somebody who
    /// may change its episode.
    pub fn visit_words(&mut self, visit: &mut impl FnMut(&mut Word)) {
        for task in &mut self.tasks {
            match task {
                Task::Step(step) => step.visit_words(visit),
                Task::Change(changing) => changing.visit_words(visit),
                _ => {}
            }
        }
    }
}

impl Step {
    fn visit_words(&mut self, visit: &mut impl FnMut(&mut Word)) {
        if let Self::Open(_, _, word) = self {
            visit(word);
        }
    }
}

impl Changing {
    fn visit_words(&mut self, visit: &mut impl FnMut(&mut Word)) {
        for run in &mut self.runs {
            run.visit_words(visit);
        }
        if let Stage::Rewiring(steps) = &mut self.stage {
            steps.iter_mut().for_each(|step| step.visit_words(visit));
        }
    }
}

impl Run {
    fn visit_words(&mut self, visit: &mut impl FnMut(&mut Word)) {
        match &mut self.next {
            Some(Do::Swap { old, new, .. }) => {
                visit(old);
                visit(new);
            }
            Some(Do::Rewire { second }) => visit(second),
            Some(Do::Wait { .. } | Do::Flush { .. } | Do::Fence | Do::Done(_)) | None => {}
        }
        if let Some(episode) = self.procedure.watched_mut() {
            let mut word = Word::default().with_episode(*episode);
            visit(&mut word);
            *episode = word.episode();
        }
    }
}
