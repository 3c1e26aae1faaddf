//! What the command lines of the daemons and tools have in common: where the log goes, how an error ends the program,
//! what Ctrl-C does, how sizes are written, how a daemon's configuration file is read.

pub mod config;
pub mod interrupt;
pub mod limits;
pub mod manual;
pub mod reference;

use std::{io::IsTerminal as _, process::ExitCode};

pub use interrupt::{Interrupt, Interrupted};
pub use tracing_subscriber::filter::LevelFilter;

use tracing_subscriber::EnvFilter;

/// The environment variable that says what is logged, as `tracing-subscriber`'s filters are written.
pub const LOG_VARIABLE: &str = "MIND_LOG";

/// The exit code after Ctrl-C: 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Prints a result and a line end. A closed pipe (`| head`) ends the program quietly, with success.
///
/// # Errors
///
/// Any other error of writing to standard output.
pub fn print(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}

/// Sends a daemon's log to stderr, coloured on a terminal; [`LOG_VARIABLE`] sets what is logged, by default `info` and
/// above. To be called once.
pub fn log_to_stderr() {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(tracing::Level::INFO.into())
                .with_env_var(LOG_VARIABLE)
                .from_env_lossy(),
        )
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

/// Sends a tool's log to stderr, coloured on a terminal, down to `level`, without times. To be called once.
pub fn tell_on_stderr(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .init();
}

/// The exit code of the program called `name`; an error is printed with all its causes.
pub fn exit(name: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A number of bytes that is whole pages, at least one. K, M and G are powers of 1024.
///
/// # Errors
///
/// The message for `clap`.
pub fn whole_pages(text: &str) -> Result<u64, String> {
    let config = parse_size::Config::new().with_binary();
    let bytes = config.parse_size(text).unwrap_or(0);
    // Fractions are rounded; whole pages have none.
    if bytes == 0 || !bytes.is_multiple_of(PAGE) || text.contains('.') {
        return Err(format!(
            "`{text}` is no size; expected whole pages of 4K, such as 256M"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() {
        for (text, bytes) in [
            ("256M", 256 << 20),
            ("256MiB", 256 << 20),
            ("64k", 64 << 10),
            ("1G", 1 << 30),
            ("8192", 8192),
        ] {
            assert_eq!(whole_pages(text), Ok(bytes), "{text}");
        }
        for wrong in [
            "",
            "M",
            "0",
            "1",
            "1.5G",
            "-4K",
            "99999999999G",
            "four pages",
        ] {
            let error = whole_pages(wrong).unwrap_err();
            assert!(error.contains("expected whole pages"), "{error}");
        }
    }
}
