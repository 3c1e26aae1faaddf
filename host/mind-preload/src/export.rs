//! The functions of the C library that are replaced. Each does what its manual page says.
//!
//! Those with a variable number of arguments (`open`, `fcntl`, `mremap`) are defined with all that they can have: on
//! x86-64 and aarch64, callers of either pass them in the same registers.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    blade::status,
    direct, fork, malloc,
    memory::{self, Request},
    own, start,
    system::{self, Result},
};

/// A function of the C library that has been replaced, as it is there.
struct Replaced {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Replaced {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address.
    fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a string.
        let found = own::inside(|| unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) });
        if found.is_null() {
            eprintln!(
                "mind run: the C library has no {}",
                self.name.to_string_lossy()
            );
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// What a function that returns a block returns.
fn block(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        system::set_errno(libc::ENOMEM);
    }
    block.cast()
}

/// What a function that returns an address of mapped memory returns.
fn mapping(result: Result<u64>) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(number) => {
            system::set_errno(number);
            libc::MAP_FAILED
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    block(malloc::get(malloc::ALIGN, size))
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    block(malloc::get_zeroed(count, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    if old.is_null() {
        return malloc(size);
    }
    if size == 0 {
        // As the GNU C library does.
        // SAFETY: it is a block.
        unsafe { free(old) };
        return ptr::null_mut();
    }
    // SAFETY: it is a block.
    block(unsafe { malloc::resize(old.cast(), size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(old: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: it is a block.
        Some(size) => unsafe { realloc(old, size) },
        None => block(ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(old: *mut c_void) {
    // It keeps the error number, as the GNU C library's does.
    let number = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: it is a block, or null.
    unsafe { malloc::free(old.cast()) };
    system::set_errno(number.unwrap_or(0));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(of: *mut c_void) -> usize {
    // SAFETY: it is a block, or null.
    unsafe { malloc::usable(of.cast()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let new = malloc::get(align, size);
    if new.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller has a place for it.
    unsafe { to.write(new.cast()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => block(malloc::get(align, size)),
        None => block(ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        system::set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    block(malloc::get(align, size))
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(crate::heap::PAGE, size)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(crate::heap::PAGE) {
        Some(size) => valloc(size),
        None => block(ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let request = Request {
        address: address.addr() as u64,
        length: length as u64,
        protection,
        flags,
        file,
        offset,
    };
    // SAFETY: as of the call.
    mapping(unsafe { memory::mmap(request) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as of the call.
    unsafe { mmap(address, length, protection, flags, file, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    // SAFETY: as of the call.
    status(unsafe { memory::munmap(address.addr() as u64, length as u64) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int {
    // SAFETY: as of the call.
    status(unsafe { memory::mprotect(address.addr() as u64, length as u64, protection) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    // SAFETY: as of the call.
    status(unsafe { memory::madvise(address.addr() as u64, length as u64, advice) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    // It discards nothing.
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    // SAFETY: as of the call.
    match unsafe { memory::madvise(address.addr() as u64, length as u64, advice) } {
        Ok(()) => 0,
        Err(number) => number,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    address: *mut c_void,
    length: usize,
    new_length: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    // SAFETY: as of the call.
    mapping(unsafe {
        memory::mremap(
            address.addr() as u64,
            length as u64,
            new_length as u64,
            flags,
            new_address.addr() as u64,
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn msync(address: *mut c_void, length: usize, flags: c_int) -> c_int {
    let (address, length) = (address.addr() as u64, length as u64);
    // SAFETY: as of the call.
    status(unsafe { memory::accept(libc::SYS_msync, address, length, flags as u64) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlock(address: *const c_void, length: usize) -> c_int {
    let (address, length) = (address.addr() as u64, length as u64);
    // SAFETY: as of the call.
    status(unsafe { memory::accept(libc::SYS_mlock, address, length, 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlock2(address: *const c_void, length: usize, flags: u32) -> c_int {
    let (address, length) = (address.addr() as u64, length as u64);
    // SAFETY: as of the call.
    status(unsafe { memory::accept(libc::SYS_mlock2, address, length, flags.into()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munlock(address: *const c_void, length: usize) -> c_int {
    let (address, length) = (address.addr() as u64, length as u64);
    // SAFETY: as of the call.
    status(unsafe { memory::accept(libc::SYS_munlock, address, length, 0) })
}

/// All of the window would be locked, and so fetched.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if start::options().is_some() {
        return 0;
    }
    // SAFETY: it locks what is mapped.
    match unsafe { libc::syscall(libc::SYS_mlockall, flags) } {
        0 => 0,
        _ => -1,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> libc::pid_t {
    static REAL: Replaced = Replaced::new(c"fork");
    if let Err(number) = fork::check() {
        system::set_errno(number);
        return -1;
    }
    // SAFETY: that is its type.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> libc::pid_t>(REAL.get())() }
}

/// Ends the process without what `exit` does before.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    start::report();
    loop {
        // SAFETY: the process ends.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the C library calls it so")]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// What a thread of this library's own code runs.
struct Work {
    start: Start,
    argument: *mut c_void,
}

/// Runs it as this library's own code, as what started it: what the C library allocates for the thread, before anything
/// else runs in it, must not come from the window.
extern "C" fn run_inside(work: *mut c_void) -> *mut c_void {
    own::inside(|| {
        // SAFETY: it is the box that `pthread_create` has made for this thread.
        let work = unsafe { Box::from_raw(work.cast::<Work>()) };
        (work.start)(work.argument)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    static REAL: Replaced = Replaced::new(c"pthread_create");
    // SAFETY: that is its type.
    let create = unsafe { transmute::<*mut c_void, Create>(REAL.get()) };
    if !own::is_inside() {
        // SAFETY: as of the call.
        return unsafe { create(thread, attributes, start, argument) };
    }
    let work = Box::into_raw(Box::new(Work { start, argument }));
    // SAFETY: as of the call; the thread takes the box, or there is none.
    unsafe {
        let result = create(thread, attributes, run_inside, work.cast());
        if result != 0 {
            drop(Box::from_raw(work));
        }
        result
    }
}

type Handler = extern "C" fn();
type Register =
    unsafe extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, *const u8) -> c_int;

/// What `pthread_atfork` calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __register_atfork(
    prepare: Option<Handler>,
    parent: Option<Handler>,
    child: Option<Handler>,
    object: *const u8,
) -> c_int {
    start::handle_forks(register);
    // SAFETY: that is its type.
    let register = unsafe { transmute::<*mut c_void, Register>(REGISTER.get()) };
    // SAFETY: as of the call.
    unsafe { register(prepare, parent, child, object) }
}

static REGISTER: Replaced = Replaced::new(c"__register_atfork");

/// Registers handlers of this library's.
pub(crate) fn register(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    // SAFETY: that is its type.
    let register = unsafe { transmute::<*mut c_void, Register>(REGISTER.get()) };
    // SAFETY: the handlers are this library's, which is never unloaded.
    unsafe { register(Some(prepare), Some(parent), Some(child), ptr::null()) }
}

type Open = unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int;

/// Defines functions of the C library that have two names since files may be large, with the same meaning where `off_t`
/// has 64 bits.
macro_rules! of_files {
    ($kind:ty: $($name:ident),*; $arguments:tt => $passed:tt) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name $arguments -> c_int {
                static REAL: Replaced = Replaced::new(match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a name ends in one zero"),
                });
                // SAFETY: that is its type.
                unsafe { transmute::<*mut c_void, $kind>(REAL.get()) $passed }
            }
        )*
    };
}

of_files!(Open: open, open64; (path: *const c_char, flags: c_int, mode: libc::mode_t)
    => (path, direct::without(flags), mode));
of_files!(OpenAt: openat, openat64;
    (folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t)
    => (folder, path, direct::without(flags), mode));

type Control = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;

of_files!(Control: fcntl, fcntl64; (file: c_int, command: c_int, argument: usize)
    => (file, command, flags(command, argument)));

/// The argument of `fcntl`.
fn flags(command: c_int, argument: usize) -> usize {
    match command {
        libc::F_SETFL => direct::without(argument as c_int) as usize,
        _ => argument,
    }
}
