//! Carries out one call for each line of input, and writes `done` after it.

use std::{
    io::{BufRead as _, stdin},
    sync::atomic::Ordering,
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_client::{Access, Memory, Open, Process};
use mind_e2e::area::Area;

/// What the first word of all of its memory is.
const MARK: u64 = 0x6d69_6e64;

/// Reads until there are no more lines.
pub fn listen(process: &Process) -> Result<()> {
    let mut memories: Vec<(Memory, bool)> = Vec::new();
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["map", pages] => {
                let length = pages.parse::<u64>()? * 4096;
                let memory = process.map(length, Access::Write)?;
                let found = Area::new(memory).word(0, 0).swap(MARK, Ordering::SeqCst);
                ensure!(found == 0, "new memory holds {found:#x}");
                memories.push((memory, true));
                println!("{}", memory.va());
            }
            ["open", name, pages] => {
                let length = pages.parse::<u64>()? * 4096;
                process.open_area(name, length, Access::Write, Open::OrCreate)?;
            }
            ["unlink", name] => process.unlink_area(name)?,
            ["protect"] => {
                let (memory, is_mine) = memories.last_mut().context("nothing is mapped")?;
                process.protect(*memory, Access::Read)?;
                *is_mine = false;
            }
            ["sync"] => {
                let (memory, _) = memories.last().context("nothing is mapped")?;
                process.sync(*memory)?;
            }
            ["unmap"] => {
                let (memory, _) = memories.pop().context("nothing is mapped")?;
                process.unmap(memory)?;
            }
            _ => bail!("told `{line}`"),
        }
        // All that was answered before is as it was.
        for (memory, is_mine) in &memories {
            let word = Area::new(*memory).word(0, 0);
            let found = match is_mine {
                true => word.fetch_add(0, Ordering::SeqCst),
                false => word.load(Ordering::SeqCst),
            };
            ensure!(found == MARK, "memory at {} holds {found:#x}", memory.va());
        }
        println!("done");
    }
    Ok(())
}
