//! `mind-ctl trace`: what the switch does with each packet, live.
//!
//! * [`names`] is what blades and ports are called,
//! * [`line`] is a packet as it is printed.

mod line;
mod names;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Reply, Request,
    operator::{AddressRange, TraceFilter, Traced},
};

use self::{line::Line, names::Names};
use super::{Common, Controller, Format, parse_address, regions, unexpected};

/// How long nothing may happen: as long as it takes.
const EVER: Duration = Duration::MAX;

/// What `mind-ctl trace` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only packets of the connection of this compute blade, what memory answers it included.
    #[arg(long, value_name = "BLADE")]
    blade: Option<String>,
    /// Only packets that name an address in the vma that this address is in.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, conflicts_with = "domain")]
    vma: Option<u64>,
    /// Only packets that name an address in a vma that the protection domain of that name has now.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// End after so many packets; by default at Ctrl-C.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    let filter = TraceFilter {
        blade: args.blade.clone(),
        ranges: ranges(&controller, args).await?,
    };
    let mut names = Names::default();
    names.learn(&controller).await?;
    match controller.ask(Request::Trace(filter)).await? {
        Reply::Done => {}
        other => return unexpected(&other),
    }
    if args.common.output == Format::Text {
        // On stderr: a script that reads packets does not want it, one that waits for this does.
        eprintln!("tracing; Ctrl-C ends it");
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Traced { packets, lost } =
            match controller.ask_within(Request::NextTraced, EVER).await? {
                Reply::Traced(traced) => traced,
                other => return unexpected(&other),
            };
        if lost > 0 {
            print(args, &line::Lost { lost }, line::Lost::to_string)?;
        }
        for packet in &packets {
            if left == 0 {
                break;
            }
            if !names.know(packet) {
                names.learn(&controller).await?;
            }
            print(args, &Line::new(packet, &names), Line::to_string)?;
            left -= 1;
        }
    }
    Ok(())
}

/// Prints a line: for people, or one JSON value.
fn print<T: serde::Serialize>(
    args: &Args,
    value: &T,
    as_text: impl FnOnce(&T) -> String,
) -> Result<()> {
    let text = match args.common.output {
        Format::Json => serde_json::to_string(value)?,
        Format::Text => as_text(value),
    };
    mind_cli::print(&text).context("cannot print")
}

/// The addresses that packets are to name; none where they need not.
async fn ranges(controller: &Controller, args: &Args) -> Result<Vec<AddressRange>> {
    if let Some(address) = args.vma {
        let (va, end) = regions::vma_at(controller, address).await?;
        let length = end - va;
        return Ok(vec![AddressRange { va, length }]);
    }
    let Some(domain) = &args.domain else {
        return Ok(Vec::new());
    };
    let mut vmas = controller.0.vmas().await?;
    vmas.retain(|vma| vma.domain_name == *domain);
    if vmas.is_empty() {
        // No ranges would mean all addresses.
        bail!("nothing is mapped in a domain {domain}; `mind-ctl vmas` lists what is");
    }
    let range = |vma: &mind_api::operator::VmaStatus| AddressRange {
        va: vma.va,
        length: vma.length,
    };
    Ok(vmas.iter().map(range).collect())
}
