//! What the switch's XDP program costs per packet: every path, timed by the kernel
//! (`BPF_PROG_TEST_RUN`) over many runs on one frame, with tables as full as a rack's.
//!
//! A test run restores nothing between runs. So what is timed is a small program that writes the
//! frame's headers and the region's word from a template, and then calls the switch's: each path's
//! figure contains that, and is an upper bound. What the template alone costs is shown beside. All
//! runs hit the same entries, which are in the processor's cache.
//!
//! On the fast path the slot has a valid memo (`mind_common::memo`), as for all packets but the
//! first since an entry was changed. What the first one costs is `i_s_cold`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use mind_common::{
    addr::{Page, Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    directory::{State, Word},
    id::{BladeId, BladeSet, Connection, DomainId},
    serial::Episode,
    table::{
        HEADERS_LEN, Headers, MAY_READ, MAY_WRITE, PEER_PRESENT, PORT_FANS_OUT, Peer, Permission,
        Port, Slot, Template, Translation,
    },
    trace::Tracing,
    verdict::Verdict,
};
use mind_dataplane::{
    MemoryLimits, Responder, Switch, SwitchLimits, TraceControl, Traces,
    harness::{Bed, Host, Packet, XdpAction},
};
use mind_machines::datagram::{Body, PageRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::output;

/// What `cargo xtask bench pipeline` takes.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON: `floor_ns`, `redirect_ns`, `restore_ns` and `paths.<name>_ns`.
    #[arg(long)]
    json: bool,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Packets per round and path.
    #[arg(long, default_value_t = 200_000)]
    packets: u32,
    /// Trace every packet and read the records beside it, as `mind-ctl trace` does.
    #[arg(long)]
    traced: bool,
}

/// Protection entries in the table.
const PROTECTION: u32 = 2000;
/// Domains that have them.
const DOMAINS: u32 = 10;
/// log2 of the bytes that each covers.
const VMA_SHIFT: u32 = 18;
/// Memory blades.
const MEMORY_BLADES: u8 = 8;
/// Slots in the directory.
const SLOTS: u32 = 30_000;
/// Order of their regions.
const ORDER: u8 = 2;
/// The most that the fast path may cost above the floor, in nanoseconds.
const BOUND: f64 = 250.0;

/// The loopback, which every network namespace has. Nothing is attached to it or sent to it.
const INTERFACE: u32 = 1;
const SWITCH: Host = Host::numbered(254);
const REQUESTER: Host = Host::numbered(1);
/// The domain of the page that is requested.
const DOMAIN: DomainId = DomainId(1);
const STRANGER: DomainId = DomainId(DOMAINS);
/// A page in the middle of the directory, in a vma of [`DOMAIN`].
const PAGE: Va = Va(WINDOW_BASE + (991 << VMA_SHIFT));

/// A path through the program.
struct Path {
    name: &'static str,
    says: &'static str,
    packet: Packet,
    word: Word,
    verdict: Verdict,
    action: XdpAction,
    /// Whether the bound is for it.
    is_fast: bool,
    /// Whether the slot's memo is cleared before each run.
    clears_memo: bool,
}

/// The bench's answer. The keys are part of its interface.
#[derive(Serialize)]
struct Report {
    floor_ns: f64,
    redirect_ns: f64,
    restore_ns: f64,
    paths: BTreeMap<String, f64>,
    /// With `--traced`: the counts of records.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Records>,
}

/// How many records of traced packets were read and lost.
#[derive(Serialize)]
struct Records {
    read: u64,
    lost: u64,
}

/// Runs `cargo xtask bench pipeline`.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    ensure!(args.packets > 0, "--packets must be 1 or more");
    let mut bed = bed().context("cannot load the programs")?;
    let reader = args
        .traced
        .then(|| Reader::start(&bed.switch))
        .transpose()?;
    let paths = paths();
    let mut timer = Timer {
        bed: &mut bed,
        packets: args.packets,
        samples: BTreeMap::new(),
    };
    // Round by round, not path by path, so that other load of the machine affects all of them
    // alike.
    for round in 0..args.rounds {
        output::progress(&format!("round {} of {}", round + 1, args.rounds));
        timer.round(&paths)?;
    }
    output::progress("");
    let mut report = timer.report(&paths);
    report.records = reader.map(Reader::end).transpose()?;
    let complaints = paths.iter().filter(|path| path.is_fast).filter_map(|path| {
        let above = report.paths[&key(path.name)] - report.floor_ns;
        (above > BOUND).then(|| {
            format!(
                "{} costs {above} ns above the floor, more than {BOUND}",
                path.name
            )
        })
    });
    output::print(&report, args.json, || text(&report, &paths), complaints)
}

/// The report for people.
fn text(report: &Report, paths: &[Path]) -> String {
    let table = table(report, paths);
    match report.records {
        Some(Records { read, lost }) => {
            format!("{table}\n{read} records read, {lost} found no room")
        }
        None => table.to_string(),
    }
}

fn key(name: &str) -> String {
    format!("{name}_ns")
}

struct Timer<'a> {
    bed: &'a mut Bed,
    packets: u32,
    samples: BTreeMap<&'static str, Vec<f64>>,
}

impl Timer<'_> {
    fn round(&mut self, paths: &[Path]) -> Result<()> {
        let frame = paths[1].packet.bytes();
        self.time("floor", "mind_floor", frame, XdpAction::Pass)?;
        self.time("redirect", "mind_bare_redirect", frame, XdpAction::Redirect)?;
        for path in paths {
            let mut headers = Headers::default();
            headers
                .0
                .copy_from_slice(&path.packet.bytes()[..HEADERS_LEN]);
            self.bed.set_template(Template {
                word: path.word.raw(),
                slot: slot_of(PAGE),
                clear_memo: path.clears_memo.into(),
                headers,
                ..Template::default()
            })?;
            let before = self.bed.switch.packet_counters(INTERFACE)?;
            let frame = path.packet.bytes();
            self.time(path.name, "mind_bench_staged", frame, path.action)?;
            let counted = self.bed.switch.packet_counters(INTERFACE)?.since(&before);
            ensure!(
                counted.of_verdict(path.verdict) == u64::from(self.packets),
                "{} must end in {}, but ended in {:?}",
                path.name,
                path.verdict,
                counted.iter().collect::<Vec<_>>()
            );
        }
        self.time("restore", "mind_bench_restored", frame, XdpAction::Pass)
    }

    fn time(
        &mut self,
        sample: &'static str,
        program: &'static str,
        frame: &[u8],
        expected: XdpAction,
    ) -> Result<()> {
        let (ns, action) = self.bed.time(program, INTERFACE, frame, self.packets)?;
        ensure!(
            action == expected,
            "{program} for {sample} must end in {expected:?}, not {action:?}"
        );
        self.samples.entry(sample).or_default().push(ns);
        Ok(())
    }

    fn report(mut self, paths: &[Path]) -> Report {
        let mut median = |name| {
            let samples = self.samples.get_mut(name).expect("every sample was taken");
            samples.sort_by(f64::total_cmp);
            samples[samples.len() / 2]
        };
        Report {
            floor_ns: median("floor"),
            redirect_ns: median("redirect"),
            restore_ns: median("restore"),
            paths: paths
                .iter()
                .map(|path| (key(path.name), median(path.name)))
                .collect(),
            records: None,
        }
    }
}

/// Reads the records of every packet, in a thread of its own.
struct Reader {
    control: TraceControl,
    lost: u64,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Reader {
    /// How long it waits for records before it checks whether the bench has ended.
    const WAIT: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };

    fn start(switch: &Switch) -> Result<Self> {
        let mut control = switch.open_trace_control()?;
        let traces = switch.open_traces()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let lost = control.lost()?;
        control.set(Tracing::EVERYTHING)?;
        Ok(Self {
            control,
            lost,
            is_over,
            thread: thread::spawn(move || Self::read(traces, &until)),
        })
    }

    fn read(mut traces: Traces, is_over: &AtomicBool) -> Result<u64> {
        let mut count = 0;
        loop {
            // Records from before the end are read after the end was seen.
            let is_last = is_over.load(Ordering::Acquire);
            while traces.take().is_some() {
                count += 1;
            }
            if is_last {
                return Ok(count);
            }
            poll(
                &mut [PollFd::new(&traces, PollFlags::IN)],
                Some(&Self::WAIT),
            )?;
        }
    }

    fn end(mut self) -> Result<Records> {
        self.control.set(Tracing::default())?;
        self.is_over.store(true, Ordering::Release);
        let read = self.thread.join().expect("the reader does not panic")?;
        Ok(Records {
            read,
            lost: self.control.lost()? - self.lost,
        })
    }
}

fn table(report: &Report, paths: &[Path]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["path", "what", "ns per packet", "above the floor"]);
    let mut row = |name: &str, what: &str, ns: f64| {
        table.add_row([
            name.to_owned(),
            what.to_owned(),
            format!("{ns:.0}"),
            format!("{:.0}", ns - report.floor_ns),
        ]);
    };
    row("floor", "a program that returns", report.floor_ns);
    row("redirect", "a bare redirect", report.redirect_ns);
    row(
        "restore",
        "part of every path below: headers and word restored",
        report.restore_ns,
    );
    for path in paths {
        row(path.name, path.says, report.paths[&key(path.name)]);
    }
    for column in [2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn blade(number: u8) -> BladeId {
    BladeId::from_low_bits(number.into())
}

fn connection(number: u8) -> Connection {
    Connection {
        blade: blade(number),
        incarnation: 1,
    }
}

fn slot_of(va: Va) -> u32 {
    let region = Region::containing(va, ORDER).expect("the order is a region's");
    1 + ((region.base().0 - WINDOW_BASE) / region.size()) as u32
}

fn word(state: State, blades: impl IntoIterator<Item = u8>) -> Word {
    let blades: BladeSet = blades.into_iter().map(blade).collect();
    Word::new(state, blade(4), Episode::new(1), blades)
}

fn paths() -> Vec<Path> {
    let send =
        |message: &Body<&Page>| Packet::new(message, REQUESTER, SWITCH, connection(0).to_qp());
    let page = |domain| PageRequest { page: PAGE, domain };
    let read = || send(&Body::read(page(DOMAIN)));
    let acquire = || send(&Body::acquire(page(DOMAIN)));
    let fetch = |name, says, packet, word| Path {
        name,
        says,
        packet,
        word,
        verdict: Verdict::Fetch,
        action: XdpAction::Redirect,
        is_fast: true,
        clears_memo: false,
    };
    let invalid = word(State::Invalid, []);
    vec![
        Path {
            name: "foreign",
            says: "a datagram of another protocol",
            packet: read().udp(2, &[0, 53]),
            word: invalid,
            verdict: Verdict::Foreign,
            action: XdpAction::Pass,
            is_fast: false,
            clears_memo: false,
        },
        fetch("i_s", "read, no blade has the page", read(), invalid),
        fetch("i_m", "write, no blade has the page", acquire(), invalid),
        fetch(
            "s_s",
            "read, others share the page",
            read(),
            word(State::Shared, [1, 2]),
        ),
        Path {
            is_fast: false,
            clears_memo: true,
            ..fetch(
                "i_s_cold",
                "the same as i_s, first since an entry changed",
                read(),
                invalid,
            )
        },
        Path {
            name: "busy",
            says: "refused, the region is being changed",
            packet: read(),
            word: word(State::ModifiedToShared, [1]),
            verdict: Verdict::Busy,
            action: XdpAction::Redirect,
            is_fast: false,
            clears_memo: false,
        },
        Path {
            name: "denied",
            says: "refused, no protection entry",
            packet: send(&Body::read(page(STRANGER))),
            word: invalid,
            verdict: Verdict::Protected,
            action: XdpAction::Redirect,
            is_fast: false,
            clears_memo: false,
        },
        Path {
            name: "multicast",
            says: "write, three share the page, up to TC",
            packet: acquire(),
            word: word(State::Shared, [1, 2, 3]),
            verdict: Verdict::PassedUp,
            action: XdpAction::Pass,
            is_fast: false,
            clears_memo: false,
        },
    ]
}

fn peer(host: Host, connection: u32) -> Peer {
    Peer {
        ipv4: host.ipv4.octets(),
        mac: host.mac,
        flags: PEER_PRESENT,
        ifindex: INTERFACE,
        connection,
    }
}

/// The programs, with tables as full as the bench documents.
fn bed() -> Result<Bed> {
    let mut switch = Switch::load(&SwitchLimits {
        slots: SLOTS + 1,
        ..SwitchLimits::default()
    })?;
    switch.set_identity(SWITCH.ipv4, SWITCH.mac)?;
    let mut port = Port::compute(connection(0));
    port.flags = PORT_FANS_OUT;
    switch.set_port(INTERFACE, port)?;
    for number in 0..5 {
        let host = Host::numbered(1 + number);
        switch.set_compute(blade(number), peer(host, connection(number).to_qp()))?;
    }
    for number in 0..MEMORY_BLADES {
        switch.set_memory(number, peer(Host::numbered(101 + number), 0))?;
        let base = Va(WINDOW_BASE + (u64::from(number) << SLICE_SHIFT));
        let prefix = Prefix {
            base,
            shift: SLICE_SHIFT,
        };
        switch.translate(prefix, Translation::new(number, base, 0))?;
    }
    for domain in 0..=DOMAINS {
        switch.place(DomainId(domain), BladeSet::from_bits(u32::MAX))?;
    }
    for entry in 0..PROTECTION {
        let prefix = Prefix {
            base: Va(WINDOW_BASE + (u64::from(entry) << VMA_SHIFT)),
            shift: VMA_SHIFT,
        };
        let permission = Permission {
            bits: MAY_READ | MAY_WRITE,
        };
        switch.protect(DomainId(entry % DOMAINS), prefix, permission)?;
    }
    let region_size = 1 << (mind_common::addr::PAGE_SHIFT + u32::from(ORDER));
    for slot in 1..=SLOTS {
        let base = Va(WINDOW_BASE + u64::from(slot - 1) * region_size);
        let region = Region::containing(base, ORDER).context("the order is a region's")?;
        let table = (base.block() - Va(WINDOW_BASE).block()) as u32;
        switch.set_block(base, Some(table))?;
        let directory = switch.directory();
        directory
            .slot(slot)?
            .reset(Slot::new(word(State::Invalid, []), region));
        directory.assign(table, region, slot)?;
    }
    Ok(Bed::new(
        switch,
        Responder::load(&MemoryLimits::for_pages(1))?,
    )?)
}
