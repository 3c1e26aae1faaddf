//! An agent's connection to the controller.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Reply, Request,
    message::{BladeKind, Registration},
};
use mind_connection::{Client, ClientError, client::ReceivedCommand};
use tokio::sync::mpsc;

use crate::{Common, interface::Interface};

/// How long a call may take: unmapping waits for the flushes of other blades.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How long to wait between attempts to connect again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The result of a registration.
pub(crate) struct Registered {
    pub(crate) client: Client,
    pub(crate) commands: Orders,
    pub(crate) number: u8,
    pub(crate) incarnation: u16,
    pub(crate) switch: Ipv4Addr,
    pub(crate) own: Interface,
}

/// The controller's commands, also over later connections.
pub(crate) struct Orders {
    client: Client,
    endpoint: SocketAddrV4,
    name: String,
    /// The first request on a new connection.
    resume: Request,
    incoming: mpsc::Receiver<ReceivedCommand>,
}

impl Orders {
    /// The next command. Without a connection it waits for the next controller, for as long as it takes: the data plane
    /// works without it.
    ///
    /// # Errors
    ///
    /// When the next controller does not know this incarnation of the blade.
    pub(crate) async fn next(&mut self) -> Result<ReceivedCommand> {
        loop {
            match self.incoming.recv().await {
                Some(order) => return Ok(order),
                None => {
                    tracing::warn!("the controller is gone; requests wait for the next one");
                    self.resume().await?;
                    tracing::info!("the controller is back");
                }
            }
        }
    }

    async fn resume(&mut self) -> Result<()> {
        let (mut pause, most) = PAUSES;
        loop {
            let resume = self.resume.clone();
            match self.client.resume(self.endpoint, &self.name, resume).await {
                Ok((_, incoming)) => {
                    self.incoming = incoming;
                    return Ok(());
                }
                Err(ClientError::Refused(failure)) => {
                    return Err(failure)
                        .context("the controller does not know this incarnation of the blade");
                }
                Err(error) => tracing::debug!(%error, "not yet"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(most);
        }
    }
}

/// Connects and registers.
pub(crate) async fn register(common: &Common, kind: BladeKind, pages: u64) -> Result<Registered> {
    let own = Interface::named(&common.interface)?;
    let (client, incoming) = Client::connect(common.controller, &common.name, LIMIT)
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
        .context("the controller refused this blade")?;
    let Reply::Registered {
        number,
        incarnation,
        switch,
        ..
    } = reply
    else {
        bail!("the controller answers a registration with {reply:?}");
    };
    client.outlive_connection();
    let commands = Orders {
        client: client.clone(),
        endpoint: common.controller,
        name: common.name.clone(),
        resume: Request::Resume {
            kind,
            number,
            incarnation,
        },
        incoming,
    };
    Ok(Registered {
        client,
        commands,
        number,
        incarnation,
        switch,
        own,
    })
}

/// Notifies the service manager that the agent is ready (`sd_notify(3)`).
pub(crate) fn ready() -> Result<()> {
    sd_notify::notify(false, &[sd_notify::NotifyState::Ready])
        .context("cannot notify the service manager that this agent is ready")
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
