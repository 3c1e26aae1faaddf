//! `mind-ctl serve`: the controller's daemon.
//!
//! * [`core`] carries out what the policy decides, on the data plane and on blades,
//! * [`session`] is a connection of a blade, a program's agent or an operator,
//! * [`agent`] is how a blade's agent is told what to do,
//! * [`fdb`] finds the port that a blade is behind.

mod agent;
mod core;
mod fdb;
mod session;

use std::{
    net::SocketAddrV4,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use mind_dataplane::{Switch, SwitchLimits, attach};
use tokio::{net::TcpListener, sync::Mutex};

use self::core::Core;

/// What `mind-ctl serve` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen for agents, programs and operators. The address is the switch's, to which compute blades send
    /// their requests.
    #[arg(long)]
    listen: SocketAddrV4,
    /// Where to pin the data plane, in a BPF file system.
    #[arg(long)]
    pin: PathBuf,
    /// The bridge that the ports are enslaved to.
    #[arg(long, default_value = "br0")]
    bridge: String,
    /// A port of the switch; once for each.
    #[arg(long = "port", value_name = "IFACE", required = true)]
    ports: Vec<String>,
    /// Directory slots: regions, of 16 KiB at first, that can be mapped at a time.
    #[arg(long, default_value_t = 262_144)]
    slots: u32,
}

/// Detaches and unpins the data plane, however the daemon ends.
struct DataPlane {
    ports: Vec<String>,
    folder: PathBuf,
}

impl DataPlane {
    fn load(args: &Args) -> Result<(Self, Switch)> {
        let mut highest = 0;
        for port in &args.ports {
            highest = highest.max(attach::index_of(port)?);
        }
        let limits = SwitchLimits {
            interfaces: highest + 1,
            domains: mind_ctl::registry::MAX_DOMAIN + 1,
            slots: args.slots.saturating_add(1),
            // As many blocks as slots of the largest region; more if vmas are small.
            blocks: args.slots.max(1),
            ..SwitchLimits::default()
        };
        let mut switch = Switch::load(&limits).context("cannot load the data plane")?;
        let mac = fdb::address_of(&args.bridge)?;
        switch.set_identity(*args.listen.ip(), mac)?;
        let plane = Self {
            ports: args.ports.clone(),
            folder: args.pin.clone(),
        };
        // What a killed daemon has left.
        plane.remove(None);
        switch.pin(&args.pin)?;
        for port in &args.ports {
            attach::attach_port(&mut switch, port, &args.pin)?;
        }
        Ok((plane, switch))
    }

    fn remove(&self, switch: Option<&mut Switch>) {
        let report = |what: &Path, error: &dyn std::fmt::Display| {
            tracing::error!(what = %what.display(), %error, "part of the data plane stays");
        };
        let mut open = Switch::open(&self.folder).ok();
        if let Some(switch) = switch.or(open.as_mut()) {
            for port in &self.ports {
                if let Err(error) = attach::detach_port(switch, port, &self.folder) {
                    report(Path::new(port), &error);
                }
            }
        }
        if let Err(error) = Switch::unpin(&self.folder) {
            report(&self.folder, &error);
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.remove(None);
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;

    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen at {}", args.listen))?;
    let (_plane, switch) = DataPlane::load(&args)?;
    let core = Core::new(switch, &args)?;
    let core = Arc::new(Mutex::new(core));
    tracing::info!(listen = %args.listen, ports = args.ports.len(), "ready");
    sd_notify::notify(false, &[sd_notify::NotifyState::Ready])
        .context("cannot tell whoever started the controller that it is ready")?;
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    tokio::spawn(session::run(Arc::clone(&core), stream, peer));
                }
                Err(error) => tracing::warn!(%error, "a connection was not accepted"),
            }
        }
    }
}
