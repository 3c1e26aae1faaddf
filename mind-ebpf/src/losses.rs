//! Drops packets on purpose, in a switch that was loaded for that: tests do so, to see that the
//! protocol recovers from a loss at any step. In every other switch the verifier finds this code
//! unreachable and removes it from the program.

use aya_ebpf::Global;
use mind_common::losses::LossPoint;

use crate::{atomics, maps};

/// Whether packets can be dropped on purpose. The loader sets it before the program is loaded.
#[unsafe(no_mangle)]
static LOSE_ON_PURPOSE: Global<u8> = Global::new(0);

/// Whether a packet at `place` is to be dropped there.
#[inline(always)]
pub fn is_lost(place: LossPoint) -> bool {
    if LOSE_ON_PURPOSE.load() == 0 {
        return false;
    }
    let Some(left) = maps::LOSSES.get_ptr_mut(place.index()) else {
        return false;
    };
    // SAFETY: the pointer is a lookup's.
    unsafe {
        let now = atomics::load(left.cast_const());
        now != 0 && atomics::swap(left, now, now - 1)
    }
}
