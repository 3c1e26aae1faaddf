//! The process and its protection domain.

use std::{
    ffi::{c_char, c_int},
    process, ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use mind_client::Process;

use crate::{
    boundary::{call, text},
    error::Error,
    log,
    options::Options,
};

/// A process that is attached to its blade. There is one in a process.
#[derive(Debug)]
pub struct Mind {
    process: Process,
}

/// The process that has attached, or tries; 0: none. A forked child finds its parent's number, and may attach.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

/// What it got. It stays until the process ends, so that a pointer to it can be told from others at any time.
static MIND: AtomicPtr<Mind> = AtomicPtr::new(ptr::null_mut());

/// The process that `mind` stands for.
pub(crate) fn process<'a>(mind: *const Mind) -> Result<&'a Process, Error> {
    if mind.is_null() {
        return Err(Error::Null("mind"));
    }
    if !ptr::eq(mind, MIND.load(Ordering::Acquire)) {
        return Err(Error::NoHandle);
    }
    // SAFETY: it is the one that was made, and that is never freed nor changed.
    Ok(unsafe { &(*mind).process })
}

/// Attaches the calling process to the blade on whose host it runs, in the protection domain called `domain`, which is
/// made if there is none.
///
/// `domain`: a string in UTF-8, at most 255 bytes. `options`: what to choose, or NULL for the defaults.
///
/// Returns what the other functions take, or NULL with errno: EINVAL (an argument, or the domain has chosen another
/// `on_loss`), E2BIG (`options` has choices that this library does not know), ENAMETOOLONG, ENOTCONN (no `socket` is
/// named and MIND_BLADE_SOCKET is not set, or the blade's agent ended), ENOENT, ECONNREFUSED, EACCES (no agent at that
/// path that the process may talk to), EPROTO (the agent has another version), EBUSY (the process is attached already,
/// or was), EPERM (no userfaultfd for this user), ENOMEM (the window does not fit, or the kernel is too old), EEXIST
/// (something else is mapped where the window is to be), EAGAIN (the agent has as many programs as it takes), EIO (the
/// controller is out of reach).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mind_attach(domain: *const c_char, options: *const Options) -> *mut Mind {
    call(ptr::null_mut(), || {
        // SAFETY: the header asks for a string.
        let domain = unsafe { text(domain, "domain") }?;
        // SAFETY: the header asks for a struct of as many bytes as its `size` says.
        let options = unsafe { Options::read(options) }?;
        // SAFETY: the header asks for a string in it, or NULL.
        let builder = unsafe { options.builder(domain) }?;
        log::start();

        let me = process::id();
        let claimed = ATTACHED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |process| {
            (process != me).then_some(me)
        });
        claimed.map_err(|_| Error::Attached)?;
        let process = builder.attach().inspect_err(|_| {
            ATTACHED.store(0, Ordering::Release);
        })?;
        let mind = Box::into_raw(Box::new(Mind { process }));
        MIND.store(mind, Ordering::Release);
        Ok(mind)
    })
}

/// Leaves the domain, as the end of the process would: what it wrote is kept, and memory that it has not unmapped stays
/// the domain's. From the call on, every access to the domain's memory is a SIGBUS, in every thread, and all other calls
/// fail with ENOTCONN. Returns once the blade has let the process go. A process need not detach before it ends.
///
/// Returns 0, or -1 with errno: EINVAL (`mind`), ENOTCONN (the process is not attached any more), ENOMEM (the window
/// cannot be given up; the process stays attached).
#[unsafe(no_mangle)]
pub extern "C" fn mind_detach(mind: *mut Mind) -> c_int {
    call(-1, || {
        process(mind)?.detach()?;
        Ok(0)
    })
}

/// The number of the blade on whose host the process runs, from 0; -1 with errno EINVAL for a bad `mind`.
#[unsafe(no_mangle)]
pub extern "C" fn mind_blade(mind: *const Mind) -> c_int {
    call(-1, || Ok(process(mind)?.blade().into()))
}

/// The number of the protection domain; 0 with errno EINVAL for a bad `mind`.
#[unsafe(no_mangle)]
pub extern "C" fn mind_domain(mind: *const Mind) -> u32 {
    call(0, || Ok(process(mind)?.domain()))
}
