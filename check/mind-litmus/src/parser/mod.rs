//! Reads `.litmus` files for x86, in the syntax of the diy tools' `X86_64` (AT&T) and `X86` (Intel).
//! What is not understood is refused, with its place and what was expected there.

mod condition;
mod error;
mod head;
mod lexical;
mod meaning;
mod program;

use winnow::Parser as _;
use winnow::error::ErrMode;
use winnow::stream::LocatingSlice;

pub use error::ParseError;

use crate::test::Test;
use lexical::{Input, Parsed};

/// A file as it is written, its parts not yet held against each other.
struct File<'a> {
    head: head::Head<'a>,
    threads: Vec<Vec<program::Written<'a>>>,
    observed: condition::Observed<'a>,
    quantifier: crate::test::Quantifier,
    proposition: condition::Written<'a>,
}

fn file<'a>(input: &mut Input<'a>) -> Parsed<File<'a>> {
    let head = head::head(input)?;
    let threads = program::program(input)?;
    let (observed, quantifier, proposition) = condition::ending(input)?;
    Ok(File {
        head,
        threads,
        observed,
        quantifier,
        proposition,
    })
}

/// Reads a test from the text of a file.
///
/// # Errors
///
/// Where the text is no litmus test for x86, or one that is not supported, and why.
pub fn parse(text: &str) -> Result<Test, ParseError> {
    let mut input = LocatingSlice::new(text);
    let file = file.parse_next(&mut input).map_err(|error| match error {
        ErrMode::Backtrack(trouble) | ErrMode::Cut(trouble) => {
            ParseError::unexpected(text, &trouble)
        }
        // Only streams that may go on report this.
        ErrMode::Incomplete(_) => ParseError::at(text, text.len(), "the file is not complete"),
    })?;
    meaning::test(text, file)
}

/// Reads a test from the bytes of a file.
///
/// # Errors
///
/// As [`parse`]; and if the bytes are not UTF-8.
pub fn parse_bytes(bytes: &[u8]) -> Result<Test, ParseError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text),
        Err(error) => {
            let (good, bad) = bytes.split_at(error.valid_up_to());
            let good = std::str::from_utf8(good).unwrap_or_default();
            let bad = bad.first().copied().unwrap_or_default();
            let problem = format!("expected text in UTF-8, found the byte {bad:#04x}");
            Err(ParseError::at(good, good.len(), problem))
        }
    }
}

#[cfg(test)]
mod tests;
