//! `mind-ctl region`: what an operator can do to a region.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use mind_api::{Client, Reply, Request, message::RegionChange};

const LIMIT: Duration = Duration::from_secs(60);

/// What `mind-ctl region` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is to become of the region.
    change: Change,
    /// An address in it, such as 0x100000004000.
    #[arg(value_parser = parse_address)]
    address: u64,
    /// The controller, as address and port.
    #[arg(long, env = "MIND_CONTROLLER")]
    controller: std::net::SocketAddrV4,
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

fn parse_address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("`{text}` is no address; expected such as 0x100000004000"))
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = Client::connect(args.controller, "mind-ctl region", LIMIT)
        .await
        .with_context(|| format!("no controller at {}", args.controller))?;
    let request = Request::ChangeRegion {
        va: args.address,
        change: match args.change {
            Change::Reset => RegionChange::Reset,
            Change::Split => RegionChange::Split,
            Change::Merge => RegionChange::Merge,
        },
    };
    let Reply::Region {
        va,
        length,
        changed,
    } = client.call(request).await?
    else {
        bail!("the controller answers with something else than a region");
    };
    let region = format!("the region of {}K at {va:#x}", length >> 10);
    if !changed {
        bail!("{region} is as it was: it stays busy, or its writes are lost");
    }
    println!("{region} is there");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_or_decimal() {
        assert_eq!(parse_address("0x100000004000"), Ok(0x1000_0000_4000));
        assert_eq!(parse_address("4096"), Ok(4096));
        for wrong in ["", "0x", "page", "-1", "0x1g"] {
            let error = parse_address(wrong).unwrap_err();
            assert!(error.contains("is no address"), "{error}");
        }
    }
}
