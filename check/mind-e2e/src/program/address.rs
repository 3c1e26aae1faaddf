//! Access to addresses of which nothing is known.

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
