//! `mind-emulator convert`: makes a trace file of what other programs write.
//!
//! lackey's text does not say which thread accesses. So each text is one thread of the trace, on a blade of its own, all in
//! one memory: equal addresses in two texts are the same byte. One text alone is dealt out: its accesses in pieces of
//! `--chunk`, one piece after the other to the next blade, as if the program had given its work out in parts; all parts
//! begin at the same time.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Seek, Write},
    num::NonZero,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use mind_common::id::{BladeId, MAX_BLADES};

use super::{
    Access, Error, Shape, Writer,
    compact::Compact,
    lackey::{Line, Lines},
};

/// What writes the text.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum From {
    /// `valgrind --tool=lackey --trace-mem=yes PROGRAM 2> IN`.
    Lackey,
}

/// What `mind-emulator convert` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What wrote IN.
    #[arg(long, value_enum)]
    from: From,
    /// Compute blades. Several texts are threads on one blade each, in turn; one text is dealt out to a thread on each
    /// blade.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MAX_BLADES as i64))]
    blades: u8,
    /// Accesses of one text that go to the same blade before the next one gets as many.
    #[arg(long, value_name = "ACCESSES", default_value = "10000")]
    chunk: NonZero<u64>,
    /// Instructions that a blade carries out in a nanosecond.
    #[arg(long, value_name = "N", default_value = "2")]
    instructions_per_ns: NonZero<u32>,
    /// The texts to convert; `-` for standard input.
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// The trace file to write.
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

/// Runs `mind-emulator convert`.
///
/// # Errors
///
/// When a text cannot be read or has a line that is none of a trace's; when the file cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let inputs = args.inputs.len();
    let threads = match inputs {
        1 => usize::from(args.blades),
        more => more,
    };
    let blades =
        (0..threads).map(|n| BladeId::from_low_bits((n % usize::from(args.blades)) as u64));
    let out = create(&args.out)?;
    let From::Lackey = args.from;
    let writer = Writer::new(out, args.blades, blades.collect())?;
    let mut dealer = Dealer {
        writer,
        compact: Compact::default(),
        per_ns: args.instructions_per_ns.get(),
    };
    for (number, path) in args.inputs.iter().enumerate() {
        let threads = match inputs {
            1 => 0..threads,
            _ => number..number + 1,
        };
        let dealt = match path.as_os_str() == "-" {
            true => dealer.deal(io::stdin().lock(), threads, args.chunk),
            false => dealer.deal(open(path)?, threads, args.chunk),
        };
        dealt.with_context(|| format!("cannot convert {}", path.display()))?;
    }
    let (shape, _) = dealer
        .writer
        .finish()
        .with_context(|| cannot_write(&args.out))?;
    ensure!(
        shape.accesses > 0,
        "no access was in what was to be converted: {} is a trace without any",
        args.out.display()
    );
    mind_cli::print(&summary(&args.out, &shape))?;
    Ok(())
}

/// Creates a file to write a trace to.
///
/// # Errors
///
/// When that is not possible.
pub fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| cannot_write(path))?;
    Ok(BufWriter::new(file))
}

/// What is said of a file that cannot be written.
pub fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// A line about a trace that was written.
pub fn summary(path: &Path, shape: &Shape) -> String {
    format!(
        "{}: {} accesses by {} threads on {} blades, to {} pages",
        path.display(),
        shape.accesses,
        shape.threads.len(),
        shape.blades,
        shape.footprint.unwrap_or(shape.pages),
    )
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(BufReader::new(file))
}

/// Gives accesses of texts to threads.
struct Dealer<W> {
    writer: Writer<W>,
    compact: Compact,
    per_ns: u32,
}

impl<W: Write + Seek> Dealer<W> {
    fn deal(
        &mut self,
        text: impl BufRead,
        threads: std::ops::Range<usize>,
        chunk: NonZero<u64>,
    ) -> Result<(), Error> {
        // Those of threads with more than this text are not there yet, nor is their time.
        let mut instructions = 0u64;
        let mut thread = threads.start;
        let mut left = chunk.get();
        for line in Lines::new(text) {
            let Line::Data {
                address,
                bytes,
                is_write,
            } = line?
            else {
                instructions += 1;
                continue;
            };
            if left == 0 {
                thread = if thread + 1 < threads.end {
                    thread + 1
                } else {
                    threads.start
                };
                left = chunk.get();
            }
            left -= 1;
            let gap = instructions / u64::from(self.per_ns);
            instructions %= u64::from(self.per_ns);
            let mut access = Access {
                gap,
                page: self.compact.page(address)?,
                is_write,
                count: 1,
            };
            self.writer.push(thread, access)?;
            let mut next = (address | 0xfff) + 1;
            while next < address + bytes {
                access = Access {
                    gap: 0,
                    page: self.compact.page(next)?,
                    ..access
                };
                self.writer.push(thread, access)?;
                next += 0x1000;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::trace::{Reader, Source as _};

    /// The accesses of each thread when that text is dealt out to `threads`.
    fn dealt(text: &str, threads: usize, chunk: u64) -> Vec<Vec<Access>> {
        let blades = (0..threads as u64).map(BladeId::from_low_bits);
        let writer = Writer::new(Cursor::new(Vec::new()), threads as u8, blades.collect()).unwrap();
        let mut dealer = Dealer {
            writer,
            compact: Compact::default(),
            per_ns: 2,
        };
        let chunk = NonZero::new(chunk).unwrap();
        dealer.deal(text.as_bytes(), 0..threads, chunk).unwrap();
        let (_, bytes) = dealer.writer.finish().unwrap();
        let mut reader = Reader::open(bytes).unwrap();
        let all = |thread| std::iter::from_fn(|| reader.next(thread).unwrap()).collect();
        (0..threads).map(all).collect()
    }

    fn access(gap: u64, page: u32, is_write: bool, count: u32) -> Access {
        Access {
            gap,
            page,
            is_write,
            count,
        }
    }

    #[test]
    fn one_text_is_dealt_out_in_chunks() {
        let text = " L 1000,8\n L 2000,8\n S 3000,8\n L 4000,8\n L 5000,8\n";
        let page = |page, is_write| access(0, page, is_write, 1);
        let expected = [
            vec![page(1, false), page(2, false), page(5, false)],
            vec![page(3, true), page(4, false)],
        ];
        assert_eq!(dealt(text, 2, 2), expected);
    }

    #[test]
    fn instructions_are_time_and_none_is_lost() {
        let text = "I  0,1\nI  0,1\nI  0,1\n L 1000,8\nI  0,1\n L 2000,8\n";
        assert_eq!(
            dealt(text, 1, 9),
            [[access(1, 1, false, 1), access(1, 2, false, 1)]]
        );
    }

    #[test]
    fn an_access_to_two_pages_is_two() {
        let expected = [[access(0, 1, true, 1), access(0, 2, true, 1)]];
        assert_eq!(dealt(" M 1ffc,8\n", 1, 9), expected);
        assert_eq!(dealt(" S 1ff8,8\n", 1, 9), [[access(0, 1, true, 1)]]);
    }
}
