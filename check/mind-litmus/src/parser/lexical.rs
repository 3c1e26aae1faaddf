//! The words of a litmus file: white space, comments, signs, names, numbers.

use winnow::ModalResult;
use winnow::Parser as _;
use winnow::combinator::{alt, cut_err, opt, terminated};
use winnow::stream::{LocatingSlice, Location as _};
use winnow::token::{any, literal, one_of, take_while};

use super::error::{Expected, Spanned, Trouble};
use crate::test::Location;

/// A text that is being read.
pub(super) type Input<'a> = LocatingSlice<&'a str>;
/// What reading a part of it yields.
pub(super) type Parsed<T> = ModalResult<T, Trouble>;

/// White space and comments.
pub(super) fn blank(input: &mut Input<'_>) -> Parsed<()> {
    loop {
        take_while(0.., char::is_whitespace)
            .void()
            .parse_next(input)?;
        if !input.starts_with("(*") {
            return Ok(());
        }
        comment(input)?;
    }
}

/// A comment as in OCaml: comments may be within.
fn comment(input: &mut Input<'_>) -> Parsed<()> {
    let begin = input.current_token_start();
    let mut depth = 0_usize;
    loop {
        if literal::<_, _, winnow::error::ErrMode<Trouble>>("(*")
            .parse_next(input)
            .is_ok()
        {
            depth += 1;
        } else if literal::<_, _, winnow::error::ErrMode<Trouble>>("*)")
            .parse_next(input)
            .is_ok()
        {
            depth -= 1;
            if depth == 0 {
                return Ok(());
            }
        } else if input.is_empty() {
            return Err(Trouble::cut(
                begin,
                Expected::Kind("a comment that ends: `*)` is missing"),
            ));
        } else {
            any.void().parse_next(input)?;
        }
    }
}

/// A sign, such as `;`.
pub(super) fn sign<'a>(
    text: &'static str,
) -> impl winnow::Parser<Input<'a>, (), winnow::error::ErrMode<Trouble>> {
    terminated(literal(text), blank)
        .void()
        .context(Expected::Text(text))
}

/// A word: letters, digits and `_`, no digit first.
pub(super) fn word<'a>(input: &mut Input<'a>) -> Parsed<Spanned<&'a str>> {
    let letters = (
        one_of(Location::begins_with),
        take_while(0.., Location::contains),
    );
    spanned(letters.take())
        .context(Expected::Kind("a name"))
        .parse_next(input)
}

/// A number without a sign, decimal or hexadecimal.
pub(super) fn number(input: &mut Input<'_>) -> Parsed<Spanned<u64>> {
    let digits = (
        one_of('0'..='9'),
        take_while(0.., |letter: char| letter.is_ascii_alphanumeric()),
    );
    let Spanned { value, span } = spanned(digits.take())
        .context(Expected::Kind("a number"))
        .parse_next(input)?;
    let hexadecimal = value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"));
    let read = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    match read {
        Ok(value) => Ok(Spanned { value, span }),
        Err(_) => Err(Trouble::cut(
            span.start,
            Expected::Kind("a number below 2^64, decimal or hexadecimal"),
        )),
    }
}

/// What `parser` reads and where it is, without the blank behind it.
pub(super) fn spanned<'a, T>(
    parser: impl winnow::Parser<Input<'a>, T, winnow::error::ErrMode<Trouble>>,
) -> impl winnow::Parser<Input<'a>, Spanned<T>, winnow::error::ErrMode<Trouble>> {
    terminated(parser.with_span(), blank).map(|(value, span)| Spanned { value, span })
}

/// One or more of something with a sign between; after the sign there must be another one.
pub(super) fn list<'a, T>(
    input: &mut Input<'a>,
    mut one: impl FnMut(&mut Input<'a>) -> Parsed<T>,
    between: &'static str,
) -> Parsed<Vec<T>> {
    let mut all = vec![one(input)?];
    while opt(sign(between)).parse_next(input)?.is_some() {
        all.push(cut_err(&mut one).parse_next(input)?);
    }
    Ok(all)
}

/// A sign of several spellings.
pub(super) fn either<'a>(
    one: &'static str,
    other: &'static str,
) -> impl winnow::Parser<Input<'a>, (), winnow::error::ErrMode<Trouble>> {
    alt((sign(one), sign(other)))
}
