//! The book: its pages as they are in the checkout, those that are generated, and the whole as HTML.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use mdbook_driver::MDBook;

use crate::{
    links::{self, Checkout, Complaint, Document},
    reference::{self, Page},
    root,
};

/// The book's folder, from the root of the checkout.
pub const FOLDER: &str = "docs";
/// Its pages, from the root of the checkout.
pub const SOURCE: &str = "docs/src";
/// Documents beside the book that are checked with it.
const BESIDE: [&str; 4] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "contrib/wireshark/README.md",
];

/// Generates pages, checks everything, and renders the book into `out`; where it begins.
///
/// # Errors
///
/// When a program does not describe itself, a link is broken, or a file cannot be written.
pub fn build(programs: &Path, out: &Path) -> Result<PathBuf> {
    let mut pages = reference::built_in();
    pages.extend(reference::ask_programs(programs)?);
    let complaints = complaints(&pages)?;
    let said: Vec<_> = complaints.iter().map(ToString::to_string).collect();
    ensure!(
        said.is_empty(),
        "the documents have mistakes:\n{}",
        said.join("\n")
    );
    render(&root().join(FOLDER), &pages, out)
}

/// What is wrong in the documents of the checkout, with `pages` as those that are generated.
///
/// # Errors
///
/// When a document cannot be read.
pub fn complaints(pages: &[Page]) -> Result<Vec<Complaint>> {
    let checkout = Checkout::read(root())?;
    let mut documents: Vec<_> = pages
        .iter()
        .map(|page| (Path::new(SOURCE).join(&page.place), Some(page.text.clone())))
        .collect();
    for place in reference::of_programs() {
        let path = Path::new(SOURCE).join(place);
        if !documents.iter().any(|(known, _)| *known == path) {
            documents.push((path, None));
        }
    }
    let beside = BESIDE.map(PathBuf::from);
    for path in checkout.below(Path::new(SOURCE), "md").chain(beside) {
        documents.push((path.clone(), Some(read(&root().join(&path))?)));
    }
    let documents: Vec<_> = documents
        .into_iter()
        .map(|(path, text)| Document { path, text })
        .collect();
    let mut complaints = links::check(&documents, Path::new(SOURCE), &checkout);
    for path in checkout.below(Path::new(SOURCE), "svg") {
        let svg = read(&root().join(&path))?;
        complaints.extend(links::check_drawing(&path, &svg, &checkout));
    }
    Ok(complaints)
}

/// Renders the book in `folder` with `pages` beside its own into `out`; where it begins.
///
/// # Errors
///
/// When a chapter of the summary is missing, or a file cannot be written.
pub fn render(folder: &Path, pages: &[Page], out: &Path) -> Result<PathBuf> {
    let out = std::path::absolute(out)
        .with_context(|| format!("cannot tell where {} is", out.display()))?;
    // mdBook reads one folder, and generated pages must not lie in the checkout.
    let whole = out.with_extension("source");
    if whole.exists() {
        fs::remove_dir_all(&whole).with_context(|| format!("cannot remove {}", whole.display()))?;
    }
    copy(folder, &whole)?;
    for page in pages {
        let file = whole.join("src").join(&page.place);
        let above = file.parent().context("a page in no folder")?;
        make(above)?;
        fs::write(&file, &page.text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut book = MDBook::load(&whole).context("the book cannot be read")?;
    book.config.build.build_dir = out.clone();
    book.build().context("the book cannot be rendered")?;
    fs::remove_dir_all(&whole).with_context(|| format!("cannot remove {}", whole.display()))?;
    Ok(out.join("index.html"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make(to)?;
    let entries = from
        .read_dir()
        .with_context(|| format!("cannot read the folder {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (own, new) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&own, &new)?;
        } else {
            fs::copy(&own, &new).with_context(|| format!("cannot copy {}", own.display()))?;
        }
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
