//! A controller that ends at a point of its work, for tests of what follows.

/// How many points it passes until then; 0 for all.
#[derive(Debug)]
pub(super) struct Fuse(u64);

impl Fuse {
    pub(super) const fn new(points: u64) -> Self {
        Self(points)
    }

    /// Passes a point, or ends the process, as by SIGKILL.
    pub(super) fn burn(&mut self) {
        if self.0 > 0 {
            self.0 -= 1;
            if self.0 == 0 {
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                );
            }
        }
    }
}
