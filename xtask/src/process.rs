//! Running other programs: what they inherit, what becomes of their output, and errors that name the command line.
//! No shell is involved.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::workspace;

/// A program that ran and did not succeed.
#[derive(Debug)]
pub(crate) struct Failed {
    command_line: String,
    status: ExitStatus,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` failed: {}", self.command_line, self.status)
    }
}

impl std::error::Error for Failed {}

/// What xtask should exit with after `error`: the code of the program that failed (128 plus the number of the signal
/// that killed it), or 1.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    let code = error.downcast_ref::<Failed>().and_then(|failed| {
        let code = failed.status.code();
        code.or_else(|| failed.status.signal().map(|signal| 128 + signal))
    });
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Tells whoever watches what is being done.
pub(crate) fn step(text: impl fmt::Display) {
    eprintln!("xtask: {text}");
}

/// Runs `command` with xtask's own input and output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", command_line(command)))?;
    check(command, status)
}

/// Becomes `command`, with xtask's own process number, input and output. Returns only if that fails, and why.
pub(crate) fn exec(command: &mut Command) -> anyhow::Error {
    let error = command.exec();
    anyhow::Error::new(error).context(format!("cannot start `{}`", command_line(command)))
}

/// Runs `command` with xtask's own stderr and returns what it writes to stdout.
pub(crate) fn run_for_stdout(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", command_line(command)))?;
    check(command, output.status)?;
    String::from_utf8(output.stdout).with_context(|| {
        format!(
            "`{}` wrote something that is not UTF-8",
            command_line(command)
        )
    })
}

/// Runs `command` without input and returns what it writes to stdout; stderr becomes part of the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", command_line(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}: {}",
            command_line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| {
        format!(
            "`{}` wrote something that is not UTF-8",
            command_line(command)
        )
    })
}

/// Runs `command` without input and with its output in the file `log`. If it fails, the end of the log is shown.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    const SHOWN_LINES: usize = 40;

    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create the folder {}", parent.display()))?;
    }
    let file =
        File::create(log).with_context(|| format!("cannot write the log {}", log.display()))?;
    let stderr = file
        .try_clone()
        .context("cannot duplicate the log's handle")?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(stderr)
        .status()
        .with_context(|| format!("cannot start `{}`", command_line(command)))?;
    if !status.success() {
        let text = fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let skipped = text.lines().count().saturating_sub(SHOWN_LINES);
        for line in text.lines().skip(skipped) {
            eprintln!("{line}");
        }
        step(format_args!("the whole output is in {}", log.display()));
    }
    check(command, status)
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    Err(Failed {
        command_line: command_line(command),
        status,
    }
    .into())
}

/// The command as one would type it, without its environment.
pub(crate) fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// `word` as a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The cargo of whoever called `cargo xtask`, for the host crates, in the workspace's root.
pub(crate) fn host_cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(workspace::root());
    forget_cargo_run(&mut command);
    command
}

/// Takes out of `command`'s environment what `cargo run` put into ours, so that build scripts see the same variables
/// as without xtask and do not run again for nothing. What the user chose (toolchain, flags, registry) stays.
fn forget_cargo_run(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text == "CARGO" || text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_")
        {
            command.env_remove(&name);
        }
    }
    if let Some(paths) = std::env::var_os("LD_LIBRARY_PATH") {
        match users_library_path(&paths) {
            Some(paths) => command.env("LD_LIBRARY_PATH", paths),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
}

/// Takes out of `command`'s environment everything that picks or configures a Rust toolchain, for one that is given
/// by path. What configures cargo's network and registries stays.
pub(crate) fn forget_host_toolchain(command: &mut Command) {
    const EXACT: &[&str] = &[
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_BOOTSTRAP",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUST_RECURSION_COUNT",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
    ];
    const PREFIXES: &[&str] = &[
        "RUSTUP_",
        "CARGO_BUILD_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_BPF",
        "CARGO_UNSTABLE_",
    ];

    forget_cargo_run(command);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let picks = EXACT.contains(&text.as_ref())
            || PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        if picks {
            command.env_remove(&name);
        }
    }
}

/// `LD_LIBRARY_PATH` without what `cargo run` puts in front: folders of the build and of the Rust toolchain.
fn users_library_path(paths: &OsStr) -> Option<OsString> {
    let target = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned))
        .unwrap_or_else(workspace::target);
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let kept: Vec<PathBuf> = std::env::split_paths(paths)
        .filter(|path| !path.as_os_str().is_empty())
        .filter(|path| !path.starts_with(&target))
        .filter(|path| {
            !rustup
                .as_ref()
                .is_some_and(|rustup| path.starts_with(rustup))
        })
        .collect();
    if kept.is_empty() {
        return None;
    }
    std::env::join_paths(kept).ok()
}

/// `PATH` with `folders` in front.
pub(crate) fn path_with_first(folders: &[&Path]) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().map(|folder| folder.to_path_buf());
    std::env::join_paths(all.chain(std::env::split_paths(&path)))
        .context("a folder of the toolchain has a colon in its name")
}

/// Whether a program called `name` is on the `PATH` or where the superuser's programs are.
pub(crate) fn program_exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let superuser = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(superuser)
        .any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_named_and_its_exit_code_passes_through() {
        let error = run(Command::new("sh").args(["-c", "exit 7"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c 'exit 7'` failed: exit status: 7");
        assert_eq!(exit_code(&error), ExitCode::from(7));
        let error = error.context("while testing");
        assert_eq!(
            exit_code(&error),
            ExitCode::from(7),
            "context must not hide the code"
        );
    }

    #[test]
    fn a_killed_program_gives_128_plus_the_signal() {
        let error = run(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap_err();
        assert_eq!(exit_code(&error), ExitCode::from(137));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = output(&mut Command::new("no-such-program-anywhere")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program-anywhere`");
        assert_eq!(exit_code(&error), ExitCode::from(1));
    }

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        assert_eq!(quoted("--root=/a/b"), "--root=/a/b");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
