//! The program of a litmus file: a table with a column for each thread and an instruction in each
//! cell. What the instructions mean is not looked at here.

use winnow::Parser as _;
use winnow::combinator::{alt, cut_err, delimited, opt, peek, preceded};
use winnow::stream::Location as _;

use super::error::{Expected, Spanned, Trouble};
use super::lexical::{Input, Parsed, list, number, sign, word};

/// An instruction as it is written.
pub(super) struct Written<'a> {
    pub(super) lock: bool,
    pub(super) mnemonic: Spanned<&'a str>,
    pub(super) operands: Vec<Spanned<Operand<'a>>>,
}

impl Written<'_> {
    /// Whether it is `nop`, which no test needs.
    pub(super) fn is_nothing(&self) -> bool {
        self.mnemonic.value.eq_ignore_ascii_case("nop")
    }
}

/// An operand as it is written.
#[derive(Clone, Debug)]
pub(super) enum Operand<'a> {
    Immediate(u64),
    Register(&'a str),
    Memory(&'a str),
}

/// The words with which a row of the table does not begin.
const AFTER: [&str; 7] = [
    "exists",
    "forall",
    "locations",
    "filter",
    "final",
    "observed",
    "not",
];

/// The instructions of each thread.
pub(super) fn program<'a>(input: &mut Input<'a>) -> Parsed<Vec<Vec<Written<'a>>>> {
    let threads = threads(input)?;
    let mut columns: Vec<Vec<Written<'a>>> = (0..threads).map(|_| Vec::new()).collect();
    while !at_end(input)? {
        for (number, column) in columns.iter_mut().enumerate() {
            let end = if number + 1 < threads { "|" } else { ";" };
            let cell = cut_err(cell).parse_next(input)?;
            let expected = match (&cell, end) {
                (Some(_), "|") => Expected::Kind("`|` and the next thread's instruction"),
                (None, "|") => Expected::Kind("an instruction or `|`"),
                (Some(_), _) => Expected::Kind("`;` after the last thread's instruction"),
                (None, _) => Expected::Kind("an instruction or `;`"),
            };
            cut_err(sign(end).context(expected)).parse_next(input)?;
            column.extend(cell);
        }
    }
    Ok(columns)
}

/// `P0 | P1 ;`
fn threads(input: &mut Input<'_>) -> Parsed<usize> {
    let mut count = 0_usize;
    loop {
        let begin = input.current_token_start();
        let name = word
            .context(Expected::Kind("the threads, as in `P0 | P1 ;`"))
            .parse_next(input)?;
        if name.value.strip_prefix('P').map(str::parse) != Some(Ok(count)) {
            let expected = Expected::Kind("the threads `P0`, `P1` and so on, in order");
            return Err(Trouble::cut(begin, expected));
        }
        count += 1;
        let last = alt((sign("|").value(false), sign(";").value(true))).parse_next(input)?;
        if last {
            return Ok(count);
        }
    }
}

/// Whether the table is over.
fn at_end(input: &mut Input<'_>) -> Parsed<bool> {
    if input.is_empty() || input.starts_with(['~', '(']) {
        return Ok(true);
    }
    let word = opt(peek(word)).parse_next(input)?;
    Ok(word.is_some_and(|word| AFTER.contains(&word.value)))
}

fn cell<'a>(input: &mut Input<'a>) -> Parsed<Option<Written<'a>>> {
    let Some(mut mnemonic) = opt(word).parse_next(input)? else {
        return Ok(None);
    };
    let lock = mnemonic.value.eq_ignore_ascii_case("lock");
    if lock {
        // Some assemblers want `lock` on a line of its own, so files have `lock; inc`.
        opt(sign(";")).parse_next(input)?;
        mnemonic = word
            .verify(|word: &Spanned<&str>| !AFTER.contains(&word.value))
            .context(Expected::Kind("an instruction after `lock`"))
            .parse_next(input)?;
    }
    if input.starts_with(':') {
        let expected = Expected::Kind("an instruction; labels and jumps are not supported");
        return Err(Trouble::cut(mnemonic.span.start, expected));
    }
    let some = peek(opt(alt((sign("|"), sign(";"))))).parse_next(input)?;
    let operands = match some {
        Some(()) => Vec::new(),
        None => list(input, operand, ",")?,
    };
    Ok(Some(Written {
        lock,
        mnemonic,
        operands,
    }))
}

fn operand<'a>(input: &mut Input<'a>) -> Parsed<Spanned<Operand<'a>>> {
    let place = |of: Spanned<&'a str>| Spanned {
        value: Operand::Memory(of.value),
        span: of.span,
    };
    let register = |of: Spanned<&'a str>| Spanned {
        value: Operand::Register(of.value),
        span: of.span,
    };
    let immediate = |of: Spanned<u64>| Spanned {
        value: Operand::Immediate(of.value),
        span: of.span,
    };
    let name = || {
        word.context(Expected::Kind(
            "a memory location's name; addresses in registers are not supported",
        ))
    };
    alt((
        delimited(sign("("), cut_err(name()), cut_err(sign(")"))).map(place),
        delimited(sign("["), cut_err(name()), cut_err(sign("]"))).map(place),
        preceded(
            sign("$"),
            cut_err(number.context(Expected::Kind(
                "a number; negative numbers and addresses are not supported",
            ))),
        )
        .map(immediate),
        preceded(
            sign("%"),
            cut_err(word.context(Expected::Kind("a register"))),
        )
        .map(register),
        number.map(immediate),
        word.map(register),
    ))
    .context(Expected::Kind("an operand: `%rax`, `$1`, `(x)` or `[x]`"))
    .parse_next(input)
}
