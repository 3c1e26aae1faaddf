//! One run of QEMU: its command line, the channels between host and guest, and how it came to an end. Everything
//! waits for an event: a line of the console, a report, an interrupt, the deadline.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::console::{self, Complaint};
use super::guest::{Report, port, share};
use super::kernel::Kernel;
use super::limit::Limit;
use crate::process;

/// How long a kernel that complained, or a guest that is done, has to stop by itself.
const GRACE: Duration = Duration::from_secs(10);

/// Lines of the console that are shown from the first complaint on, or when the guest stops without a word.
const SHOWN: usize = 60;

/// Who executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accelerator {
    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// What to boot.
pub(crate) struct Machine<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) initramfs: &'a Path,
    pub(crate) accelerator: Accelerator,
    pub(crate) cpus: u32,
    /// MiB.
    pub(crate) memory: u32,
    /// More arguments for the kernel.
    pub(crate) append: &'a str,
    /// The folder that the guest writes for real.
    pub(crate) writable: &'a Path,
    /// Receives all that the kernel says.
    pub(crate) console: PathBuf,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The command ended with this code.
    Exited(u8),
    /// The kernel complained.
    Complained(Complaint, String),
    /// The guest could not be made ready for the command.
    Unready(String),
    /// The guest stopped by itself, before the command ended.
    Stopped,
    /// Time ran out.
    TimedOut,
    /// The user gave up.
    Interrupted,
}

/// A run.
pub(crate) struct Run {
    pub(crate) end: End,
    /// Whether the kernel got as far as `init`.
    pub(crate) booted: bool,
    /// Whether the command began.
    pub(crate) started: bool,
    /// What the verifier walked, per program.
    pub(crate) verified: Vec<(String, u64)>,
    /// The console from the first complaint on, or its end.
    pub(crate) excerpt: Vec<String>,
}

/// What the main loop waits for.
pub(crate) enum Event {
    /// The kernel's console.
    Console(String),
    /// The guest's report.
    Report(Report),
    /// QEMU is gone.
    Gone,
    /// The user gave up.
    Interrupt,
}

/// The ends of a channel from the guest.
struct Channel {
    ours: UnixStream,
    qemus: OwnedFd,
}

impl Channel {
    fn new() -> Result<Self> {
        let (ours, qemus) = UnixStream::pair().context("cannot make a socket pair")?;
        let qemus = OwnedFd::from(qemus);
        // QEMU finds it by its number, so it must outlive `exec`.
        rustix::io::fcntl_setfd(&qemus, rustix::io::FdFlags::empty())
            .context("cannot hand a socket to QEMU")?;
        Ok(Self { ours, qemus })
    }

    fn chardev(&self, id: &str) -> String {
        format!("socket,id={id},fd={}", self.qemus.as_raw_fd())
    }
}

/// Boots `machine` and waits for its end, or for an [`Event::Interrupt`] among `events`.
pub(crate) fn run(
    machine: &Machine<'_>,
    limit: Limit,
    events: &(Sender<Event>, Receiver<Event>),
) -> Result<Run> {
    let began = Instant::now();
    let [console, report, stdout, stderr] = [
        Channel::new()?,
        Channel::new()?,
        Channel::new()?,
        Channel::new()?,
    ];
    let mut command = command(
        machine,
        &[
            ("console", &console),
            ("report", &report),
            ("stdout", &stdout),
            ("stderr", &stderr),
        ],
    );
    let complaints = machine.console.with_extension("qemu.log");
    let file = File::create(&complaints)
        .with_context(|| format!("cannot write {}", complaints.display()))?;
    let mut qemu = command
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start `{}`", process::command_line(&command)))?;
    // From here on only QEMU holds its ends: when it is gone, ours are at their end.
    let (sender, receiver) = events;
    let log = File::create(&machine.console)
        .with_context(|| format!("cannot write {}", machine.console.display()));
    let threads = log.map(|log| {
        [
            read_console(take(console), log, sender.clone()),
            read_reports(take(report), sender.clone()),
            copy(take(stdout), io::stdout()),
            copy(take(stderr), io::stderr()),
        ]
    });
    let threads = match threads {
        Ok(threads) => threads,
        Err(error) => {
            end(&mut qemu);
            return Err(error);
        }
    };

    let mut watch = Watch::new(began, limit);
    let mut asked_to_end = false;
    let mut finish = loop {
        let event = receiver.recv_timeout(watch.deadline.saturating_duration_since(Instant::now()));
        match event {
            Ok(Event::Gone) => break watch.finish(End::Stopped),
            Ok(Event::Interrupt) => break watch.finish(End::Interrupted),
            Err(RecvTimeoutError::Timeout) => break watch.finish(End::TimedOut),
            Err(RecvTimeoutError::Disconnected) => break watch.finish(End::Stopped),
            Ok(Event::Console(line)) => watch.on_console(line),
            Ok(Event::Report(report)) => watch.on_report(report),
        }
        if watch.is_over() && !asked_to_end {
            asked_to_end = true;
            watch.deadline = Instant::now() + GRACE;
        }
    };
    end(&mut qemu);
    for thread in threads {
        // Ends with QEMU's end of the channel.
        thread.join().ok();
    }
    // The reader of the console sends one last event that is not read if the loop ended otherwise.
    while receiver.try_recv().is_ok() {}
    if finish.end == End::Stopped {
        let text = fs::read_to_string(&complaints).unwrap_or_default();
        finish.excerpt.extend(text.lines().map(str::to_owned));
    }
    Ok(finish)
}

fn take(channel: Channel) -> UnixStream {
    drop(channel.qemus);
    channel.ours
}

/// Kills QEMU if it still runs.
fn end(qemu: &mut Child) {
    qemu.kill().ok();
    qemu.wait().ok();
}

fn command(machine: &Machine<'_>, channels: &[(&str, &Channel)]) -> Command {
    // However xtask ends, QEMU ends with it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
    command
        .args(["-name", "mind-vm", "-machine", "q35"])
        .args(machine.accelerator.arguments())
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-monitor", "none"])
        .args(["-smp", &machine.cpus.to_string()])
        .args(["-m", &machine.memory.to_string()])
        .arg("-kernel")
        .arg(&machine.kernel.image)
        .arg("-initrd")
        .arg(machine.initramfs)
        .args(["-append", &kernel_arguments(machine.append)])
        .args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    for (id, channel) in channels {
        command.args(["-chardev", &channel.chardev(id)]);
    }
    command.args(["-serial", "chardev:console"]);
    for (id, name) in [
        ("report", port::REPORT),
        ("stdout", port::STDOUT),
        ("stderr", port::STDERR),
    ] {
        command.args([
            "-device",
            &format!("virtserialport,chardev={id},name={name}"),
        ]);
    }
    share_folder(&mut command, share::ROOT, Path::new("/"), "readonly=on");
    share_folder(
        &mut command,
        share::WRITABLE,
        machine.writable,
        "readonly=off",
    );
    command
        .stdin(Stdio::null())
        // Ctrl-C is ours to answer.
        .process_group(0);
    command
}

fn share_folder(command: &mut Command, tag: &str, folder: &Path, access: &str) {
    // A comma in a value is written twice.
    let path = folder.to_string_lossy().replace(',', ",,");
    command
        .arg("-fsdev")
        .arg(format!(
            "local,id={tag},path={path},security_model=none,multidevs=remap,{access}"
        ))
        .arg("-device")
        .arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
}

/// The kernel's arguments: whatever goes wrong in it is to end it at once, with the reason on the console.
fn kernel_arguments(append: &str) -> String {
    const BAD_PAGE: u32 = 1 << 5;
    [
        "console=ttyS0 loglevel=6 panic=-1 oops=panic panic_on_warn=1",
        &format!("panic_on_taint={BAD_PAGE:#x}"),
        "softlockup_panic=1 hung_task_panic=1 sysctl.kernel.panic_on_rcu_stall=1",
        "nokaslr mitigations=off apparmor=0 audit=0 random.trust_cpu=on",
        append,
    ]
    .join(" ")
}

fn read_console(from: UnixStream, mut log: File, events: Sender<Event>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            log.write_all(&line).ok();
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if events.send(Event::Console(text)).is_err() {
                return;
            }
        }
        events.send(Event::Gone).ok();
    })
}

fn read_reports(from: UnixStream, events: Sender<Event>) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if let Some(report) = Report::parse(&line) {
                events.send(Event::Report(report)).ok();
            }
        }
    })
}

fn copy(mut from: UnixStream, mut to: impl io::Write + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 1 << 14];
        while let Ok(count @ 1..) = io::Read::read(&mut from, &mut bytes) {
            // Our output is not read any more: the guest's must still be taken, or it stops.
            to.write_all(&bytes[..count]).and_then(|()| to.flush()).ok();
        }
    })
}

/// What has been seen of a guest so far.
struct Watch {
    began: Instant,
    limit: Limit,
    deadline: Instant,
    booted: bool,
    started: bool,
    verified: Vec<(String, u64)>,
    excerpt: Vec<String>,
    complaint: Option<(Complaint, String)>,
    ended: Option<End>,
}

impl Watch {
    fn new(began: Instant, limit: Limit) -> Self {
        Self {
            began,
            limit,
            deadline: began + limit.before_boot(),
            booted: false,
            started: false,
            verified: Vec::new(),
            excerpt: Vec::new(),
            complaint: None,
            ended: None,
        }
    }

    fn on_console(&mut self, line: String) {
        if self.complaint.is_none()
            && let Some(complaint) = console::classify(&line)
        {
            self.complaint = Some((complaint, console::text_of(&line).to_owned()));
            self.excerpt.clear();
        }
        if self.complaint.is_none() && self.excerpt.len() == SHOWN {
            self.excerpt.remove(0);
        }
        if self.excerpt.len() < SHOWN {
            self.excerpt.push(line);
        }
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Booted => self.booted = true,
            Report::Started => {
                self.started = true;
                let boot = self.began.elapsed();
                self.deadline = self.began + self.limit.after_boot(boot);
                process::step(self.limit.explained(boot));
            }
            Report::Unready(reason) => self.ended = Some(End::Unready(reason)),
            Report::Verified {
                program,
                instructions,
            } => self.verified.push((program, instructions)),
            Report::Ended(code) => self.ended = Some(End::Exited(code)),
        }
    }

    /// Whether there is nothing more to wait for but the guest's own end.
    fn is_over(&self) -> bool {
        self.complaint.is_some() || self.ended.is_some()
    }

    /// The run, if the loop ended for the reason `last`. A complaint outweighs all; what the guest said of its own end
    /// outweighs that it is gone or had to be killed then.
    fn finish(self, last: End) -> Run {
        let end = match (self.complaint, self.ended, last) {
            (_, _, End::Interrupted) => End::Interrupted,
            (Some((complaint, text)), _, _) => End::Complained(complaint, text),
            (None, Some(ended), _) => ended,
            (None, None, last) => last,
        };
        Run {
            end,
            booted: self.booted,
            started: self.started,
            verified: self.verified,
            excerpt: self.excerpt,
        }
    }
}

/// A channel for the events of one or more runs, into which Ctrl-C (and SIGTERM) is put.
pub(crate) fn events() -> Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = mpsc::channel();
    let interrupt = sender.clone();
    ctrlc::set_handler(move || {
        interrupt.send(Event::Interrupt).ok();
    })
    .context("cannot watch for Ctrl-C")?;
    Ok((sender, receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch::new(Instant::now(), Limit::FollowsBoot)
    }

    #[test]
    fn a_complaint_outweighs_a_command_that_succeeded() {
        let mut watch = watch();
        watch.on_report(Report::Ended(0));
        watch.on_console("[ 1.0] WARNING: CPU: 0 PID: 1 at x".into());
        let run = watch.finish(End::Stopped);
        assert_eq!(
            run.end,
            End::Complained(Complaint::Warning, "WARNING: CPU: 0 PID: 1 at x".into())
        );
    }

    #[test]
    fn the_first_complaint_is_the_reason_and_all_after_it_is_shown() {
        let mut watch = watch();
        watch.on_console("[ 0.5] boring".into());
        watch.on_console("[ 1.0] BUG: kernel NULL pointer dereference".into());
        watch.on_console("[ 1.0] Kernel panic - not syncing: Fatal exception".into());
        assert!(watch.is_over());
        let run = watch.finish(End::Stopped);
        assert!(matches!(run.end, End::Complained(Complaint::Oops, _)));
        assert_eq!(run.excerpt.len(), 2);
    }

    #[test]
    fn a_guest_that_is_done_but_does_not_stop_has_still_ended() {
        let mut watch = watch();
        watch.on_report(Report::Ended(3));
        assert_eq!(watch.finish(End::TimedOut).end, End::Exited(3));
    }

    #[test]
    fn without_a_word_the_last_lines_are_kept() {
        let mut watch = watch();
        for number in 0..SHOWN + 5 {
            watch.on_console(number.to_string());
        }
        let run = watch.finish(End::TimedOut);
        assert_eq!(run.end, End::TimedOut);
        assert_eq!(run.excerpt.first().map(String::as_str), Some("5"));
        assert_eq!(run.excerpt.len(), SHOWN);
    }

    #[test]
    fn whatever_goes_wrong_in_the_guest_ends_it() {
        let arguments = kernel_arguments("page_poison=1");
        for word in [
            "panic=-1",
            "oops=panic",
            "panic_on_warn=1",
            "panic_on_taint=0x20",
        ] {
            assert!(
                arguments.split(' ').any(|argument| argument == word),
                "{word}"
            );
        }
        assert!(arguments.ends_with(" page_poison=1"));
    }
}
