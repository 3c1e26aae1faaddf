//! Replays traces of allocations through the controller's allocator.

use anyhow::Result;

/// Which traces, and on how much memory.
#[derive(clap::Args)]
pub struct Args {}

/// Replays them and prints the table.
///
/// # Errors
///
/// A trace cannot be read.
pub fn run(_args: &Args) -> Result<()> {
    Ok(())
}
