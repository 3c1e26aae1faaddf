//! A compute blade that owns pages which others want, and does not answer: what the controller takes meanwhile to tell
//! its status, to show metrics and to carry out requests of domains that are not concerned.
//!
//! The stand-in gets its pages as a blade does, by a request to the switch; then others want them, and it hangs. The
//! controller gives up on it after two seconds or so and sends it away; until then requests are measured. Then it
//! registers anew, for the next round.

use std::{
    net::{SocketAddrV4, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_api::{
    Reply, Request,
    operator::{RegionOrder, RegionStatus},
};
use mind_cli::Interrupt;
use mind_common::{
    addr::Va,
    id::{BladeId, Connection, DomainId},
    serial::Seq,
    wire::{PAGE_REQUEST_LEN, UDP_PORT},
};
use mind_connection::Client;
use mind_machines::datagram::{Body, Datagram, Envelope, PageRequest};
use netns_setup::{Plan, Testbed};
use tokio::{task::JoinSet, time::timeout};

use super::{
    bed::Bed,
    program::{Mapped, Outcomes, PAGE, Pair, Program, Rate, rate, timed},
    stand_in::{LIMIT, StandIn, unexpected},
};
use crate::samples::Samples;

/// The domain of which the hung blade holds pages.
const HELD: &str = "held";
/// The compute blade whose process wants the pages.
const OTHER: usize = 10;
/// Rounds in which requests are measured; one more counts operations.
const ROUNDS: usize = 3;
/// How long a round may take at most: a controller that never gives up on the blade does not hang the bench.
const ROUND: Duration = Duration::from_secs(10);
/// Turns of requests for each time that metrics are read.
const TURNS_PER_METRICS: usize = 4;
/// How long a request for a page may take to change the directory, before it is sent again.
const AGAIN: Duration = Duration::from_millis(20);
/// How often it is sent.
const ATTEMPTS: usize = 200;

/// What was measured while a blade hung.
#[derive(Default)]
pub(super) struct Hung {
    pub(super) status: Samples,
    pub(super) metrics: Samples,
    pub(super) outcomes: Outcomes,
    pub(super) rate: Rate,
    /// For how long a blade hung, in all.
    pub(super) time: Duration,
}

/// Measures, round by round: requests of `pair`, and operations of `clients`, none of which is in the domain of the
/// hung blade.
pub(super) async fn measure(
    bed: &mut Bed,
    pair: &mut Pair,
    clients: &[Program],
    interrupt: &Interrupt,
) -> Result<Hung> {
    let mut hung = Hung::default();
    let other = Program::enter(bed.compute(OTHER), HELD, 1).await?;
    for number in 0..=ROUNDS {
        interrupt.check()?;
        let held = Held::begin(bed, &other).await?;
        let begin = Instant::now();
        let (_, blade) = bed.last()?;
        if number < ROUNDS {
            round((bed, blade), begin, pair, &mut hung, interrupt).await?;
        } else {
            hung.rate = count(blade, begin, clients).await?;
        }
        let gone = timeout(LIMIT, blade.gone()).await;
        gone.context("the controller does not give up on a blade that hangs")?;
        hung.time += begin.elapsed();
        held.end(&other).await?;
        bed.renew_last().await?;
    }
    Ok(hung)
}

/// Measures until the controller has given up on the blade. What began before that counts.
async fn round(
    (bed, blade): (&Bed, &StandIn),
    begin: Instant,
    pair: &mut Pair,
    hung: &mut Hung,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut turns = 0;
    while !blade.is_gone() && begin.elapsed() < ROUND {
        interrupt.check()?;
        let (nanos, status) = timed(bed.operator().status()).await;
        status?;
        hung.status.add([nanos]);
        if turns % TURNS_PER_METRICS == 0 {
            let nanos = tokio::task::block_in_place(|| bed.read_metrics())?;
            hung.metrics.add([nanos]);
        }
        pair.turn(&mut hung.outcomes).await?;
        turns += 1;
    }
    Ok(())
}

/// Counts operations until the controller has given up on the blade.
async fn count(blade: &StandIn, begin: Instant, clients: &[Program]) -> Result<Rate> {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let counting = rate(clients, move || {
        told.load(Ordering::Relaxed) || begin.elapsed() > ROUND
    });
    let ending = async {
        let _ = timeout(ROUND, blade.gone()).await;
        is_over.store(true, Ordering::Relaxed);
    };
    let (rate, ()) = tokio::join!(counting, ending);
    rate
}

/// What others want of the hung blade, while they wait for it.
struct Held {
    /// The vma that is left when the blade is gone.
    left: Mapped,
    waiting: JoinSet<Result<(), mind_connection::ClientError>>,
}

impl Held {
    /// The last blade gets two pages, hangs, and others want them: the vma of one is unmapped, the other is said to be
    /// stuck. Returns when the controller has given the blade an order that it does not answer.
    async fn begin(bed: &Bed, other: &Program) -> Result<Self> {
        let (unmapped, stuck) = (other.map(PAGE).await?, other.map(PAGE).await?);
        let (blade, stand_in) = bed.last()?;
        let domain = stand_in.enter(HELD, 1).await?;
        ensure!(
            domain == other.domain(),
            "one name is of two domains, {domain} and {}",
            other.domain()
        );
        let (number, incarnation) = stand_in.identity();
        let connection = Connection {
            blade: BladeId::from_low_bits(number.into()),
            incarnation,
        };
        let requester = Requester::bind(bed.testbed(), &blade.name, connection, domain)?;
        for page in [unmapped.va, stuck.va] {
            requester.own(bed.operator(), &blade.name, page).await?;
        }
        stand_in.hang();
        let mut waiting = JoinSet::new();
        let (program, page) = (other.clone(), stuck.va);
        waiting.spawn(async move { program.report_stuck(page).await });
        let program = other.clone();
        waiting.spawn(async move { program.unmap(unmapped).await });
        timeout(LIMIT, stand_in.ignores_an_order())
            .await
            .context("the controller does not order the blade to give its pages up")?;
        Ok(Self {
            left: stuck,
            waiting,
        })
    }

    /// The blade is gone: what waited for it is over.
    async fn end(mut self, other: &Program) -> Result<()> {
        while let Some(waited) = self.waiting.join_next().await {
            waited?.context("what waited for the blade failed")?;
        }
        Ok(other.unmap(self.left).await?)
    }
}

/// Sends requests for pages from the blade's address, as its agent would.
struct Requester {
    socket: UdpSocket,
    qp: u32,
    domain: DomainId,
}

impl Requester {
    fn bind(testbed: &Testbed, blade: &str, connection: Connection, domain: u32) -> Result<Self> {
        let own = testbed.plan().blade(blade)?.address;
        let socket = testbed.within(blade, || -> Result<_> {
            let socket = UdpSocket::bind(SocketAddrV4::new(own, UDP_PORT))
                .with_context(|| format!("cannot bind to port {UDP_PORT} of {blade}"))?;
            socket.connect(SocketAddrV4::new(Plan::switch_address(), UDP_PORT))?;
            mind_dataplane::checksum::leave_out(&socket)
                .context("cannot switch UDP checksums off")?;
            Ok(socket)
        })?;
        Ok(Self {
            socket,
            qp: connection.to_qp(),
            domain: DomainId(domain),
        })
    }

    /// The bytes of a request to write to a page.
    fn request(&self, page: u64, seq: u32) -> Result<Vec<u8>> {
        request(self.qp, self.domain, page, seq)
    }

    /// Asks to write to a page until the directory says that the blade owns its region. No answer is waited for: no
    /// memory blade sends one here.
    async fn own(&self, operator: &Client, blade: &str, page: u64) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            // An error says only that no memory blade has listened to the last one.
            let _ = self.socket.send(&self.request(page, attempt as u32)?);
            if owns(&region_at(operator, page).await?, blade) {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
        }
        let found = region_at(operator, page).await?;
        bail!("{ATTEMPTS} requests of {blade} for {page:#x} did not make it the owner: {found:?}");
    }
}

/// The bytes of a request to write to a page.
fn request(qp: u32, domain: DomainId, page: u64, seq: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; PAGE_REQUEST_LEN];
    let datagram = Datagram::<&mind_common::addr::Page> {
        envelope: Envelope {
            qp,
            seq: Seq::new(seq),
            attempt: 0,
        },
        body: Body::acquire(PageRequest {
            page: Va(page),
            domain,
        }),
    };
    let length = datagram
        .emit_into(&mut bytes)
        .context("a request has room")?;
    bytes.truncate(length);
    Ok(bytes)
}

/// The region of a page, if it has one.
async fn region_at(operator: &Client, page: u64) -> Result<Option<RegionStatus>> {
    let request = Request::ListRegions {
        from: page,
        to: page + PAGE,
        order: RegionOrder::Address,
        limit: 1,
    };
    match operator.call(request).await? {
        Reply::Regions { regions, .. } => Ok(regions.into_iter().next()),
        other => Err(unexpected(&other).into()),
    }
}

/// Whether a blade is the region's owner.
fn owns(region: &Option<RegionStatus>, blade: &str) -> bool {
    region
        .as_ref()
        .is_some_and(|region| region.state == "modified" && region.blades == [blade])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_as_one_for_the_page_by_the_blade() {
        let page = mind_common::addr::WINDOW_BASE + PAGE;
        let bytes = request(0x1203, DomainId(7), page, 5).expect("it is one");
        let parsed = Datagram::parse(&bytes).expect("it can be read");
        assert_eq!(
            (parsed.envelope.qp, parsed.envelope.seq),
            (0x1203, Seq::new(5))
        );
        let wanted = PageRequest {
            page: Va(page),
            domain: DomainId(7),
        };
        assert_eq!(parsed.body, Body::acquire(wanted));
    }

    #[test]
    fn only_the_blade_that_may_write_owns_a_region() {
        let region = |state: &str, blades: &[&str]| {
            Some(RegionStatus {
                va: 0,
                length: 0,
                slot: 1,
                state: state.to_owned(),
                blades: blades.iter().map(|name| (*name).to_owned()).collect(),
                requester: None,
                episode: 0,
                accesses: 0,
                invalidations: 0,
                dropped: 0,
                flushed: 0,
            })
        };
        assert!(owns(&region("modified", &["c3"]), "c3"));
        assert!(!owns(&region("modified", &["c2"]), "c3"));
        assert!(!owns(&region("shared", &["c3"]), "c3"));
        assert!(!owns(&None, "c3"));
    }
}
