//! Reads a trace file: each thread at its own pace, with one block of each in memory.

use std::io::{Read, Seek, SeekFrom};

use super::{
    Access, Error, Shape, Source,
    format::{self, BLOCK_HEADER, CRC, HEADER, Header, MAX_BLOCK, damaged, u32_at},
};

/// A trace file.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    shape: Shape,
    threads: Vec<Thread>,
}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
struct Block {
    offset: u64,
    records: u32,
    bytes: u32,
}

/// How far a thread was read.
#[derive(Debug, Default)]
struct Thread {
    blocks: Vec<Block>,
    /// The block to read next.
    next: usize,
    bytes: Vec<u8>,
    /// Where in `bytes` the next record is.
    at: usize,
    /// Records of the block that are left.
    left: u32,
    /// The page of the last record.
    page: u32,
}

impl<R: Read + Seek> Reader<R> {
    /// Opens a trace, and looks where the blocks of each thread are.
    ///
    /// # Errors
    ///
    /// When the file is no trace, one of another version, unfinished, or damaged so that it is seen without reading the
    /// blocks.
    pub fn open(mut file: R) -> Result<Self, Error> {
        let mut first = [0; HEADER];
        let length = file
            .seek(SeekFrom::End(0))
            .map_err(|source| Error::Read { offset: 0, source })?;
        if length < HEADER as u64 {
            return Err(Error::NoTrace);
        }
        read_at(&mut file, 0, &mut first)?;
        let threads = Header::threads(&first)?;
        let mut header = vec![0; HEADER + threads + CRC];
        if length < header.len() as u64 {
            return Err(damaged(length, "it ends within its header"));
        }
        read_at(&mut file, 0, &mut header)?;
        let Header { shape, records } = Header::parse(&header)?;
        let mut reader = Self {
            file,
            threads: shape.threads.iter().map(|_| Thread::default()).collect(),
            shape,
        };
        reader.find_blocks(header.len() as u64, length, records.unwrap_or_default())?;
        Ok(reader)
    }

    fn find_blocks(&mut self, mut offset: u64, length: u64, records: u64) -> Result<(), Error> {
        let mut found = 0u64;
        while offset < length {
            let mut header = [0; BLOCK_HEADER];
            if length - offset < BLOCK_HEADER as u64 {
                return Err(damaged(offset, "it ends within a block's header"));
            }
            read_at(&mut self.file, offset, &mut header)?;
            let block = Block {
                offset,
                records: u32_at(&header, 4),
                bytes: u32_at(&header, 8),
            };
            let thread = self.threads.get_mut(u32_at(&header, 0) as usize);
            let thread =
                thread.ok_or(damaged(offset, "a block is of a thread that there is not"))?;
            // Each record takes a byte at least.
            if block.bytes as usize > MAX_BLOCK || block.records == 0 || block.records > block.bytes
            {
                return Err(damaged(offset, "a block cannot be so long"));
            }
            let end = offset + BLOCK_HEADER as u64 + u64::from(block.bytes);
            if end > length {
                return Err(damaged(offset, "it ends within a block"));
            }
            thread.blocks.push(block);
            found += u64::from(block.records);
            offset = end;
        }
        match found == records {
            true => Ok(()),
            false => Err(damaged(
                length,
                "other numbers of records are in its blocks than its header says",
            )),
        }
    }

    /// Reads the next block of a thread; whether there was one.
    fn read_block(&mut self, thread: usize) -> Result<bool, Error> {
        let Some(thread_state) = self.threads.get_mut(thread) else {
            return Ok(false);
        };
        let Some(block) = thread_state.blocks.get(thread_state.next).copied() else {
            return Ok(false);
        };
        thread_state
            .bytes
            .resize(BLOCK_HEADER + block.bytes as usize, 0);
        read_at(&mut self.file, block.offset, &mut thread_state.bytes)?;
        let (header, bytes) = thread_state.bytes.split_at(BLOCK_HEADER);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header[..BLOCK_HEADER - CRC]);
        crc.update(bytes);
        if crc.finalize() != u32_at(header, BLOCK_HEADER - CRC) {
            return Err(damaged(block.offset, "the block's checksum is another one"));
        }
        thread_state.next += 1;
        thread_state.at = BLOCK_HEADER;
        thread_state.left = block.records;
        thread_state.page = 0;
        Ok(true)
    }
}

impl<R: Read + Seek> Source for Reader<R> {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn next(&mut self, thread: usize) -> Result<Option<Access>, Error> {
        if self.threads.get(thread).is_none_or(|state| state.left == 0)
            && !self.read_block(thread)?
        {
            return Ok(None);
        }
        let state = &mut self.threads[thread];
        let mut rest = &state.bytes[state.at..];
        let access = format::take_record(&mut rest, state.page, self.shape.pages);
        let is_whole = state.left > 1 || rest.is_empty();
        let Some(access) = access.filter(|_| is_whole) else {
            let block = state.blocks[state.next - 1].offset;
            return Err(damaged(block + state.at as u64, "there is no record"));
        };
        state.at = state.bytes.len() - rest.len();
        state.left -= 1;
        state.page = access.page;
        Ok(Some(access))
    }
}

fn read_at(file: &mut (impl Read + Seek), offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.read_exact(bytes))
        .map_err(|source| Error::Read { offset, source })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use mind_common::id::BladeId;
    use proptest::prelude::*;

    use super::*;
    use crate::trace::Writer;

    fn blade(number: u64) -> BladeId {
        BladeId::from_low_bits(number)
    }

    /// A file of these accesses, by thread.
    fn written(threads: &[Vec<Access>]) -> Vec<u8> {
        let blades = (0..threads.len() as u64).map(|n| blade(n % 3)).collect();
        let mut writer = Writer::new(Cursor::new(Vec::new()), 3, blades).unwrap();
        // As they come while programs run: in turn.
        let longest = threads.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..longest {
            for (thread, accesses) in threads.iter().enumerate() {
                if let Some(access) = accesses.get(at) {
                    writer.push(thread, *access).unwrap();
                }
            }
        }
        writer.finish().unwrap().1.into_inner()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Vec<Access>>, Error> {
        let mut reader = Reader::open(Cursor::new(bytes))?;
        let threads = 0..reader.shape().threads.len();
        threads
            .map(|thread| std::iter::from_fn(|| reader.next(thread).transpose()).collect())
            .collect()
    }

    fn access(page: u32, is_write: bool) -> Access {
        Access {
            gap: 0,
            page,
            is_write,
            count: 1,
        }
    }

    /// Accesses none of which continues the one before.
    fn accesses() -> impl Strategy<Value = Vec<Access>> {
        let one = (
            prop_oneof![Just(0), 0..1000u64, any::<u64>()],
            any::<u32>(),
            any::<bool>(),
            1..9u32,
        );
        let one = one.prop_map(|(gap, page, is_write, count)| Access {
            gap,
            page,
            is_write,
            count,
        });
        prop::collection::vec(one, 0..300).prop_map(|mut all| {
            all.dedup_by_key(|access| access.page);
            all
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(threads in prop::collection::vec(accesses(), 1..5)) {
            let bytes = written(&threads);
            let reader = Reader::open(Cursor::new(&bytes)).unwrap();
            let all = || threads.iter().flatten();
            let pages: std::collections::BTreeSet<_> = all().map(|access| access.page).collect();
            prop_assert_eq!(reader.shape().accesses, all().map(|access| u64::from(access.count)).sum::<u64>());
            prop_assert_eq!(reader.shape().footprint, Some(pages.len() as u64));
            prop_assert_eq!(reader.shape().pages, pages.last().map_or(0, |page| u64::from(*page) + 1));
            prop_assert_eq!(read(&bytes).unwrap(), threads);
        }

        #[test]
        fn a_file_with_a_byte_changed_is_refused(
            threads in prop::collection::vec(accesses(), 1..4), at: prop::sample::Index, change in 1..=255u8,
        ) {
            let mut bytes = written(&threads);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert!(read(&bytes).is_err());
        }

        #[test]
        fn a_file_that_is_cut_off_is_refused(
            threads in prop::collection::vec(accesses(), 1..4), at: prop::sample::Index,
        ) {
            let bytes = written(&threads);
            prop_assert!(read(&bytes[..at.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn many_records_take_several_blocks() {
        let many = (0..100_000u32).map(|n| access(n.wrapping_mul(0x9e37_79b9), n % 2 == 0));
        let threads = [many.collect(), vec![access(7, true)]];
        let bytes = written(&threads);
        assert_eq!(read(&bytes).unwrap(), threads);
        let reader = Reader::open(Cursor::new(&bytes)).unwrap();
        assert!(reader.threads[0].blocks.len() > 2);
    }

    #[test]
    fn accesses_to_one_page_are_collapsed_and_their_time_is_kept() {
        let with = |access, gap| Access { gap, ..access };
        let all = [
            with(access(1, false), 5),
            with(access(1, false), 10),
            with(access(1, true), 20),
            with(access(1, false), 40),
            with(access(1, true), 80),
            with(access(2, true), 160),
        ];
        let read = read(&written(&[all.to_vec()])).unwrap();
        let run = |access, gap, count| Access {
            gap,
            count,
            ..access
        };
        let expected = [
            run(access(1, false), 5, 2),
            run(access(1, true), 30, 3),
            run(access(2, true), 280, 1),
        ];
        assert_eq!(read, [expected.to_vec()]);
    }

    #[test]
    fn an_unfinished_file_and_another_one_are_named() {
        let mut writer = Writer::new(Cursor::new(Vec::new()), 1, vec![blade(0)]).unwrap();
        writer.push(0, access(1, true)).unwrap();
        let mut begun = Vec::new();
        std::mem::swap(&mut begun, writer_bytes(&mut writer));
        assert!(matches!(read(&begun), Err(Error::Unfinished)));
        assert!(matches!(read(b"I  04000000,3\n"), Err(Error::NoTrace)));
        assert!(matches!(read(&[0; 100]), Err(Error::NoTrace)));
        let mut other = written(&[vec![access(1, true)]]);
        other[8] = 9;
        assert!(matches!(read(&other), Err(Error::Version(9))));
    }

    fn writer_bytes(writer: &mut Writer<Cursor<Vec<u8>>>) -> &mut Vec<u8> {
        writer.out_mut().get_mut()
    }

    #[test]
    fn the_offset_of_damage_is_said() {
        let mut bytes = written(&[vec![access(1, true), access(2, true)]]);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let offset = (HEADER + 1 + CRC) as u64;
        let Err(Error::Damaged { offset: found, .. }) = read(&bytes) else {
            panic!("it is damaged");
        };
        assert_eq!(found, offset);
    }

    #[test]
    fn a_thread_on_no_blade_is_refused() {
        let new = |blades, on| Writer::new(Cursor::new(Vec::new()), blades, vec![blade(on)]).err();
        assert!(new(2, 2).is_some() && new(0, 0).is_some() && new(2, 1).is_none());
    }
}
