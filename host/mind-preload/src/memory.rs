//! `mmap` and the calls that change what is mapped. What they say of addresses outside the window is the kernel's
//! business; what they say of the window is done by the domain, since the kernel knows nothing of it there.

use std::{
    ffi::{c_int, c_long},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mind_common::addr::{WINDOW_BASE, WINDOW_SIZE};

use crate::{
    areas::{Area, Home, Part, Purpose, State, Table},
    blade,
    heap::PAGE,
    malloc, own, start,
    system::{self, Result},
};

static TABLE: Mutex<Table> = Mutex::new(Table::new());

/// Bytes that were mapped in the window, over all time, and calls that did so.
static MAPPED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The same.
pub(crate) fn mapped() -> [u64; 2] {
    [0, 1].map(|which| MAPPED[which].load(Ordering::Relaxed))
}

/// The table, for a fork and for this module.
pub(crate) fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something to the table, as this library's own code.
fn with_table<T>(work: impl FnOnce(&mut Table) -> T) -> T {
    own::inside(|| work(&mut table()))
}

/// Whether an address is the window's.
pub(crate) fn is_in_window(address: u64) -> bool {
    address.wrapping_sub(WINDOW_BASE) < WINDOW_SIZE
}

/// Whether a range has an address of the window.
fn touches_window(address: u64, length: u64) -> bool {
    address < WINDOW_BASE + WINDOW_SIZE && address.saturating_add(length) > WINDOW_BASE
}

/// Whole pages from an address on.
fn pages(address: u64, length: u64) -> Result<Range<u64>> {
    if !address.is_multiple_of(PAGE as u64) {
        return Err(libc::EINVAL);
    }
    let length = length.checked_next_multiple_of(PAGE as u64);
    let end = length.and_then(|length| address.checked_add(length));
    end.map(|end| address..end).ok_or(libc::EINVAL)
}

/// Maps zeroed memory in the window.
pub(crate) fn map(length: u64, purpose: Purpose) -> Result<u64> {
    let start = blade::map(length)?;
    with_table(|table| table.add(start..start + length, Home::Domain, purpose));
    MAPPED[0].fetch_add(length, Ordering::Relaxed);
    MAPPED[1].fetch_add(1, Ordering::Relaxed);
    Ok(start)
}

/// Maps an area that is one block, at a multiple of `align`.
pub(crate) fn map_block(length: u64, align: u64) -> Result<u64> {
    let start = blade::map(length)?;
    let block = start.next_multiple_of(align);
    with_table(|table| table.add(start..start + length, Home::Domain, Purpose::Block(block)));
    MAPPED[0].fetch_add(length, Ordering::Relaxed);
    MAPPED[1].fetch_add(1, Ordering::Relaxed);
    Ok(block)
}

/// The end of the area that is a block at this address, if there is one.
pub(crate) fn area_of_block(address: u64) -> Option<u64> {
    let table = table();
    let area = table.at(address)?;
    malloc::is_block(area, address).then(|| area.range().end)
}

/// Unmaps an area that is a block.
pub(crate) fn unmap_block(address: u64) {
    let range = with_table(|table| table.at(address).map(Area::range));
    if let Some(range) = range
        && let Err(number) = unmap_range(&range)
    {
        let error = std::io::Error::from_raw_os_error(number);
        own::inside(|| blade::tell("cannot free memory in the window", &error));
    }
}

/// Unmaps what there is in a range of the window.
fn unmap_range(range: &Range<u64>) -> Result<()> {
    let (parts, gone) = with_table(|table| {
        let parts = table.parts(range);
        (parts, table.remove(range))
    });
    for part in parts {
        let is_whole = gone.iter().any(|area| area.range().contains(&part.start));
        match part.home {
            // SAFETY: the program unmaps it.
            Home::Process => unsafe { system::unmap(part.start, part.length()) }?,
            // The rest of the area is in use; this part ends with it, and cannot be used till then.
            Home::Domain if !is_whole => blade::protect(part.start..part.end, State::Gone)?,
            Home::Domain => {}
        }
    }
    for area in gone {
        if area.home == Home::Domain {
            blade::unmap(area.range())?;
        }
    }
    Ok(())
}

/// Fills a part of the window with zeros, whatever may be done with it.
fn zero(part: Part) -> Result<()> {
    with_access(part, State::Write, || {
        // SAFETY: it may be written, and the program gives up what is there.
        unsafe { (part.start as *mut u8).write_bytes(0, part.length() as usize) };
    })
}

/// Does something that needs a part to be accessible, and leaves it as it was.
pub(crate) fn with_access(part: Part, needed: State, work: impl FnOnce()) -> Result<()> {
    let range = part.start..part.end;
    let suffices = part.state == State::Write || part.state == needed;
    if !suffices {
        blade::protect(range.clone(), needed)?;
    }
    work();
    match suffices {
        true => Ok(()),
        false => blade::protect(range, part.state),
    }
}

/// The state that a protection asks for; EACCES for what the window cannot have: instructions.
fn state(protection: c_int) -> Result<State> {
    const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
    match protection {
        libc::PROT_NONE => Ok(State::None),
        libc::PROT_READ => Ok(State::Read),
        // On x86 what can be written can be read.
        libc::PROT_WRITE | READ_WRITE => Ok(State::Write),
        _ => Err(libc::EACCES),
    }
}

/// What `mmap` is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) protection: c_int,
    pub(crate) flags: c_int,
    pub(crate) file: c_int,
    pub(crate) offset: i64,
}

impl Request {
    /// Whether it asks for private memory without a file.
    fn is_anonymous(self) -> bool {
        const SHARED_TOO: c_int = libc::MAP_SHARED | libc::MAP_PRIVATE;
        self.flags & SHARED_TOO == libc::MAP_PRIVATE && self.flags & libc::MAP_ANONYMOUS != 0
    }

    fn is_fixed(self) -> bool {
        self.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0
    }

    /// Whether it is for the window: private memory to read and write, of some size, anywhere, and no stack.
    fn is_for_window(self) -> bool {
        const ELSEWHERE: c_int =
            libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_32BIT;
        let options = start::options();
        self.is_anonymous()
            && !self.is_fixed()
            && self.flags & ELSEWHERE == 0
            && matches!(state(self.protection), Ok(State::Write))
            && !own::is_inside()
            && options.is_some_and(|options| self.length >= options.min_alloc)
    }
}

/// `mmap`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn mmap(request: Request) -> Result<u64> {
    if request.is_for_window() {
        let length = request.length.checked_next_multiple_of(PAGE as u64);
        return map(length.ok_or(libc::ENOMEM)?, Purpose::Program);
    }
    if request.is_fixed()
        && touches_window(request.address, request.length)
        && start::options().is_some()
    {
        return replace(request);
    }
    // SAFETY: as the caller says.
    unsafe {
        system::map(
            request.address,
            request.length,
            request.protection,
            request.flags,
            request.file,
            request.offset,
        )
    }
}

/// `mmap` at an address of the window: what is there becomes zeroed private memory.
fn replace(request: Request) -> Result<u64> {
    let range = pages(request.address, request.length)?;
    if request.flags & libc::MAP_FIXED_NOREPLACE == libc::MAP_FIXED_NOREPLACE {
        return Err(libc::EEXIST);
    }
    let parts = with_table(|table| table.whole(&range)).ok_or(libc::ENOMEM)?;
    let state = state(request.protection)?;
    if !request.is_anonymous() {
        let error = "files and shared memory cannot be mapped over memory in the window (ENODEV)";
        own::inside(|| blade::tell("asks for what `mind run` does not have", &error));
        return Err(libc::ENODEV);
    }
    for part in parts {
        match part.home {
            // SAFETY: the program replaces what is there.
            Home::Process => unsafe {
                system::map(
                    part.start,
                    part.length(),
                    request.protection,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )?;
            },
            Home::Domain => {
                zero(part)?;
                if part.state != state {
                    blade::protect(part.start..part.end, state)?;
                }
            }
        }
    }
    with_table(|table| table.set(&range, state));
    Ok(range.start)
}

/// `munmap`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn munmap(address: u64, length: u64) -> Result<()> {
    if !touches_window(address, length) || start::options().is_none() {
        // SAFETY: as the caller says.
        return unsafe { system::unmap(address, length) };
    }
    if length == 0 {
        return Err(libc::EINVAL);
    }
    let range = pages(address, length)?;
    if !is_in_window(range.start) || !is_in_window(range.end - 1) {
        return Err(libc::EINVAL);
    }
    unmap_range(&range)
}

/// `mprotect`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn mprotect(address: u64, length: u64, protection: c_int) -> Result<()> {
    if !touches_window(address, length) || start::options().is_none() {
        // SAFETY: as the caller says.
        return unsafe { system::protect(address, length, protection) };
    }
    let range = pages(address, length)?;
    let state = state(protection)?;
    let parts = with_table(|table| table.whole(&range)).ok_or(libc::ENOMEM)?;
    for part in parts {
        match part.home {
            // SAFETY: as the caller says.
            Home::Process => unsafe { system::protect(part.start, part.length(), protection) }?,
            Home::Domain if part.state == state => {}
            Home::Domain => blade::protect(part.start..part.end, state)?,
        }
    }
    with_table(|table| table.set(&range, state));
    Ok(())
}

/// `madvise`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn madvise(address: u64, length: u64, advice: c_int) -> Result<()> {
    if !touches_window(address, length) || start::options().is_none() {
        // SAFETY: as the caller says.
        return unsafe { system::advise(address, length, advice) };
    }
    let range = pages(address, length)?;
    let parts = with_table(|table| table.whole(&range)).ok_or(libc::ENOMEM)?;
    for part in parts {
        match (part.home, advice) {
            // SAFETY: as the caller says.
            (Home::Process, _) => unsafe { system::advise(part.start, part.length(), advice) }?,
            (Home::Domain, libc::MADV_DONTNEED) => zero(part)?,
            // Hints. What may be freed need not be.
            (
                Home::Domain,
                libc::MADV_NORMAL
                | libc::MADV_RANDOM
                | libc::MADV_SEQUENTIAL
                | libc::MADV_WILLNEED
                | libc::MADV_FREE
                | libc::MADV_HUGEPAGE
                | libc::MADV_NOHUGEPAGE
                | libc::MADV_MERGEABLE
                | libc::MADV_UNMERGEABLE
                | libc::MADV_DONTDUMP
                | libc::MADV_DODUMP
                | libc::MADV_COLD
                | libc::MADV_PAGEOUT
                | libc::MADV_DOFORK,
            ) => {}
            (Home::Domain, _) => return Err(libc::EINVAL),
        }
    }
    Ok(())
}

/// `mremap`.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn mremap(
    address: u64,
    length: u64,
    new_length: u64,
    flags: c_int,
    new_address: u64,
) -> Result<u64> {
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let target = touches_window(new_address, new_length) && is_fixed;
    if (!touches_window(address, length) && !target) || start::options().is_none() {
        // SAFETY: as the caller says.
        return unsafe { system::remap(address, length, new_length, flags, new_address) };
    }
    let (range, new) = (pages(address, length)?, pages(address, new_length)?);
    // Without a length it would be a second mapping of shared memory, which the window has none of.
    if is_fixed || flags & libc::MREMAP_DONTUNMAP != 0 || range.is_empty() || new.is_empty() {
        return Err(libc::EINVAL);
    }
    let parts = with_table(|table| table.whole(&range)).ok_or(libc::EFAULT)?;
    if new.end <= range.end {
        if new.end < range.end {
            unmap_range(&(new.end..range.end))?;
        }
        return Ok(address);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(libc::ENOMEM);
    }
    let moved = map(new.end - new.start, Purpose::Program)?;
    for part in &parts {
        let to = moved + (part.start - range.start);
        copy(*part, to)?;
        if part.state != State::Write {
            let end = to + part.length();
            blade::protect(to..end, part.state)?;
            with_table(|table| table.set(&(to..end), part.state));
        }
    }
    unmap_range(&range)?;
    Ok(moved)
}

/// Copies a part to an address that may be written.
pub(crate) fn copy(part: Part, to: u64) -> Result<()> {
    let work = || {
        // SAFETY: the part may be read, and there is as much room, apart from it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                part.start as *const u8,
                to as *mut u8,
                part.length() as usize,
            );
        }
    };
    match part.home {
        Home::Domain => with_access(part, State::Read, work),
        Home::Process => {
            if part.state == State::None {
                // SAFETY: it becomes as it was, or is unmapped.
                unsafe { system::protect(part.start, part.length(), libc::PROT_READ) }?;
            }
            work();
            Ok(())
        }
    }
}

/// A call on a range that asks for what memory in the window has anyway (`msync`), or cannot have and does not need for
/// what programs use it for (`mlock`): nothing is done there.
///
/// # Safety
///
/// As of the call.
pub(crate) unsafe fn accept(call: c_long, address: u64, length: u64, argument: u64) -> Result<()> {
    if touches_window(address, length) && start::options().is_some() {
        return Ok(());
    }
    // SAFETY: as the caller says.
    unsafe { system::on_range(call, address, length, argument) }
}
