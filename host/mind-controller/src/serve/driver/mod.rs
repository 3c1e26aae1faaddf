//! The driver of the controller's machine ([`mind_machines::controller`]): one task that owns it. What comes in on
//! connections goes into the machine, and what the machine wants is done: acts on the maps and records at once, commands
//! and answers on connections, events to the log and the metrics. The task waits for messages and for the machine's
//! deadline, and for nothing else, so that nothing that hangs delays it.
//!
//! * [`tables`]: acts on the maps of the data plane,
//! * [`packets`]: waiting until packets have left the switch, and for what runs out in it,
//! * [`requests`]: what is answered without the machine,
//! * [`status`] and [`listing`]: what operators see, of the data plane and of the books; each list comes in parts
//!   ([`part`]), and one that is sorted is made between other work ([`scan`]),
//! * [`check`]: whether books, tables and blades agree,
//! * [`told`]: events, for the log and for metrics,
//! * [`epochs`]: what was falsely invalidated in one,
//! * [`growth`]: whether there are to be more slots, or fewer.

mod check;
mod epochs;
mod growth;
mod listing;
mod packets;
mod part;
mod requests;
mod scan;
mod status;
mod tables;
mod told;

use std::{
    collections::{BTreeSet, HashMap},
    net::Ipv4Addr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use mind_api::{
    Command, Errno, Failure, Reply, Request,
    message::{BladeKind, Frame, Registration, Report},
    operator::{Discrepancy, Status},
};
use mind_connection::{ClientError, endpoint::Peer, lists};
use mind_dataplane::Switch;
use mind_machines::{
    controller::{
        Act, Config, Controller, Input, OperationId, Output, Seen, Session,
        books::blades::{Incarnation, Port},
    },
    splitting,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    copier::Copied, fdb::Bridge, fuse::Fuse, metrics::Events, plane::Slots, session::Trace,
    store::Store, tracer::Tracer,
};
use epochs::Epochs;
use growth::Growth;
use packets::Packets;
use scan::Scans;
use tables::Tables;

/// Messages that may wait for the driver; connections wait with the next.
const WAITING: usize = 256;
/// What the machine wants that is done before messages are looked at again.
const AT_ONCE: usize = 256;
/// Messages that are taken before the machine is asked again what it wants; fewer than that, since each may want an
/// answer at once: operations go on however many are asked for.
const TAKEN_AT_ONCE: usize = AT_ONCE / 2;
/// Commands of the driver's own have numbers from here on, those of the machine lower ones.
const OWN_COMMANDS: u64 = 1 << 63;

/// What the driver is told.
pub(super) enum Message {
    /// A connection has begun.
    Opened(Session, Connection),
    /// A request.
    Request {
        /// By whom.
        session: Session,
        /// Its number on the connection.
        id: u64,
        /// No answers to requests of lower numbers are waited for any more.
        answered: u64,
        /// What is asked.
        body: Request,
    },
    /// A blade's agent registers, of which it has been checked that addresses and port belong together.
    Register {
        /// The agent's.
        session: Session,
        /// The request's number.
        id: u64,
        /// What it says.
        registration: Registration,
        /// The index of the port's interface.
        port: u32,
    },
    /// A request that is refused without the machine.
    Refused {
        /// By whom it was made.
        session: Session,
        /// Its number.
        id: u64,
        /// Its name.
        request: &'static str,
        /// Why.
        failure: Failure,
    },
    /// An agent has carried out a command, or could not.
    Carried {
        /// The agent's.
        session: Session,
        /// The command's number.
        id: u64,
        /// What came of it.
        result: Result<Report, Failure>,
    },
    /// A connection has ended.
    Closed(Session),
    /// A look of a check is over.
    Checked(Box<check::Looked>),
    /// A check looks again.
    LookAgain(check::Asked),
    /// The packets have left the switch that were in it when an operation began to wait.
    PacketsLeft(OperationId),
    /// Little is left of slots or tables of the directory.
    Short,
    /// Something is asked by the controller's process itself, which is answered at once.
    Ask(Request, oneshot::Sender<Result<Reply, Failure>>),
}

/// A connection, as the driver sees it.
pub(super) struct Connection {
    peer: Peer,
    name: String,
    outgoing: mpsc::Sender<Frame>,
    trace: Trace,
    /// Commands that are not answered yet.
    commands: BTreeSet<u64>,
    /// What its last check has found.
    discrepancies: Vec<Discrepancy>,
    /// Dropped, it ends the connection.
    _alive: oneshot::Sender<()>,
}

/// How connections reach the driver.
#[derive(Clone)]
pub(super) struct Handle {
    messages: mpsc::Sender<Message>,
    sessions: Arc<AtomicU64>,
    is_complete: watch::Receiver<bool>,
}

impl Handle {
    /// Reaches what takes the messages.
    pub(super) fn new(messages: mpsc::Sender<Message>, is_complete: watch::Receiver<bool>) -> Self {
        Self {
            messages,
            sessions: Arc::new(AtomicU64::new(1)),
            is_complete,
        }
    }

    /// A connection has begun: its session, and what resolves when the driver does not want it any more.
    pub(super) async fn open(
        &self,
        peer: Peer,
        name: &str,
        outgoing: &mpsc::Sender<Frame>,
        trace: &Trace,
    ) -> (Session, oneshot::Receiver<()>) {
        let session = Session(self.sessions.fetch_add(1, Ordering::Relaxed));
        let (alive, is_over) = oneshot::channel();
        let connection = Connection {
            peer,
            name: name.to_owned(),
            outgoing: outgoing.clone(),
            trace: trace.clone(),
            commands: BTreeSet::new(),
            discrepancies: Vec::new(),
            _alive: alive,
        };
        self.send(Message::Opened(session, connection)).await;
        (session, is_over)
    }

    /// Tells the driver something, unless it has ended.
    pub(super) async fn send(&self, message: Message) {
        let _ = self.messages.send(message).await;
    }

    /// Tells when a blade is ready behind every port.
    pub(super) fn is_complete(&self) -> watch::Receiver<bool> {
        self.is_complete.clone()
    }

    /// The state of the system, read part by part as an operator does.
    ///
    /// # Errors
    ///
    /// When the driver has ended.
    pub(super) async fn status(&self) -> Result<Status, ClientError> {
        lists::status(&|request| self.ask(request)).await
    }

    async fn ask(&self, request: Request) -> Result<Reply, ClientError> {
        let (sender, answer) = oneshot::channel();
        self.send(Message::Ask(request, sender)).await;
        let ended = |_| ClientError::Lost("the controller is ending".to_owned());
        Ok(answer.await.map_err(ended)??)
    }
}

/// What a driver begins with.
pub(super) struct Setup {
    pub(super) switch: Switch,
    pub(super) store: Store,
    /// Whether there was a controller before, whose blades are to come back.
    pub(super) is_taken_over: bool,
    pub(super) bridge: Arc<Bridge>,
    /// Where the data plane is pinned.
    pub(super) pins: PathBuf,
    /// The switch's address.
    pub(super) address: Ipv4Addr,
    pub(super) fuse: Fuse,
    pub(super) copied: Arc<Copied>,
    pub(super) tracer: Arc<Tracer>,
    pub(super) events: Arc<Events>,
    /// What is to become of the number of slots.
    pub(super) slots: Slots,
    /// How long an epoch is, after which regions are split and merged, if they are.
    pub(super) epoch: Option<Duration>,
    /// Told when another data plane is to take the place of this one.
    pub(super) outgrown: oneshot::Sender<()>,
}

/// The driver.
pub(super) struct Driver {
    controller: Controller,
    tables: Tables,
    packets: Packets,
    store: Store,
    messages: mpsc::Receiver<Message>,
    /// To itself, for what goes on elsewhere.
    own: mpsc::WeakSender<Message>,
    connections: HashMap<Session, Connection>,
    /// Requests without an answer: their names, and when they came.
    asked: HashMap<(Session, u64), (&'static str, Instant)>,
    /// Commands of its own: whose they are, and what waits for the answers.
    commands: HashMap<u64, oneshot::Sender<Result<Report, Failure>>>,
    next_command: u64,
    /// Checks that wait until the machine has taken over.
    checks: Vec<check::Asked>,
    /// Checks that are not answered yet.
    checking: usize,
    /// Lists that are being made.
    scans: Scans,
    is_complete: watch::Sender<bool>,
    bridge: Arc<Bridge>,
    pins: PathBuf,
    address: Ipv4Addr,
    copied: Arc<Copied>,
    tracer: Arc<Tracer>,
    events: Arc<Events>,
    began: Instant,
    fuse: Fuse,
    growth: Growth,
    epochs: Option<Epochs>,
}

impl Driver {
    /// A driver of that data plane, and how to reach it.
    ///
    /// # Errors
    ///
    /// When records or maps cannot be read.
    pub(super) fn new(setup: Setup) -> Result<(Self, Handle)> {
        let ports = setup.bridge.ports().iter().map(|(_, index)| *index);
        let directory = setup.switch.open_directory()?;
        let shortages = setup.switch.open_shortages()?;
        let tables = Tables::new(setup.switch, ports.collect());
        let config = Config {
            splitting: setup.epoch.map(|_| splitting::Config::default()),
            ..Config::new(setup.address, tables.slots())
        };
        let epochs = setup.epoch.map(|length| Epochs::begin(length, &tables));
        let controller = match setup.is_taken_over {
            true => Controller::take_over(config, setup.store.records()?, 0),
            false => Controller::new(config),
        };
        let (own, messages) = mpsc::channel(WAITING);
        let packets = Packets::start(directory, own.downgrade())?;
        packets::tell_of_shortages(shortages, own.downgrade())?;
        let is_complete = watch::Sender::new(false);
        let handle = Handle::new(own.clone(), is_complete.subscribe());
        let driver = Self {
            controller,
            tables,
            packets,
            store: setup.store,
            messages,
            own: own.downgrade(),
            connections: HashMap::new(),
            asked: HashMap::new(),
            commands: HashMap::new(),
            next_command: OWN_COMMANDS,
            checks: Vec::new(),
            checking: 0,
            scans: Scans::default(),
            is_complete,
            bridge: setup.bridge,
            pins: setup.pins,
            address: setup.address,
            copied: setup.copied,
            tracer: setup.tracer,
            events: setup.events,
            began: Instant::now(),
            fuse: setup.fuse,
            growth: Growth::new(setup.slots, setup.outgrown),
            epochs,
        };
        Ok((driver, handle))
    }

    /// Nanoseconds since it began.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Drives the machine for as long as there is a [`Handle`].
    pub(super) async fn run(mut self) {
        loop {
            self.end_epoch();
            if let Err(error) = self.store.keep_due() {
                tracing::error!("cannot keep records, which is tried again: {error:#}");
            }
            let is_idle = self.work().await;
            let retired = self.tables.take_retired();
            self.packets.wait(retired, None);
            let has_scans = self.scan();
            let has_slots = self.grow();
            if !is_idle || has_scans || has_slots {
                for _ in 0..TAKEN_AT_ONCE {
                    if self.controller.is_full() {
                        break;
                    }
                    match self.messages.try_recv() {
                        Ok(message) => self.take(message),
                        Err(_) => break,
                    }
                }
                tokio::task::yield_now().await;
                continue;
            }
            let deadline = self.controller.deadline();
            let deadline = deadline.map(|nanos| self.began + Duration::from_nanos(nanos));
            let epoch = self.epochs.as_ref().map(Epochs::end);
            let others = epoch.into_iter().chain(self.store.due());
            let deadline = deadline.into_iter().chain(others).min();
            let is_due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                () = is_due => {}
            }
        }
    }

    /// Does what the machine wants, some of it at most; whether that was all.
    async fn work(&mut self) -> bool {
        let mut has_sent = false;
        for _ in 0..AT_ONCE {
            let Some(output) = self.controller.poll(self.now()) else {
                return true;
            };
            match output {
                Output::Act { operation, act } => {
                    // Keeping records waits for the disk. What was sent goes out before.
                    if has_sent && matches!(act, Act::Keep { .. }) {
                        tokio::task::yield_now().await;
                        has_sent = false;
                    }
                    let result = self.perform(&act);
                    self.give(Input::Done { operation, result });
                }
                Output::WaitForPackets { operation } => {
                    let retired = self.tables.take_retired();
                    self.packets.wait(retired, Some(operation));
                }
                Output::Order {
                    session,
                    order,
                    command,
                    ..
                } => {
                    self.command(session, order, command);
                    has_sent = true;
                }
                Output::Reply {
                    session, id, body, ..
                } => {
                    self.answer(session, id, body);
                    has_sent = true;
                }
                Output::KeepSoon { changes } => self.store.keep_soon(changes),
                Output::Event(event) => self.tell(event),
            }
        }
        false
    }

    fn give(&mut self, input: Input) {
        let now = self.now();
        self.controller.handle(now, input);
    }

    /// Does something at once; what came of it.
    fn perform(&mut self, act: &Act) -> Seen {
        if changes_something(act) {
            self.fuse.burn();
        }
        if let Some(seen) = self.tables.execute(act) {
            return seen;
        }
        Seen::Done(match act {
            Act::Keep { changes } => self.store.keep(changes).map_err(|error| {
                let message = format!("cannot keep records: {error:#}");
                Failure::new(Errno::EIO, message)
            }),
            _ => Ok(()),
        })
    }

    /// Takes a message.
    fn take(&mut self, message: Message) {
        match message {
            Message::Opened(session, connection) => {
                self.connections.insert(session, connection);
            }
            Message::Request {
                session,
                id,
                answered,
                body,
            } => {
                self.asked
                    .insert((session, id), (body.name(), Instant::now()));
                self.request(session, (id, answered), body);
            }
            Message::Register {
                session,
                id,
                registration,
                port,
            } => {
                self.asked
                    .insert((session, id), ("register", Instant::now()));
                self.give(Input::Register {
                    session,
                    id,
                    registration,
                    port: Port(port),
                });
            }
            Message::Refused {
                session,
                id,
                request,
                failure,
            } => {
                self.asked.insert((session, id), (request, Instant::now()));
                self.answer(session, id, Err(failure));
            }
            Message::Carried {
                session,
                id,
                result,
            } => self.carried(session, id, result),
            Message::Closed(session) => self.closed(session),
            Message::Checked(looked) => self.checked(*looked),
            Message::LookAgain(asked) => self.check(asked),
            Message::PacketsLeft(operation) => {
                let result = Seen::Done(Ok(()));
                self.give(Input::Done { operation, result });
            }
            Message::Short => self.give(Input::Short),
            Message::Ask(request, answer) => {
                let asked = self.at_once(&request).unwrap_or_else(|| {
                    let message = format!("{} is not answered at once", request.name());
                    Err(Failure::new(Errno::ENOSYS, message))
                });
                let _ = answer.send(asked);
            }
        }
    }

    // Connections.

    /// Sends a frame. A connection whose other end does not read is closed.
    fn send(&mut self, session: Session, frame: Frame) {
        let Some(connection) = self.connections.get(&session) else {
            return;
        };
        match connection.outgoing.try_send(frame) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::warn!(
                    name = connection.name, peer = %connection.peer,
                    "a connection is closed: its other end does not read what it is sent"
                );
                self.connections.remove(&session);
                self.closed(session);
            }
        }
    }

    fn command(&mut self, session: Session, id: u64, command: Command) {
        if let Some(connection) = self.connections.get_mut(&session)
            && command != Command::Leave
        {
            connection.commands.insert(id);
        }
        self.send(session, Frame::Command { id, body: command });
    }

    /// Gives an agent a command of the driver's own; what it answers. An error if the connection ends before.
    fn own_command(
        &mut self,
        session: Session,
        command: Command,
    ) -> oneshot::Receiver<Result<Report, Failure>> {
        let (sender, answer) = oneshot::channel();
        self.next_command += 1;
        let id = self.next_command;
        self.commands.insert(id, sender);
        self.command(session, id, command);
        answer
    }

    /// An agent answers a command, if it was given it.
    fn carried(&mut self, session: Session, id: u64, result: Result<Report, Failure>) {
        let connection = self.connections.get_mut(&session);
        if !connection.is_some_and(|connection| connection.commands.remove(&id)) {
            return;
        }
        if id < OWN_COMMANDS {
            self.give(Input::Report { order: id, result });
        } else if let Some(answer) = self.commands.remove(&id) {
            // What waited may have given up.
            let _ = answer.send(result);
        }
    }

    fn answer(&mut self, session: Session, id: u64, body: Result<Reply, Failure>) {
        if let Some((name, since)) = self.asked.remove(&(session, id)) {
            self.events.answered(name, body.is_ok(), since.elapsed());
            if let Err(failure) = &body {
                tracing::debug!(request = name, %failure, "refused");
            }
        }
        self.send(session, Frame::Reply { id, body });
    }

    fn closed(&mut self, session: Session) {
        if let Some(connection) = self.connections.remove(&session) {
            for command in connection.commands {
                self.commands.remove(&command);
            }
        }
        self.asked.retain(|(other, _), _| *other != session);
        self.scans.closed(session);
        self.give(Input::Closed(session));
    }

    // Blades.

    /// What people call a blade.
    fn name_of(&self, kind: BladeKind, number: u8) -> String {
        let known = self.controller.books().blades.get(kind, number);
        known.map_or_else(
            || format!("{kind:?} blade {number}"),
            |blade| blade.name.clone(),
        )
    }

    /// Whether the agent of that incarnation is connected.
    fn is_connected(&self, incarnation: Incarnation) -> bool {
        let blades = &self.controller.books().blades;
        blades.here(incarnation).is_some() && self.controller.session(incarnation).is_some()
    }

    /// Notes whether a blade is ready behind every port.
    fn note_complete(&self) {
        let blades = &self.controller.books().blades;
        let mut ports = self.bridge.ports().iter();
        let is_complete = self.controller.is_serving()
            && ports.all(|(_, index)| {
                let behind = blades.behind(Port(*index));
                behind.is_some_and(|blade| self.is_connected(blade.incarnation))
            });
        self.is_complete.send_replace(is_complete);
    }
}

/// Whether an act changes maps or records, and does not only look.
const fn changes_something(act: &Act) -> bool {
    !matches!(
        act,
        Act::Look { .. }
            | Act::Find { .. }
            | Act::LookForUses { .. }
            | Act::LookIntoBlocks { .. }
            | Act::ReadTables
            | Act::ReadSlots { .. }
    )
}
