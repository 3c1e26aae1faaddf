//! Injects frames that no blade would send, at a bounded rate, beside the load: those of [`frames`](crate::frames).

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use mind_api::message::BladeKind;
use mind_api::operator::{BladeStatus, Status};
use mind_common::{
    addr::Va,
    id::{BladeId, Connection, DomainId},
};
use mind_dataplane::harness::Host;
use mind_e2e::Bed;
use netns_setup::{
    Blade, Plan, Testbed,
    plan::{INTERFACE, Mac, SWITCH},
};

use crate::{
    frames::{Frame, Hosts, InjectionPoint},
    job::Place,
    raw::Raw,
};

/// The protection domain of the pages that are reserved.
pub const DOMAIN: &str = "soak-injection";
/// How many pages are.
pub const PAGES: usize = 64;
/// The compute blade that is reserved, with an agent like any other.
pub const BLADE: &str = "c4";
/// The compute blade whose agent dies before the load begins.
pub const GONE: &str = "c5";

/// How often frames are due.
const PACE: Duration = Duration::from_millis(20);
/// Most series that are sent at once: their frames fit in a veth's ring of 256.
const MOST: u64 = 6;
/// More than is asked for: frames may be lost, and the load's end is not the injection's.
const MARGIN: f64 = 1.5;
/// Every so many series, the blade acquires its pages again.
const OPENING: u64 = 64;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Frames for which there was no room.
    pub dropped: u64,
}

/// The thread that sends.
#[derive(Debug)]
pub struct Injection {
    stop: Sender<()>,
    thread: JoinHandle<Result<Sent>>,
}

impl Injection {
    /// Starts to send, so that each path is taken at least `least` times within `time`.
    ///
    /// # Errors
    ///
    /// When a blade is missing or a socket cannot be made.
    pub fn start(
        bed: &Bed,
        status: &Status,
        place: Place,
        least: u64,
        time: Duration,
    ) -> Result<Self> {
        let testbed = bed.testbed();
        let (hosts, memory) = hosts(testbed.plan(), status, place)?;
        let sockets = InjectionSockets::open(testbed, &memory)?;
        let rate = least as f64 * MARGIN / time.as_secs_f64();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("injection".into())
            .spawn(move || send(&hosts, &sockets, rate, &stopped))
            .context("cannot start the thread that injects frames")?;
        Ok(Self { stop, thread })
    }

    /// Whether it has ended though it should send.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops sending.
    ///
    /// # Errors
    ///
    /// When a frame could not be sent at all.
    pub fn stop(self) -> Result<Sent> {
        drop(self.stop);
        self.thread
            .join()
            .map_err(|_| anyhow!("the thread that injects frames panicked"))?
    }
}

fn send(
    hosts: &Hosts,
    sockets: &InjectionSockets,
    rate: f64,
    stopped: &Receiver<()>,
) -> Result<Sent> {
    let begin = Instant::now();
    let mut sent = Sent::default();
    let mut series = 0;
    loop {
        let due = (begin.elapsed().as_secs_f64() * rate) as u64 + 1;
        // Frames that could not be sent in time are sent later, in bounded bursts.
        let until = due.min(series + MOST);
        while series < until {
            if series.is_multiple_of(OPENING) {
                sockets.send(&hosts.opening(), &mut sent)?;
            }
            series += 1;
            let number = u32::try_from(series).context("too many series of frames")?;
            sockets.send(&hosts.series(number), &mut sent)?;
        }
        match stopped.recv_timeout(PACE) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(sent),
        }
    }
}

/// A socket at each injection point.
#[derive(Debug)]
struct InjectionSockets([Raw; InjectionPoint::ALL.len()]);

impl InjectionSockets {
    fn open(testbed: &Testbed, memory: &str) -> Result<Self> {
        let open = |at| {
            let (namespace, interface) = match at {
                InjectionPoint::Blade => (BLADE, INTERFACE),
                InjectionPoint::Gone => (GONE, INTERFACE),
                InjectionPoint::Memory => (memory, INTERFACE),
                InjectionPoint::Switch => (SWITCH, memory),
            };
            testbed.within(namespace, || Raw::open(interface))
        };
        let [blade, gone, memory, switch] = InjectionPoint::ALL.map(open);
        Ok(Self([blade?, gone?, memory?, switch?]))
    }

    fn send(&self, frames: &[Frame], sent: &mut Sent) -> Result<()> {
        for frame in frames {
            let went = self.0[frame.at as usize]
                .send(frame.packet.bytes())
                .with_context(|| {
                    format!("cannot inject the frame that is to be {}", frame.verdict)
                })?;
            sent.frames += 1;
            sent.dropped += u64::from(!went);
        }
        Ok(())
    }
}

/// The hosts, and the name of the memory blade that has the reserved pages.
fn hosts(plan: &Plan, status: &Status, place: Place) -> Result<(Hosts, String)> {
    let va = Va(place.va);
    let slice = va
        .slice()
        .context("the reserved pages are not in the window")?;
    let memory = status
        .blades
        .iter()
        .find(|blade| blade.kind == BladeKind::Memory && blade.number == slice)
        .with_context(|| {
            format!("no memory blade is number {slice}, which has the reserved pages")
        })?;
    let qp = |name| connection(named(status, name)?).map(Connection::to_qp);
    let hosts = Hosts {
        switch: Host {
            mac: mac(Plan::switch_mac()),
            ipv4: Plan::switch_address(),
        },
        blade: host(plan.blade(BLADE)?),
        number: connection(named(status, BLADE)?)?.blade,
        qp: qp(BLADE)?,
        other: qp("c0")?,
        gone: host(plan.blade(GONE)?),
        gone_qp: qp(GONE)?,
        memory: host(plan.blade(&memory.name)?),
        domain: DomainId(place.domain),
        va,
    };
    Ok((hosts, memory.name.clone()))
}

fn named<'a>(status: &'a Status, name: &str) -> Result<&'a BladeStatus> {
    let blade = status.blades.iter().find(|blade| blade.name == name);
    blade.with_context(|| format!("the controller does not know the blade {name}"))
}

fn connection(blade: &BladeStatus) -> Result<Connection> {
    match BladeId::new(blade.number) {
        Some(number) if blade.kind == BladeKind::Compute => Ok(Connection {
            blade: number,
            incarnation: blade.incarnation,
        }),
        _ => bail!("{} is no compute blade", blade.name),
    }
}

fn host(blade: &Blade) -> Host {
    Host {
        mac: mac(blade.mac),
        ipv4: blade.address,
    }
}

fn mac(Mac(bytes): Mac) -> [u8; 6] {
    bytes
}

/// Whether the blade called `name` is gone, according to the controller.
pub fn is_gone(status: &Status, name: &str) -> bool {
    named(status, name).is_ok_and(|blade| !blade.connected)
}
