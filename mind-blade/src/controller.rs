//! An agent's connection to the controller.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Client, Reply, Request,
    client::Order,
    message::{BladeKind, Registration},
};
use tokio::sync::mpsc;

use crate::{Common, interface::Interface};

/// How long a call may take: unmapping waits for the flushes of other blades.
const LIMIT: Duration = Duration::from_secs(60);

/// What became of a registration.
pub(crate) struct Registered {
    pub(crate) client: Client,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) number: u8,
    pub(crate) incarnation: u16,
    pub(crate) switch: Ipv4Addr,
    pub(crate) own: Interface,
}

/// Connects and registers.
pub(crate) async fn register(common: &Common, kind: BladeKind, pages: u64) -> Result<Registered> {
    let own = Interface::named(&common.interface)?;
    let (client, orders) = Client::connect(common.controller, &common.name, LIMIT)
        .await
        .with_context(|| format!("no controller at {}", common.controller))?;
    let registration = Registration {
        kind,
        name: common.name.clone(),
        address: own.address,
        mac: own.mac,
        pages,
    };
    let reply = client
        .call(Request::Register(registration))
        .await
        .context("the controller does not take this blade")?;
    let Reply::Registered {
        number,
        incarnation,
        switch,
        ..
    } = reply
    else {
        bail!("the controller answers a registration with {reply:?}");
    };
    Ok(Registered {
        client,
        orders,
        number,
        incarnation,
        switch,
        own,
    })
}

/// Tells whoever started the agent that it is ready (`sd_notify(3)`).
pub(crate) fn ready() -> Result<()> {
    sd_notify::notify(false, &[sd_notify::NotifyState::Ready])
        .context("cannot tell whoever started this agent that it is ready")
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn told_to_end() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}
