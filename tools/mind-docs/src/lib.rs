//! What the project's documents are made with and checked by.
//!
//! * [`book`] puts the book together, with the pages that are generated, and renders it,
//! * [`reference`] generates pages from what the code declares: commands, configuration, metrics, verdicts,
//! * [`links`] checks that every link leads somewhere and every file that is named exists,
//! * [`layers`] draws the crates and what they use,
//! * [`figures`] renders measured figures for the README,
//! * [`machine`] says on what they were measured.

pub mod book;
pub mod figures;
pub mod layers;
pub mod links;
pub mod machine;
pub mod reference;

use std::path::Path;

/// The checkout's root folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies in tools/, in the workspace")
}
