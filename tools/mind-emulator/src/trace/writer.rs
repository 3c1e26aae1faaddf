//! Writes a trace file, while what is traced runs: at most a block of each thread is in memory.

use std::io::{Seek, SeekFrom, Write};

use mind_common::id::BladeId;
use rustc_hash::FxHashMap;

use super::{
    Access, Error, Shape,
    format::{self, BLOCK_HEADER, FULL, Header, MAX_PAGES, MAX_THREADS},
};

/// Pages of which one entry says whether they were accessed.
const PAGES_PER_PART: usize = 512;

/// A trace file that is being written. Accesses of a thread to one page that come one after the other are collapsed.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    shape: Shape,
    threads: Vec<Thread>,
    records: u64,
    touched: Touched,
}

/// A thread's records that are not in the file yet.
#[derive(Debug, Default)]
struct Thread {
    /// The accesses that may be continued.
    run: Option<Access>,
    /// Nanoseconds computed since the first of these.
    gap: u64,
    bytes: Vec<u8>,
    records: u32,
    /// The page of the last record in `bytes`.
    page: u32,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a trace at the beginning of `out`, of as many threads as there are blades in `threads`: those on which
    /// they run.
    ///
    /// # Errors
    ///
    /// When there are no blades or threads, or more than a trace can have; when `out` cannot be written.
    pub fn new(out: W, blades: u8, threads: Vec<BladeId>) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&threads.len()) {
            return Err(Error::Unfit("a trace has 1 to 4,096 threads"));
        }
        let are_there = threads.iter().all(|blade| blade.get() < blades);
        if blades == 0 || !are_there {
            return Err(Error::Unfit(
                "each thread of a trace runs on one of its blades",
            ));
        }
        let mut writer = Self {
            out,
            threads: threads.iter().map(|_| Thread::default()).collect(),
            shape: Shape {
                blades,
                threads,
                pages: 0,
                footprint: Some(0),
                accesses: 0,
            },
            records: 0,
            touched: Touched::default(),
        };
        writer.write_header(None)?;
        Ok(writer)
    }

    /// Adds accesses of a thread, which come after those that were added of it before.
    ///
    /// # Errors
    ///
    /// When there is no such thread or page; when the file cannot be written.
    pub fn push(&mut self, thread: usize, access: Access) -> Result<(), Error> {
        let Some(state) = self.threads.get_mut(thread) else {
            return Err(Error::Unfit("the trace has no such thread"));
        };
        if u64::from(access.page) >= MAX_PAGES || access.count == 0 {
            return Err(Error::Unfit(
                "an access is one or more, to a page of the window",
            ));
        }
        self.shape.accesses += u64::from(access.count);
        if let Some(run) = &mut state.run
            && run.page == access.page
            && (run.is_write || !access.is_write)
            && let Some(count) = run.count.checked_add(access.count)
        {
            run.count = count;
            state.gap = state.gap.saturating_add(access.gap);
            return Ok(());
        }
        let gap = access.gap.saturating_add(std::mem::take(&mut state.gap));
        let before = state.run.replace(Access { gap, ..access });
        self.touched.add(access.page);
        match before {
            Some(before) => self.put(thread, before),
            None => Ok(()),
        }
    }

    /// Ends the trace. What a thread computed after its last access is not in it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<(Shape, W), Error> {
        for thread in 0..self.threads.len() {
            if let Some(run) = self.threads[thread].run.take() {
                self.put(thread, run)?;
            }
            self.write_block(thread)?;
        }
        self.shape.pages = self.touched.end;
        self.shape.footprint = Some(self.touched.count);
        self.write_header(Some(self.records))?;
        self.out.flush().map_err(Error::Write)?;
        Ok((self.shape, self.out))
    }

    /// What it writes to.
    #[cfg(test)]
    pub(super) const fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    fn put(&mut self, thread: usize, access: Access) -> Result<(), Error> {
        let state = &mut self.threads[thread];
        format::put_record(&mut state.bytes, state.page, access);
        state.page = access.page;
        state.records += 1;
        self.records += 1;
        match state.bytes.len() >= FULL {
            true => self.write_block(thread),
            false => Ok(()),
        }
    }

    fn write_block(&mut self, thread: usize) -> Result<(), Error> {
        let state = &mut self.threads[thread];
        if state.records == 0 {
            return Ok(());
        }
        let mut header = Vec::with_capacity(BLOCK_HEADER);
        for number in [thread as u32, state.records, state.bytes.len() as u32] {
            header.extend(number.to_le_bytes());
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        crc.update(&state.bytes);
        header.extend(crc.finalize().to_le_bytes());
        let written = self.out.write_all(&header);
        written
            .and_then(|()| self.out.write_all(&state.bytes))
            .map_err(Error::Write)?;
        state.bytes.clear();
        (state.records, state.page) = (0, 0);
        Ok(())
    }

    /// Writes the header; `records` once the trace is complete.
    fn write_header(&mut self, records: Option<u64>) -> Result<(), Error> {
        let header = Header {
            shape: self.shape.clone(),
            records,
        };
        let at = self.out.seek(SeekFrom::Start(0));
        at.and_then(|_| self.out.write_all(&header.bytes()))
            .map_err(Error::Write)
    }
}

/// Which pages were accessed.
#[derive(Debug, Default)]
struct Touched {
    /// A bit for each page, by the number of its part.
    parts: FxHashMap<usize, [u64; PAGES_PER_PART / 64]>,
    count: u64,
    /// One more than the greatest.
    end: u64,
}

impl Touched {
    fn add(&mut self, page: u32) {
        let (part, bit) = (
            page as usize / PAGES_PER_PART,
            page as usize % PAGES_PER_PART,
        );
        let bits = self.parts.entry(part).or_default();
        let (word, mask) = (bit / 64, 1 << (bit % 64));
        self.count += u64::from(bits[word] & mask == 0);
        bits[word] |= mask;
        self.end = self.end.max(u64::from(page) + 1);
    }
}
