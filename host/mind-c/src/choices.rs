//! The constants of the interface. Functions take them as `int`, as `mmap` does: an `enum` with a value that it does
//! not have may come from C, and must not come into Rust.

use std::ffi::c_int;

use crate::error::Error;

/// What a domain may do with memory. The values are those of mmap on Linux.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing (PROT_NONE).
    None = 0,
    /// Read (PROT_READ).
    Read = 1,
    /// Read and write (PROT_READ | PROT_WRITE).
    Write = 3,
}

/// Whether an area must be there when it is opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must be there (shm_open without O_CREAT).
    Existing = 0,
    /// It is made if it is not there (O_CREAT).
    OrCreate = 1,
    /// It must not be there (O_CREAT | O_EXCL).
    New = 2,
}

/// What readers of a region see when a blade is gone that wrote into it, and with it what it had not written back. A
/// domain has one choice, made by the first process that has one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Whatever the domain has chosen; MIND_ON_LOSS_LAST_WRITTEN if it has not.
    AsChosen = 0,
    /// What was written back last.
    LastWritten = 1,
    /// SIGBUS at every access to the region, until it is unmapped.
    Fail = 2,
}

/// The library's word for an `enum mind_access`.
pub(crate) fn access(value: c_int) -> Result<mind_client::Access, Error> {
    const NONE: c_int = Access::None as c_int;
    const READ: c_int = Access::Read as c_int;
    const WRITE: c_int = Access::Write as c_int;
    match value {
        NONE => Ok(mind_client::Access::None),
        READ => Ok(mind_client::Access::Read),
        WRITE => Ok(mind_client::Access::Write),
        value => Err(no_choice("enum mind_access", value)),
    }
}

/// The library's word for an `enum mind_open`.
pub(crate) fn open(value: c_int) -> Result<mind_client::Open, Error> {
    const EXISTING: c_int = Open::Existing as c_int;
    const OR_CREATE: c_int = Open::OrCreate as c_int;
    const NEW: c_int = Open::New as c_int;
    match value {
        EXISTING => Ok(mind_client::Open::Existing),
        OR_CREATE => Ok(mind_client::Open::OrCreate),
        NEW => Ok(mind_client::Open::New),
        value => Err(no_choice("enum mind_open", value)),
    }
}

/// The library's word for an `enum mind_on_loss`.
pub(crate) fn on_loss(value: c_int) -> Result<Option<mind_client::OnLoss>, Error> {
    const AS_CHOSEN: c_int = OnLoss::AsChosen as c_int;
    const LAST_WRITTEN: c_int = OnLoss::LastWritten as c_int;
    const FAIL: c_int = OnLoss::Fail as c_int;
    match value {
        AS_CHOSEN => Ok(None),
        LAST_WRITTEN => Ok(Some(mind_client::OnLoss::LastWritten)),
        FAIL => Ok(Some(mind_client::OnLoss::Fail)),
        value => Err(no_choice("enum mind_on_loss", value)),
    }
}

fn no_choice(name: &'static str, value: c_int) -> Error {
    Error::NoChoice { name, value }
}
