//! Programs in C, compiled for tests against the header in this checkout and the library of this build.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// Nothing is let pass.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The compiler, with a folder for what it makes; that goes with this value.
pub struct Cc {
    folder: TempDir,
}

impl Cc {
    /// A compiler that has compiled nothing.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for compiled programs")?;
        Ok(Self { folder })
    }

    /// The crate's folder.
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host/mind-c")
    }

    /// Has a program checked, not compiled, with the header in reach.
    #[allow(dead_code, reason = "not every test checks")]
    pub fn check(
        &self,
        compiler: &str,
        language: &str,
        standard: &str,
        program: &str,
    ) -> Result<()> {
        let mut child = Command::new(compiler)
            .args(STRICT)
            .arg(format!("-std={standard}"))
            .args(["-x", language, "-fsyntax-only", "-I"])
            .arg(Self::root().join("include"))
            .arg("-")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {compiler}"))?;
        let mut stdin = child.stdin.take().context("the compiler has no input")?;
        stdin.write_all(program.as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && complaints.is_empty(),
            "{compiler} -std={standard}:\n{complaints}"
        );
        Ok(())
    }

    /// Compiles `source`, a file of the crate's folder, and links it with the library. The program.
    #[allow(dead_code, reason = "not every test compiles")]
    pub fn compile(&self, source: &str) -> Result<PathBuf> {
        let source = Self::root().join(source);
        let name = source.file_stem().context("a source without a name")?;
        let program = self.folder.path().join(name);
        let library = self.library()?;
        let output = Command::new("cc")
            .args(STRICT)
            .args(["-std=c11", "-O1", "-pthread", "-I"])
            .arg(Self::root().join("include"))
            .arg(&source)
            .arg(&library)
            .arg(format!("-Wl,-rpath,{}", self.folder.path().display()))
            .arg("-o")
            .arg(&program)
            .output()
            .context("cannot run cc")?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && complaints.is_empty(),
            "cc {}:\n{complaints}",
            source.display()
        );
        Ok(program)
    }

    /// The library, by the name that programs look for, in the compiler's folder.
    pub fn library(&self) -> Result<PathBuf> {
        let name = concat!(
            "libmind.so.",
            env!("CARGO_PKG_VERSION_MAJOR"),
            ".",
            env!("CARGO_PKG_VERSION_MINOR")
        );
        let link = self.folder.path().join(name);
        if !link.exists() {
            // Beside the test, which is in `deps`.
            let own = std::env::current_exe().context("cannot tell where this test is")?;
            let built = own.with_file_name("libmind.so");
            ensure!(
                built.exists(),
                "there is no {}: cargo builds it with the tests of mind-c",
                built.display()
            );
            fs::copy(&built, &link).with_context(|| format!("cannot copy {}", built.display()))?;
        }
        Ok(link)
    }
}
