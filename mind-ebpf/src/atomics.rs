//! Atomic access to memory that other processors and user space share: loads, compare-and-swap,
//! addition, setting bits.
//!
//! `core::sync::atomic` has no compare-and-swap for the BPF target; the compiler's intrinsics
//! become its instructions. Atomic loads do not exist there; a volatile load of an aligned word
//! is one instruction, which is as atomic.

use core::intrinsics::{self, AtomicOrdering};

use aya_ebpf::Global;
use mind_common::table::MAX_TRIES;

/// How often a stage tries to change a word that other processors change meanwhile. The loader sets
/// it before the program is loaded.
#[unsafe(no_mangle)]
static TRIES: Global<u32> = Global::new(MAX_TRIES);

/// The tries, one by one. The verifier sees the end of them either way.
#[inline(always)]
pub fn tries() -> core::ops::Range<u32> {
    0..TRIES.load().min(MAX_TRIES)
}

/// Loads the word at `at`.
///
/// # Safety
///
/// `at` points to an aligned value of a map that is never freed while the program runs, as the
/// kernel guarantees for the result of a lookup.
#[inline(always)]
pub unsafe fn load<T: Copy>(at: *const T) -> T {
    // SAFETY: the caller's.
    unsafe { at.read_volatile() }
}

/// Stores `new` at `at` if `old` is there; returns whether it was.
///
/// # Safety
///
/// As for [`load`].
#[inline(always)]
pub unsafe fn swap<T: Copy>(at: *mut T, old: T, new: T) -> bool {
    // SAFETY: the caller's.
    let (_, swapped) = unsafe {
        intrinsics::atomic_cxchg::<T, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
            at, old, new,
        )
    };
    swapped
}

/// Sets those bits of the word at `at` that are set in `bits`.
///
/// # Safety
///
/// As for [`load`].
#[inline(always)]
pub unsafe fn set<T: Copy>(at: *mut T, bits: T) {
    // SAFETY: the caller's.
    unsafe {
        intrinsics::atomic_or::<T, T, { AtomicOrdering::Relaxed }>(at, bits);
    }
}

/// Adds `amount` to the word at `at`.
///
/// # Safety
///
/// As for [`load`].
#[inline(always)]
pub unsafe fn add<T: Copy>(at: *mut T, amount: T) {
    // SAFETY: the caller's.
    unsafe {
        intrinsics::atomic_xadd::<T, T, { AtomicOrdering::Relaxed }>(at, amount);
    }
}
