//! Pages with contents that are known beforehand, or written as a whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, anyhow, ensure};
use mind_client::{Access, Process};

use mind_e2e::area::{Area, PAGE, WORDS};

/// What `fill` writes to a word. Never 0.
fn pattern(page: usize, word: usize) -> u64 {
    ((page * WORDS + word) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

pub fn fill(area: Area) {
    for page in 0..area.pages() {
        for (word, place) in area.page(page).iter().enumerate() {
            place.store(pattern(page, word), Ordering::Relaxed);
        }
    }
}

fn check_word(area: Area, page: usize, word: usize) -> Result<()> {
    let found = area.word(page, word).load(Ordering::Relaxed);
    let expected = pattern(page, word);
    ensure!(
        found == expected,
        "page {page}, word {word}: found {found:#x}, expected {expected:#x}"
    );
    Ok(())
}

pub fn check(area: Area) -> Result<()> {
    for page in 0..area.pages() {
        for word in 0..WORDS {
            check_word(area, page, word)?;
        }
    }
    Ok(())
}

/// Until killed.
pub fn watch(area: Area, threads: u64) -> Result<()> {
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let watchers: Vec<_> = (0..threads)
            .map(|seed| {
                let seen = &seen;
                scope.spawn(move || -> Result<()> {
                    let mut random = fastrand::Rng::with_seed(seed);
                    loop {
                        let page = random.usize(..area.pages());
                        if let Err(error) = check_word(area, page, random.usize(..WORDS)) {
                            // The others would go on.
                            eprintln!("mind-e2e-program: {error:#}");
                            std::process::exit(1);
                        }
                        if seen.fetch_add(1, Ordering::Relaxed) % 1000 == 999 {
                            println!("watching");
                        }
                    }
                })
            })
            .collect();
        watchers
            .into_iter()
            .try_for_each(|watcher| watcher.join().map_err(|_| anyhow!("a watcher panicked"))?)
    })
}

/// One program has the page at a time: the one that finds its number in word 0 checks that all words are the same, and
/// writes the next number, word 0 last. On x86, stores are seen in the order in which they are made.
pub fn turns(area: Area, writer: u64, writers: u64, rounds: u64) -> Result<()> {
    let page = area.page(0);
    for round in 0..rounds {
        let turn = round * writers + writer;
        if round % 100 == 0 {
            println!("turn {turn}");
        }
        // There are fewer processors than programs: a waiting one yields.
        while page[0].load(Ordering::Acquire) != turn {
            std::thread::yield_now();
        }
        for (index, word) in page.iter().enumerate() {
            let found = word.load(Ordering::Relaxed);
            ensure!(
                found == turn,
                "turn {turn}: word {index} is {found}: {}",
                if found < turn { "stale" } else { "torn" }
            );
        }
        for word in page[1..].iter().rev() {
            word.store(turn + 1, Ordering::Relaxed);
        }
        page[0].store(turn + 1, Ordering::Release);
    }
    Ok(())
}

/// Counts in the first and the last word of every page whose number is `writer` more than a multiple of `writers`, until
/// told to end. Finds in them what was written last.
pub fn own(area: Area, writer: usize, writers: usize) -> Result<()> {
    let is_over = AtomicBool::new(false);
    let words = |page| [area.word(page, 0), area.word(page, WORDS - 1)];
    let pages = || (writer..area.pages()).step_by(writers);
    let mut written: Vec<_> = pages()
        .map(|page| words(page)[0].load(Ordering::Relaxed))
        .collect();
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let told = crate::listen("end");
            is_over.store(true, Ordering::Relaxed);
            told
        });
        while !is_over.load(Ordering::Relaxed) {
            for (page, written) in pages().zip(&mut written) {
                for word in words(page) {
                    let found = word.load(Ordering::Relaxed);
                    ensure!(
                        found == *written,
                        "page {page}: found {found} after writing {written}"
                    );
                }
                *written += 1;
                for word in words(page) {
                    word.store(*written, Ordering::Relaxed);
                }
            }
        }
        listener
            .join()
            .map_err(|_| anyhow!("the listener panicked"))?
    })
}

pub fn fresh(process: &Process, pages: usize, times: u64) -> Result<()> {
    for time in 0..times {
        let memory = process.map((pages * PAGE) as u64, Access::Write)?;
        let area = Area::new(memory);
        for page in 0..area.pages() {
            for (index, word) in area.page(page).iter().enumerate() {
                let found = word.load(Ordering::Relaxed);
                ensure!(
                    found == 0,
                    "time {time}, page {page}, word {index}: fresh memory holds {found:#x}"
                );
            }
        }
        fill(area);
        process.unmap(memory)?;
    }
    Ok(())
}
