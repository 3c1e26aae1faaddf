//! Shared memory as words: what programs on blades read and write.

use std::sync::atomic::AtomicU64;

use mind_client::Memory;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const WORDS: usize = PAGE / 8;

/// Memory that any blade may change at any time, so every access is atomic.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    words: &'static [AtomicU64],
}

impl Area {
    /// The words of `memory`.
    pub fn new(memory: Memory) -> Self {
        let first = memory.as_ptr().cast::<AtomicU64>();
        // SAFETY: the memory is there for as long as the process, and atomic words may be shared.
        let words = unsafe { std::slice::from_raw_parts(first, memory.len() / 8) };
        Self { words }
    }

    /// These words; whole pages.
    pub const fn of(words: &'static [AtomicU64]) -> Self {
        Self { words }
    }

    /// How many pages there are.
    pub fn pages(self) -> usize {
        self.words.len() / WORDS
    }

    /// The words of a page.
    pub fn page(self, page: usize) -> &'static [AtomicU64] {
        &self.words[page * WORDS..][..WORDS]
    }

    /// A word of a page.
    pub fn word(self, page: usize, word: usize) -> &'static AtomicU64 {
        &self.page(page)[word]
    }
}
