//! `mind-ctl region`: what an operator can do to a region.

use anyhow::Result;
use clap::ValueEnum;
use mind_api::{Reply, Request, message::RegionChange};
use serde_json::json;

use super::{Common, error::Failed, parse_address, unexpected};

/// What `mind-ctl region` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is to become of the region.
    change: Change,
    /// An address in it, such as 0x100000004000.
    #[arg(value_parser = parse_address)]
    address: u64,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum Change {
    /// Every blade writes back and drops what it has of it; the next access starts clean.
    Reset,
    /// Its two halves become regions of their own.
    Split,
    /// It becomes one region with its other half, of the region twice its size.
    Merge,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    let request = Request::ChangeRegion {
        va: args.address,
        change: match args.change {
            Change::Reset => RegionChange::Reset,
            Change::Split => RegionChange::Split,
            Change::Merge => RegionChange::Merge,
        },
    };
    let (va, length, changed) = match controller.ask(request).await? {
        Reply::Region {
            va,
            length,
            changed,
        } => (va, length, changed),
        other => return unexpected(&other),
    };
    let region = format!("the region of {}K at {va:#x}", length >> 10);
    if !changed {
        let message = format!("{region} is as it was: it stays busy, or its writes are lost");
        return Err(Failed::Unchanged(message).into());
    }
    let value = json!({ "va": va, "length": length });
    args.common.print(&value, |_| format!("{region} is there"))
}
