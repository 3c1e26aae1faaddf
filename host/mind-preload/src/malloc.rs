//! Which heap serves an allocation: large blocks are areas of the window of their own, small ones the local heap's as
//! long as the program needs little, and the window heap's then.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    areas::{Area, Purpose},
    heap::{self, Heap, PAGE},
    local, memory, own, start,
};

/// The heap in the window.
pub(crate) static HEAP: Heap = Heap::new();

/// The alignment that every block has.
pub(crate) const ALIGN: usize = 16;

/// Bytes that the program has in the local heap.
static LOCAL: AtomicUsize = AtomicUsize::new(0);

/// A segment of the window heap.
fn segment(length: usize) -> Option<usize> {
    memory::map(length as u64, Purpose::Heap)
        .ok()
        .map(|address| address as usize)
}

/// What serves a block of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Local,
    Window,
    Area,
}

fn choose(size: usize) -> Choice {
    let Some(options) = start::options() else {
        return Choice::Local;
    };
    if own::is_inside() {
        Choice::Local
    } else if size as u64 >= options.min_alloc {
        Choice::Area
    } else if LOCAL.load(Ordering::Relaxed).saturating_add(size) as u64 <= options.local_heap {
        Choice::Local
    } else {
        Choice::Window
    }
}

/// A block, and whether it is known to be zeroed. Null when there is no memory.
fn allocate(align: usize, size: usize) -> (*mut u8, bool) {
    match choose(size) {
        Choice::Local => {
            let block = local::HEAP.allocate(align, size, local::segment);
            if !block.is_null() {
                // SAFETY: it is a block of a heap.
                LOCAL.fetch_add(unsafe { heap::usable(block) }, Ordering::Relaxed);
            }
            (block, false)
        }
        Choice::Window => (HEAP.allocate(align, size, segment), false),
        Choice::Area => (area(align, size).unwrap_or(std::ptr::null_mut()), true),
    }
}

/// A block that is an area.
fn area(align: usize, size: usize) -> Option<*mut u8> {
    // Areas begin at pages.
    let slack = align.saturating_sub(PAGE);
    let length = size.checked_add(slack)?.checked_next_multiple_of(PAGE)?;
    memory::map_block(length as u64, align as u64)
        .ok()
        .map(|address| address as *mut u8)
}

/// Where a block is.
enum Place {
    Local,
    Window,
    /// It is an area; how many bytes there are from the block on.
    Area(usize),
    /// It is no block: what the loader has allocated before there was this library.
    Foreign,
}

fn place(block: *const u8) -> Place {
    if local::holds(block) {
        Place::Local
    } else if !memory::is_in_window(block.addr() as u64) {
        Place::Foreign
    } else if !block.addr().is_multiple_of(PAGE) {
        Place::Window
    } else {
        match memory::area_of_block(block.addr() as u64) {
            Some(end) => Place::Area(end as usize - block.addr()),
            None => Place::Window,
        }
    }
}

/// `malloc`, `memalign`: null when there is no memory.
pub(crate) fn get(align: usize, size: usize) -> *mut u8 {
    allocate(align.max(ALIGN), size).0
}

/// `calloc`.
pub(crate) fn get_zeroed(count: usize, size: usize) -> *mut u8 {
    let Some(size) = count.checked_mul(size) else {
        return std::ptr::null_mut();
    };
    let (block, is_zeroed) = allocate(ALIGN, size);
    if !block.is_null() && !is_zeroed {
        // SAFETY: it has as many bytes.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

/// `malloc_usable_size`.
///
/// # Safety
///
/// It is a block that is not freed, or null.
pub(crate) unsafe fn usable(block: *const u8) -> usize {
    match place(block) {
        // SAFETY: as the caller says.
        Place::Local | Place::Window => unsafe { heap::usable(block) },
        Place::Area(bytes) => bytes,
        Place::Foreign => 0,
    }
}

/// `free`.
///
/// # Safety
///
/// It is a block that is not freed, or null.
pub(crate) unsafe fn free(block: *mut u8) {
    match place(block) {
        Place::Local => {
            // SAFETY: as the caller says.
            unsafe {
                let size = heap::usable(block);
                let less = |bytes: usize| Some(bytes.saturating_sub(size));
                let _ = LOCAL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                local::HEAP.free(block);
            }
        }
        // SAFETY: as the caller says.
        Place::Window => unsafe { HEAP.free(block) },
        Place::Area(_) => memory::unmap_block(block.addr() as u64),
        Place::Foreign => {}
    }
}

/// `realloc` of a block to a size that is not 0. Null when there is no memory; the block is as it was.
///
/// # Safety
///
/// It is a block that is not freed, which is not used any more if another is returned.
pub(crate) unsafe fn resize(block: *mut u8, size: usize) -> *mut u8 {
    let place = place(block);
    // SAFETY: as the caller says.
    let before = unsafe { usable(block) };
    match (&place, choose(size)) {
        (Place::Area(_), _) if size <= before && size > before / 2 => return block,
        // SAFETY: as the caller says.
        (Place::Window, Choice::Window) => unsafe { return HEAP.resize(block, size, segment) },
        (Place::Local, Choice::Local) if size <= before && size > before / 2 => return block,
        _ => {}
    }
    let (new, _) = allocate(ALIGN, size);
    if !new.is_null() {
        // SAFETY: both have as many bytes, and are apart.
        unsafe {
            std::ptr::copy_nonoverlapping(block, new, before.min(size));
            free(block);
        }
    }
    new
}

/// Whether an area is a block at this address.
pub(crate) fn is_block(area: &Area, address: u64) -> bool {
    area.purpose == Purpose::Block(address)
}
