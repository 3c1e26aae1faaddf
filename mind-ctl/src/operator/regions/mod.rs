//! `mind-ctl regions`: what the directory says of each region; with `--watch`, how they are split and merged ([`watch`]).

mod watch;

use anyhow::Result;
use clap::ValueEnum;
use mind_api::operator::{RegionOrder, RegionStatus};

use super::{Common, Controller, bytes, lines, parse_address, seconds, table};

/// What `mind-ctl regions` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only those of the vma that this address is in.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    vma: Option<u64>,
    /// Which come first.
    #[arg(long, value_enum, default_value_t = Sort::Address)]
    sort: Sort,
    /// At most so many; by default 100 of the busiest, and all by address.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print, again and again, how many regions of each size there are and how they are split and merged; with `-o json`,
    /// an object a line. By default every second. Each time all regions are listed.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = seconds,
        conflicts_with_all = ["sort", "limit"]
    )]
    watch: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// The lowest addresses.
    Address,
    /// Those with most invalidations.
    Invalidations,
    /// Those with most requests that were granted at once.
    Accesses,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    let (from, to) = match args.vma {
        None => (0, u64::MAX),
        Some(address) => vma_at(&controller, address).await?,
    };
    if let Some(seconds) = args.watch {
        return watch::run(&controller, args.common.output, (from, to), seconds).await;
    }
    let order = match args.sort {
        Sort::Address => RegionOrder::Address,
        Sort::Invalidations => RegionOrder::Invalidations,
        Sort::Accesses => RegionOrder::Accesses,
    };
    let most = args.limit.unwrap_or(match args.sort {
        Sort::Address => usize::MAX,
        Sort::Invalidations | Sort::Accesses => 100,
    });
    let regions = controller.0.regions((from, to), order, most).await?;
    args.common.print(&regions, |regions| as_text(regions))
}

/// First address of the vma that `address` is in, and the address after its last.
pub(super) async fn vma_at(controller: &Controller, address: u64) -> Result<(u64, u64)> {
    let vma = controller.0.vma_from(address).await?;
    if let Some(vma) = vma.filter(|vma| vma.va <= address) {
        return Ok((vma.va, vma.va + vma.length));
    }
    anyhow::bail!("no vma has the address {address:#x}; `mind-ctl vmas` lists them")
}

fn as_text(regions: &[RegionStatus]) -> String {
    let mut rows = table(
        [
            "REGION",
            "SIZE",
            "SLOT",
            "STATE",
            "BLADES",
            "FOR",
            "EPISODE",
            "ACCESSES",
            "INVALIDATIONS",
            "FALSE",
            "FLUSHED",
        ],
        &[1, 2, 6, 7, 8, 9, 10],
    );
    for region in regions {
        rows.add_row([
            format!("{:#x}", region.va),
            bytes(region.length),
            region.slot.to_string(),
            region.state.clone(),
            region.blades.join(" "),
            region.requester.clone().unwrap_or_default(),
            region.episode.to_string(),
            region.accesses.to_string(),
            region.invalidations.to_string(),
            region.dropped.to_string(),
            region.flushed.to_string(),
        ]);
    }
    lines(&rows, "no regions")
}
