//! A heap: an allocator over segments that it is given one after the other. What a segment is made of is its user's
//! choice; a segment stays until the process ends.

use std::{
    cell::Cell,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dlmalloc::{Allocator, Dlmalloc};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// A heap grows by so many bytes at first, then by an eighth of what it has.
const FIRST_GROWTH: usize = 1 << 20;

/// How many segments can be waiting to be used. One is, as long as threads that free memory get in between.
const WAITING: usize = 8;

/// A segment: its address and its bytes; none has 0.
type Segment = (usize, usize);

/// What the allocator gets more memory from.
struct Source {
    waiting: [Cell<Segment>; WAITING],
    /// How many bytes the allocator has asked for in vain.
    wanted: Cell<usize>,
}

// SAFETY: each segment is given out once, by `Heap::grow`.
unsafe impl Allocator for Source {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut waiting = self.waiting.iter();
        match waiting.find(|segment| segment.get().1 >= size) {
            Some(segment) => {
                let (address, length) = segment.take();
                (address as *mut u8, length, 0)
            }
            None => {
                self.wanted.set(size);
                (std::ptr::null_mut(), 0, 0)
            }
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// What is known of a heap while it is locked.
pub(crate) struct Inner {
    blocks: Dlmalloc<Source>,
    /// Bytes of its segments.
    size: usize,
}

/// A heap that threads share.
pub(crate) struct Heap {
    inner: Mutex<Inner>,
    /// Held by the one thread that gets a segment.
    growth: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // There is no panic while one is held, except for a bug, which aborts.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heap {
    /// An empty one.
    pub(crate) const fn new() -> Self {
        let source = Source {
            waiting: [const { Cell::new((0, 0)) }; WAITING],
            wanted: Cell::new(0),
        };
        let mut blocks = Dlmalloc::new_with_allocator(source);
        // Segments are never given back.
        blocks.set_max_release_check_rate(0);
        Self {
            inner: Mutex::new(Inner { blocks, size: 0 }),
            growth: Mutex::new(()),
        }
    }

    /// Allocates `size` bytes at a multiple of `align`, a power of two. `segment` returns the address of as many bytes as
    /// it is asked for, or `None`; it runs without the heap's lock. Null when there is no memory.
    pub(crate) fn allocate(
        &self,
        align: usize,
        size: usize,
        segment: impl Fn(usize) -> Option<usize>,
    ) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        self.obtain(segment, |blocks| unsafe { blocks.c_memalign(align, size) })
    }

    /// Changes the size of a block, which may move it. Null when there is no memory, and the block is as it was.
    ///
    /// # Safety
    ///
    /// The block is this heap's, and its old address is not used any more once another is returned.
    pub(crate) unsafe fn resize(
        &self,
        block: *mut u8,
        size: usize,
        segment: impl Fn(usize) -> Option<usize>,
    ) -> *mut u8 {
        // SAFETY: as the caller says.
        self.obtain(segment, |blocks| unsafe { blocks.c_realloc(block, size) })
    }

    /// Does what may need a segment.
    fn obtain(
        &self,
        segment: impl Fn(usize) -> Option<usize>,
        attempt: impl Fn(&mut Dlmalloc<Source>) -> *mut u8,
    ) -> *mut u8 {
        let block = attempt(&mut lock(&self.inner).blocks);
        if !block.is_null() {
            return block;
        }
        let _growing = lock(&self.growth);
        let (wanted, size) = {
            let mut inner = lock(&self.inner);
            inner.blocks.allocator().wanted.set(0);
            // Another thread may have been here meanwhile.
            let block = attempt(&mut inner.blocks);
            if !block.is_null() {
                return block;
            }
            (inner.blocks.allocator().wanted.get(), inner.size)
        };
        // The allocator has not even asked: no segment is large enough.
        if wanted == 0 {
            return std::ptr::null_mut();
        }
        let Some(wanted) = wanted.checked_next_multiple_of(PAGE) else {
            return std::ptr::null_mut();
        };
        let ample = (size / 8).max(FIRST_GROWTH).next_multiple_of(PAGE);
        let grown = segment(wanted.max(ample)).map(|address| (address, wanted.max(ample)));
        let Some(grown) = grown.or_else(|| Some((segment(wanted)?, wanted))) else {
            return std::ptr::null_mut();
        };
        let mut inner = lock(&self.inner);
        inner.size += grown.1;
        let waiting = &inner.blocks.allocator().waiting;
        match waiting.iter().find(|place| place.get().1 == 0) {
            Some(place) => place.set(grown),
            // Eight segments that are all too small: they are tried in vain for what is larger, so one gives way.
            None => waiting[0].set(grown),
        }
        attempt(&mut inner.blocks)
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// The block is this heap's, and is not used any more.
    pub(crate) unsafe fn free(&self, block: *mut u8) {
        // SAFETY: as the caller says.
        unsafe { lock(&self.inner).blocks.c_free(block) };
    }

    /// Bytes of its segments.
    pub(crate) fn size(&self) -> usize {
        lock(&self.inner).size
    }

    /// Keeps it as it is, until both are dropped: for a fork.
    pub(crate) fn hold_growth(&self) -> MutexGuard<'_, ()> {
        lock(&self.growth)
    }

    /// The same for its blocks.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// Bytes that a block of any heap has, at least as many as were asked for.
///
/// # Safety
///
/// The block is a heap's.
pub(crate) unsafe fn usable(block: *const u8) -> usize {
    // dlmalloc's chunk: in the word before the block, its size with three bits of flags; the word is the overhead. A
    // test below holds the version that is used to it.
    const FLAGS: usize = 0b111;
    // SAFETY: the word is there for every block, and its size changes only while the block is resized.
    let head = unsafe { block.cast::<usize>().sub(1).read() };
    (head & !FLAGS) - size_of::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    fn segment(length: usize) -> Option<usize> {
        system::map_anywhere(length as u64)
            .ok()
            .map(|address| address as usize)
    }

    #[test]
    fn blocks_are_apart_and_have_what_they_say() {
        let heap = Heap::new();
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = move |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
        for round in 0..20_000_usize {
            if blocks.len() > 500 || (next(3) == 0 && !blocks.is_empty()) {
                let (block, size, mark) = blocks.swap_remove(next(blocks.len()));
                // SAFETY: the block has as many bytes.
                let bytes = unsafe { std::slice::from_raw_parts(block, size) };
                assert!(bytes.iter().all(|byte| *byte == mark), "a block changed");
                // SAFETY: it is the heap's.
                unsafe { heap.free(block) };
                continue;
            }
            let align = 1 << next(13);
            let asked = match next(20) {
                0 => next(300_000),
                _ => next(600),
            };
            let block = heap.allocate(align, asked, segment);
            assert!(!block.is_null() && block.addr().is_multiple_of(align));
            // SAFETY: it is the heap's.
            let size = unsafe { usable(block) };
            assert!(size >= asked && size < asked + 64, "{size} for {asked}");
            let mark = round as u8;
            // SAFETY: all that it says is to be used.
            unsafe { block.write_bytes(mark, size) };
            blocks.push((block, size, mark));
        }
    }

    #[test]
    fn a_block_that_is_resized_keeps_its_bytes() {
        let heap = Heap::new();
        let mut block = heap.allocate(16, 10, segment);
        // SAFETY: it has 10 bytes, then as many as it is resized to.
        unsafe {
            block.write_bytes(7, 10);
            for size in [100, 5_000_000, 30, 70_000] {
                block = heap.resize(block, size, segment);
                assert!(usable(block) >= size);
                assert_eq!(std::slice::from_raw_parts(block, 10), [7; 10]);
            }
            heap.free(block);
        }
    }

    #[test]
    fn without_segments_there_is_no_memory() {
        let heap = Heap::new();
        assert!(heap.allocate(16, 10, |_| None).is_null());
        assert!(heap.allocate(16, usize::MAX, segment).is_null());
        assert!(heap.allocate(16, usize::MAX / 2, segment).is_null());
        let asked = Cell::new(0);
        let modest = |length| {
            asked.set(asked.get() + 1);
            (length < FIRST_GROWTH).then(|| segment(length)).flatten()
        };
        // Where there is no room for growth ahead of need, there may be room for what is needed.
        assert!(!heap.allocate(16, 10, modest).is_null());
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn threads_share_it() {
        let heap = Heap::new();
        std::thread::scope(|scope| {
            for mark in 1..=4_u8 {
                let heap = &heap;
                scope.spawn(move || {
                    for size in (0..2_000).map(|round| 1 + round * 7 % 3000) {
                        let block = heap.allocate(16, size, segment);
                        // SAFETY: it has as many bytes, and is freed once.
                        unsafe {
                            block.write_bytes(mark, size);
                            std::thread::yield_now();
                            let bytes = std::slice::from_raw_parts(block, size);
                            assert!(bytes.iter().all(|byte| *byte == mark));
                            heap.free(block);
                        }
                    }
                });
            }
        });
        assert!(
            heap.size() <= 2 * FIRST_GROWTH,
            "it grows by what is in use"
        );
    }
}
