//! The machine's memory, by the kernel's figures, and whether some of it leaks.
//!
//! The search is for memory that a fault of the kernel, of its eBPF programs or of their removal would keep: pages of
//! sockets and of page pools, slab, maps. Free pages alone do not show that: the page cache takes them and gives them
//! back, and processes come and go. [`Memory::kept`] leaves both out.

use std::{collections::HashMap, fs};

use anyhow::{Context as _, Result};

/// How much more than before may be kept once all is over: 64 MiB. Less than one memory blade's pages (see
/// [`MEMORY_SIZE`](crate::layout::MEMORY_SIZE)), so a store that stays is found, and so is a page or a socket buffer
/// lost in every 50 packets of a run of ten minutes. More than what is no leak: pages on the processors' own free
/// lists, which count as used, and caches of slab and of per-processor memory that grow once.
pub const KEPT_BOUND: u64 = 64 << 20;

/// How much more slab that cannot be reclaimed there may be. Four million packets that lose 8 bytes each are found.
pub const SLAB_BOUND: u64 = 32 << 20;

/// How much the daemons may grow while the load runs. They reserve what their caches take when they begin, so what they
/// still gain is a leak.
pub const DAEMONS_BOUND: u64 = 32 << 20;

/// The kernel's figures at a moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total: u64,
    /// Free pages, from `/proc/vmstat`.
    pub free: u64,
    /// What a program could get.
    pub available: u64,
    /// Page cache, shared memory left out.
    pub cache: u64,
    /// Shared memory: memfds and tmpfs.
    pub shared: u64,
    /// Pages of processes.
    pub anonymous: u64,
    /// Slab.
    pub slab: u64,
    /// Slab that cannot be reclaimed.
    pub unreclaimable: u64,
}

impl Memory {
    /// Now.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub fn now() -> Result<Self> {
        let read = |path| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        Self::parse(
            &read("/proc/meminfo")?,
            &read("/proc/vmstat")?,
            rustix::param::page_size() as u64,
        )
    }

    /// From the text of `/proc/meminfo` and `/proc/vmstat`.
    ///
    /// # Errors
    ///
    /// When a figure is missing.
    pub fn parse(meminfo: &str, vmstat: &str, page: u64) -> Result<Self> {
        let meminfo = figures(meminfo);
        let vmstat = figures(vmstat);
        let kib = |name: &str| {
            let value = meminfo.get(name).map(|value| value << 10);
            value.with_context(|| format!("/proc/meminfo says nothing of {name}"))
        };
        let free = vmstat
            .get("nr_free_pages")
            .context("/proc/vmstat says nothing of nr_free_pages")?;
        let shared = kib("Shmem")?;
        Ok(Self {
            total: kib("MemTotal")?,
            free: free * page,
            available: kib("MemAvailable")?,
            cache: (kib("Cached")? + kib("Buffers")?).saturating_sub(shared),
            shared,
            anonymous: kib("AnonPages")?,
            slab: kib("Slab")?,
            unreclaimable: kib("SUnreclaim")?,
        })
    }

    /// What is neither free nor page cache nor slab that can be reclaimed.
    pub fn used(&self) -> u64 {
        let reclaimable = self.slab.saturating_sub(self.unreclaimable);
        self.total
            .saturating_sub(self.free + self.cache + reclaimable)
    }

    /// What the kernel keeps: what is [used](Self::used), without the pages of processes.
    pub fn kept(&self) -> u64 {
        self.used().saturating_sub(self.anonymous)
    }
}

/// Bytes of a process's own pages; 0 when it is gone, or has ended and waits for its parent.
pub fn own_pages(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    parse_own_pages(&status.unwrap_or_default())
}

fn parse_own_pages(status: &str) -> u64 {
    figures(status)
        .get("RssAnon")
        .map_or(0, |value| value << 10)
}

/// Lines of a name and a number: `Name: 12 kB`, `name 12`.
fn figures(text: &str) -> HashMap<&str, u64> {
    let line = |line: &'_ str| -> Option<(usize, u64)> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        Some((
            name.trim_end_matches(':').len(),
            words.next()?.parse().ok()?,
        ))
    };
    text.lines()
        .filter_map(|text| line(text).map(|(name, value)| (&text[..name], value)))
        .collect()
}

/// By how much something grew beyond what it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// What.
    pub what: &'static str,
    /// How much there was.
    pub before: u64,
    /// How much there is.
    pub after: u64,
    /// By how much it may grow.
    pub bound: u64,
}

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            what,
            before,
            after,
            bound,
        } = *self;
        write!(
            f,
            "{what} grew by {}, from {} to {}; at most {} is allowed",
            mebibytes(after - before),
            mebibytes(before),
            mebibytes(after),
            mebibytes(bound)
        )
    }
}

/// In MiB, for people.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn growth(what: &'static str, before: u64, after: u64, bound: u64) -> Option<Growth> {
    (after > before.saturating_add(bound)).then_some(Growth {
        what,
        before,
        after,
        bound,
    })
}

/// What is kept `after` all is over that was not `before` it began.
pub fn left(before: &Memory, after: &Memory) -> Vec<Growth> {
    [
        growth(
            "memory that the kernel keeps",
            before.kept(),
            after.kept(),
            KEPT_BOUND,
        ),
        growth(
            "slab that cannot be reclaimed",
            before.unreclaimable,
            after.unreclaimable,
            SLAB_BOUND,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What is sampled while the load runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The machine's memory.
    pub memory: Memory,
    /// The own pages of all daemons of the testbed.
    pub daemons: u64,
}

/// What grew while the load ran, by the medians of the first and the last third of `samples`: the load does the same
/// all the time, so what it takes settles. Of processes, the daemons count and no others.
pub fn drift(samples: &[Sample]) -> Vec<Growth> {
    let third = samples.len() / 3;
    if third == 0 {
        return Vec::new();
    }
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let of = |what, figure: fn(&Sample) -> u64, bound| {
        growth(what, median(first, figure), median(last, figure), bound)
    };
    [
        of(
            "memory that the kernel keeps under load",
            |sample| sample.memory.kept(),
            KEPT_BOUND,
        ),
        of(
            "slab that cannot be reclaimed, under load,",
            |sample| sample.memory.unreclaimable,
            SLAB_BOUND,
        ),
        of(
            "memory of the daemons under load",
            |sample| sample.daemons,
            DAEMONS_BOUND,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn median(samples: &[Sample], figure: fn(&Sample) -> u64) -> u64 {
    let mut figures: Vec<_> = samples.iter().map(figure).collect();
    figures.sort_unstable();
    figures[figures.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "\
MemTotal:        1000 kB
MemFree:          390 kB
MemAvailable:     500 kB
Buffers:           10 kB
Cached:           200 kB
Shmem:             50 kB
AnonPages:        100 kB
Slab:              90 kB
SReclaimable:      40 kB
SUnreclaim:        50 kB
HugePages_Total:       0
";

    #[test]
    fn what_the_kernel_keeps_is_what_nobody_else_has() {
        let memory = Memory::parse(MEMINFO, "nr_free_pages 100\nnr_zone 3\n", 4096).unwrap();
        assert_eq!(memory.free, 400 << 10);
        assert_eq!(memory.cache, 160 << 10);
        // 1000 - 400 free - 160 cache - 40 reclaimable.
        assert_eq!(memory.used(), 400 << 10);
        assert_eq!(memory.kept(), 300 << 10);
    }

    #[test]
    fn a_missing_figure_is_named() {
        let error = Memory::parse("MemTotal: 1 kB", "nr_free_pages 1", 4096).unwrap_err();
        assert_eq!(error.to_string(), "/proc/meminfo says nothing of Shmem");
        let error = Memory::parse(MEMINFO, "", 4096).unwrap_err();
        assert!(error.to_string().contains("nr_free_pages"), "{error}");
    }

    fn memory(used_mib: u64, slab_mib: u64) -> Memory {
        Memory {
            total: 1 << 30,
            free: (1 << 30) - (used_mib << 20),
            slab: slab_mib << 20,
            unreclaimable: slab_mib << 20,
            ..Memory::default()
        }
    }

    #[test]
    fn a_store_that_stays_is_a_leak_and_a_little_more_is_none() {
        assert_eq!(left(&memory(100, 10), &memory(150, 20)), []);
        assert_eq!(left(&memory(100, 10), &memory(90, 5)), []);
        let leaks = left(&memory(100, 10), &memory(200, 60));
        assert_eq!(leaks.len(), 2);
        assert_eq!(
            leaks[0].to_string(),
            "memory that the kernel keeps grew by 100.0 MiB, from 100.0 MiB to 200.0 MiB; \
             at most 64.0 MiB is allowed"
        );
    }

    #[test]
    fn the_pages_of_processes_are_no_leak_once_they_are_gone() {
        let mut after = memory(300, 10);
        after.anonymous = 200 << 20;
        assert_eq!(left(&memory(100, 10), &after), []);
    }

    fn sample(used_mib: u64, daemons_mib: u64) -> Sample {
        Sample {
            memory: memory(used_mib, 10),
            daemons: daemons_mib << 20,
        }
    }

    #[test]
    fn memory_lost_over_time_is_found_and_a_peak_is_forgiven() {
        let leaking: Vec<_> = (0..30).map(|time| sample(100 + 5 * time, 40)).collect();
        assert_eq!(drift(&leaking).len(), 1);
        let forgetful: Vec<_> = (0..30).map(|time| sample(100, 40 + 2 * time)).collect();
        assert_eq!(
            drift(&forgetful)[0].what,
            "memory of the daemons under load"
        );
        let mut steady = vec![sample(100, 40); 30];
        steady[29] = sample(900, 400);
        assert_eq!(drift(&steady), []);
        assert_eq!(drift(&leaking[..2]), []);
    }

    #[test]
    fn a_processs_own_pages_are_found() {
        let status = "Name:\tmind-blade\nVmRSS:\t 500 kB\nRssAnon:\t     300 kB\n";
        assert_eq!(parse_own_pages(status), 300 << 10);
        assert_eq!(
            parse_own_pages("Name:\tmind-blade\nState:\tZ (zombie)\n"),
            0
        );
        assert!(own_pages(std::process::id().cast_signed()) > 0);
        assert_eq!(own_pages(-1), 0);
    }
}
