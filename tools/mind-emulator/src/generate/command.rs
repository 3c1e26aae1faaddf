//! `mind-emulator generate`: writes a generator's accesses to a trace file.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::{Generator, Kind, Options};
use crate::trace::{
    Source as _, Writer,
    convert::{cannot_write, create, summary},
};

/// What `mind-emulator generate` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to generate.
    #[arg(value_enum, value_name = "KIND")]
    kind: Kind,
    #[command(flatten)]
    options: Options,
    /// The trace file to write.
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

/// Runs `mind-emulator generate`.
///
/// # Errors
///
/// When an option makes no sense, or the file cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let spec = args.options.spec(args.kind)?;
    let mut generator = Generator::new(&spec);
    let mut writer = Writer::new(create(&args.out)?, spec.blades, spec.blades_of_threads())?;
    let mut has_more = true;
    while has_more {
        has_more = false;
        for thread in 0..spec.threads() {
            if let Some(access) = generator.next(thread)? {
                has_more = true;
                writer
                    .push(thread, access)
                    .with_context(|| cannot_write(&args.out))?;
            }
        }
    }
    let (shape, _) = writer.finish().with_context(|| cannot_write(&args.out))?;
    mind_cli::print(&summary(&args.out, &shape))?;
    Ok(())
}
