//! What a child gets. The window is not inherited, since the kernel would give the child its pages without telling the
//! blade. So what the process has there is copied before a fork, to memory of its own, and the child puts the copy where
//! the original is: it is the child's own, and what the child maps in the window then is of a domain of its own.
//!
//! Threads that write to the window while another forks may have some of that in the copy and some not; a program with
//! threads may do little in a child before it executes another, as POSIX says.

use std::{cell::UnsafeCell, ffi::c_int, sync::MutexGuard};

use crate::{
    areas::{Home, Part, State, Table},
    blade::{self, Membership},
    heap::Inner,
    local, malloc, memory, own, start,
    system::{self, Result},
};

/// A copy of a part, at another address.
struct Copy {
    part: Part,
    at: u64,
}

/// What is held from before a fork to after it, in both processes.
struct Held {
    _growth: [MutexGuard<'static, ()>; 2],
    _window: MutexGuard<'static, Inner>,
    table: MutexGuard<'static, Table>,
    membership: MutexGuard<'static, Membership>,
    local: MutexGuard<'static, Inner>,
    copies: Result<Vec<Copy>>,
}

/// The held, between `prepare` and the end of the fork, in the thread that forks.
struct Slot(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that holds the locks in it looks into it.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

/// Before a fork.
pub(crate) extern "C" fn prepare() {
    own::inside(|| {
        let growth = [malloc::HEAP.hold_growth(), local::HEAP.hold_growth()];
        // The heap is copied whole, between two changes.
        let window = malloc::HEAP.hold();
        let table = memory::table();
        // Copying may have to protect memory, which needs the process, and allocates.
        let copies = copies(domain_parts(&table));
        let membership = blade::hold();
        let local = local::HEAP.hold();
        let held = Held {
            _growth: growth,
            _window: window,
            table,
            membership,
            local,
            copies,
        };
        // SAFETY: the locks are held, so no other thread is here.
        unsafe { *HELD.0.get() = Some(held) };
    });
}

/// What the process has in its domain, in order.
fn domain_parts(table: &Table) -> Vec<Part> {
    let parts = table.parts(&(0..u64::MAX)).into_iter();
    parts.filter(|part| part.home == Home::Domain).collect()
}

/// Whether there is room for the copy that a fork makes; ENOMEM if there is not.
pub(crate) fn check() -> Result<()> {
    own::inside(|| {
        let bytes: u64 = domain_parts(&memory::table())
            .into_iter()
            .map(Part::length)
            .sum();
        let available = available();
        if bytes == 0 || bytes <= available / 2 {
            return Ok(());
        }
        let error = format!(
            "it has {bytes} bytes in the window, a child gets a copy of them, and this machine has {available} bytes of \
             memory to spare, of which a child may have half (ENOMEM)"
        );
        blade::tell("cannot fork", &error);
        Err(libc::ENOMEM)
    })
}

/// Bytes of memory that this machine has to spare.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn copies(parts: Vec<Part>) -> Result<Vec<Copy>> {
    let mut copies = Vec::with_capacity(parts.len());
    for part in parts {
        let copied = system::map_anywhere(part.length()).and_then(|at| {
            copies.push(Copy { part, at });
            memory::copy(part, at)
        });
        if let Err(number) = copied {
            discard(&copies);
            return Err(number);
        }
    }
    Ok(copies)
}

fn discard(copies: &[Copy]) {
    for copy in copies {
        // SAFETY: it is this module's, and not used any more.
        let _ = unsafe { system::unmap(copy.at, copy.part.length()) };
    }
}

/// Takes what `prepare` has left.
fn held() -> Option<Held> {
    // SAFETY: this is the thread that holds the locks in it.
    unsafe { (*HELD.0.get()).take() }
}

/// After a fork, in the parent.
pub(crate) extern "C" fn parent() {
    own::inside(|| {
        let Some(held) = held() else { return };
        // What is dropped after it was allocated with it.
        drop(held.local);
        if let Ok(copies) = held.copies {
            discard(&copies);
        }
    });
}

/// After a fork, in the child.
pub(crate) extern "C" fn child() {
    own::inside(|| {
        start::begin();
        let Some(mut held) = held() else { return };
        let Ok(copies) = held.copies else {
            end(b"mind run: a forked child has no memory for its copy of the window; it ends\n");
        };
        drop(held.local);
        for copy in &copies {
            if place(copy).is_err() {
                end(b"mind run: a forked child cannot have its copy of the window; it ends\n");
            }
        }
        held.table.set_home(Home::Process);
        let ranges = copies.iter().map(|copy| copy.part.start..copy.part.end);
        held.membership.leave(ranges);
    });
}

/// Ends a child that cannot go on.
fn end(message: &[u8]) -> ! {
    // SAFETY: the message has as many bytes.
    unsafe {
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::abort();
    }
}

/// Puts a copy where the original is in the parent, with what may be done with it.
fn place(copy: &Copy) -> Result<()> {
    let (address, length) = (copy.part.start, copy.part.length());
    // SAFETY: the window is not mapped in a child, and the copy is this module's.
    unsafe {
        system::remap(
            copy.at,
            length,
            length,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            address,
        )?;
    }
    let protection: c_int = match copy.part.state {
        State::Write => return Ok(()),
        State::Read => libc::PROT_READ,
        State::None | State::Gone => libc::PROT_NONE,
    };
    // SAFETY: it is as in the parent.
    unsafe { system::protect(address, length, protection) }
}
