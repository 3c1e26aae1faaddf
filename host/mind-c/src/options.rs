//! What a process chooses when it attaches: a struct that may grow. Its first member is its size, so a program that was
//! compiled with a smaller one goes on working, and one that was compiled with a larger one is told what this library
//! does not know (as the kernel's `copy_struct_from_user` does for `clone3` and `openat2`).

use std::{
    ffi::{c_char, c_int},
    mem::offset_of,
    ptr,
};

use mind_client::{Builder, Process};

use crate::{boundary::text, choices, error::Error};

/// What a process may choose when it attaches. Every member but `size` may be 0, which is its default; begin with
/// MIND_OPTIONS_INIT, so that members that a later version has are 0 too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// sizeof (struct mind_options).
    size: usize,
    /// What readers see when writes are lost with a blade: one of enum mind_on_loss.
    on_loss: c_int,
    /// Must be 0.
    reserved: c_int,
    /// The path of the socket of the blade's agent (/run/mind-blade.sock, say), a string in UTF-8. NULL: what the
    /// environment variable MIND_BLADE_SOCKET holds.
    socket: *const c_char,
}

/// The size of the struct's first version: no program has a smaller one.
const FIRST_SIZE: usize = offset_of!(Options, socket) + size_of::<*const c_char>();

/// The most bytes that are looked at. A larger struct is an error, since its `size` is likely garbage.
const LARGEST_SIZE: usize = 4096;

impl Options {
    const DEFAULT: Self = Self {
        size: size_of::<Self>(),
        on_loss: choices::OnLoss::AsChosen as c_int,
        reserved: 0,
        socket: ptr::null(),
    };

    /// The struct that `pointer` points to, whatever version it is of; the defaults for NULL.
    ///
    /// # Safety
    ///
    /// `pointer` is null, or points to a struct of as many bytes as its first member says.
    pub(crate) unsafe fn read(pointer: *const Self) -> Result<Self, Error> {
        if pointer.is_null() {
            return Ok(Self::DEFAULT);
        }
        // SAFETY: every version begins with its size.
        let size = unsafe { pointer.cast::<usize>().read_unaligned() };
        if !(FIRST_SIZE..=LARGEST_SIZE).contains(&size) {
            return Err(Error::Size {
                name: "struct mind_options",
                size,
                expected: size_of::<Self>(),
            });
        }
        let mut options = Self::DEFAULT;
        let known = size.min(size_of::<Self>());
        // SAFETY: both have that many bytes, and any bytes are a valid value of each member.
        unsafe {
            ptr::copy_nonoverlapping(
                pointer.cast::<u8>(),
                ptr::from_mut(&mut options).cast::<u8>(),
                known,
            );
        }
        // SAFETY: the caller's struct has `size` bytes, and `known` is no more.
        let unknown =
            unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
        if options.reserved != 0 || unknown.iter().any(|byte| *byte != 0) {
            return Err(Error::UnknownOptions);
        }
        Ok(options)
    }

    /// The same choices for the library for Rust.
    ///
    /// # Safety
    ///
    /// `socket` is null or a string.
    pub(crate) unsafe fn builder(self, domain: &str) -> Result<Builder, Error> {
        let mut builder = Process::builder(domain);
        if let Some(on_loss) = choices::on_loss(self.on_loss)? {
            builder = builder.on_loss(on_loss);
        }
        if !self.socket.is_null() {
            // SAFETY: as the caller says.
            builder = builder.socket(unsafe { text(self.socket, "socket") }?);
        }
        Ok(builder)
    }
}
