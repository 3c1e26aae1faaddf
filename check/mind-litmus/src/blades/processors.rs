//! Where threads run: those of a copy on different processors, as far as there are enough. Placed by the kernel, two
//! that wait for each other may share one, and then never run at the same time.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors on which the calling thread may run, until this value goes.
#[derive(Debug)]
pub struct Processors {
    allowed: CpuSet,
    numbers: Vec<usize>,
    /// Where it runs, once it has been set.
    place: Option<usize>,
}

impl Processors {
    /// Those of the calling thread. If that is unknown, it runs anywhere.
    pub fn allowed() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let numbers = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        Self {
            numbers: numbers.collect(),
            allowed,
            place: None,
        }
    }

    /// Moves the calling thread to where thread number `thread` of a copy runs.
    pub fn take(&mut self, thread: usize) {
        if self.numbers.len() < 2 {
            return;
        }
        let place = self.numbers[thread % self.numbers.len()];
        if self.place != Some(place) {
            let mut only = CpuSet::new();
            only.set(place);
            // A processor that is gone meanwhile is no error: placement only raises the chance that
            // threads overlap.
            sched_setaffinity(None, &only).ok();
            self.place = Some(place);
        }
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        if self.place.is_some() {
            sched_setaffinity(None, &self.allowed).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_run_on_different_processors_and_anywhere_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        let mut processors = Processors::allowed();
        assert_eq!(processors.numbers.len() as u32, before.count());
        let mut places = Vec::new();
        for thread in 0..2 {
            processors.take(thread);
            places.push(sched_getaffinity(None).unwrap());
        }
        if before.count() >= 2 {
            assert!(places.iter().all(|place| place.count() == 1));
            assert_ne!(places[0], places[1]);
        }
        drop(processors);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
