//! The heap outside the window, in a range of addresses of its own, so that its blocks can be told from others. This
//! library's own code allocates from it, and so does the program as long as it needs little.

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{heap::Heap, system};

/// The heap.
pub(crate) static HEAP: Heap = Heap::new();

/// Addresses that are kept for it, in bytes; memory is taken as it is touched.
const RESERVE: u64 = 1 << 36;

/// The first address of the range; 0 before there is one.
static START: AtomicU64 = AtomicU64::new(0);
/// Bytes of it that are segments.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Whether a block is the heap's.
pub(crate) fn holds(block: *const u8) -> bool {
    let start = START.load(Ordering::Acquire);
    start != 0 && (block.addr() as u64).wrapping_sub(start) < RESERVE
}

/// The next segment. Only one thread of a process is here at a time, for the heap's growth is locked.
pub(crate) fn segment(length: usize) -> Option<usize> {
    let length = length as u64;
    let start = match START.load(Ordering::Acquire) {
        0 => {
            let start = system::map_anywhere(RESERVE).ok()?;
            START.store(start, Ordering::Release);
            start
        }
        start => start,
    };
    let taken = TAKEN.load(Ordering::Relaxed);
    if length > RESERVE - taken {
        return None;
    }
    TAKEN.store(taken + length, Ordering::Relaxed);
    Some((start + taken) as usize)
}

/// What this library's own code allocates with.
pub(crate) struct Own;

// SAFETY: blocks are the heap's, which is an allocator.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.allocate(layout.align(), layout.size(), segment)
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: `alloc` returned it.
        unsafe { HEAP.free(block) };
    }
}
