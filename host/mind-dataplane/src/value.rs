//! The types of [`mind_common::table`] as keys and values of aya's maps.

use aya::Pod;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A key or value, as its bytes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Plain<T>(pub(crate) T);

// SAFETY: any bytes are a `T`, and all of a `T`'s bytes are initialised: it has no padding. Both
// are what the bounds promise.
unsafe impl<T: FromBytes + IntoBytes + Immutable + Copy + 'static> Pod for Plain<T> {}
