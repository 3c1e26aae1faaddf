//! Shared memory as words.

use std::sync::atomic::AtomicU64;

use mind_client::Memory;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const WORDS: usize = PAGE / 8;

/// Memory that everybody may change at any time, so every access is atomic.
#[derive(Clone, Copy)]
pub struct Area {
    words: &'static [AtomicU64],
}

impl Area {
    pub fn new(memory: Memory) -> Self {
        let first = memory.as_ptr().cast::<AtomicU64>();
        // SAFETY: the memory is there for as long as the process, and atomic words may be shared.
        let words = unsafe { std::slice::from_raw_parts(first, memory.len() / 8) };
        Self { words }
    }

    pub fn pages(self) -> usize {
        self.words.len() / WORDS
    }

    pub fn page(self, page: usize) -> &'static [AtomicU64] {
        &self.words[page * WORDS..][..WORDS]
    }

    pub fn word(self, page: usize, word: usize) -> &'static AtomicU64 {
        &self.page(page)[word]
    }
}

/// The word at an address, whatever is there.
pub fn peek(va: u64) -> u64 {
    // SAFETY: none. That this may be a signal is what the test is about.
    unsafe { std::ptr::with_exposed_provenance::<u64>(va as usize).read_volatile() }
}

/// Writes to an address, whatever is there.
pub fn poke(va: u64) {
    // SAFETY: none. That this may be a signal is what the test is about.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(va as usize).write_volatile(1) }
}
