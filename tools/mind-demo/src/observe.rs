//! The system's counters: each compute blade's report, and the switch's packets by verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mind_api::operator::Status;
use mind_api::program::{BladeReport, FromBlade, ToBlade};
use mind_connection::Client;
use mind_connection::packets::Packets;
use netns_setup::plan::SWITCH;
use netns_setup::{Plan, Testbed, paths};

/// How long the controller may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The report of the compute blade called `blade`.
///
/// # Errors
///
/// When its agent does not answer.
pub fn blade(blade: &str) -> Result<BladeReport> {
    let path = paths::blade_socket(blade);
    ask(&path).with_context(|| format!("cannot get the report of {blade} at {}", path.display()))
}

fn ask(path: &Path) -> Result<BladeReport> {
    let packets = Packets::connect(path)?;
    packets.send(&ToBlade::Report, None)?;
    match packets.receive::<FromBlade>()? {
        Some((FromBlade::Report(report), _)) => Ok(*report),
        Some((other, _)) => bail!("unexpected answer {other:?}"),
        None => bail!("the agent is gone"),
    }
}

/// The controller's status.
///
/// # Errors
///
/// When the controller does not answer.
pub fn status(testbed: &Testbed) -> Result<Status> {
    testbed
        .within(SWITCH, || {
            // On the thread in the switch's namespace, where its sockets must be made.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("cannot start the threads for control messages")?;
            runtime.block_on(async {
                let (client, _orders) =
                    Client::connect(Plan::controller(), "mind-demo", LIMIT).await?;
                anyhow::Ok(client.status().await?)
            })
        })
        .context("cannot get the controller's status")
}

/// The packets of all ports by verdict, without verdicts that no packet got.
pub fn packets(status: &Status) -> BTreeMap<String, u64> {
    let mut packets = BTreeMap::new();
    for port in &status.ports {
        for (verdict, count) in port.packets.iter().filter(|(_, count)| **count > 0) {
            *packets.entry(verdict.clone()).or_default() += count;
        }
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::operator::PortStatus;

    #[test]
    fn packets_of_all_ports_are_added_and_zeros_left_out() {
        let port = |interface: &str, fetched, dropped| PortStatus {
            interface: interface.to_owned(),
            packets: [("fetch".to_owned(), fetched), ("torn".to_owned(), dropped)].into(),
            ..PortStatus::default()
        };
        let status = Status {
            ports: vec![port("c0", 3, 0), port("c1", 4, 0)],
            ..Status::default()
        };
        assert_eq!(packets(&status), [("fetch".to_owned(), 7)].into());
    }

    #[test]
    fn a_blade_without_an_agent_is_named() {
        let error = ask(Path::new("/nowhere/c9.sock"));
        assert!(error.is_err());
        let error = blade("c9-of-no-testbed").unwrap_err().to_string();
        assert!(
            error.starts_with("cannot get the report of c9-of-no-testbed at"),
            "{error}"
        );
    }
}
