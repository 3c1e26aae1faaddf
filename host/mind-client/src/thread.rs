//! Threads that work for a program without its knowing.

use std::{
    io,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{Builder, JoinHandle},
};

/// Starts a thread that gets none of the program's signals: a program that waits for them with
/// `sigwait`, or whose handlers expect a thread of its own, would miss them or be surprised. If it
/// panics the program is aborted, since its accesses would wait for ever.
pub(crate) fn start(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let before = Mask::block_all()?;
    let thread = Builder::new().name(name.into()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            // The panic's hook has said why.
            std::process::abort();
        }
    });
    drop(before);
    thread
}

/// The calling thread's mask of signals, as it was; it is put back when this goes.
struct Mask(libc::sigset_t);

impl Mask {
    /// Blocks every signal for the calling thread, and those that it starts.
    fn block_all() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the first call writes a whole set, which the second reads, and that writes
        // another; neither keeps a pointer.
        let error = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
        };
        match error {
            // SAFETY: it succeeded, and has written the mask.
            0 => Ok(Self(unsafe { before.assume_init() })),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: reads a set that the system wrote. That cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(signal: i32) -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: changes nothing and writes the mask, which is read then.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn signals_are_for_others_and_the_starting_thread_keeps_its_own() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = start("quiet", move || {
            let blocked = [libc::SIGTERM, libc::SIGCHLD, libc::SIGUSR1].map(blocks);
            sender.send(blocked).expect("the test receives");
        });
        thread.expect("it starts").join().expect("it ends well");
        assert_eq!(receiver.recv(), Ok([true; 3]));
        assert!(!blocks(libc::SIGUSR1));
    }
}
