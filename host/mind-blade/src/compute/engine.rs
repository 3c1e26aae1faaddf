//! The engine: one thread that owns the blade's state machine and carries out its actions.
//!
//! It sleeps until something comes (a datagram, a fault, a command, a timer) and works until
//! nothing is left. While it expects an answer it polls for a short time, and handles all other
//! events meanwhile, since the answer takes less time than sleeping and waking up.

use std::{
    collections::HashMap,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use mind_api::program::BladeReport;
use mind_common::{
    addr::{PAGE_SIZE, Page, Va},
    id::DomainId,
    refusal::Refusal,
    wire::Malformed,
};
use mind_machines::{
    compute::{Access, Action, Blade, Config, Counters},
    datagram::{Body, PageRequest},
};
use mind_userfault::{Backing, Fault, Userfault};
use rustix::{
    event::{EventfdFlags, Timespec, epoll},
    io::Errno,
};

use super::{
    alarm::Alarm,
    datagrams::{Datagrams, Received},
    idle_policy::IdlePolicy,
    outbox::Outbox,
    programs::{ProgramId, Programs},
    statistics::Statistics,
};

/// How long to poll for an answer before sleeping, in nanoseconds.
const POLL_FOR: u64 = Duration::from_micros(40).as_nanos() as u64;
/// Datagrams taken in a row before faults get their turn.
const DATAGRAMS_AT_ONCE: usize = 64;

/// All addresses there are.
const EVERYTHING: Range<u64> = 0..u64::MAX;

const WAKE_UP: u64 = u64::MAX;
const DATAGRAM: u64 = u64::MAX - 1;
const ALARM: u64 = u64::MAX - 2;

/// A command to the engine.
pub(crate) enum Command {
    /// A program attaches.
    Attach {
        id: ProgramId,
        domain: DomainId,
        userfault: Userfault,
        backing: Arc<Backing>,
        /// Where notices for the program go; dropped when the program is gone.
        notices: mpsc::Sender<Notice>,
    },
    /// A program is gone.
    Detach { id: ProgramId },
    /// Write back and drop the cached pages of a range, only those of `domain` if there is one;
    /// then answer with how many pages could not be written back meanwhile.
    Flush {
        range: Range<u64>,
        domain: Option<DomainId>,
        done: tokio::sync::oneshot::Sender<u64>,
    },
    /// Report counters and state.
    Report {
        to: tokio::sync::oneshot::Sender<BladeReport>,
    },
    /// Write everything back, then end.
    Stop,
}

/// A notice for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Its domain has no permission for that access to the page.
    Denied { page: Va, access: Access },
    /// The page is lost, or no memory blade serves it.
    Unreachable { page: Va },
    /// What was denied or lost anywhere may be there now.
    AllChanged,
}

/// A report to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToController {
    /// A request for the page does not complete.
    Stuck { page: Va },
    /// The writes to the page are lost: memory refused the write-back.
    Lost { page: Va },
}

/// Where to send commands.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    wake_up: Arc<OwnedFd>,
}

impl Handle {
    /// Sends a command. It is lost if the engine has ended, which ends the daemon.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&self.wake_up, &1u64.to_ne_bytes());
        }
    }

    /// The engine's counters and state; `None` if it has ended.
    pub(crate) async fn report(&self) -> Option<BladeReport> {
        let (to, report) = tokio::sync::oneshot::channel();
        self.send(Command::Report { to });
        report.await.ok()
    }
}

/// What the engine is started with.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) datagrams: Datagrams,
    pub(crate) keep_awake: bool,
    /// Where reports to the controller go.
    pub(crate) reports: tokio::sync::mpsc::UnboundedSender<ToController>,
}

/// Starts the engine in a thread of its own.
pub(crate) fn start(parts: Parts) -> Result<(Handle, std::thread::JoinHandle<Result<()>>)> {
    let (sender, commands) = mpsc::channel();
    let wake_up = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .context("cannot make an eventfd")?;
    let handle = Handle {
        commands: sender,
        wake_up: Arc::new(wake_up),
    };
    let mut engine = Engine::new(parts, commands, Arc::clone(&handle.wake_up))?;
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || engine.run())
        .context("cannot start the engine's thread")?;
    Ok((handle, thread))
}

struct Engine {
    blade: Blade,
    programs: Programs,
    datagrams: Datagrams,
    commands: mpsc::Receiver<Command>,
    wake_up: Arc<OwnedFd>,
    epoll: OwnedFd,
    notices: HashMap<ProgramId, mpsc::Sender<Notice>>,
    reports: tokio::sync::mpsc::UnboundedSender<ToController>,
    flushes: HashMap<u64, Flush>,
    next_token: u64,
    idle_policy: IdlePolicy,
    alarm: Alarm,
    statistics: Statistics,
    began: Instant,
    stopping: bool,
    actions: Vec<Action>,
    faults: Vec<(ProgramId, Fault)>,
    outbox: Outbox,
}

enum Flush {
    Asked {
        done: tokio::sync::oneshot::Sender<u64>,
        /// Pages lost before.
        lost: u64,
    },
    /// The domain's last program is gone.
    Domain(DomainId),
    End,
}

impl Engine {
    fn new(parts: Parts, commands: mpsc::Receiver<Command>, wake_up: Arc<OwnedFd>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        let alarm = Alarm::new()?;
        for (fd, data) in [
            (wake_up.as_fd(), WAKE_UP),
            (parts.datagrams.as_fd(), DATAGRAM),
            (alarm.as_fd(), ALARM),
        ] {
            epoll::add(
                &epoll,
                fd,
                epoll::EventData::new_u64(data),
                epoll::EventFlags::IN,
            )
            .context("cannot wait for datagrams, commands and time")?;
        }
        Ok(Self {
            blade: Blade::new(parts.config),
            programs: Programs::default(),
            datagrams: parts.datagrams,
            commands,
            wake_up,
            epoll,
            notices: HashMap::new(),
            reports: parts.reports,
            flushes: HashMap::new(),
            next_token: 0,
            idle_policy: IdlePolicy::new(parts.keep_awake),
            alarm,
            statistics: Statistics::new(),
            began: Instant::now(),
            stopping: false,
            actions: Vec::new(),
            faults: Vec::new(),
            outbox: Outbox::new(),
        })
    }

    /// Nanoseconds since the engine began, from 1.
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    fn run(&mut self) -> Result<()> {
        let mut received = Received::new();
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        // Until when to poll for an answer.
        let mut awake_until = 0;
        while !(self.stopping && self.blade.is_quiet()) {
            let awake = self.blade.expects_answer() && self.now() < awake_until;
            if !awake {
                self.set_alarm()?;
            }
            let timeout = awake.then(Timespec::default);
            ready.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut ready),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for events"),
            }
            let (mut commanded, mut arrived) = (false, false);
            for event in &ready {
                match event.data.u64() {
                    DATAGRAM => arrived = true,
                    WAKE_UP => commanded = true,
                    ALARM => self.alarm.rang(),
                    id => self.programs.read_faults(ProgramId(id), &mut self.faults),
                }
            }
            if commanded {
                self.obey();
            }
            self.take_faults();
            let answered = self.take_datagrams(arrived, &mut received);
            self.poll();
            self.remove_gone();
            if answered || !ready.is_empty() {
                awake_until = self.now() + POLL_FOR;
            } else if awake {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn set_alarm(&mut self) -> Result<()> {
        let due = [self.blade.next_deadline(), self.idle_policy.deadline()];
        match due.into_iter().flatten().min() {
            Some(due) => self.alarm.set(self.now(), due),
            None => Ok(()),
        }
    }

    fn poll(&mut self) {
        let now = self.now();
        self.idle_policy.note(now, 0);
        if self.blade.next_deadline().is_some_and(|at| at <= now) {
            let mut actions = std::mem::take(&mut self.actions);
            self.blade.poll(now, &mut actions);
            self.carry_out(&mut actions, None);
            self.actions = actions;
        }
    }

    /// Receives datagrams: those that have arrived, and answers that arrive as soon as their request is sent, as
    /// happens where switch and memory run on this processor. It does not poll beyond the answers that it expects: on
    /// one processor, a thread whose fault is resolved runs only when this thread sleeps. Returns whether there was
    /// any.
    fn take_datagrams(&mut self, arrived: bool, received: &mut Received) -> bool {
        let mut any = false;
        for _ in 0..DATAGRAMS_AT_ONCE {
            let wanted = arrived || self.blade.expects_answer();
            if !wanted || !self.take_datagram(received) {
                break;
            }
            any = true;
        }
        any
    }

    /// Receives a datagram; returns whether there was one.
    fn take_datagram(&mut self, received: &mut Received) -> bool {
        let with_page = self.blade.expects_page();
        if !self.datagrams.receive(received, with_page) {
            return false;
        }
        match received.parse() {
            Ok(datagram) => {
                let now = self.now();
                let mut actions = std::mem::take(&mut self.actions);
                let ignored = self.blade.counters().ignored;
                self.blade.receive(now, datagram.map(|_| ()), &mut actions);
                if self.blade.counters().ignored != ignored {
                    let (envelope, opcode) = (datagram.envelope, datagram.body.opcode());
                    tracing::trace!(?envelope, ?opcode, "a datagram that answers no request");
                }
                self.carry_out(&mut actions, datagram.data().copied());
                self.actions = actions;
            }
            // It has a page, and no request waits for one.
            Err(Malformed::Truncated { .. }) if received.is_cut => self.statistics.unwanted += 1,
            Err(error) => {
                self.statistics.malformed += 1;
                tracing::debug!(%error, "a datagram that cannot be parsed");
            }
        }
        true
    }

    fn take_faults(&mut self) {
        loop {
            self.programs.take_early(&mut self.faults);
            if self.faults.is_empty() {
                return;
            }
            let mut faults = std::mem::take(&mut self.faults);
            let now = self.now();
            self.idle_policy.note(now, faults.len());
            for (id, fault) in faults.drain(..) {
                if !fault.page.is_in_window(PAGE_SIZE as u64) {
                    // A range that the program moved to another address (mremap).
                    self.notify(id, Notice::Unreachable { page: fault.page });
                    continue;
                }
                let Some((page, access)) = self.programs.wait(id, &fault) else {
                    continue;
                };
                let mut actions = std::mem::take(&mut self.actions);
                self.blade.fault(now, page, access, &mut actions);
                self.carry_out(&mut actions, None);
                self.actions = actions;
            }
            if self.faults.is_empty() {
                self.faults = faults;
            }
        }
    }

    fn obey(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake_up, &mut count);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Attach {
                    id,
                    domain,
                    userfault,
                    backing,
                    notices,
                } => {
                    let added = epoll::add(
                        &self.epoll,
                        &userfault,
                        epoll::EventData::new_u64(id.0),
                        epoll::EventFlags::IN,
                    );
                    if let Err(errno) = added {
                        // Dropping its notices makes the program's accesses fail.
                        tracing::error!(program = id.0, %errno, "cannot wait for a program's faults");
                        continue;
                    }
                    self.notices.insert(id, notices);
                    self.programs.attach(id, domain, userfault, backing);
                }
                Command::Detach { id } => self.detach(id),
                Command::Flush {
                    range,
                    domain,
                    done,
                } => {
                    let lost = self.blade.counters().lost;
                    self.flush(range, domain, Flush::Asked { done, lost });
                }
                Command::Report { to } => {
                    let _ = to.send(self.report());
                }
                Command::Stop => {
                    self.stopping = true;
                    self.flush(EVERYTHING, None, Flush::End);
                }
            }
        }
    }

    fn report(&self) -> BladeReport {
        let counted = counted(&self.blade.counters());
        let (pages, capacity) = self.blade.room();
        BladeReport {
            programs: self.notices.len() as u64,
            pages: pages as u64,
            capacity: capacity as u64,
            ignored: counted.ignored + self.statistics.unwanted,
            malformed: self.statistics.malformed,
            unsent: self.datagrams.unsent,
            round_trip_ns: self.blade.round_trip(),
            transitions: self.statistics.transitions(),
            ..counted
        }
    }

    fn detach(&mut self, id: ProgramId) {
        self.notices.remove(&id);
        if let Some(userfault) = self.programs.userfault(id) {
            let _ = epoll::delete(&self.epoll, userfault);
        }
        if let Some(domain) = self.programs.detach(id) {
            // No program on this blade can use the domain's pages any more.
            self.flush(EVERYTHING, Some(domain), Flush::Domain(domain));
        }
    }

    fn flush(&mut self, range: Range<u64>, domain: Option<DomainId>, flush: Flush) {
        let token = self.next_token;
        self.next_token += 1;
        self.flushes.insert(token, flush);
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        self.blade.flush(now, range, domain, token, &mut actions);
        self.carry_out(&mut actions, None);
        self.actions = actions;
    }

    fn flushed(&mut self, token: u64) {
        match self.flushes.remove(&token) {
            Some(Flush::Asked { done, lost }) => {
                let _ = done.send(self.blade.counters().lost - lost);
            }
            Some(Flush::Domain(domain)) => self.programs.forget(domain),
            Some(Flush::End) | None => {}
        }
    }

    fn notify(&mut self, id: ProgramId, notice: Notice) {
        match self.notices.get(&id) {
            Some(notices) if notices.send(notice).is_ok() => {}
            _ => tracing::warn!(
                program = id.0,
                ?notice,
                "a notice could not be sent to a program"
            ),
        }
    }

    /// Detaches programs that turned out to be gone, and sends notices to those that cannot be
    /// served.
    fn remove_gone(&mut self) {
        for (id, page) in self.programs.take_starved() {
            tracing::error!(program = id.0, %page, "this host has no memory for a page that came");
            self.notify(id, Notice::Unreachable { page });
        }
        for id in self.programs.take_gone() {
            self.detach(id);
        }
    }

    fn carry_out(&mut self, actions: &mut Vec<Action>, data: Option<&Page>) {
        for action in actions.drain(..) {
            match action {
                Action::Send(datagram) => {
                    if let Body::Write { version, data, .. } | Body::Forward { version, data, .. } =
                        datagram.body
                    {
                        self.outbox
                            .put(data, version, |bytes| self.programs.read(data, bytes));
                    }
                    self.datagrams.send(&datagram.map(|_| self.outbox.page()));
                }
                Action::Install { page, writable } => {
                    self.outbox.forget();
                    match data {
                        Some(data) => self.programs.install(page, data, writable),
                        None => tracing::error!(page = %page.page, "a page came without its bytes"),
                    }
                }
                Action::Map { page, writable } => {
                    self.outbox.forget();
                    self.programs.map(page, writable);
                }
                Action::Protect { page } => {
                    self.outbox.forget();
                    self.programs.protect(page);
                }
                Action::Drop { page } => {
                    self.outbox.forget();
                    self.programs.drop_page(page);
                }
                Action::Fail {
                    page,
                    access,
                    refusal,
                } => self.fail(page, access, refusal),
                Action::Lost { page, refusal } => {
                    tracing::error!(
                        page = %page.page, domain = %page.domain, ?refusal,
                        "what was written into a page is lost: memory refused it"
                    );
                    self.plead(ToController::Lost { page: page.page });
                }
                Action::ReportStuck { page } => self.plead(ToController::Stuck { page: page.page }),
                Action::Served { transition, nanos } => self.statistics.served(transition, nanos),
                Action::Flushed { token } => self.flushed(token),
                // Only if `Config::is_watched`.
                Action::Stepped { .. } => {}
            }
        }
    }

    fn plead(&self, report: ToController) {
        // The receiver is gone while the daemon ends.
        let _ = self.reports.send(report);
    }

    fn fail(&mut self, page: PageRequest, access: Access, refusal: Refusal) {
        tracing::debug!(page = %page.page, domain = %page.domain, ?access, ?refusal, "a fault fails");
        for waiter in self.programs.take_waiters(page) {
            if waiter.access < access {
                self.programs.wake(waiter.program, page.page);
                continue;
            }
            let notice = match refusal {
                Refusal::Denied | Refusal::Invalid => Notice::Denied {
                    page: page.page,
                    access,
                },
                Refusal::Busy | Refusal::NoCopy | Refusal::Stale | Refusal::Unreachable => {
                    Notice::Unreachable { page: page.page }
                }
            };
            self.notify(waiter.program, notice);
        }
    }
}

macro_rules! counted {
    ($($(#[doc = $help:literal])+ $name:ident: $metric:literal;)+) => {
        /// A report of the machine's counters, all else 0.
        fn counted(counters: &Counters) -> BladeReport {
            BladeReport {
                $($name: counters.$name,)+
                ..BladeReport::default()
            }
        }
    };
}

mind_common::blade_counters!(counted);
