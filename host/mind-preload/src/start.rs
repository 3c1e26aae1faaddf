//! What is done when the library is loaded, and when the process ends.

use std::{
    ffi::c_int,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering},
    },
};

use mind_api::run::Options;

use crate::{fork, local, malloc, memory, own};

static OPTIONS: OnceLock<Options> = OnceLock::new();

/// What `mind run` was told; `None` before the library has been started, and in a program that was not started so.
pub(crate) fn options() -> Option<&'static Options> {
    OPTIONS.get()
}

type Handler = extern "C" fn();

/// Has forks handled here, before any other handler of the process is registered: a child's handlers run in the order in
/// which they were registered, and need their memory.
pub(crate) fn handle_forks(register: impl FnOnce(Handler, Handler, Handler) -> c_int) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::AcqRel)
        && own::inside(|| register(fork::prepare, fork::parent, fork::child)) != 0
    {
        eprintln!("mind run: forks cannot be handled, for there is no memory");
        std::process::abort();
    }
}

/// Where the report goes: the standard error output as it was in the beginning, since many programs have closed it before
/// they end. -1 without a report.
static OUTPUT: AtomicI32 = AtomicI32::new(-1);

/// Where the kernel begins to look for a free descriptor for it: past those that programs use by number.
const FIRST_DESCRIPTOR: c_int = 100;

/// Runs when the library is loaded.
extern "C" fn load() {
    own::inside(|| {
        let Some(options) = Options::from_environment(|name| std::env::var_os(name)) else {
            return;
        };
        crate::log::start();
        #[cfg(not(test))]
        handle_forks(crate::export::register);
        begin();
        if options.report {
            // SAFETY: it makes a descriptor.
            let output = unsafe {
                libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
            };
            OUTPUT.store(output, Ordering::Relaxed);
        }
        let _ = OPTIONS.set(options);
    });
}

/// The process that this library was loaded into, or that was forked from it last.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The calling process is another one than before: it was loaded into, or forked.
pub(crate) fn begin() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Says what the process had where, if it is to. To be called at its end.
pub(crate) extern "C" fn report() {
    own::inside(|| {
        // A child of `vfork` ends, too, in its parent's memory.
        if PROCESS.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        let output = OUTPUT.swap(-1, Ordering::Relaxed);
        if output < 0 {
            return;
        }
        let [bytes, calls] = memory::mapped();
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let line = format!(
            "mind run: process {} ({}) mapped {bytes} bytes in the window by {calls} calls, {} of them its heap's; its \
             local heap has {} bytes\n",
            std::process::id(),
            program.trim_end(),
            malloc::HEAP.size(),
            local::HEAP.size(),
        );
        // SAFETY: the line has as many bytes. There is no other place to say that it cannot be written.
        unsafe { libc::write(output, line.as_ptr().cast(), line.len()) };
    });
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = report;
