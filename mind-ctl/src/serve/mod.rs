//! `mind-ctl serve`: the controller's daemon.
//!
//! * [`core`] carries out what the policy decides, on the data plane and on blades,
//! * [`session`] is a connection of a blade, a program's agent or an operator, [`door`] where operators come in,
//! * [`agent`] is how a blade's agent is told what to do,
//! * [`copier`] copies invalidations where the switch does not,
//! * [`metrics`] is what Prometheus is told,
//! * [`fdb`] finds the port that a blade is behind,
//! * [`host`] makes the host a switch, with a bridge and ports.

mod agent;
mod copier;
mod core;
mod door;
mod fdb;
mod host;
mod metrics;
mod session;

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use mind_api::{
    endpoint::{DEFAULT_SOCKET, Peer},
    frame,
};
use mind_common::wire;
use mind_dataplane::{Switch, SwitchLimits, attach};
use mind_metrics::page;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Mutex,
    task::JoinSet,
};

use self::{
    core::Core,
    door::Door,
    host::{Host, plan::Cidr},
    metrics::Events,
};

/// The controller's TCP port where nobody says another.
const PORT: u16 = 4790;
/// Bytes of a frame's payload: the largest message behind its IP and UDP headers.
const LEAST_MTU: i64 = (wire::OUTER_LEN - ETHERNET_LEN + wire::MAX_LEN) as i64;
/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// What `mind-ctl serve` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The ports of the switch.
    #[arg(long = "port", value_name = "IFACE", required = true, num_args = 1..)]
    ports: Vec<String>,
    /// The bridge that the ports are enslaved to.
    #[arg(long, value_name = "NAME", default_value = "br0")]
    bridge: String,
    /// Make what is missing: the bridge, with this address. Put back at the end, as are the ports.
    #[arg(long, value_name = "A.B.C.D/BITS")]
    address: Option<Cidr>,
    /// Bytes of a frame's payload on all ports, at least; the blades' interfaces must be set likewise.
    #[arg(long, value_name = "BYTES", default_value_t = 9000, value_parser = clap::value_parser!(u32).range(LEAST_MTU..))]
    mtu: u32,
    /// Where to listen for agents, programs and operators; by default at port 4790 of the bridge's address. The
    /// address is the switch's, to which compute blades send their requests.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddrV4>,
    /// Where to listen for operators of this host: a Unix socket that only root may open.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Where to pin the data plane, in a BPF file system.
    #[arg(
        long,
        value_name = "FOLDER",
        env = "MIND_PIN",
        default_value = "/sys/fs/bpf/mind"
    )]
    pin: PathBuf,
    /// Who copies an invalidation for several blades: the switch's TC program, or the controller, for ports or kernels
    /// where TC cannot. A port at which TC is refused is left to the controller in any case.
    #[arg(long, value_enum, default_value_t = FanOut::Switch)]
    fan_out: FanOut,
    /// Where to show metrics to Prometheus, over HTTP; by default nowhere.
    #[arg(long, value_name = "ADDRESS:PORT", env = "MIND_METRICS")]
    metrics: Option<SocketAddr>,
    /// Directory slots: regions, of 16 KiB at first, that can be mapped at a time.
    #[arg(long, default_value_t = 262_144)]
    slots: u32,
    /// Load a switch that loses packets when a test tells it to.
    #[arg(long, hide = true)]
    lose_on_purpose: bool,
}

/// Who copies invalidations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FanOut {
    /// The switch's TC program.
    Switch,
    /// The controller.
    Controller,
}

impl FanOut {
    /// Attaches the switch to a port.
    fn attach(self, switch: &mut Switch, port: &str, pins: &Path) -> Result<()> {
        if self == Self::Switch {
            match attach::attach_port(switch, port, pins, attach::FanOut::Switch) {
                Err(error) if error.is_of_fan_out() => {
                    tracing::warn!(port, %error, "the controller copies what comes in there for several blades");
                }
                other => return Ok(other?),
            }
        }
        attach::attach_port(switch, port, pins, attach::FanOut::Controller)?;
        Ok(())
    }
}

/// Detaches and unpins the data plane, however the daemon ends.
struct DataPlane {
    ports: Vec<String>,
    folder: PathBuf,
}

impl DataPlane {
    fn load(args: &Args, address: Ipv4Addr) -> Result<(Self, Switch)> {
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
            lose_on_purpose: args.lose_on_purpose,
            ..SwitchLimits::default()
        };
        let mut switch = Switch::load(&limits).context("cannot load the data plane")?;
        let mac = fdb::address_of(&args.bridge)?;
        switch.set_identity(address, mac)?;
        let plane = Self {
            ports: args.ports.clone(),
            folder: args.pin.clone(),
        };
        // What a killed daemon has left.
        plane.remove(None);
        switch.pin(&args.pin)?;
        for port in &args.ports {
            args.fan_out.attach(&mut switch, port, &args.pin)?;
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
    // From here on they end the daemon in order, not at once.
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let host = Host::prepare(&args.bridge, &args.ports, args.address, args.mtu).await?;
    let result = tokio::select! {
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
        result = serve(&args, host.address()) => result,
    };
    host.put_back().await;
    result
}

/// Serves on a host that is a switch, whose bridge has the address `own`. Ends only with an error, or when dropped.
async fn serve(args: &Args, own: Option<Ipv4Addr>) -> Result<()> {
    let listen = args
        .listen
        .or(own.map(|address| SocketAddrV4::new(address, PORT)))
        .with_context(|| {
            format!(
                "the bridge {} has no address to listen at: give it one with --address, or say --listen",
                args.bridge
            )
        })?;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen at {listen}; is another controller there?"))?;
    let door = Door::open(&args.socket)?;
    let (_plane, switch) = DataPlane::load(args, *listen.ip())?;
    let copied = copier::start(switch.open_copies()?, *listen.ip())?;
    let events = Arc::new(Events::new().context("cannot count events")?);
    let core = Core::new(switch, args, *listen.ip(), copied, Arc::clone(&events))?;
    let core = Arc::new(Mutex::new(core));
    let shown = match args.metrics {
        Some(address) => Some(page::listen(address).await?),
        None => None,
    };
    let mut tasks = JoinSet::new();
    if let Some(listener) = shown {
        tasks.spawn(show(listener, Arc::clone(&core), events));
    }
    tracing::info!(%listen, ports = args.ports.join(", "), "ready");
    sd_notify::notify(false, &[sd_notify::NotifyState::Ready])
        .context("cannot tell whoever started the controller that it is ready")?;
    loop {
        let core = Arc::clone(&core);
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, peer)| {
                if let Err(error) = frame::prepare(&stream) {
                    tracing::warn!(%peer, %error, "it will show late that a connection is gone");
                }
                tokio::spawn(session::run(core, stream, Peer::Network(peer)));
            }),
            accepted = door.accept() => accepted.map(|stream| {
                tokio::spawn(session::run(core, stream, Peer::Local));
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection was not accepted");
        }
    }
}

/// Shows metrics until it is dropped.
async fn show(listener: TcpListener, core: Arc<Mutex<Core>>, events: Arc<Events>) {
    let gather = move || {
        let (core, events) = (Arc::clone(&core), Arc::clone(&events));
        async move {
            let status = core.lock().await.status();
            metrics::families(&status, &events)
        }
    };
    if let Err(error) = page::serve(listener, gather).await {
        tracing::error!(%error, "metrics are not shown any more");
    }
}
