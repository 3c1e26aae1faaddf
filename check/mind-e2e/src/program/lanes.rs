//! Lanes: only the n-th thread writes word `n` of every page, and knows what it must be. Every blade accesses all pages
//! all the time, and no write may be lost.

use std::sync::atomic::Ordering;

use anyhow::{Result, anyhow, ensure};

use mind_e2e::area::{Area, WORDS};

/// Every so many steps, read a neighbour's word.
const LOOK: u64 = 4;

#[derive(clap::Args)]
pub struct Args {
    /// Threads of this process.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// The first one's lane.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Steps of each.
    steps: u64,
}

/// Each thread adds 1 to its word of a random page, `steps` times.
pub fn count(area: Area, args: &Args) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (args.first..args.first + args.threads)
            .map(|lane| scope.spawn(move || one(area, lane, args.steps)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a lane panicked"))?)
    })
}

fn one(area: Area, lane: u64, steps: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(lane);
    let own = lane as usize;
    let neighbour = (own + 1) % WORDS;
    let mut mine = vec![0; area.pages()];
    let mut theirs = vec![0; area.pages()];
    // What an earlier run left.
    for (page, mine) in mine.iter_mut().enumerate() {
        *mine = area.word(page, own).load(Ordering::Relaxed);
    }
    for step in 0..steps {
        let page = random.usize(..area.pages());
        let word = area.word(page, own);
        let found = word.load(Ordering::Relaxed);
        ensure!(
            found == mine[page],
            "lane {lane}, page {page}: found {found} after writing {}",
            mine[page]
        );
        mine[page] += 1;
        word.store(mine[page], Ordering::Relaxed);
        if step % LOOK == 0 {
            let page = random.usize(..area.pages());
            let found = area.word(page, neighbour).load(Ordering::Relaxed);
            ensure!(
                found >= theirs[page],
                "lane {neighbour}, page {page}, seen by lane {lane}: {found} after {}",
                theirs[page]
            );
            theirs[page] = found;
        }
    }
    Ok(())
}

/// What all lanes have counted together.
pub fn sum(area: Area) -> u64 {
    (0..area.pages())
        .flat_map(|page| area.page(page))
        .map(|word| word.load(Ordering::Relaxed))
        .sum()
}
