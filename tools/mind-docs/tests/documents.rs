//! The documents of this checkout: every link leads somewhere, every file that is named exists, every page is in the
//! summary, and anchors are those that the rendered book has.

use std::{collections::BTreeSet, fs, path::Path};

use mind_docs::{
    book, layers,
    links::{self, Checkout, Document},
    reference::{self, Page},
    root,
};

#[test]
fn every_link_leads_somewhere_and_every_file_that_is_named_exists() {
    let complaints = book::complaints(&reference::built_in()).expect("the documents can be read");
    let said: Vec<_> = complaints.iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "\n{}", said.join("\n"));
}

#[test]
fn every_page_is_in_the_summary_and_every_drawing_is_shown() {
    let source = root().join(book::SOURCE);
    let checkout = Checkout::read(&source).expect("the book's folder can be read");
    let pages: Vec<_> = checkout.below(Path::new(""), "md").collect();
    let texts: Vec<_> = pages
        .iter()
        .map(|page| fs::read_to_string(source.join(page)).expect("a page can be read"))
        .collect();
    let summary = fs::read_to_string(source.join("SUMMARY.md")).expect("there is a summary");
    let generated = reference::built_in().into_iter().map(|page| page.place);
    let all = pages
        .into_iter()
        .chain(generated)
        .chain(reference::of_programs());
    for page in all.filter(|page| page != Path::new("SUMMARY.md")) {
        let link = format!("({})", page.display());
        assert!(summary.contains(&link), "SUMMARY.md has no {link}");
    }
    for drawing in checkout.below(Path::new(""), "svg") {
        let name = drawing
            .file_name()
            .expect("a file has a name")
            .to_string_lossy();
        assert!(
            texts.iter().any(|text| text.contains(&*name)),
            "no page shows {name}"
        );
    }
}

/// With the pages that other programs' command lines make. `cargo xtask test` builds those programs first.
#[test]
fn the_whole_book_is_rendered() {
    if std::env::var_os("MIND_EBPF_OBJECT").is_none() {
        eprintln!(
            "skipped: MIND_EBPF_OBJECT is not set; `cargo xtask test` sets it and builds the programs"
        );
        return;
    }
    let own = std::env::current_exe().expect("this test lies somewhere");
    let programs = own
        .ancestors()
        .nth(2)
        .expect("it lies in the folder deps beside the programs");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("book");
    book::build(programs, &out).expect("the book can be built");
    for (page, expected) in [
        ("reference/mind-ctl.html", "id=\"mind-ctl-regions\""),
        ("reference/configuration.html", "<code>deadline-ms</code>"),
        ("reference/metrics.html", "mind_fault_seconds"),
        ("design/fault.html", "fault.svg"),
    ] {
        let html = fs::read_to_string(out.join(page)).expect("the page is there");
        assert!(html.contains(expected), "{page} has no {expected}");
    }
}

/// `UPDATE_EXPECT=1` in the environment writes it.
#[test]
fn the_drawing_of_the_crates_is_as_their_manifests_say() {
    let crates = layers::read(root()).expect("manifests can be read");
    let file = root().join(layers::FILE);
    expect_test::expect_file![file].assert_eq(&layers::render(&crates));
}

/// A row for each limit that is a constant of `mind-common`, with the constant's value and name.
#[test]
fn limits_in_the_readme_are_those_of_the_code() {
    use mind_common::{addr, id, wire};
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let kib = |order: u8| (addr::PAGE_SIZE << order) >> 10;
    let payload = wire::OUTER_LEN - 14 + wire::MAX_LEN;
    let blades = id::MAX_BLADES;
    for (value, name) in [
        (format!("| {blades}; {blades} |"), "`MAX_BLADES`"),
        (
            format!("| {} TiB from ", addr::WINDOW_SIZE >> 40),
            "`WINDOW_SIZE`",
        ),
        (
            format!("| {} GiB |", (1u64 << addr::SLICE_SHIFT) >> 30),
            "`SLICE_SHIFT`",
        ),
        (format!("| {} KiB; ", addr::PAGE_SIZE >> 10), "`PAGE_SIZE`"),
        (
            format!(" {} KiB at first", kib(addr::INITIAL_REGION_ORDER)),
            "`INITIAL_REGION_ORDER`",
        ),
        (
            format!(" to {} MiB after", kib(addr::MAX_REGION_ORDER) >> 10),
            "`MAX_REGION_ORDER`",
        ),
        (format!("| {payload} at least"), "`LEAST_MTU`"),
    ] {
        let has = |line: &str| line.contains(&value) && line.contains(name);
        assert!(readme.lines().any(has), "no row has {value:?} and {name}");
    }
    let written = "0x1000_0000_0000";
    let base = u64::from_str_radix(&written.replace('_', "")[2..], 16);
    assert_eq!(base, Ok(addr::WINDOW_BASE));
    assert!(readme.contains(written), "the window's first address");
}

/// The checker computes anchors by itself; the rendered book has the last word.
#[test]
fn anchors_are_those_that_the_rendered_book_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("book");
    fs::create_dir_all(source.join("src")).expect("it can be made");
    fs::write(source.join("book.toml"), "[book]\ntitle = \"A book\"\n").expect("written");
    fs::write(source.join("src/SUMMARY.md"), "# Summary\n\n- [A](a.md)\n").expect("written");
    let headings = [
        "Plain words",
        "`I->S`: a, b; (c)",
        "Plain words",
        "mind-ctl region",
        "Tests_2",
    ];
    let text: String = headings
        .iter()
        .map(|heading| format!("## {heading}\n\n"))
        .collect();
    let page = Page {
        place: "a.md".into(),
        text: text.clone(),
    };
    let out = folder.path().join("out");
    book::render(&source, &[page], &out).expect("the book can be rendered");
    let html = fs::read_to_string(out.join("a.html")).expect("the page is there");
    let ids: BTreeSet<_> = html
        .split("<h2 id=\"")
        .skip(1)
        .filter_map(|part| part.split_once('"'))
        .map(|(id, _)| id.to_owned())
        .collect();
    assert_eq!(ids.len(), headings.len(), "{ids:?}");
    for id in ids {
        let document = Document {
            path: "a.md".into(),
            text: Some(format!("{text}[link](#{id})\n")),
        };
        let complaints = links::check(&[document], Path::new(""), &Checkout::default());
        assert_eq!(complaints, [], "{id}");
    }
}
