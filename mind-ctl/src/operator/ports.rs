//! `mind-ctl ports` and `mind-ctl counters`: what became of the packets that came in, by port.

use anyhow::{Result, bail};
use comfy_table::Table;
use mind_api::operator::PortStatus;
use mind_common::verdict::Verdict;

use super::{Common, lines, table};

/// What `mind-ctl ports` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What `mind-ctl counters` takes.
#[derive(clap::Args)]
pub(crate) struct CounterArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only those of this port.
    #[arg(long, value_name = "IFACE")]
    port: Option<String>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let status = args.common.connect().await?.status().await?;
    let as_text = |ports: &Vec<_>| lines(&summary(ports), "no ports");
    args.common.print(&status.ports, as_text)
}

pub(crate) async fn run_counters(args: &CounterArgs) -> Result<()> {
    let mut ports = args.common.connect().await?.status().await?.ports;
    if let Some(wanted) = &args.port {
        ports.retain(|port| port.interface == *wanted);
        if ports.is_empty() {
            bail!("the switch has no port {wanted}; `mind-ctl ports` lists them");
        }
    }
    args.common.print(&ports, |ports| counters(ports))
}

/// Packets by what the network sees of them.
pub(super) fn summary(ports: &[PortStatus]) -> Table {
    const CLASSES: [&str; 6] = [
        "forwarded",
        "answered",
        "consumed",
        "refused",
        "dropped",
        "passed",
    ];
    let mut rows = table(
        [
            "PORT",
            "INDEX",
            "BLADE",
            "FAN-OUT",
            "FORWARDED",
            "ANSWERED",
            "CONSUMED",
            "REFUSED",
            "DROPPED",
            "PASSED",
        ],
        &[1, 4, 5, 6, 7, 8, 9],
    );
    for port in ports {
        let of_class = CLASSES.map(|wanted| {
            let verdicts = Verdict::ALL
                .into_iter()
                .filter(|verdict| verdict.kind().name() == wanted);
            let packets = verdicts.filter_map(|verdict| port.packets.get(verdict.name()));
            packets.sum::<u64>().to_string()
        });
        let name = port.blade.clone().unwrap_or_default();
        let fan_out = port.fan_out.name().to_owned();
        let start = [
            port.interface.clone(),
            port.ifindex.to_string(),
            name,
            fan_out,
        ];
        rows.add_row(start.into_iter().chain(of_class));
    }
    rows
}

fn counters(ports: &[PortStatus]) -> String {
    let mut rows = table(["PORT", "BLADE", "VERDICT", "KIND", "PACKETS"], &[4]);
    for port in ports {
        for (name, packets) in &port.packets {
            let verdict = Verdict::ALL
                .into_iter()
                .find(|verdict| verdict.name() == name);
            rows.add_row([
                port.interface.clone(),
                port.blade.clone().unwrap_or_default(),
                name.clone(),
                verdict
                    .map_or("", |verdict| verdict.kind().name())
                    .to_owned(),
                packets.to_string(),
            ]);
        }
    }
    lines(&rows, "no packets came in")
}
