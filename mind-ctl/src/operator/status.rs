//! `mind-ctl status`: what there is, at a glance; and waiting until it is.

use std::time::Duration;

use anyhow::Result;
use mind_api::{
    Request,
    message::BladeKind,
    operator::{SplittingStatus, Status},
};
use mind_connection::ClientError;

use super::{Common, Controller, blades, bytes, error::Failed, lines, ports, table};

/// What `mind-ctl status` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// First wait until a blade is ready behind every port of the switch.
    #[arg(long)]
    wait: bool,
    /// How long to wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "wait")]
    timeout: u32,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    if args.wait {
        wait(&controller, Duration::from_secs(args.timeout.into())).await?;
    }
    let status = controller.status().await?;
    args.common.print(&status, as_text)
}

async fn wait(controller: &Controller, limit: Duration) -> Result<()> {
    let waited = controller.ask_within(Request::AwaitBlades, limit).await;
    match waited {
        Err(error) if matches!(error.downcast_ref(), Some(ClientError::Late(_))) => {
            let status = controller.status().await?;
            let missing = missing(&status);
            Err(Failed::NotReady(format!(
                "after {} s no blade is ready behind {}; see the log of `mind-blade` there",
                limit.as_secs(),
                missing.join(", ")
            ))
            .into())
        }
        other => other.map(|_| ()),
    }
}

/// Ports without a blade that is ready.
fn missing(status: &Status) -> Vec<String> {
    let is_ready = |port: &str| {
        let blades = status.blades.iter();
        blades
            .filter(|blade| blade.connected)
            .any(|blade| blade.port.as_deref() == Some(port))
    };
    let ports = status.ports.iter().map(|port| port.interface.clone());
    ports.filter(|port| !is_ready(port)).collect()
}

fn as_text(status: &Status) -> String {
    let ready = |kind| {
        let of_kind = || status.blades.iter().filter(move |blade| blade.kind == kind);
        let ready = of_kind().filter(|blade| blade.connected).count();
        format!("{ready} of {}", of_kind().count())
    };
    let memory = status.blades.iter().filter(|blade| blade.connected);
    let (used, pages) = memory.fold((0, 0), |(used, pages), blade| match blade.kind {
        BladeKind::Memory => (used + blade.allocated, pages + blade.pages),
        BladeKind::Compute => (used, pages),
    });
    let mut domains = table(
        ["DOMAIN", "NAME", "PROCESSES", "VMAS", "SIZE", "ON LOSS"],
        &[0, 2, 3, 4],
    );
    for domain in &status.domains {
        domains.add_row([
            domain.domain.to_string(),
            domain.name.clone(),
            domain.processes.to_string(),
            domain.vmas.to_string(),
            bytes(domain.bytes),
            format!("{:?}", domain.on_loss),
        ]);
    }
    let mut losses = table(
        [
            "DOMAIN",
            "VMA",
            "AREA",
            "SIZE",
            "REGIONS LOST",
            "LAST",
            "WITH",
        ],
        &[3, 4],
    );
    for domain in &status.domains {
        for loss in &domain.losses {
            losses.add_row([
                domain.name.clone(),
                format!("{:#x}", loss.va),
                loss.area.clone().unwrap_or_default(),
                bytes(loss.length),
                loss.regions.to_string(),
                format!("{:#x}", loss.last),
                loss.blade.clone(),
            ]);
        }
    }
    let mut parts = vec![
        format!(
            "ready: {} compute blades, {} memory blades\nmemory: {} of {} in use\ndirectory: {} of {} slots in use\n{}",
            ready(BladeKind::Compute),
            ready(BladeKind::Memory),
            bytes(used << 12),
            bytes(pages << 12),
            status.slots_used,
            status.slots,
            sizes(status.splitting.as_ref()),
        ),
        lines(&blades::as_table(&status.blades), "no blades"),
        lines(&ports::summary(&status.ports), "no ports"),
        lines(&domains, "no domains"),
    ];
    if !status.awaited.is_empty() {
        let awaited = status.awaited.join(", ");
        parts.insert(
            0,
            format!("the controller was restarted, and waits for {awaited}"),
        );
    }
    if !losses.is_empty() {
        parts.push(format!("writes lost with blades\n{}", lines(&losses, "")));
    }
    parts.join("\n\n")
}

/// How regions are split and merged.
fn sizes(splitting: Option<&SplittingStatus>) -> String {
    let Some(splitting) = splitting else {
        return "regions: of the size that operators give them".to_owned();
    };
    format!(
        "regions: {} split now; {} splits, {} merges; {} pages falsely invalidated; t {} in {} ms, c {}.{:03}",
        splitting.split,
        splitting.splits,
        splitting.merges,
        splitting.false_invalidations,
        splitting.threshold,
        splitting.epoch,
        splitting.c_thousandths / 1000,
        splitting.c_thousandths % 1000,
    )
}
