//! The agent of a compute blade: a page cache for the programs of this host.
//!
//! * [`engine`] is the thread that handles faults and datagrams and owns the cache,
//! * [`programs`] are the attached programs, [`datagrams`] its socket, [`idle_policy`] keeps the
//!   processors out of deep idle states, [`statistics`] are its measurements, [`metrics`] shows
//!   them to Prometheus,
//! * [`server`] attaches programs and passes their calls on to the controller.

mod accept;
mod alarm;
mod datagrams;
mod engine;
mod idle_policy;
mod metrics;
mod outbox;
mod programs;
mod server;
mod statistics;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Command, Errno, Failure, Request,
    message::{BladeKind, Identity, Report},
};
use mind_common::{
    addr::PAGE_SIZE,
    id::{BladeId, Connection},
};
use mind_connection::{Client, client::ReceivedCommand, packets::Listener};
use mind_machines::compute::Config;

use crate::{Common, controller};
use datagrams::Datagrams;
use engine::ToController;

/// What `mind-blade compute` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// What the cache may hold: whole pages, such as 64M.
    #[arg(long, value_name = "SIZE", value_parser = mind_cli::whole_pages)]
    cache: u64,
    /// Where to listen for programs.
    #[arg(
        long,
        value_name = "PATH",
        env = "MIND_BLADE_SOCKET",
        default_value = "/run/mind-blade.sock"
    )]
    socket: PathBuf,
    /// Milliseconds for which nothing may be heard of a fault before it is a SIGBUS. It waits while the switch says that it
    /// must.
    #[arg(long, default_value_t = 5_000)]
    deadline_ms: u64,
    /// Let the processors enter deep idle states even while faults are frequent.
    #[arg(long)]
    let_sleep: bool,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let pages = args.cache / PAGE_SIZE as u64;
    let capacity = usize::try_from(pages).context("--cache is larger than any memory")?;
    let mut registered = controller::register(&args.common, BladeKind::Compute, pages).await?;
    let blade = BladeId::new(registered.number)
        .with_context(|| format!("the controller numbers this blade {}", registered.number))?;
    let connection = Connection {
        blade,
        incarnation: registered.incarnation,
    };
    let config = Config {
        deadline: args.deadline_ms.saturating_mul(1_000_000),
        ..Config::new(connection, capacity)
    };
    let (reports, heard) = tokio::sync::mpsc::unbounded_channel();
    let (engine, thread) = engine::start(engine::Parts {
        config,
        datagrams: Datagrams::bind(registered.own.address, registered.switch)?,
        keep_awake: !args.let_sleep,
        reports,
    })?;
    tokio::spawn(plead(registered.client.clone(), heard));
    let listener = Listener::bind(&args.socket)
        .with_context(|| format!("cannot listen for programs at {}", args.socket.display()))?;
    let server = Arc::new(server::Server::new(
        engine.clone(),
        registered.client.clone(),
        blade,
        tokio::runtime::Handle::current(),
    ));
    let descriptors = mind_cli::limits::raise_descriptors();
    accept::start(Arc::clone(&server), listener, descriptors)?;
    let (shown, name) = (engine.clone(), args.common.name.clone());
    args.common
        .show_metrics(move || {
            let (engine, name) = (shown.clone(), name.clone());
            async move { metrics::families(&name, engine.report().await.as_ref()) }
        })
        .await?;
    tracing::info!(
        number = registered.number,
        incarnation = registered.incarnation,
        pages,
        "ready"
    );
    controller::ready()?;

    let identity = Identity {
        number: registered.number,
        incarnation: registered.incarnation,
        pages,
        processes: BTreeSet::new(),
    };
    let ended = tokio::task::spawn_blocking(move || thread.join());
    tokio::pin!(ended);
    let end = controller::told_to_end();
    tokio::pin!(end);
    loop {
        tokio::select! {
            result = &mut end => {
                result?;
                break;
            }
            result = &mut ended => {
                return match result.context("the engine cannot be waited for")? {
                    Ok(result) => result.context("the engine ended"),
                    Err(_) => bail!("the engine panicked"),
                };
            }
            order = registered.commands.next() => match order {
                // What programs write from now on could not be written back.
                Err(error) => return Err(error.context("the programs of this blade end with it")),
                Ok(ReceivedCommand { command: Command::Leave, .. }) => {
                    // At once: what programs write from now on could not be written back.
                    bail!("the switch drops this blade's packets from now on; its programs end with it");
                }
                Ok(order) => {
                    let (engine, client) = (engine.clone(), registered.client.clone());
                    let (server, identity) = (Arc::clone(&server), identity.clone());
                    tokio::spawn(async move {
                        let result = carry_out(&engine, &server, identity, order.command).await;
                        if client.answer_command(order.id, result).is_err() {
                            tracing::warn!("the connection to the controller ended before an answer was sent");
                        }
                    });
                }
            }
        }
    }
    tracing::info!("writing everything back");
    std::fs::remove_file(&args.socket).ok();
    engine.send(engine::Command::Stop);
    match ended.await.context("the engine cannot be waited for")? {
        Ok(result) => result,
        Err(_) => bail!("the engine panicked"),
    }
}

/// Passes the engine's reports on to the controller.
async fn plead(client: Client, mut heard: tokio::sync::mpsc::UnboundedReceiver<ToController>) {
    while let Some(report) = heard.recv().await {
        let request = match report {
            ToController::Stuck { page } => Request::ReportStuck { va: page.0 },
            ToController::Lost { page } => Request::ReportLoss { va: page.0 },
        };
        if let Err(error) = client.call(request).await {
            tracing::warn!(?report, %error, "the controller did not accept a report");
        }
    }
}

async fn carry_out(
    engine: &engine::Handle,
    server: &server::Server,
    identity: Identity,
    command: Command,
) -> Result<Report, Failure> {
    let ending = |_| Failure::new(Errno::EIO, "the blade is ending");
    match command {
        Command::Identify => Ok(Report::Identity(Identity {
            processes: server.processes(),
            ..identity
        })),
        Command::CountCache => engine
            .report()
            .await
            .map(|report| Report::Cache(Box::new(report)))
            .ok_or_else(|| Failure::new(Errno::EIO, "the blade is ending")),
        Command::FlushRange { va, length } => {
            let (done, answer) = tokio::sync::oneshot::channel();
            let range = va..va.saturating_add(length);
            engine.send(engine::Command::Flush {
                range,
                domain: None,
                done,
            });
            // Pages that could not be written back are reported separately.
            answer.await.map(|_| Report::Done).map_err(ending)
        }
        Command::ZeroPages { .. }
        | Command::FencePages { .. }
        | Command::FenceBlade { .. }
        | Command::Leave => Err(Failure::new(
            Errno::ENOSYS,
            "a compute blade offers no pages",
        )),
    }
}
