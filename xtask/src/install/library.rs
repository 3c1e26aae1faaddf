//! The library for programs in C: the shared object with its names, the header, the file for pkg-config; and what
//! `mind run` loads into programs that do not know MIND.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::tree::Tree;
use crate::workspace;

/// The workspace's version, which is that of the library.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The name that programs look for when they start; `host/mind-c/build.rs` puts it into the library.
pub(crate) const SONAME: &str = concat!(
    "libmind.so.",
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR")
);

/// The name that the linker looks for.
const NAME: &str = "libmind.so";

/// What `mind run` loads; `mind` looks for it in a folder of its own.
const PRELOADED: &str = "libmind_preload.so";

/// Installs both from the folder `built`.
pub(super) fn install(tree: &Tree, built: &Path, keeps_symbols: bool) -> Result<()> {
    let source = workspace::root().join("host/mind-c");
    let folder = tree.libdir();
    let file = format!("{NAME}.{VERSION}");
    let places = [
        (NAME, folder.join(&file)),
        (PRELOADED, folder.join("mind").join(PRELOADED)),
    ];
    for (name, place) in places {
        let library = super::need(built, name)?;
        match keeps_symbols {
            true => tree.copy(&library, place, 0o644)?,
            false => tree.strip(&library, place, 0o644)?,
        }
    }
    tree.link(&file, folder.join(SONAME))?;
    tree.link(SONAME, folder.join(NAME))?;

    let header = source.join("include/mind.h");
    tree.copy(&header, "include/mind.h", 0o644)?;

    let template = source.join("mind.pc.in");
    let template = fs::read_to_string(&template)
        .with_context(|| format!("cannot read {}", template.display()))?;
    let text = described(&template, tree);
    tree.write(text.as_bytes(), folder.join("pkgconfig/mind.pc"), 0o644)
}

/// What pkg-config is told.
fn described(template: &str, tree: &Tree) -> String {
    template
        .replace("@PREFIX@", &tree.prefix().display().to_string())
        .replace("@LIBDIR@", &tree.libdir().display().to_string())
        .replace("@VERSION@", VERSION)
}
