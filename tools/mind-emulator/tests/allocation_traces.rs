//! The published traces of allocations, which are not part of the project: the folder `shared` beside the checkout has
//! them.

use std::path::{Path, PathBuf};

use mind_emulator::alloc::{
    replay::{Rack, replay},
    report::Row,
    request::{Calls, Kind},
    sources::{Source, find},
    trace,
};

/// The folder with the traces. None where there are none, which is said; in CI they must be there.
fn traces() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let folder = root.join("shared/traces/alloc");
    if folder.is_dir() {
        return Some(folder);
    }
    let folder = folder.display();
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "the traces of allocations are not there; expected in `{folder}`"
    );
    eprintln!("SKIPPED: there are no traces of allocations in `{folder}`");
    None
}

/// All of them with eight memory blades, as they were published.
fn rows(without: &[Kind]) -> Option<Vec<(Source, Row)>> {
    let rack = Rack {
        blades: 8,
        blade_size: 512 << 30,
    };
    let replayed = |source: Source| {
        let row = replay(&source, rack, without).unwrap();
        (source, row)
    };
    let sources = find(&traces()?).unwrap();
    Some(sources.into_iter().map(replayed).collect())
}

/// Entries that a trace's vmas take if each is as few prefixes as its pages have bits, and none is joined with another.
fn apart(source: &Source) -> u64 {
    let files = source.initial.iter().map(|file| (file, true));
    let files = files.chain([(&source.file, false)]);
    let bits = |(file, is_initial): (&PathBuf, bool)| -> u64 {
        let calls = Calls {
            file: file.clone().into(),
            calls: trace::read(file).unwrap(),
            is_initial,
        };
        let requests = calls.requests(&[]);
        requests
            .map(|request| u64::from((request.length >> 12).count_ones()))
            .sum()
    };
    files.map(bits).sum()
}

#[test]
fn entries_are_those_of_vmas_and_fewer_than_of_page_tables() {
    let Some(rows) = rows(&[]) else {
        return;
    };
    let names: Vec<_> = rows.iter().map(|(_, row)| row.trace.as_str()).collect();
    let programs = ["graphchi", "memcached", "tensorflow"];
    let expected = programs.map(|program| [format!("{program}/10"), format!("{program}/20")]);
    assert_eq!(names, expected.concat());
    for (source, row) in &rows {
        let (name, [small, large, _]) = (&row.trace, &row.pages);
        assert_eq!(row.mind.translation, 8, "{name}");
        assert!(row.mind.protection <= apart(source), "{name}");
        assert_eq!(small.entries, Some(row.bytes >> 12), "{name}");
        assert!(2 * row.mind.entries < large.entries.unwrap(), "{name}");
        assert!(large.fairness.unwrap() > 0.999, "{name}");
    }
}

#[test]
fn blades_are_loaded_evenly_by_programs_with_many_allocations() {
    let Some(rows) = rows(&[]) else {
        return;
    };
    let many = rows
        .iter()
        .filter(|(source, _)| source.program != "memcached");
    for (_, row) in many {
        let (fairness, of_large_pages) = (row.mind.fairness.unwrap(), &row.pages[2]);
        assert!(fairness > 0.998, "{}: {fairness}", row.trace);
        assert!(fairness > of_large_pages.fairness.unwrap(), "{}", row.trace);
    }
}

#[test]
fn a_program_without_what_it_reserves_is_a_smaller_one() {
    let (Some(all), Some(some)) = (rows(&[]), rows(&[Kind::Reserved, Kind::Files])) else {
        return;
    };
    for ((_, all), (_, some)) in all.iter().zip(&some) {
        assert!(some.mind.entries < all.mind.entries, "{}", all.trace);
        let calls = |row: &Row| row.allocations + row.left_out;
        assert_eq!(calls(some), calls(all), "{}", all.trace);
    }
}
