//! Traces of memory accesses: what one is, the project's file format, and what other programs write.
//!
//! * [`access`]: an access, and [`Source`], which the emulator takes accesses from,
//! * [`format`](mod@format): how a file is laid out,
//! * [`writer`] and [`reader`]: files of that format,
//! * [`lackey`]: the text that Valgrind's lackey writes,
//! * [`compact`]: addresses of a program as page numbers from 0 on,
//! * [`convert`]: the command that makes a file of such text.

pub mod access;
pub mod compact;
pub mod convert;
pub mod format;
pub mod lackey;
pub mod reader;
mod varint;
pub mod writer;

pub use access::{Access, Shape, Source};
pub use reader::Reader;
pub use writer::Writer;

use std::io;

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another file than a trace.
    #[error(
        "it does not begin as a trace of mind-emulator does; make one with `mind-emulator convert` or `generate`"
    )]
    NoTrace,
    /// A trace of another version of the format.
    #[error("it is a trace of version {0}, and this program reads version {version}; make it again", version = format::VERSION)]
    Version(u32),
    /// What wrote it was ended before.
    #[error("it is unfinished: what wrote it did not get to its end; make it again")]
    Unfinished,
    /// The file is not what was written.
    #[error("it is damaged at byte {offset}: {what}; make it or copy it again")]
    Damaged {
        /// Where, from the beginning of the file.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A line of text that is none of a trace's.
    #[error("line {line}: {what}")]
    Line {
        /// Which line, from 1 on.
        line: u64,
        /// What was expected.
        what: &'static str,
    },
    /// The trace does not fit in the format, or in the window of addresses.
    #[error("{0}")]
    Unfit(&'static str),
    /// The file cannot be read.
    #[error("cannot read at byte {offset}")]
    Read {
        /// Where, from the beginning of the file.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write")]
    Write(#[source] io::Error),
}
