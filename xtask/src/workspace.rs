//! Where things are in this checkout. All of it lies under the workspace's `target` folder, so `cargo clean` removes
//! what xtask made, too.

use std::path::{Path, PathBuf};

/// The checkout's root folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in a folder of the workspace")
}

/// The folder for what is built. Always this one, whatever `CARGO_TARGET_DIR` says, so that scripts find the object.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// The folder that `cargo install --root` fills with the tools of this checkout.
pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}

/// The file for the output of a tool called `name` that is shown only when the tool fails.
pub(crate) fn log(name: &str) -> PathBuf {
    target().join("log").join(format!("{name}.log"))
}
