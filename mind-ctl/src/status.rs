//! `mind-ctl status`: what there is, as tables or JSON.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use mind_api::{
    Client, Reply, Request,
    message::{BladeKind, Status},
};

const LIMIT: Duration = Duration::from_secs(10);

/// What `mind-ctl status` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The controller, as address and port.
    #[arg(long, env = "MIND_CONTROLLER")]
    controller: std::net::SocketAddrV4,
    /// The form of the answer.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = Client::connect(args.controller, "mind-ctl status", LIMIT)
        .await
        .with_context(|| format!("no controller at {}", args.controller))?;
    let Reply::Status(status) = client.call(Request::Status).await? else {
        bail!("the controller answers with something else than its status");
    };
    match args.output {
        Format::Json => println!("{}", serde_json::to_string_pretty(&status)?),
        Format::Text => println!("{}", as_text(&status)),
    }
    Ok(())
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table
}

fn as_text(status: &Status) -> String {
    let mut blades = table([
        "BLADE", "KIND", "ADDRESS", "LIFE", "STATE", "PAGES", "IN USE",
    ]);
    for blade in &status.blades {
        blades.add_row([
            blade.name.clone(),
            match blade.kind {
                BladeKind::Compute => "compute",
                BladeKind::Memory => "memory",
            }
            .to_owned(),
            blade.address.to_string(),
            blade.incarnation.to_string(),
            if blade.connected { "ready" } else { "gone" }.to_owned(),
            blade.pages.to_string(),
            match blade.kind {
                BladeKind::Compute => String::new(),
                BladeKind::Memory => blade.allocated.to_string(),
            },
        ]);
    }
    let mut domains = table(["DOMAIN", "NAME", "PROCESSES", "VMAS", "BYTES"]);
    for domain in &status.domains {
        domains.add_row([
            domain.domain.to_string(),
            domain.name.clone(),
            domain.processes.to_string(),
            domain.vmas.to_string(),
            domain.bytes.to_string(),
        ]);
    }
    let mut losses = table([
        "DOMAIN",
        "VMA",
        "AREA",
        "BYTES",
        "REGIONS LOST",
        "LAST",
        "WITH",
    ]);
    for domain in &status.domains {
        for loss in &domain.losses {
            losses.add_row([
                domain.name.clone(),
                format!("{:#x}", loss.va),
                loss.area.clone().unwrap_or_default(),
                loss.length.to_string(),
                loss.regions.to_string(),
                format!("{:#x}", loss.last),
                loss.blade.clone(),
            ]);
        }
    }
    let mut ports = table(["PORT", "BLADE", "VERDICT", "PACKETS"]);
    for port in &status.ports {
        for (verdict, packets) in &port.packets {
            ports.add_row([
                port.interface.clone(),
                port.blade.clone().unwrap_or_default(),
                verdict.clone(),
                packets.to_string(),
            ]);
        }
    }
    for (table, columns) in [
        (&mut blades, &[3, 5, 6][..]),
        (&mut domains, &[2, 3, 4]),
        (&mut losses, &[3, 4]),
        (&mut ports, &[3]),
    ] {
        for column in columns {
            if let Some(column) = table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let losses = match losses.is_empty() {
        true => String::new(),
        false => format!("writes lost with blades\n{losses}\n\n"),
    };
    format!(
        "{blades}\n\n{domains}\n\n{losses}{ports}\n\ndirectory: {} of {} slots in use",
        status.slots_used, status.slots
    )
}
