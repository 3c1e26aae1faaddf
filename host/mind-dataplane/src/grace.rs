//! Waiting until the packets that are in the programs have left them.

use rustix::thread::{MembarrierCommand, membarrier};

use crate::{Error, Result};

/// Returns when every packet that was in a program at the call has left it. Takes about 10 ms, in which the thread
/// sleeps.
///
/// A program runs in an RCU read-side critical section, and `membarrier` with `MEMBARRIER_CMD_GLOBAL` returns after a
/// grace period (`synchronize_rcu` in `kernel/sched/membarrier.c`). With one processor it returns at once: a thread does
/// not run there while a packet is being processed.
///
/// # Errors
///
/// Where the kernel lacks it, as with processors that have no tick (`nohz_full`).
pub fn wait_for_packets() -> Result<()> {
    membarrier(MembarrierCommand::Global).map_err(|source| Error::Grace {
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn packets_can_be_waited_for() {
        super::wait_for_packets().expect("membarrier");
    }
}
