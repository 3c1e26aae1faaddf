//! The testbed: namespaces as of blades, the controller's daemon in the switch's, and in each other one the address
//! that a stand-in for its blade registers from.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mind_api::message::BladeKind;
use mind_cli::Interrupt;
use mind_common::addr::{PAGE_SIZE, SLICE_SHIFT};
use mind_connection::{Client, Endpoint, endpoint::DEFAULT_SOCKET};
use netns_setup::{
    Blade, Kind, Options, Plan, Testbed,
    plan::SWITCH,
    service::{self, Role},
    testbed::Guard,
};
use tokio::{sync::watch, time::timeout};

use super::stand_in::{LIMIT, StandIn, registration};
use crate::daemons;

/// Bytes that each memory blade offers: as many as a blade may.
pub(super) const MEMORY: u64 = 1 << SLICE_SHIFT;
/// Pages that each compute blade says that it caches at most.
const CACHE: u64 = (64 << 30) / PAGE_SIZE as u64;
/// No order for so long means that the controller works on nothing in the background.
const QUIET: Duration = Duration::from_millis(200);

/// A testbed with a controller and stand-ins.
pub(super) struct Bed {
    compute: Vec<Arc<StandIn>>,
    memory: Vec<Arc<StandIn>>,
    operator: Client,
    /// Counts the orders to all stand-ins.
    orders: watch::Sender<u64>,
    testbed: Guard,
}

impl Bed {
    /// Brings it up.
    pub(super) async fn up(
        (compute, memory): (u8, u8),
        slots: u32,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        interrupt.check()?;
        let options = Options {
            compute,
            memory,
            services: None,
            ..Options::default()
        };
        let testbed = Testbed::guarded(&options).context("cannot bring the testbed up")?;
        start_controller(testbed.plan(), &options, slots)?;
        match Self::staffed(testbed, interrupt).await {
            Ok(bed) => Ok(bed),
            Err(error) => Err(daemons::explained(&error, ["ctl"])),
        }
    }

    async fn staffed(testbed: Guard, interrupt: &Interrupt) -> Result<Self> {
        let endpoint: Endpoint = DEFAULT_SOCKET.parse().map_err(anyhow::Error::msg)?;
        let (operator, _) = Client::connect(endpoint, "mind-bench", LIMIT).await?;
        let mut bed = Self {
            compute: Vec::new(),
            memory: Vec::new(),
            operator,
            orders: watch::Sender::new(0),
            testbed,
        };
        for blade in bed.testbed.plan().blades.clone() {
            interrupt.check()?;
            let stand_in = Arc::new(bed.register(&blade).await?);
            match blade.kind {
                Kind::Compute => bed.compute.push(stand_in),
                Kind::Memory => bed.memory.push(stand_in),
            }
        }
        Ok(bed)
    }

    async fn register(&self, blade: &Blade) -> Result<StandIn> {
        let (kind, pages) = match blade.kind {
            Kind::Compute => (BladeKind::Compute, CACHE),
            Kind::Memory => (BladeKind::Memory, MEMORY / PAGE_SIZE as u64),
        };
        let stream = self.connect(&blade.name)?;
        stream.set_nonblocking(true)?;
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let registration = registration(kind, &blade.name, (blade.address, blade.mac.0), pages);
        StandIn::register(stream, registration, self.orders.clone()).await
    }

    /// A connection to the controller from a blade's address.
    fn connect(&self, blade: &str) -> Result<TcpStream> {
        self.testbed.within(blade, || {
            TcpStream::connect(Plan::controller())
                .with_context(|| format!("cannot reach the controller from {blade}"))
        })
    }

    /// The testbed.
    pub(super) fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// The stand-in for compute blade `number`.
    pub(super) fn compute(&self, number: usize) -> &Arc<StandIn> {
        &self.compute[number]
    }

    /// How many memory blades there are.
    pub(super) fn memory_blades(&self) -> usize {
        self.memory.len()
    }

    /// The last compute blade as the plan has it, and its stand-in, to be told to hang.
    pub(super) fn last(&self) -> Result<(Blade, &Arc<StandIn>)> {
        let blades = self.testbed.plan().of_kind(Kind::Compute);
        blades
            .last()
            .cloned()
            .zip(self.compute.last())
            .context("there is no compute blade")
    }

    /// The last compute blade registers anew, after it was sent away.
    pub(super) async fn renew_last(&mut self) -> Result<()> {
        let (blade, _) = self.last()?;
        let stand_in = self.register(&blade).await?;
        self.compute.pop();
        self.compute.push(Arc::new(stand_in));
        Ok(())
    }

    /// An operator on the switch.
    pub(super) fn operator(&self) -> &Client {
        &self.operator
    }

    /// Waits until the controller has given no order for a while: zeroing what was freed goes on in the background.
    pub(super) async fn quiet(&self, interrupt: &Interrupt) -> Result<()> {
        let mut orders = self.orders.subscribe();
        let begin = Instant::now();
        while timeout(QUIET, orders.changed()).await.is_ok() {
            interrupt.check()?;
            ensure!(
                begin.elapsed() < LIMIT,
                "the controller has given orders for {} s without a pause",
                LIMIT.as_secs()
            );
        }
        Ok(())
    }

    /// Nanoseconds until the controller has shown its metrics, from the connection on.
    pub(super) fn read_metrics(&self) -> Result<u64> {
        let address = Plan::controller_metrics();
        self.testbed.within(SWITCH, || {
            let begin = Instant::now();
            let read = || {
                let mut stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(LIMIT))?;
                let request = format!(
                    "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(request.as_bytes())?;
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer)?;
                Ok::<_, std::io::Error>(answer)
            };
            let answer = read().with_context(|| format!("cannot read metrics at {address}"))?;
            let nanos = begin.elapsed().as_nanos() as u64;
            ensure!(
                answer.starts_with(b"HTTP/1.1 200"),
                "{address} shows no metrics: {}",
                String::from_utf8_lossy(&answer[..answer.len().min(200)])
            );
            Ok(nanos)
        })
    }

    /// The error, with what the controller's log says.
    pub(super) fn explained(&self, error: &anyhow::Error) -> anyhow::Error {
        daemons::explained(error, ["ctl"])
    }
}

/// Starts the daemon in the switch's namespace, as a testbed with services has it; it goes with the testbed.
fn start_controller(plan: &Plan, options: &Options, slots: u32) -> Result<()> {
    let services = service::standard(plan, options, &daemons::folder()?);
    let controller = services
        .into_iter()
        .find(|service| service.role == Role::Controller);
    let mut controller = controller.context("a testbed has no controller")?;
    let slots = format!("--slots={slots}");
    controller.command.push(slots);
    service::start(&controller)?
        .ready()
        .context("the controller does not start")
}
