//! `mind-controller`: the controller's daemon.
//!
//! * [`driver`] drives the controller's machine, on the data plane and on blades,
//! * [`session`] is a connection of a blade's agent or an operator, [`door`] where operators come in, [`admission`] how
//!   many connections there may be,
//! * [`copier`] copies invalidations where the switch does not,
//! * [`tracer`] tells operators what becomes of packets,
//! * [`metrics`] is what Prometheus is told,
//! * [`plane`] is the data plane as it begins and ends, [`slots`] how many slots it has, [`store`] what else outlives
//!   the controller, [`fuse`] ends the controller for tests,
//! * [`fdb`] finds the port that a blade is behind,
//! * [`host`] makes the host a switch, with a bridge and ports.

mod admission;
mod copier;
mod door;
mod driver;
mod fdb;
mod fuse;
mod host;
mod metrics;
mod plane;
mod session;
mod slots;
mod store;
mod tracer;

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use mind_common::wire;
use mind_connection::{
    endpoint::{DEFAULT_SOCKET, Peer},
    frame,
};
use mind_dataplane::Switch;
use mind_metrics::page;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinSet,
    time::sleep,
};

use self::{
    admission::{Admission, Admitted},
    door::Door,
    driver::{Driver, Handle, Setup},
    fdb::Bridge,
    fuse::Fuse,
    host::{Host, plan::Cidr},
    metrics::Events,
    plane::{Begun, Plane},
    slots::Rule,
    tracer::Tracer,
};

/// The controller's TCP port where no option says another.
const PORT: u16 = 4790;
/// Connections over the network that there may be at a time.
const CONNECTIONS: usize = 512;
/// Connections of operators of this host that there may be at a time.
const OPERATORS: usize = 64;
/// How long to wait when a connection cannot be accepted.
const RETRY: Duration = Duration::from_millis(100);
/// Bytes of a frame's payload: the largest message behind its IP and UDP headers.
const LEAST_MTU: i64 = (wire::OUTER_LEN - ETHERNET_LEN + wire::MAX_LEN) as i64;
/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// What `mind-controller` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The ports of the switch. Another controller may have had others: those that it had not are added, and those that
    /// are missing are taken away, unless a blade is behind them.
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
    /// Where to keep what a controller must know that comes after this one: a file that is of use until the machine is
    /// booted again. What was changed on the host is kept beside it, in a file that ends in .host.json.
    #[arg(
        long,
        value_name = "FILE",
        env = "MIND_STATE",
        default_value = "/run/mind-ctl.redb"
    )]
    state: PathBuf,
    /// Begin anew, also if an earlier controller left a data plane and blades that use it: they end.
    #[arg(long)]
    fresh: bool,
    /// At SIGTERM, leave data plane and blades as they are, for a controller that comes after this one.
    #[arg(long)]
    keep: bool,
    /// Directory slots: regions, of 16 KiB at first, that can be cached at a time; at most 160 bytes of kernel memory each.
    /// By default 262,144, or 4 or 16 times as many where memory blades offer more than 16 or 64 GiB. Another number than
    /// that of the controller before replaces the data plane while programs run.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Regions are split where pages are falsely invalidated, and merged again, once in so many milliseconds; 0: only as
    /// operators say.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    epoch: u16,
    /// Directory slots at least, if --slots is not given.
    #[arg(long, hide = true, default_value_t = slots::LEAST)]
    least_slots: u32,
    /// Load a switch that loses packets when a test tells it to.
    #[arg(long, hide = true)]
    lose_on_purpose: bool,
    /// End at once at that point of the work on the books and the maps.
    #[arg(long, hide = true, default_value_t = 0)]
    die_at: u64,
}

/// Who copies invalidations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FanOut {
    /// The switch's TC program.
    Switch,
    /// The controller.
    Controller,
}

impl Args {
    /// What decides about the number of slots.
    const fn rule(&self) -> Rule {
        Rule {
            said: self.slots,
            least: self.least_slots,
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    // From here on they end the daemon in order, not at once.
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let journal = args.state.with_extension("host.json");
    let mut host =
        Host::prepare(&args.bridge, &args.ports, args.address, args.mtu, journal).await?;
    let begun = begin(&args, host.address()).await;
    let result = match begun {
        Ok((plane, serving)) => {
            host.let_go(&args.bridge, &args.ports).await;
            let tracer = Arc::clone(&serving.tracer);
            let (result, is_told) = tokio::select! {
                _ = term.recv() => (Ok(()), true),
                _ = int.recv() => (Ok(()), true),
                ended = serving.serve() => match ended {
                    Ok(()) => {
                        plane.leave();
                        return Err(begin_again());
                    }
                    error => (error, false),
                },
            };
            tracer.end();
            // Who ends by an error may be started again, and goes on.
            if !is_told || args.keep {
                plane.leave();
                return result;
            }
            plane.remove();
            result
        }
        Err(error) => {
            if Switch::is_pinned(&args.pin) {
                // Blades may be using it.
                host.put_back_own().await;
                return Err(error);
            }
            Err(error)
        }
    };
    host.put_back().await;
    result
}

/// Becomes the controller that comes after this one, in the same process; what cannot be done about it.
fn begin_again() -> anyhow::Error {
    // The file may have been replaced since, which the link knows.
    let mut again = std::process::Command::new("/proc/self/exe");
    again.args(std::env::args_os().skip(1));
    let error = again.exec();
    anyhow::Error::new(error).context("cannot begin again, with another data plane")
}

/// All that a controller needs to serve.
struct Serving {
    listener: TcpListener,
    door: Door,
    driver: Driver,
    handle: Handle,
    bridge: Arc<Bridge>,
    events: Arc<Events>,
    tracer: Arc<Tracer>,
    shown: Option<TcpListener>,
    /// Resolves when another data plane is to take the place of this one.
    is_outgrown: oneshot::Receiver<()>,
}

/// Begins on a host that is a switch, whose bridge has the address `own`; what it makes goes again if it fails.
async fn begin(args: &Args, own: Option<Ipv4Addr>) -> Result<(Plane, Serving)> {
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
    let shown = match args.metrics {
        Some(address) => Some(page::listen(address).await?),
        None => None,
    };
    let mut fuse = Fuse::new(args.die_at);
    let Begun {
        plane,
        switch,
        store,
        is_taken_over,
        slots,
    } = Plane::begin(args, *listen.ip(), &mut fuse)?;
    let (outgrown, is_outgrown) = oneshot::channel();
    let copied = copier::start(switch.open_copies()?, *listen.ip())?;
    let tracer = Tracer::start(switch.open_traces()?, switch.open_trace_control()?)?;
    let events = Arc::new(Events::new().context("cannot count events")?);
    let bridge = Arc::new(Bridge::new(&args.bridge, &args.ports)?);
    let (driver, handle) = Driver::new(Setup {
        switch,
        store,
        is_taken_over,
        bridge: Arc::clone(&bridge),
        pins: args.pin.clone(),
        address: *listen.ip(),
        fuse,
        copied,
        tracer: Arc::clone(&tracer),
        events: Arc::clone(&events),
        slots,
        epoch: (args.epoch > 0).then(|| Duration::from_millis(args.epoch.into())),
        outgrown,
    })?;
    let serving = Serving {
        listener,
        door,
        driver,
        handle,
        bridge,
        events,
        tracer,
        shown,
        is_outgrown,
    };
    tracing::info!(%listen, ports = args.ports.join(", "), is_taken_over, "begun");
    Ok((plane, serving))
}

impl Serving {
    /// Says that the controller is ready, and serves; ends when another data plane is to take the place of this one.
    async fn serve(self) -> Result<()> {
        tracing::info!("ready");
        // What was told before, by the controller that this one comes after in the same process, may not listen any more.
        if let Err(error) = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]) {
            tracing::warn!(%error, "the service manager cannot be told that the controller is ready");
        }
        let Self {
            listener,
            door,
            driver,
            handle,
            bridge,
            events,
            tracer: _,
            shown,
            mut is_outgrown,
        } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run());
        if let Some(listener) = shown {
            tasks.spawn(show(listener, handle.clone(), events));
        }
        let network = Admission::new("blades and others in the network", CONNECTIONS);
        let operators = Admission::new("operators of this host", OPERATORS);
        loop {
            let (handle, bridge) = (handle.clone(), Arc::clone(&bridge));
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.map(|(stream, peer)| {
                    if let Err(error) = frame::prepare(&stream) {
                        tracing::warn!(%peer, %error, "it will show late that a connection is gone");
                    }
                    serve(&mut tasks, network.admit(), stream, |stream| {
                        session::run(handle, bridge, stream, Peer::Network(peer))
                    });
                }),
                accepted = door.accept() => accepted.map(|stream| {
                    serve(&mut tasks, operators.admit(), stream, |stream| {
                        session::run(handle, bridge, stream, Peer::Local)
                    });
                }),
                Ok(()) = &mut is_outgrown => return Ok(()),
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        return Err(error).context("part of the controller has failed");
                    }
                    continue;
                }
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection was not accepted");
                // Nothing tells when there is a descriptor again.
                sleep(RETRY).await;
            }
        }
    }
}

/// Has a connection served by a task of its own, or told that there are too many.
fn serve<S, F>(tasks: &mut JoinSet<()>, admitted: Admitted, stream: S, session: impl FnOnce(S) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    match admitted {
        Admitted::Served(place) => {
            let session = session(stream);
            tasks.spawn(async move {
                session.await;
                drop(place);
            });
        }
        Admitted::Told(refusal) => {
            tasks.spawn(refusal.tell(stream));
        }
        Admitted::Closed => {}
    }
}

/// Shows metrics until it is dropped.
async fn show(listener: TcpListener, handle: Handle, events: Arc<Events>) {
    let gather = move || {
        let (handle, events) = (handle.clone(), Arc::clone(&events));
        async move {
            let status = handle.status().await;
            let status = status.inspect_err(|error| tracing::warn!(%error, "metrics are missing"));
            metrics::families(&status.unwrap_or_default(), &events)
        }
    };
    page::serve(listener, gather).await;
}
