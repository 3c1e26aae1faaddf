//! Accesses to memory as the processor makes them: each is one instruction, which the compiler
//! neither moves nor merges nor leaves out.

use std::arch::asm;

use crate::test::{Fence, Width};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("litmus tests of x86-64 run on x86-64");

/// What makes accesses: the processor, or a test's replacement that reorders them.
///
/// # Safety
///
/// The caller of a method guarantees that `at` is the address of as many bytes of memory as `width`
/// has, aligned to them, which is mapped for reading and writing and accessed as raw memory only:
/// other threads may change it at any time.
#[allow(
    clippy::missing_safety_doc,
    reason = "it is the same for all methods, and said above"
)]
pub trait Accesses {
    /// `mov` from memory.
    unsafe fn load(&mut self, at: *mut u8, width: Width) -> u64;
    /// `mov` to memory.
    unsafe fn store(&mut self, at: *mut u8, width: Width, value: u64);
    /// `xchg`; what was there.
    unsafe fn exchange(&mut self, at: *mut u8, width: Width, value: u64) -> u64;
    /// `lock xadd`; what was there.
    unsafe fn fetch_add(&mut self, at: *mut u8, width: Width, value: u64) -> u64;
    /// `lock cmpxchg`; the accumulator after it.
    unsafe fn compare_exchange(
        &mut self,
        at: *mut u8,
        width: Width,
        expected: u64,
        new: u64,
    ) -> u64;
    /// `lock add`.
    unsafe fn add(&mut self, at: *mut u8, width: Width, value: u64);
    /// `mfence`, `lfence` or `sfence`.
    fn fence(&mut self, fence: Fence);
    /// The thread's program has ended.
    fn end(&mut self) {}
}

/// The processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor;

// In all of them: without `nomem` and `readonly`, the compiler takes them for accesses to any memory.
impl Accesses for Processor {
    #[inline(always)]
    unsafe fn load(&mut self, at: *mut u8, width: Width) -> u64 {
        let value: u64;
        match width {
            // SAFETY: the caller's guarantee; a 32-bit result clears the register's upper half.
            Width::Long => unsafe {
                asm!("mov {value:e}, dword ptr [{at}]", at = in(reg) at, value = lateout(reg) value,
                    options(nostack, preserves_flags));
            },
            // SAFETY: the caller's guarantee.
            Width::Quad => unsafe {
                asm!("mov {value}, qword ptr [{at}]", at = in(reg) at, value = lateout(reg) value,
                    options(nostack, preserves_flags));
            },
        }
        value
    }

    #[inline(always)]
    unsafe fn store(&mut self, at: *mut u8, width: Width, value: u64) {
        match width {
            // SAFETY: the caller's guarantee.
            Width::Long => unsafe {
                asm!("mov dword ptr [{at}], {value:e}", at = in(reg) at, value = in(reg) value,
                    options(nostack, preserves_flags));
            },
            // SAFETY: the caller's guarantee.
            Width::Quad => unsafe {
                asm!("mov qword ptr [{at}], {value}", at = in(reg) at, value = in(reg) value,
                    options(nostack, preserves_flags));
            },
        }
    }

    #[inline(always)]
    unsafe fn exchange(&mut self, at: *mut u8, width: Width, mut value: u64) -> u64 {
        match width {
            // SAFETY: the caller's guarantee; a 32-bit result clears the register's upper half.
            Width::Long => unsafe {
                asm!("xchg dword ptr [{at}], {value:e}", at = in(reg) at, value = inout(reg) value,
                    options(nostack, preserves_flags));
            },
            // SAFETY: the caller's guarantee.
            Width::Quad => unsafe {
                asm!("xchg qword ptr [{at}], {value}", at = in(reg) at, value = inout(reg) value,
                    options(nostack, preserves_flags));
            },
        }
        value
    }

    #[inline(always)]
    unsafe fn fetch_add(&mut self, at: *mut u8, width: Width, mut value: u64) -> u64 {
        match width {
            // SAFETY: the caller's guarantee; a 32-bit result clears the register's upper half.
            Width::Long => unsafe {
                asm!("lock xadd dword ptr [{at}], {value:e}", at = in(reg) at,
                    value = inout(reg) value, options(nostack));
            },
            // SAFETY: the caller's guarantee.
            Width::Quad => unsafe {
                asm!("lock xadd qword ptr [{at}], {value}", at = in(reg) at,
                    value = inout(reg) value, options(nostack));
            },
        }
        value
    }

    #[inline(always)]
    unsafe fn compare_exchange(
        &mut self,
        at: *mut u8,
        width: Width,
        expected: u64,
        new: u64,
    ) -> u64 {
        let mut accumulator = expected;
        match width {
            // SAFETY: the caller's guarantee.
            Width::Long => unsafe {
                asm!("lock cmpxchg dword ptr [{at}], {new:e}", at = in(reg) at, new = in(reg) new,
                    inout("rax") accumulator, options(nostack));
            },
            // SAFETY: the caller's guarantee.
            Width::Quad => unsafe {
                asm!("lock cmpxchg qword ptr [{at}], {new}", at = in(reg) at, new = in(reg) new,
                    inout("rax") accumulator, options(nostack));
            },
        }
        accumulator
    }

    #[inline(always)]
    unsafe fn add(&mut self, at: *mut u8, width: Width, value: u64) {
        match width {
            // SAFETY: the caller's guarantee.
            Width::Long => unsafe {
                asm!("lock add dword ptr [{at}], {value:e}", at = in(reg) at, value = in(reg) value,
                    options(nostack));
            },
            // SAFETY: the caller's guarantee.
            Width::Quad => unsafe {
                asm!("lock add qword ptr [{at}], {value}", at = in(reg) at, value = in(reg) value,
                    options(nostack));
            },
        }
    }

    #[inline(always)]
    fn fence(&mut self, fence: Fence) {
        // SAFETY: fences change neither memory nor registers.
        unsafe {
            match fence {
                Fence::Memory => asm!("mfence", options(nostack, preserves_flags)),
                Fence::Load => asm!("lfence", options(nostack, preserves_flags)),
                Fence::Store => asm!("sfence", options(nostack, preserves_flags)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONES: u64 = u64::MAX;

    /// What `access` returns and leaves in eight bytes that were all ones.
    fn on_ones(access: impl FnOnce(*mut u8) -> u64) -> (u64, u64) {
        let mut word = ONES;
        let result = access((&raw mut word).cast());
        (result, word)
    }

    #[test]
    fn each_access_is_of_its_width() {
        let mut cpu = Processor;
        let low = 0xffff_ffff;
        let high = ONES << 32;
        // SAFETY: in all of them, `at` is that of eight bytes of this thread's own.
        unsafe {
            assert_eq!(on_ones(|at| cpu.load(at, Width::Long)), (low, ONES));
            assert_eq!(on_ones(|at| cpu.load(at, Width::Quad)), (ONES, ONES));
            for (width, rest) in [(Width::Long, high), (Width::Quad, 0)] {
                let all = width.truncate(ONES);
                let stored = on_ones(|at| {
                    cpu.store(at, width, 7);
                    0
                });
                assert_eq!(stored, (0, rest | 7));
                assert_eq!(on_ones(|at| cpu.exchange(at, width, 7)), (all, rest | 7));
                assert_eq!(on_ones(|at| cpu.fetch_add(at, width, 3)), (all, rest | 2));
                let added = on_ones(|at| {
                    cpu.add(at, width, 4);
                    0
                });
                assert_eq!(added, (0, rest | 3));
                let equal = on_ones(|at| cpu.compare_exchange(at, width, all, 9));
                assert_eq!(equal, (all, rest | 9));
                let other = on_ones(|at| cpu.compare_exchange(at, width, 5, 9));
                assert_eq!(other, (all, ONES));
            }
        }
        for fence in [Fence::Memory, Fence::Load, Fence::Store] {
            cpu.fence(fence);
        }
    }
}
