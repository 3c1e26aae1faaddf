//! What the library has to say that is no call's error, on the standard error output.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// The environment variable that says how much that is, as for the daemons.
const VARIABLE: &str = "MIND_LOG";

/// From now on it is said: errors only, unless the environment asks for more.
pub(crate) fn start() {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::ERROR.into())
        .with_env_var(VARIABLE)
        .from_env_lossy();
    // A program that has its own keeps it.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init();
}
