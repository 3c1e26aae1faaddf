//! A long life of the controller's allocator: memory is mapped and unmapped at random, at a high fill, with sizes from a
//! heavy-tailed distribution. What is measured is what fragments cost.
//!
//! *Room is lost* when an allocation is refused for good ([`NoMemory::Scattered`]: what is free is in too many pieces, also
//! when all that was freed is zeroed) though as many bytes are free: then all free bytes are lost, in parts of all memory.
//! It is looked at in the life itself, whenever an allocation is refused, and by probes, 100 in a life: a copy of the memory
//! is filled up with further allocations until one is refused.
//!
//! What is not refused may be put together of pieces, which cost entries of the translation table: these are counted where
//! the probes begin.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use mind_common::addr::PAGE_SIZE;
use mind_machines::controller::books::{
    memory::{GRANULE, Memory, NoMemory, Piece},
    places::Places,
};
use serde::Serialize;

use super::{bar, print, rack, replay::Rack};

/// The most room that may be lost, in percent.
pub const BOUND: f64 = 15.0;

/// Probes in a life.
const PROBES: u64 = 100;
/// Bytes that a memory blade zeroes in a step, as the controller's blades do.
const STEP: u64 = 64 << 20;

/// How long a life, and on how much memory.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How many times memory is mapped or unmapped.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// What sizes and order are drawn from.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How many memory blades, up to 32.
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u8).range(1..=mind_common::id::MAX_BLADES as i64))]
    blades: u8,
    /// Memory of each, up to 512G.
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = mind_cli::whole_pages)]
    blade_size: u64,
    /// The longest allocation; by default that of published traces, rounded up.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = mind_cli::whole_pages)]
    longest: u64,
    /// The most that is mapped, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=100))]
    fill: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs a life and prints what it lost.
///
/// # Errors
///
/// More room is lost than [`BOUND`] says, or the allocator gives out what it must not.
pub fn run(args: &Args) -> Result<()> {
    let plan = Plan {
        operations: args.operations,
        seed: args.seed,
        rack: rack(args.blades, args.blade_size)?,
        longest: args.longest,
        fill: args.fill,
    };
    let bar = bar(plan.operations, "operations")?;
    let report = live(&plan, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    print(args.json, &report, || report.text())?;
    ensure!(
        report.is_within_bound(),
        "fragments make more than {BOUND} % of all memory unusable"
    );
    Ok(())
}

/// A life.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many times memory is mapped or unmapped.
    pub operations: u64,
    /// What is drawn, is drawn from it.
    pub seed: u64,
    /// The memory.
    pub rack: Rack,
    /// Bytes of the longest allocation.
    pub longest: u64,
    /// The most that is mapped, in percent.
    pub fill: u64,
}

/// What came of a life. The keys are part of the command's interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Memory blades.
    pub blades: u8,
    /// Bytes of each.
    pub blade_bytes: u64,
    /// Bytes of the longest allocation that can be drawn.
    pub longest_bytes: u64,
    /// What was drawn, was drawn from it.
    pub seed: u64,
    /// Allocations.
    pub maps: u64,
    /// Allocations that were freed.
    pub unmaps: u64,
    /// Allocations that waited until what was freed was zeroed.
    pub waits: u64,
    /// Allocations that were refused.
    pub refused: u64,
    /// Allocations of several pieces.
    pub of_pieces: u64,
    /// Pieces of the allocation that has most.
    pub most_pieces: usize,
    /// Allocations that there were at the end.
    pub held: u64,
    /// Bytes of these in parts of all memory at the end, in percent.
    pub fill_percent: f64,
    /// Room lost when an allocation was refused, in percent of all memory; `None` if none was.
    pub lost_percent: Option<Spread>,
    /// The same, of probes; `None` if there was none.
    pub probed_percent: Option<Spread>,
    /// Entries of the translation table for pieces, where probes begin; those of the blades are not among them.
    pub entries: Option<Spread>,
}

/// Several values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let max = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { mean, max })
    }
}

impl Report {
    /// Whether no more room was lost in the mean than [`BOUND`], in whichever way it is looked at.
    pub fn is_within_bound(&self) -> bool {
        let mut all = [self.lost_percent, self.probed_percent].into_iter();
        all.all(|spread| spread.is_none_or(|spread| spread.max < BOUND))
    }

    /// As text.
    pub fn text(&self) -> String {
        let spread = |spread: Option<Spread>, of: &str| match spread {
            Some(Spread { mean, max }) => {
                format!("{mean:.2}{of} in the mean, {max:.2}{of} at most")
            }
            None => "-".to_owned(),
        };
        format!(
            "{} memory blades of {} MiB, up to {} MiB at once, seed {}: {} maps and {} unmaps\n\
             at the end {} vmas, {:.1} % of memory; {} maps waited for zeroing, {} were refused\n\
             maps of several pieces: {}, of up to {} pieces\n\
             translation entries for pieces: {}\n\
             room lost when a map was refused: {}\n\
             when a probe was refused: {}",
            self.blades,
            self.blade_bytes >> 20,
            self.longest_bytes >> 20,
            self.seed,
            self.maps,
            self.unmaps,
            self.held,
            self.fill_percent,
            self.waits,
            self.refused,
            self.of_pieces,
            self.most_pieces,
            spread(self.entries, ""),
            spread(self.lost_percent, " %"),
            spread(self.probed_percent, " %"),
        )
    }
}

/// Lengths: a Pareto distribution of shape 1/2 from a page up to a longest one, in whole pages. Half of them are up to four
/// pages, and half of all bytes are in the few that are longer than a quarter of the longest.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    longest: f64,
}

impl Lengths {
    const fn new(longest: u64) -> Self {
        Self {
            longest: longest as f64,
        }
    }

    fn draw(self, random: &mut fastrand::Rng) -> u64 {
        let shortest = PAGE_SIZE as f64;
        let least = (shortest / self.longest).sqrt();
        let length = shortest / (1.0 - random.f64() * (1.0 - least)).powi(2);
        (length.min(self.longest) as u64).next_multiple_of(PAGE_SIZE as u64)
    }
}

/// The allocator with all that it has given out.
#[derive(Clone, Debug)]
struct Rented {
    memory: Memory,
    /// The entries for pieces.
    places: Places,
    /// What was freed and is not zeroed, by blade.
    unclean: Vec<VecDeque<Piece>>,
    capacity: u64,
    used: u64,
    waits: u64,
}

/// What came of an allocation.
enum Mapped {
    Yes(Vec<Piece>),
    /// Free bytes are in too many pieces, or there are not enough.
    No,
}

impl Rented {
    fn new(rack: Rack) -> Self {
        let mut memory = Memory::default();
        for blade in 0..rack.blades {
            memory.add(blade, rack.blade_size);
        }
        let capacity = (0..rack.blades).filter_map(|blade| memory.slice(blade));
        let capacity = capacity.map(|slice| slice.capacity()).sum();
        Self {
            memory,
            places: Places::default(),
            unclean: vec![VecDeque::new(); rack.blades.into()],
            capacity,
            used: 0,
            waits: 0,
        }
    }

    /// Allocates; waits until all is zeroed if there is room only then, as the controller does.
    fn map(&mut self, length: u64) -> Result<Mapped> {
        let mut pieces = self.memory.allocate(length, |_| true);
        if matches!(pieces, Err(NoMemory::Zeroing { .. })) {
            self.waits += 1;
            for blade in 0..self.unclean.len() {
                while self.zero(blade) {}
            }
            pieces = self.memory.allocate(length, |_| true);
        }
        match pieces {
            Ok(pieces) => {
                self.used += bytes(&pieces);
                self.places.replace(&[], &pieces);
                Ok(Mapped::Yes(pieces))
            }
            Err(NoMemory::Full { .. } | NoMemory::Scattered { .. }) => Ok(Mapped::No),
            Err(error) => Err(error.into()),
        }
    }

    fn unmap(&mut self, pieces: &[Piece]) {
        self.used -= bytes(pieces);
        for piece in pieces {
            self.memory.free(*piece);
            self.unclean[usize::from(piece.extent.blade)].push_back(*piece);
        }
    }

    /// A memory blade does one step of zeroing; whether there was something.
    fn zero(&mut self, blade: usize) -> bool {
        let unclean = &mut self.unclean[blade];
        let Some(piece) = unclean.pop_front() else {
            return false;
        };
        let middle = piece.va + STEP;
        let rest = piece.part(middle, piece.end());
        if let Some(rest) = rest {
            unclean.push_front(rest);
        }
        self.places.replace(&[piece], rest.as_slice());
        let done = piece.part(piece.va, middle);
        done.into_iter().for_each(|done| self.memory.zeroed(done));
        true
    }

    /// Bytes in use and those that are not, in parts of all, in percent.
    fn fill_percent(&self) -> f64 {
        self.used as f64 * 100.0 / self.capacity as f64
    }

    /// Room that an allocation of that many bytes finds lost, if it fails.
    fn lost_percent(&self, length: u64) -> Option<f64> {
        let free = self.capacity - self.used;
        (free >= length.next_multiple_of(GRANULE)).then(|| 100.0 - self.fill_percent())
    }

    /// Room lost when a copy of it is filled up until an allocation fails.
    fn probe(&self, lengths: Lengths, random: &mut fastrand::Rng) -> Result<f64> {
        let mut copy = self.clone();
        loop {
            let length = lengths.draw(random);
            if let Mapped::No = copy.map(length)? {
                // If there are not enough bytes, nothing is lost to fragments.
                return Ok(copy.lost_percent(length).unwrap_or(0.0));
            }
        }
    }
}

/// Lives, and tells `progress` how many operations are done. The same plan gives the same report.
///
/// An operation maps memory of a length that was drawn, if no more than the plan's fill is mapped then; otherwise, and if
/// that is refused, it unmaps an allocation, each as likely as any other, and the length is tried again: if it were given
/// up, what is long would be given up more often than what is short. In each operation one memory blade does a step of
/// zeroing, in turn.
///
/// # Errors
///
/// The longest allocation is too long, or the allocator refuses something for another reason than that it has no room.
pub fn live(plan: &Plan, progress: impl Fn(u64)) -> Result<Report> {
    let Plan { rack, longest, .. } = *plan;
    let all = rack.blade_size * u64::from(rack.blades);
    ensure!(
        longest <= all / 4,
        "--longest: {longest} bytes are more than a quarter of the memory of all blades, {all}"
    );
    let lengths = Lengths::new(longest);
    let mut random = fastrand::Rng::with_seed(plan.seed);
    // What probes draw does not change the life.
    let mut of_probes = random.fork();
    let mut rented = Rented::new(rack);
    let most = rented.capacity / 100 * plan.fill;
    let between = (plan.operations / PROBES).max(1);
    let mut held: Vec<Vec<Piece>> = Vec::new();
    let (mut maps, mut unmaps, mut refused) = (0, 0, 0);
    let (mut of_pieces, mut most_pieces) = (0, 0);
    let (mut lost, mut probed, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = lengths.draw(&mut random);
    // Memory is not as full as it should be at first.
    let mut was_full = false;
    for operation in 0..plan.operations {
        let mut unmaps_one = rented.used + next.next_multiple_of(GRANULE) > most;
        if !unmaps_one {
            match rented.map(next)? {
                Mapped::Yes(pieces) => {
                    maps += 1;
                    of_pieces += u64::from(pieces.len() > 1);
                    most_pieces = most_pieces.max(pieces.len());
                    held.push(pieces);
                    next = lengths.draw(&mut random);
                }
                Mapped::No => {
                    unmaps_one = true;
                    refused += 1;
                    lost.extend(rented.lost_percent(next));
                }
            }
        }
        was_full |= unmaps_one;
        if unmaps_one && !held.is_empty() {
            unmaps += 1;
            rented.unmap(&held.swap_remove(random.usize(..held.len())));
        }
        rented.zero((operation % u64::from(rack.blades)) as usize);
        if was_full && operation % between == between - 1 {
            entries.push(rented.places.entries().count() as f64);
            probed.push(rented.probe(lengths, &mut of_probes)?);
            progress(operation);
        }
    }
    Ok(Report {
        blades: rack.blades,
        blade_bytes: rack.blade_size,
        longest_bytes: longest,
        seed: plan.seed,
        maps,
        unmaps,
        waits: rented.waits,
        refused,
        of_pieces,
        most_pieces,
        held: held.len() as u64,
        fill_percent: rented.fill_percent(),
        lost_percent: Spread::of(&lost),
        probed_percent: Spread::of(&probed),
        entries: Spread::of(&entries),
    })
}

fn bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.extent.length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many allocations that all are replaced more than five times.
    fn short(seed: u64, fill: u64) -> Plan {
        Plan {
            operations: 100_000,
            seed,
            rack: Rack {
                blades: 8,
                blade_size: 64 << 20,
            },
            longest: 512 << 10,
            fill,
        }
    }

    #[test]
    fn fragments_take_less_than_the_bound() {
        for seed in 0..4 {
            let report = live(&short(seed, 90), |_| {}).unwrap();
            assert!(report.is_within_bound(), "{}", report.text());
            assert!(report.probed_percent.is_some(), "{}", report.text());
            assert!(report.unmaps > 5 * report.held, "{}", report.text());
        }
    }

    #[test]
    fn a_life_is_its_seeds() {
        let plan = |seed| Plan {
            operations: 5_000,
            ..short(seed, 90)
        };
        assert_eq!(
            live(&plan(1), |_| {}).unwrap(),
            live(&plan(1), |_| {}).unwrap()
        );
        assert_ne!(
            live(&plan(1), |_| {}).unwrap(),
            live(&plan(2), |_| {}).unwrap()
        );
    }

    #[test]
    fn what_is_free_in_pieces_is_not_lost_but_costs_entries() {
        let rack = Rack {
            blades: 1,
            blade_size: 10 * GRANULE,
        };
        let mut rented = Rented::new(rack);
        let map = |rented: &mut Rented, granules| match rented.map(granules * GRANULE).unwrap() {
            Mapped::Yes(pieces) => pieces,
            Mapped::No => panic!("there is room"),
        };
        let vmas = [4, 2, 2, 2].map(|granules| map(&mut rented, granules));
        assert_eq!(rented.fill_percent(), 100.0);
        // Nothing is free, so nothing is lost.
        assert!(matches!(rented.map(GRANULE), Ok(Mapped::No)));
        assert_eq!(rented.lost_percent(GRANULE), None);
        let apart = vmas.iter().step_by(2);
        apart.for_each(|vma| rented.unmap(vma));
        assert_eq!((rented.fill_percent(), rented.waits), (40.0, 0));
        // More than is free.
        assert_eq!(rented.lost_percent(7 * GRANULE), None);
        // What was freed is zeroed first.
        let vma = map(&mut rented, 5);
        assert_eq!((vma.len(), rented.waits), (2, 1));
        assert_eq!(rented.places.entries().count(), 2);
        rented.unmap(&vma);
        while rented.zero(0) {}
        assert_eq!(rented.places, Places::default());
    }

    #[test]
    fn lengths_are_whole_pages_and_have_a_heavy_tail() {
        let lengths = Lengths::new(1 << 30);
        let mut random = fastrand::Rng::with_seed(0);
        let mut drawn: Vec<_> = (0..100_000).map(|_| lengths.draw(&mut random)).collect();
        drawn.sort_unstable();
        assert!(
            drawn
                .iter()
                .all(|length| length.is_multiple_of(PAGE_SIZE as u64))
        );
        assert!(drawn[0] == 4096 && drawn[99_999] <= 1 << 30);
        let short = drawn.partition_point(|length| *length <= 4 * PAGE_SIZE as u64);
        assert!(short > 49_000 && short < 51_000, "{short}");
        let all: u64 = drawn.iter().sum();
        let long: u64 = drawn.iter().filter(|length| **length > 1 << 28).sum();
        assert!(long > all * 2 / 5 && long < all * 3 / 5, "{long} of {all}");
    }

    #[test]
    fn an_allocation_that_is_too_long_is_refused() {
        let plan = Plan {
            longest: (128 << 20) + 1,
            ..short(0, 90)
        };
        let said = live(&plan, |_| {}).unwrap_err().to_string();
        assert!(said.starts_with("--longest: 134217729 bytes"), "{said}");
    }
}
