//! The connections of this host's programs: a thread for each, since there are few and they block.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Errno, Failure, Reply, Request,
    program::{Call, FromBlade, Mapping, ToBlade, VERSION},
};
use mind_common::{
    addr::{Va, WINDOW_BASE, WINDOW_SIZE},
    id::{BladeId, DomainId},
};
use mind_connection::{Client, ClientError, packets::Packets};
use mind_machines::compute::Access;
use mind_userfault::{Backing, Userfault};
use rustix::process::{Pid, PidfdFlags};

use crate::controller;

use super::{
    accept::GREETING,
    engine::{self, Notice},
    programs::ProgramId,
};

/// What the threads share.
pub(super) struct Server {
    engine: engine::Handle,
    controller: Client,
    blade: BladeId,
    runtime: tokio::runtime::Handle,
    next: AtomicU64,
    /// The memory of each domain that has programs here.
    memories: Mutex<HashMap<DomainId, Weak<Backing>>>,
    /// Processes that the controller counts as running here, by domain.
    processes: Mutex<BTreeSet<(u32, i32)>>,
    /// The programs that are attached.
    members: Mutex<HashMap<ProgramId, Member>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are consistent even if a thread panicked with the lock held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program of a domain, as the others see it.
struct Member {
    domain: DomainId,
    packets: Arc<Packets>,
    /// For the thread that passes notices on to it.
    notices: mpsc::Sender<Notice>,
    /// Whether it will be told that anything may have changed, because it did not read what came before.
    is_behind: Arc<AtomicBool>,
}

impl Server {
    pub(super) fn new(
        engine: engine::Handle,
        controller: Client,
        blade: BladeId,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        Self {
            engine,
            controller,
            blade,
            runtime,
            next: AtomicU64::new(1),
            memories: Mutex::default(),
            processes: Mutex::default(),
            members: Mutex::default(),
        }
    }

    /// The processes that the controller counts as running here, by domain.
    pub(super) fn processes(&self) -> BTreeSet<(u32, i32)> {
        lock(&self.processes).clone()
    }

    /// Serves a program until it is gone.
    pub(super) fn serve(&self, packets: Packets) {
        let packets = Arc::new(packets);
        match self.serve_until_gone(&packets) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "a program was refused");
            }
        }
    }

    fn ask(&self, request: Request) -> Result<Reply, Failure> {
        self.ask_within(request, controller::LIMIT)
    }

    fn ask_within(&self, request: Request, limit: Duration) -> Result<Reply, Failure> {
        self.runtime
            .block_on(self.controller.call_within(request, limit))
            .map_err(|error| match error {
                ClientError::Refused(failure) => failure,
                other => Failure::new(Errno::EIO, other.to_string()),
            })
    }

    /// The memory of a domain on this blade.
    fn memory(&self, domain: DomainId) -> Result<Arc<Backing>, Failure> {
        let mut memories = lock(&self.memories);
        if let Some(memory) = memories.get(&domain).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = Backing::new(&format!("mind-{domain}"))
            .map_err(|error| Failure::new(Errno::ENOMEM, error.to_string()))?;
        let memory = Arc::new(memory);
        memories.insert(domain, Arc::downgrade(&memory));
        Ok(memory)
    }

    fn serve_until_gone(&self, packets: &Arc<Packets>) -> Result<()> {
        let pid = packets
            .peer()
            .context("cannot read a program's process id")?;
        // While this is open, the process id is not used again.
        let process = Pid::from_raw(pid)
            .context("a program of no process")
            .and_then(|pid| {
                rustix::process::pidfd_open(pid, PidfdFlags::empty())
                    .context("a program that has ended")
            })?;
        let mut first = begin(packets)?;
        while let Some((ToBlade::Report, _)) = first {
            let (to, answer) = tokio::sync::oneshot::channel();
            self.engine.send(engine::Command::Report { to });
            let report = answer.blocking_recv().context("the engine has ended")?;
            packets.send(&FromBlade::Report(Box::new(report)), None)?;
            first = packets.receive()?;
        }
        let (domain, on_loss) = match first {
            None => return Ok(()),
            Some((
                ToBlade::Attach {
                    version,
                    domain,
                    on_loss,
                },
                _,
            )) if version == VERSION => (domain, on_loss),
            Some((ToBlade::Attach { version, .. }, _)) => {
                let message = format!("the program speaks version {version}, this agent {VERSION}");
                let failure = Failure::new(Errno::EPROTO, message.clone());
                packets.send(&FromBlade::Refused { failure }, None)?;
                bail!(message);
            }
            other => bail!("process {pid} begins with {other:?}"),
        };
        let entered = self.ask(Request::EnterProcess {
            domain,
            pid,
            on_loss,
        });
        let number = match entered {
            Ok(Reply::Entered { domain }) => domain,
            Ok(other) => bail!("the controller answers a process with {other:?}"),
            Err(failure) => {
                packets.send(
                    &FromBlade::Refused {
                        failure: failure.clone(),
                    },
                    None,
                )?;
                return Err(failure.into());
            }
        };
        lock(&self.processes).insert((number, pid));
        let result = self.serve_member(packets, (&process, pid), DomainId(number));
        if !matches!(result, Ok(Left::Detached)) {
            // The end of the connection is not yet the end of the process.
            wait_for(&process);
        }
        self.depart(packets, number, pid);
        result.map(|_| ())
    }

    /// Answers an attachment, and has the program notified of changes from then on: the notice of a change must not come
    /// before the answer, and none may be missing after it.
    fn enter(&self, id: ProgramId, member: Member) -> Result<()> {
        let mut members = lock(&self.members);
        let packets = Arc::clone(&member.packets);
        members.insert(id, member);
        // All that is sent before is one short message: this needs no wait.
        packets.try_send(&FromBlade::Attached)?;
        Ok(())
    }

    fn depart(&self, packets: &Arc<Packets>, domain: u32, pid: i32) {
        let id = {
            let mut members = lock(&self.members);
            let id = members
                .iter()
                .find(|(_, member)| Arc::ptr_eq(&member.packets, packets))
                .map(|(id, _)| *id);
            id.inspect(|id| {
                members.remove(id);
            })
        };
        if let Some(id) = id {
            self.engine.send(engine::Command::Detach { id });
        }
        // However long there is no controller: until then it counts the process.
        match self.ask_within(Request::ExitProcess { domain, pid }, Duration::MAX) {
            Ok(_) => {
                lock(&self.processes).remove(&(domain, pid));
            }
            Err(failure) => {
                tracing::error!(pid, domain, %failure, "the controller still counts a process that has ended");
            }
        }
    }

    /// Attaches a process of `domain`, and answers its calls until it is gone.
    fn serve_member(
        &self,
        packets: &Arc<Packets>,
        (process, pid): (&OwnedFd, i32),
        domain: DomainId,
    ) -> Result<Left> {
        let memory = self.memory(domain)?;
        let message = FromBlade::Memory {
            domain: domain.0,
            blade: self.blade.get(),
        };
        packets.send(&message, Some(memory.as_fd()))?;
        let userfault = match begin(packets)? {
            Some((ToBlade::Userfault, Some(fd))) => Userfault::from_fd(fd),
            other => bail!("expected a userfaultfd, got {other:?}"),
        };
        let id = ProgramId(self.next.fetch_add(1, Ordering::Relaxed));
        let (notices, incoming) = mpsc::channel();
        let is_behind = Arc::new(AtomicBool::new(false));
        let (telling, behind) = (Arc::clone(packets), Arc::clone(&is_behind));
        std::thread::Builder::new()
            .name("notices".into())
            .spawn(move || tell(&telling, &incoming, &behind))
            .context("cannot start a thread for a program")?;
        self.engine.send(engine::Command::Attach {
            id,
            domain,
            userfault,
            backing: memory,
            notices: notices.clone(),
        });
        let member = Member {
            domain,
            packets: Arc::clone(packets),
            notices,
            is_behind,
        };
        self.enter(id, member)?;

        loop {
            match next(packets, process)? {
                Some(ToBlade::Call { id, call }) => {
                    let result = self.call((domain, pid), call);
                    packets.send(&FromBlade::Answer { id, result }, None)?;
                }
                Some(ToBlade::Detach) => return Ok(Left::Detached),
                Some(_) => bail!("a program attaches twice"),
                None => return Ok(Left::Gone),
            }
        }
    }

    fn call(&self, (domain, pid): (DomainId, i32), call: Call) -> Result<Option<Mapping>, Failure> {
        let number = domain.0;
        let (request, changed) = match call {
            Call::Map { length, access } => (
                Request::Map {
                    domain: number,
                    length,
                    access,
                },
                None,
            ),
            Call::Unmap { va, length } => (
                Request::Unmap {
                    domain: number,
                    pid,
                    va,
                    length,
                },
                None,
            ),
            Call::Protect { va, length, access } => (
                Request::Protect {
                    domain: number,
                    va,
                    length,
                    access,
                },
                Some(Mapping { va, length }),
            ),
            Call::OpenArea {
                name,
                length,
                access,
                open,
            } => (
                Request::OpenArea {
                    domain: number,
                    pid,
                    name,
                    length,
                    access,
                    open,
                },
                None,
            ),
            Call::Sync { va, length } => return self.sync(domain, va, length),
            Call::UnlinkArea { name } => (
                Request::UnlinkArea {
                    domain: number,
                    name,
                },
                None,
            ),
        };
        let mapping = match self.ask(request)? {
            Reply::Mapped { va, length } => Some(Mapping { va, length }),
            _ => None,
        };
        if let Some(range) = mapping.or(changed) {
            self.changed(domain, range);
        }
        Ok(mapping)
    }

    /// Writes what the domain's programs wrote to a range back to memory.
    fn sync(&self, domain: DomainId, va: u64, length: u64) -> Result<Option<Mapping>, Failure> {
        if !Va(va).is_in_window(length) {
            let message = format!("{length} bytes at {va:#x} are not in the window");
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let (done, answer) = tokio::sync::oneshot::channel();
        self.engine.send(engine::Command::Flush {
            range: Va(va).page().0..va + length,
            domain: Some(domain),
            done,
        });
        match answer.blocking_recv() {
            // The blade must not stay the owner either: when a blade is lost, the regions that it owns count as lost.
            Ok(0) => self
                .ask(Request::Sync {
                    domain: domain.0,
                    va,
                    length,
                })
                .map(|_| None),
            Ok(lost) => {
                let message = format!("{lost} pages could not be written back and are lost");
                Err(Failure::new(Errno::EIO, message))
            }
            Err(_) => Err(Failure::new(Errno::EIO, "the blade is ending")),
        }
    }

    /// Notifies the domain's programs that denied accesses may be permitted now. One that does not read, since it is
    /// stopped for example, holds none of the others up: it is notified when it reads again.
    fn changed(&self, domain: DomainId, range: Mapping) {
        let members = lock(&self.members);
        for member in members.values().filter(|member| member.domain == domain) {
            if member.is_behind.load(Ordering::SeqCst) {
                continue;
            }
            match member.packets.try_send(&FromBlade::Changed { range }) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    member.is_behind.store(true, Ordering::SeqCst);
                    // Its thread ends with it only.
                    let _ = member.notices.send(Notice::AllChanged);
                }
                // A program that is gone needs no notice.
                _ => {}
            }
        }
    }
}

/// Waits for a message that begins a connection, in bounded time.
fn begin(packets: &Packets) -> Result<Option<(ToBlade, Option<OwnedFd>)>> {
    if !packets.wait(GREETING)? {
        bail!("nothing came of a program within {GREETING:?}");
    }
    Ok(packets.receive::<ToBlade>()?)
}

/// Passes notices on to a program, until it is gone.
fn tell(packets: &Packets, notices: &mpsc::Receiver<Notice>, is_behind: &AtomicBool) {
    for notice in notices {
        let message = match notice {
            Notice::Denied { page, access } => FromBlade::Denied {
                page: page.0,
                readable: access == Access::Write,
            },
            Notice::Unreachable { page } => FromBlade::Unreachable { page: page.0 },
            Notice::AllChanged => {
                // Before it is sent: a change that comes from now on needs a notice of its own.
                is_behind.store(false, Ordering::SeqCst);
                FromBlade::Changed {
                    range: Mapping {
                        va: WINDOW_BASE,
                        length: WINDOW_SIZE,
                    },
                }
            }
        };
        if packets.send(&message, None).is_err() {
            return;
        }
    }
}

/// How a program left.
enum Left {
    /// It is gone, or its connection is.
    Gone,
    /// Its process goes on, without the window.
    Detached,
}

/// Waits for a program's next message; `None` when it is gone. The end of its connection alone
/// would not show that: a child that it forked may still have the connection open.
fn next(packets: &Packets, process: &OwnedFd) -> Result<Option<ToBlade>> {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut events = [
            PollFd::new(packets, PollFlags::IN),
            PollFd::new(process, PollFlags::IN),
        ];
        match poll(&mut events, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for a program"),
            // Messages sent before it ended come first.
            Ok(_) if !events[0].revents().is_empty() => {
                let message = packets.receive::<ToBlade>()?;
                return Ok(message.map(|(message, _)| message));
            }
            Ok(_) => return Ok(None),
        }
    }
}

/// Waits for the end of a process.
fn wait_for(process: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut events = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut events, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) | Ok(_) => return,
        }
    }
}
