//! The second limit: a request as long as its answer, from user space through a switch that decides
//! nothing to an XDP program that answers with a page, and back. The namespaces are a testbed's
//! without daemons; the programs are `mind_bare_redirect` and `mind_bare_answer`.

use mind_machines::datagram::Body;
use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_cli::Interrupt;
use mind_common::{
    addr::{PAGE_SIZE, Va, WINDOW_BASE},
    id::DomainId,
    serial::Seq,
    wire::{MAX_LEN, PAGE_REQUEST_LEN, UDP_PORT},
};
use mind_dataplane::{attach, harness::Bare};
use mind_machines::datagram::{Datagram, Envelope, PageRequest};
use netns_setup::{
    Options, Testbed,
    plan::{INTERFACE, SWITCH},
};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType},
};

use crate::system::{
    placement::Placement,
    task::{Answer, Serve, Task, misplaced},
    worker::Worker,
};

/// The blade that sends requests, and the one that answers.
const REQUESTER: &str = "c0";
const SERVER: &str = "m0";
/// Exchanges before it counts: addresses are resolved, caches warm.
const WARM_UP: usize = 200;
/// How long an answer may take before it is lost, which ends the bench.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bytes of the answers' page.
const FILLING: u8 = 0x5a;

/// Brings the bare network up, measures `count` exchanges, and takes it down.
pub(super) fn measure(
    placement: &Placement,
    count: usize,
    interrupt: &Interrupt,
) -> Result<Vec<u64>> {
    interrupt.check()?;
    let options = Options {
        compute: 1,
        memory: 1,
        services: None,
        ..Options::default()
    };
    let testbed = Testbed::guarded(&options).context("cannot bring the bare network up")?;
    // Dropped, and with it detached, before the testbed goes, and after the worker.
    let _bare = bare(&testbed).context("cannot make the bare network")?;
    let address = |name| -> Result<Ipv4Addr> { Ok(testbed.plan().blade(name)?.address) };
    let args = [
        // It is the counterpart of the engine in the system.
        format!("--cpu={}", placement.engine(0)),
        "network".to_owned(),
        format!("--own={}", address(REQUESTER)?),
        format!("--server={}", address(SERVER)?),
    ];
    let mut worker = Worker::start("the requester", args, interrupt, |command| {
        Ok(testbed.spawn(REQUESTER, command)?)
    })?;
    worker.times(&Task::Measure { count: WARM_UP })?;
    worker.times(&Task::Measure { count })
}

/// Loads and attaches the bare programs.
fn bare(testbed: &Testbed) -> Result<Bare> {
    let mut bare = testbed.within(SWITCH, || -> Result<_> {
        // Ports are called as their blades.
        let requester = attach::index_of(REQUESTER)?;
        let server = attach::index_of(SERVER)?;
        let mut bare = Bare::load(1 + requester.max(server))?;
        bare.set_page(&[FILLING; PAGE_SIZE])?;
        bare.connect(requester, server)?;
        bare.connect(server, requester)?;
        Ok(bare)
    })?;
    // The answering side is ready before requests are sent.
    testbed.within(SERVER, || -> Result<()> {
        Ok(bare.attach_answer(INTERFACE)?)
    })?;
    testbed.within(SWITCH, || -> Result<()> {
        bare.attach_redirect(SERVER)?;
        Ok(bare.attach_redirect(REQUESTER)?)
    })?;
    Ok(bare)
}

/// A socket like that of a compute blade's agent.
pub(crate) struct Requester {
    socket: OwnedFd,
    seq: Seq,
}

impl Requester {
    /// Binds to the RoCEv2 port of `own`.
    pub(crate) fn bind(own: Ipv4Addr, server: Ipv4Addr) -> Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .context("cannot make a UDP socket")?;
        let address = SocketAddrV4::new(own, UDP_PORT);
        rustix::net::bind(&socket, &address)
            .with_context(|| format!("cannot bind to {address}"))?;
        let server = SocketAddrV4::new(server, UDP_PORT);
        rustix::net::connect(&socket, &server)
            .with_context(|| format!("there is no route to {server}"))?;
        mind_dataplane::checksum::leave_out(&socket).context("cannot switch UDP checksums off")?;
        Ok(Self {
            socket,
            seq: Seq::new(1),
        })
    }

    /// Sends a request and polls for the answer; returns nanoseconds.
    fn exchange(&mut self, request: &mut [u8], answer: &mut [u8]) -> Result<u64> {
        self.seq = self.seq.next();
        let message = Body::read(PageRequest {
            page: Va(WINDOW_BASE),
            domain: DomainId(0),
        });
        let envelope = Envelope {
            qp: 0,
            seq: self.seq,
            attempt: 0,
        };
        Datagram {
            envelope,
            body: message,
        }
        .emit_into(request)
        .context("a request has room in a request's buffer")?;
        let begin = Instant::now();
        rustix::net::send(&self.socket, request, SendFlags::empty())
            .context("cannot send a request")?;
        let len = loop {
            match rustix::net::recv(&self.socket, &mut *answer, RecvFlags::empty()) {
                Ok((len, _)) => break len,
                Err(Errno::AGAIN | Errno::INTR) if begin.elapsed() < PATIENCE => {
                    std::hint::spin_loop();
                }
                Err(Errno::AGAIN) => bail!(
                    "the bare network has not answered for {} s",
                    PATIENCE.as_secs()
                ),
                Err(errno) => return Err(errno).context("cannot receive an answer"),
            }
        };
        let nanos = begin.elapsed().as_nanos() as u64;
        match Datagram::parse(&answer[..len]) {
            Ok(Datagram {
                envelope,
                body: Body::ReadResponse { data, .. },
            }) => ensure!(
                envelope.seq == self.seq && data == &[FILLING; PAGE_SIZE],
                "the bare network's answer is for another request"
            ),
            Ok(other) => bail!("the bare network answers with {:?}", other.body.opcode()),
            Err(error) => bail!("the bare network's answer cannot be parsed: {error}"),
        }
        Ok(nanos)
    }
}

impl Serve for Requester {
    fn serve(&mut self, task: &Task) -> Result<Answer> {
        let Task::Measure { count } = *task else {
            return Err(misplaced(task));
        };
        let mut request = [0; PAGE_REQUEST_LEN];
        let mut answer = [0; MAX_LEN];
        let nanos = (0..count)
            .map(|_| self.exchange(&mut request, &mut answer))
            .collect::<Result<_>>()?;
        Ok(Answer::Times { nanos })
    }
}
