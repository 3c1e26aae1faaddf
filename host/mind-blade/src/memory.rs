//! The agent of a memory blade: allocates the pages, loads the program that serves them, and zeroes
//! them when the controller maps them. The data path is in the eBPF program only.

use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Command, Errno, Failure,
    message::{BladeKind, Identity, Report},
};
use mind_common::{addr::PAGE_SIZE, id::Connection, verdict::Verdict};
use mind_dataplane::{MemoryLimits, PacketCounters, Responder, Store, attach};
use mind_metrics::{Families, catalogue};

use crate::{Common, controller};

/// How long pages are zeroed before other commands of the controller's are carried out.
const ZEROING: Duration = Duration::from_millis(50);
/// Pages that are zeroed between two looks at the clock: a whole number of the controller's granules.
const ZEROED: usize = 1024;

/// What `mind-blade memory` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// What to offer: whole pages, such as 4G.
    #[arg(long, value_name = "SIZE", value_parser = mind_cli::whole_pages)]
    size: u64,
    /// Where to pin the program, in a BPF file system: a folder of this blade's own.
    #[arg(
        long,
        value_name = "FOLDER",
        env = "MIND_PIN",
        default_value = "/sys/fs/bpf/mind"
    )]
    pin: PathBuf,
}

/// The folder of the pins, which is this agent's alone. Removes what is pinned there, however the agent ends.
struct Pinned {
    interface: String,
    folder: PathBuf,
    /// Locked as long as the agent runs; the kernel unlocks it at its end.
    _lock: File,
}

impl Pinned {
    /// Locks the folder, and removes what a killed agent left there: its program would go on serving pages that the
    /// controller has given up.
    fn take(interface: &str, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let lock = File::open(folder)
            .with_context(|| format!("cannot open the folder {}", folder.display()))?;
        if lock.try_lock().is_err() {
            bail!(
                "another memory blade has its pins in {}; give this one a folder of its own with --pin",
                folder.display()
            );
        }
        let pinned = Self {
            interface: interface.to_owned(),
            folder: folder.to_owned(),
            _lock: lock,
        };
        pinned.remove().with_context(|| {
            format!(
                "cannot remove what an earlier agent left in {}",
                folder.display()
            )
        })?;
        Ok(pinned)
    }

    fn remove(&self) -> mind_dataplane::Result<()> {
        attach::detach_responder(&self.interface, &self.folder)?;
        Responder::remove_pins(&self.folder)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::error!(%error, "the responder stays pinned, or attached");
        }
        // The folder goes with the last pin, if this agent made it.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let pages = args.size / PAGE_SIZE as u64;
    let count = u32::try_from(pages).with_context(|| {
        format!(
            "--size {} is {pages} pages; expected at most {}",
            args.size,
            u32::MAX
        )
    })?;
    let _pinned = Pinned::take(&args.common.interface, &args.pin)?;
    let mut responder = Responder::load(&MemoryLimits::for_pages(count))
        .with_context(|| format!("cannot offer {} bytes", args.size))?;
    let mut registered = controller::register(&args.common, BladeKind::Memory, pages).await?;
    responder.set_identity(registered.own.address, registered.switch)?;
    responder.pin(&args.pin)?;
    attach::attach_responder(&mut responder, &args.common.interface, &args.pin)?;
    let ifindex = attach::index_of(&args.common.interface)?;
    let responder = Arc::new(responder);
    let (shown, name) = (Arc::clone(&responder), args.common.name.clone());
    args.common
        .show_metrics(move || {
            let counters = shown.packet_counters(ifindex);
            let counters =
                counters.inspect_err(|error| tracing::warn!(%error, "packets are not shown"));
            std::future::ready(families(&name, args.size, counters.ok().as_ref()))
        })
        .await?;
    tracing::info!(
        number = registered.number,
        incarnation = registered.incarnation,
        pages,
        "ready"
    );
    controller::ready()?;

    let end = controller::told_to_end();
    tokio::pin!(end);
    loop {
        tokio::select! {
            result = &mut end => return result,
            received = registered.commands.next() => {
                let received = received.context("its memory is lost")?;
                if matches!(received.command, Command::Leave) {
                    bail!("the switch sends no requests to this memory blade any more; its memory is lost");
                }
                let responder = Arc::clone(&responder);
                let identity = Identity {
                    number: registered.number,
                    incarnation: registered.incarnation,
                    pages,
                    processes: BTreeSet::new(),
                };
                let work = move || carry_out(responder.store(), identity, &received.command);
                let result = tokio::task::spawn_blocking(work)
                    .await
                    .context("zeroing pages failed")?;
                if registered.client.answer_command(received.id, result).is_err() {
                    tracing::warn!("the connection to the controller ended before an answer was sent");
                }
            }
        }
    }
}

/// The metrics of a memory blade.
fn families(blade: &str, bytes: u64, counters: Option<&PacketCounters>) -> Families {
    let mut families = Families::with_label("blade", blade);
    families.of(&catalogue::OFFERED).add(&[], bytes as f64);
    let mut packets = families.of(&catalogue::RESPONDER_PACKETS);
    // Those that were not met, too: a rate begins with the first.
    for verdict in Verdict::ALL {
        let count = counters.map_or(0, |counters| counters.of_verdict(verdict));
        packets.add(&[verdict.name(), verdict.kind().name()], count as f64);
    }
    families
}

/// Zeros pages until it is time for other commands; how many of them.
fn zero(store: &Store, first: usize, count: usize) -> mind_dataplane::Result<u64> {
    let begin = Instant::now();
    let mut done = 0;
    while done < count && (done == 0 || begin.elapsed() < ZEROING) {
        let part = ZEROED.min(count - done);
        store.zero(first + done, part)?;
        done += part;
    }
    Ok(done as u64)
}

fn carry_out(store: &Store, identity: Identity, command: &Command) -> Result<Report, Failure> {
    let invalid = |message: String| Failure::new(Errno::EINVAL, message);
    let number = |number: u64| {
        let message = format!("there is no page {number}");
        usize::try_from(number).map_err(|_| invalid(message))
    };
    let result = match *command {
        Command::ZeroPages { first, count } => {
            let pages = zero(store, number(first)?, number(count)?);
            return pages
                .map(|pages| Report::Zeroed { pages })
                .map_err(|error| invalid(error.to_string()));
        }
        Command::FencePages { first, count } => store.fence(number(first)?, number(count)?),
        Command::FenceBlade { qp } => {
            let Some(connection) = Connection::from_qp(qp) else {
                return Err(invalid(format!("no compute blade has queue pair {qp:#x}")));
            };
            store.fence_blade(connection);
            Ok(())
        }
        Command::Identify => return Ok(Report::Identity(identity)),
        Command::FlushRange { .. } | Command::CountCache | Command::Leave => {
            return Err(Failure::new(Errno::ENOSYS, "a memory blade caches nothing"));
        }
    };
    result
        .map(|()| Report::Done)
        .map_err(|error| invalid(error.to_string()))
}
