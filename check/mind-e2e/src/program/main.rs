//! The program that the end-to-end tests run on blades: opens memory, says `ready`, waits for a line, does one of the
//! jobs below and ends with 0, or with 1 and a message about the error that it found.

mod address;
mod calls;
mod lanes;
mod pages;

use std::{io::BufRead as _, process::ExitCode, sync::atomic::Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use mind_client::{Access, OnLoss, Open, Process};
use mind_e2e::area::{self, Area};

#[derive(Parser)]
struct Cli {
    /// The protection domain.
    #[arg(long)]
    domain: String,
    /// What readers are to see when writes are lost with a blade.
    #[arg(long)]
    on_loss: Option<OnLossArg>,
    /// The name of the area; no area without one.
    #[arg(long, default_value = "")]
    area: String,
    /// Its length in pages.
    #[arg(long, default_value_t = 1)]
    pages: usize,
    #[command(subcommand)]
    job: Job,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum OnLossArg {
    /// What was written back last.
    LastWritten,
    /// SIGBUS.
    Fail,
}

#[derive(Subcommand)]
enum Job {
    /// Add 1 to the first word so many times; 0: until killed.
    Increment { times: u64 },
    /// The first word must be this.
    Equals { value: u64 },
    /// Write a whole page in turns with other programs, and find it whole.
    Turns {
        #[arg(long)]
        writer: u64,
        #[arg(long)]
        writers: u64,
        rounds: u64,
    },
    /// Count in words of one's own, on all pages.
    Lanes(lanes::Args),
    /// The words of all lanes must add up to this.
    LanesSum { sum: u64 },
    /// Write every n-th page, which no other program writes, in turn until told to end, and find what was written.
    Own {
        #[arg(long)]
        writer: usize,
        #[arg(long)]
        writers: usize,
    },
    /// Write what each word must be.
    Fill,
    /// Read every word of every page, so many times, and find what `fill` wrote.
    Check { times: u64 },
    /// Read random words, find what `fill` wrote, and report every thousand.
    Watch {
        #[arg(long, default_value_t = 1)]
        threads: u64,
    },
    /// Allocate, fill and free memory, so many times, and find zeros each time.
    Fresh { times: u64 },
    /// Print where the area is.
    Where,
    /// Read the word at an address.
    Peek { va: u64 },
    /// Write to the word at an address.
    Poke { va: u64 },
    /// Write to the word at an address as often as it is denied, and report the first denial and the write.
    Insist { va: u64 },
    /// Write a number to the first word, wait until memory has it, report that, and stay.
    Sync { value: u64 },
    /// Make the area read-only.
    Protect,
    /// Make the area writable.
    Permit,
    /// Take the area's name away and free it.
    Free,
    /// Make the calls that come line by line.
    Calls,
    /// Nothing.
    Keep,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mind-e2e-program: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let mut builder = Process::builder(&cli.domain);
    if let Some(on_loss) = cli.on_loss {
        builder = builder.on_loss(match on_loss {
            OnLossArg::LastWritten => OnLoss::LastWritten,
            OnLossArg::Fail => OnLoss::Fail,
        });
    }
    let process = builder.attach()?;
    let area = if cli.area.is_empty() {
        None
    } else {
        let length = (cli.pages * area::PAGE) as u64;
        let memory = process.open_area(&cli.area, length, Access::Write, Open::OrCreate)?;
        Some((Area::new(memory), memory))
    };
    println!("ready");
    listen("go")?;
    let area = || area.context("this job needs an area");
    match cli.job {
        Job::Keep => {}
        Job::Calls => calls::listen(&process)?,
        Job::Increment { times } => {
            let (area, _) = area()?;
            let counter = area.word(0, 0);
            let mut done = 0;
            while times == 0 || done < times {
                counter.fetch_add(1, Ordering::SeqCst);
                done += 1;
                if times == 0 && done == 1 {
                    println!("at work");
                }
            }
        }
        Job::Equals { value } => {
            let (area, _) = area()?;
            let found = area.word(0, 0).load(Ordering::SeqCst);
            ensure!(found == value, "the word is {found} and not {value}");
        }
        Job::Turns {
            writer,
            writers,
            rounds,
        } => pages::turns(area()?.0, writer, writers, rounds)?,
        Job::Lanes(ref args) => lanes::count(area()?.0, args)?,
        Job::LanesSum { sum } => {
            let found = lanes::sum(area()?.0);
            ensure!(found == sum, "the lanes add up to {found} and not to {sum}");
        }
        Job::Own { writer, writers } => pages::own(area()?.0, writer, writers)?,
        Job::Fill => pages::fill(area()?.0),
        Job::Check { times } => {
            for _ in 0..times {
                pages::check(area()?.0)?;
            }
        }
        Job::Watch { threads } => pages::watch(area()?.0, threads)?,
        Job::Fresh { times } => pages::fresh(&process, cli.pages, times)?,
        Job::Where => println!("{}", area()?.1.va()),
        Job::Peek { va } => println!("{}", address::peek(va)),
        Job::Poke { va } => address::poke(va),
        Job::Insist { va } => address::insist(va)?,
        Job::Sync { value } => {
            let (area, memory) = area()?;
            area.word(0, 0).store(value, Ordering::SeqCst);
            process.sync(memory)?;
            // Not acknowledged.
            area.word(area.pages() - 1, 1)
                .store(value, Ordering::SeqCst);
            println!("synced");
            listen("end")?;
        }
        Job::Protect => {
            let (_, memory) = area()?;
            process.protect(memory, Access::Read)?;
        }
        Job::Permit => {
            let (_, memory) = area()?;
            process.protect(memory, Access::Write)?;
        }
        Job::Free => {
            process.unlink_area(&cli.area)?;
            process.unmap(area()?.1)?;
        }
    }
    Ok(())
}

/// Waits for this line.
fn listen(text: &str) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim_end() != text {
        bail!("told `{}` instead of `{text}`", line.trim_end());
    }
    Ok(())
}
