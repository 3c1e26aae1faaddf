//! How a trace file is laid out. All numbers are little-endian.
//!
//! ```text
//! header   magic 8, version 4, blades 4, threads 4, zero 4, pages 8, footprint 8, records 8, accesses 8,
//!          the blade of each thread 1 each, CRC-32 of all that 4
//! blocks   thread 4, records 4, bytes 4, CRC-32 of these twelve bytes and the block's 4, the block's bytes
//! ```
//!
//! `pages` is one more than the greatest page number, `footprint` how many pages are accessed, `accesses` how many
//! accesses the records stand for. The header is written again when the trace is complete; until then `records` is
//! 2^64 - 1.
//!
//! A block has records of one thread, so that each thread can be read at its own pace. A record is:
//!
//! ```text
//! varint   (page - page of the record before, folded) x 8 + has count x 4 + has gap x 2 + is store
//! varint   count - 2, if it has a count; otherwise the count is 1
//! varint   gap in nanoseconds - 1, if it has one; otherwise the gap is 0
//! ```
//!
//! The record before the first of a block has page 0.

use mind_common::{
    addr::{PAGE_SHIFT, WINDOW_SIZE},
    id::{BladeId, MAX_BLADES},
};

use super::{
    Access, Error, Shape,
    varint::{folded, put, take, unfolded},
};

/// What a trace begins with.
pub const MAGIC: [u8; 8] = *b"MINDTRC\n";
/// The version of this layout.
pub const VERSION: u32 = 1;
/// Threads that a trace can have.
pub const MAX_THREADS: usize = 4096;
/// Pages that a trace can have: those of the window.
pub const MAX_PAGES: u64 = WINDOW_SIZE >> PAGE_SHIFT;

/// Bytes of the header before the blades of threads.
pub(super) const HEADER: usize = 56;
/// Bytes of a checksum.
pub(super) const CRC: usize = 4;
/// Bytes of a block's header.
pub(super) const BLOCK_HEADER: usize = 16;
/// Bytes from which on a block is full.
pub(super) const FULL: usize = 60 << 10;
/// Bytes of the longest record: three varints.
pub(super) const LONGEST: usize = 30;
/// Bytes that a block can have.
pub(super) const MAX_BLOCK: usize = FULL + LONGEST;

const _: () = assert!(MAX_PAGES == 1 << 32);

/// `records` of a trace that is not complete.
const INCOMPLETE: u64 = u64::MAX;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) shape: Shape,
    /// `None` until the trace is complete.
    pub(super) records: Option<u64>,
}

impl Header {
    /// As bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Shape {
            blades,
            threads,
            pages,
            footprint,
            accesses,
        } = &self.shape;
        let mut out = Vec::with_capacity(HEADER + threads.len() + CRC);
        out.extend(MAGIC);
        let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        for number in [VERSION, u32::from(*blades), count, 0] {
            out.extend(number.to_le_bytes());
        }
        let records = self.records.unwrap_or(INCOMPLETE);
        for number in [*pages, footprint.unwrap_or_default(), records, *accesses] {
            out.extend(number.to_le_bytes());
        }
        out.extend(threads.iter().map(|blade| blade.get()));
        let crc = crc32fast::hash(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// How many threads there are, by the first bytes of a header.
    pub(super) fn threads(first: &[u8; HEADER]) -> Result<usize, Error> {
        if first[..8] != MAGIC {
            return Err(Error::NoTrace);
        }
        let version = u32_at(first, 8);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let threads = u32_at(first, 16) as usize;
        match (1..=MAX_THREADS).contains(&threads) {
            true => Ok(threads),
            false => Err(damaged(16, "no such number of threads can be")),
        }
    }

    /// The header of a complete trace, all of whose bytes these are.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let end = bytes.len().saturating_sub(CRC);
        if end < HEADER || crc32fast::hash(&bytes[..end]) != u32_at(bytes, end) {
            return Err(damaged(end as u64, "the header's checksum is another one"));
        }
        let records = u64_at(bytes, 40);
        if records == INCOMPLETE {
            return Err(Error::Unfinished);
        }
        let blades = u32_at(bytes, 12);
        let blades = u8::try_from(blades).unwrap_or_default();
        if !(1..=MAX_BLADES).contains(&usize::from(blades)) {
            return Err(damaged(12, "no such number of blades can be"));
        }
        let mut threads = Vec::with_capacity(end - HEADER);
        for (at, number) in bytes[HEADER..end].iter().enumerate() {
            let blade = BladeId::new(*number).filter(|blade| blade.get() < blades);
            threads.push(blade.ok_or(damaged((HEADER + at) as u64, "there is no such blade"))?);
        }
        let pages = u64_at(bytes, 24);
        if pages > MAX_PAGES {
            return Err(damaged(24, "so many pages are not in the window"));
        }
        Ok(Self {
            shape: Shape {
                blades,
                threads,
                pages,
                footprint: Some(u64_at(bytes, 32)),
                accesses: u64_at(bytes, 48),
            },
            records: Some(records),
        })
    }
}

/// Appends a record; `before` is the page of the one before.
pub(super) fn put_record(out: &mut Vec<u8>, before: u32, access: Access) {
    let Access {
        gap,
        page,
        is_write,
        count,
    } = access;
    let difference = folded(i64::from(page) - i64::from(before));
    let flags = u64::from(count > 1) << 2 | u64::from(gap > 0) << 1 | u64::from(is_write);
    put(out, difference << 3 | flags);
    if count > 1 {
        put(out, u64::from(count - 2));
    }
    if gap > 0 {
        put(out, gap - 1);
    }
}

/// Takes a record off the front; `None` if there is no whole one, or one of no page of the trace.
pub(super) fn take_record(bytes: &mut &[u8], before: u32, pages: u64) -> Option<Access> {
    let first = take(bytes)?;
    let page = i64::from(before).checked_add(unfolded(first >> 3))?;
    let page = u32::try_from(page).ok()?;
    if u64::from(page) >= pages {
        return None;
    }
    let count = match first & 4 {
        0 => 1,
        _ => u32::try_from(take(bytes)?).ok()?.checked_add(2)?,
    };
    let gap = match first & 2 {
        0 => 0,
        _ => take(bytes)?.checked_add(1)?,
    };
    Some(Access {
        gap,
        page,
        is_write: first & 1 == 1,
        count,
    })
}

pub(super) const fn damaged(offset: u64, what: &'static str) -> Error {
    Error::Damaged { offset, what }
}

/// The number at that place; 0 beyond the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(<[u8]>::first_chunk);
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}
