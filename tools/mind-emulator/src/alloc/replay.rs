//! Replays one trace: through the controller, and through page tables with pages of several sizes.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use mind_api::errno::Errno;
use mind_common::addr::PAGE_SHIFT;

use super::{
    fairness::jain,
    live::Live,
    paging::PageTable,
    report::{Pages, Published, Row, Tables},
    request::{Calls, Kind, Request},
    sources::Source,
    trace,
};

/// Memory blades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rack {
    /// How many.
    pub blades: u8,
    /// Bytes of each: whole pages.
    pub blade_size: u64,
}

/// log2 of the sizes of pages in the tables that are compared: 4 KiB, 2 MiB, 1 GiB.
const PAGE_SHIFTS: [u32; 3] = [12, 21, 30];

/// What a trace asks for, and how many of its calls ask for nothing.
///
/// # Errors
///
/// A file cannot be read, or a line of it is no call.
fn read(source: &Source, without: &[Kind]) -> Result<(Vec<Request>, u64)> {
    let files = source.initial.iter().map(|file| (file, true));
    let (mut requests, mut calls) = (Vec::new(), 0);
    for (file, is_initial) in files.chain([(&source.file, false)]) {
        let read = Calls {
            file: Arc::new(file.clone()),
            calls: trace::read(file)?,
            is_initial,
        };
        calls += read.calls.len() as u64;
        requests.extend(read.requests(without));
    }
    let left_out = calls - requests.len() as u64;
    Ok((requests, left_out))
}

/// Replays a trace, `without` calls of some kinds.
///
/// # Errors
///
/// A file cannot be read, a line of it is no call, or the controller refuses a request.
pub fn replay(source: &Source, rack: Rack, without: &[Kind]) -> Result<Row> {
    let (requests, left_out) = read(source, without)?;
    let mind = through_controller(&requests, rack)?;
    Ok(Row {
        trace: source.name(),
        allocations: requests.len() as u64,
        left_out,
        bytes: requests.iter().map(|request| request.length).sum(),
        mind,
        pages: PAGE_SHIFTS.map(|shift| through_page_table(&requests, 1 << shift, rack)),
        published: Published::of(&source.program),
    })
}

fn through_controller(requests: &[Request], rack: Rack) -> Result<Tables> {
    let mut live = Live::new(rack.blades, rack.blade_size >> PAGE_SHIFT)?;
    for request in requests {
        let Request { length, access, at } = request;
        if let Err(failure) = live.map(*length, *access)? {
            let what = match failure.errno {
                Errno::ENOMEM => "; give more memory with --blades or --blade-size",
                _ => "",
            };
            return Err(failure).with_context(|| format!("{at}: cannot map {length} bytes{what}"));
        }
    }
    let entries = live.entries()?;
    Ok(Tables {
        translation: entries.translation,
        protection: entries.protection,
        entries: entries.translation + entries.protection,
        fairness: jain(&live.loads()),
    })
}

fn through_page_table(requests: &[Request], page: u64, rack: Rack) -> Pages {
    let mut table = PageTable::new(page, rack.blades, rack.blade_size);
    let fits = requests.iter().all(|request| table.map(request).is_ok());
    Pages {
        page_bytes: page,
        entries: fits.then(|| table.entries()),
        fairness: jain(&table.loads()).filter(|_| fits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    const RACK: Rack = Rack {
        blades: 2,
        blade_size: 4 << 30,
    };

    /// A program with a mapping at its start, and one trace.
    fn source(folder: &Path, initial: &str, trace: &str) -> Source {
        let (map, file) = (folder.join("initial-map.txt"), folder.join("10.txt"));
        fs::write(&map, initial).unwrap();
        fs::write(&file, trace).unwrap();
        Source {
            program: "tensorflow".into(),
            run: "10".into(),
            initial: Some(map),
            file,
        }
    }

    #[test]
    fn a_small_trace_is_as_computed_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        // On blade 0 and blade 1, in granules of 16 KiB, and with entries of so many pages:
        // 1. 5 pages, read: blade 0, granules 0 and 1: 4 + 1.
        // -- a hole.
        // 2. 4 pages, write: blade 1, granule 0: 4.
        // 3. 4 pages, write: blade 1, granule 1, and joined with the one before: 8.
        // 4. 257 pages, reserved and written later: both have 2 granules, so blade 0. 65 granules, aligned to 64, from
        //    64 on: 256 + 1.
        // 5. 1 page of the heap: blade 1, granule 2: 1.
        let source = source(
            folder.path(),
            "mmap 20480 1 400000 r-x\nmmap 2093056 1 0 --\n",
            "mmap 16384 0 0 rw\nmmap 16384 0 0 rw\nmmap 1052672 0 0 --\nbrk 100 rw\n",
        );
        let row = replay(&source, RACK, &[]).unwrap();
        assert_eq!((row.allocations, row.left_out), (5, 1));
        assert_eq!(row.bytes, (5 + 4 + 4 + 257 + 1) << 12);
        let Tables {
            translation,
            protection,
            entries,
            fairness,
        } = row.mind;
        assert_eq!((translation, protection, entries), (2, 6, 8));
        // Granules: 67 and 3.
        let expected = 70.0 * 70.0 / (2.0 * (67.0 * 67.0 + 3.0 * 3.0));
        assert!((fairness.unwrap() - expected).abs() < 1e-12);
        // 266 pages for writing and 5 for reading.
        let entries = row
            .pages
            .each_ref()
            .map(|pages| (pages.page_bytes, pages.entries));
        let expected = [(4 << 10, Some(271)), (2 << 20, Some(2)), (1 << 30, Some(2))];
        assert_eq!(entries, expected);
        assert_eq!(row.pages[1].fairness, Some(1.0));
        assert_eq!(row.published.unwrap().entries, Some(550));

        let row = replay(&source, RACK, &[Kind::Reserved, Kind::Files]).unwrap();
        assert_eq!((row.allocations, row.left_out), (3, 3));
        // Blade 0: 4 pages, then 1; blade 1: 4 pages.
        assert_eq!((row.mind.translation, row.mind.protection), (2, 3));
    }

    #[test]
    fn what_the_controller_refuses_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), "", "brk 4096 rw\nmmap 8589934593 0 0 rw\n");
        let said = format!("{:#}", replay(&source, RACK, &[]).unwrap_err());
        let expected = "10.txt:2: cannot map 8589938688 bytes; give more memory with";
        assert!(said.contains(expected), "{said}");
        let enough = Rack {
            blade_size: 8 << 30,
            ..RACK
        };
        assert!(replay(&source, enough, &[]).is_ok());
        fs::write(&source.file, format!("mmap {} 0 0 rw", u64::MAX)).unwrap();
        let said = format!("{:#}", replay(&source, RACK, &[]).unwrap_err());
        assert!(said.contains("10.txt:1: cannot map"), "{said}");
        fs::write(&source.file, "brk 4096 rw\nbrk\n").unwrap();
        let said = format!("{:#}", replay(&source, RACK, &[]).unwrap_err());
        assert!(said.contains("10.txt:2: `brk` is no call"), "{said}");
    }

    #[test]
    fn pages_that_no_blade_has_room_for_are_no_entries() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), "", "brk 4096 rw\n");
        let small = Rack {
            blades: 2,
            blade_size: 1 << 29,
        };
        let row = replay(&source, small, &[]).unwrap();
        assert_eq!(row.pages[1].entries, Some(1));
        assert_eq!((row.pages[2].entries, row.pages[2].fairness), (None, None));
    }
}
