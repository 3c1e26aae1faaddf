//! What `cargo xtask install` puts under a prefix is complete, and a C program is compiled with it as its user would.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs `xtask install` with what is built beside it.
fn install(arguments: &[&str]) -> Result<Output> {
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let built = xtask.parent().context("xtask lies in no folder")?;
    let mut command = Command::new(xtask);
    command.arg("install").args(arguments);
    command.arg("--built").arg(built);
    command.output().context("cannot run xtask")
}

/// The same, and it must succeed.
fn installed(arguments: &[&str]) -> Result<()> {
    let output = install(arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}

/// What a command prints on stdout; it must succeed.
fn stdout(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {complaints}");
    Ok(String::from_utf8(output.stdout)?)
}

/// A prefix with everything in it.
fn prefix() -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    // As if on a fresh system: neither is there.
    let prefix = folder.path().join("opt/mind");
    let text = prefix.to_str().context("no text")?;
    installed(&["--prefix", text])?;
    Ok((folder, prefix))
}

/// All files under `folder`, as paths in it, each with its mode.
fn files(folder: &Path) -> Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir()? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            if metadata.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder)?.display().to_string();
                found.push((name, metadata.permissions().mode() & 0o777));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[test]
fn everything_is_where_a_distribution_would_have_it() -> Result<()> {
    let (_folder, prefix) = prefix()?;
    let found = files(&prefix)?;
    let library = format!("lib/libmind.so.{VERSION}");
    let documents = ["README.md", "CHANGELOG.md", "guarantees.md", "counter.c"];
    let mut expected = vec![
        (library, 0o644),
        ("lib/mind/libmind_preload.so".into(), 0o644),
        ("include/mind.h".into(), 0o644),
        ("lib/pkgconfig/mind.pc".into(), 0o644),
    ];
    expected.extend(documents.map(|name| (format!("share/doc/mind/{name}"), 0o644)));
    for daemon in ["mind-blade-compute", "mind-blade-memory", "mind-controller"] {
        expected.extend([
            (format!("lib/systemd/system/{daemon}.service"), 0o644),
            (format!("share/doc/mind/examples/{daemon}.toml"), 0o644),
            (format!("share/man/man1/{daemon}.1"), 0o644),
        ]);
    }
    for program in [
        "mind",
        "mind-blade",
        "mind-controller",
        "mind-ctl",
        "netns-setup",
    ] {
        expected.extend([
            (format!("bin/{program}"), 0o755),
            (format!("share/man/man1/{program}.1"), 0o644),
            (
                format!("share/bash-completion/completions/{program}"),
                0o644,
            ),
            (
                format!("share/fish/vendor_completions.d/{program}.fish"),
                0o644,
            ),
            (format!("share/zsh/site-functions/_{program}"), 0o644),
        ]);
    }
    for file in &expected {
        ensure!(found.contains(file), "{file:?} is not among {found:?}");
    }
    let verbs = ["share/man/man1/mind-ctl-status.1"];
    for verb in verbs {
        ensure!(found.iter().any(|(name, _)| name == verb), "no {verb}");
    }
    let hidden = found.iter().find(|(name, _)| name.contains("/."));
    ensure!(hidden.is_none(), "{hidden:?} is left");

    // The names of the library, each of which the next one leads to.
    let lib = prefix.join("lib");
    let short = fs::read_link(lib.join("libmind.so"))?;
    let full = fs::read_link(lib.join(&short))?;
    assert_eq!(full, PathBuf::from(format!("libmind.so.{VERSION}")));
    let dynamic = stdout(Command::new("readelf").arg("-d").arg(lib.join(full)))?;
    let soname = format!("Library soname: [{}]", short.display());
    ensure!(dynamic.contains(&soname), "{dynamic}");
    ensure!(dynamic.contains("NODELETE"), "{dynamic}");

    let version = stdout(Command::new(prefix.join("bin/mind-ctl")).arg("--version"))?;
    assert_eq!(version.trim(), format!("mind-ctl {VERSION}"));
    Ok(())
}

#[test]
fn a_stripped_daemon_has_the_ebpf_object_as_it_was_built() -> Result<()> {
    let Some(object) = std::env::var_os("MIND_EBPF_OBJECT") else {
        eprintln!("skipped: MIND_EBPF_OBJECT is not set; `cargo xtask test` sets it");
        return Ok(());
    };
    let object = fs::read(object)?;
    let (_folder, prefix) = prefix()?;
    for program in ["mind-blade", "mind-controller"] {
        let installed = fs::read(prefix.join("bin").join(program))?;
        let mut places = installed.windows(object.len());
        ensure!(
            places.any(|place| place == object),
            "the eBPF object in {program} is another one"
        );
        let built = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name(program);
        let built = fs::metadata(built)?.len();
        ensure!(
            installed.len() as u64 * 2 < built,
            "{program} is not stripped"
        );
    }
    Ok(())
}

#[test]
fn a_program_is_compiled_with_what_pkg_config_says() -> Result<()> {
    let (folder, prefix) = prefix()?;
    let mut tool = Command::new("pkg-config");
    tool.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let version = stdout(tool.args(["--modversion", "mind"]))?;
    assert_eq!(version.trim(), VERSION);
    let mut tool = Command::new("pkg-config");
    tool.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = stdout(tool.args(["--cflags", "--libs", "mind"]))?;

    let program = folder.path().join("counter");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg("-o")
        .arg(&program)
        .arg(prefix.join("share/doc/mind/counter.c"))
        .args(flags.split_whitespace());
    stdout(&mut cc)?;

    // It starts, so it finds the library by the name that is in it.
    let output = Command::new(&program)
        .args(["1", "1"])
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env_remove("MIND_BLADE_SOCKET")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    ensure!(said.contains("MIND_BLADE_SOCKET is not set"), "{said}");
    Ok(())
}

#[test]
fn a_package_says_where_it_will_be_used() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().to_str().context("no text")?;
    let arguments = [
        "--prefix",
        "/usr",
        "--libdir",
        "lib/x86_64-linux-gnu",
        "--destdir",
        root,
    ];
    installed(&arguments)?;
    let lib = folder.path().join("usr/lib/x86_64-linux-gnu");
    ensure!(lib.join("libmind.so").is_file(), "the library is elsewhere");
    let text = fs::read_to_string(lib.join("pkgconfig/mind.pc"))?;
    ensure!(text.contains("prefix=/usr\n"), "{text}");
    ensure!(
        text.contains("libdir=${prefix}/lib/x86_64-linux-gnu\n"),
        "{text}"
    );
    ensure!(!text.contains('@'), "{text}");
    // Once more, over what is there.
    let before = files(folder.path())?;
    installed(&arguments)?;
    assert_eq!(files(folder.path())?, before);
    Ok(())
}

#[test]
fn what_is_not_built_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let empty = folder.path().join("empty");
    fs::create_dir(&empty)?;
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["install", "--prefix"])
        .arg(folder.path().join("prefix"))
        .arg("--built")
        .arg(&empty)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    ensure!(said.contains("mind is not in"), "{said}");
    ensure!(said.contains("cargo xtask build"), "{said}");
    Ok(())
}
