//! The end of a litmus file: `locations`, and the final condition.

use winnow::Parser as _;
use winnow::combinator::{alt, cut_err, delimited, opt, preceded};
use winnow::stream::Location as _;

use super::error::{Expected, Spanned, Trouble};
use super::head::{Target, target};
use super::lexical::{Input, Parsed, either, list, number, sign, word};
use crate::test::Quantifier;

/// How deep parentheses and `not` may be nested: what reads them calls itself.
const DEEPEST: usize = 100;

/// What is observed beside the condition.
pub(super) type Observed<'a> = Vec<Spanned<Target<'a>>>;

/// A proposition whose names are not looked up yet.
#[derive(Clone, Debug)]
pub(super) enum Written<'a> {
    Equal(Spanned<Target<'a>>, u64),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// A file's end: what `locations` lists, and the condition, which is `forall true` if there is none.
pub(super) fn ending<'a>(input: &mut Input<'a>) -> Parsed<(Observed<'a>, Quantifier, Written<'a>)> {
    let observed = if opt(keyword("locations")).parse_next(input)?.is_some() {
        cut_err(locations).parse_next(input)?
    } else {
        Vec::new()
    };
    if input.is_empty() {
        return Ok((observed, Quantifier::ForAll, Written::All(Vec::new())));
    }
    let not_exists = alt((
        (sign("~"), cut_err(keyword("exists"))).void(),
        (keyword("not"), cut_err(keyword("exists"))).void(),
    ));
    let quantifier = alt((
        keyword("exists").value(Quantifier::Exists),
        keyword("forall").value(Quantifier::ForAll),
        not_exists.value(Quantifier::NotExists),
    ))
    .context(Expected::Kind(
        "the condition: `exists`, `~exists` or `forall`",
    ))
    .parse_next(input)?;
    let proposition = implication(input, 0)?;
    opt(sign(";")).parse_next(input)?;
    if !input.is_empty() {
        let expected = Expected::Kind("`/\\`, `\\/` or the end of the file");
        return Err(Trouble::cut(input.current_token_start(), expected));
    }
    Ok((observed, quantifier, proposition))
}

/// `[x; 0:rax;]`; types behind the names are read over.
fn locations<'a>(input: &mut Input<'a>) -> Parsed<Observed<'a>> {
    sign("[").parse_next(input)?;
    let mut observed = Vec::new();
    loop {
        while opt(sign(";")).parse_next(input)?.is_some() {}
        if opt(sign("]")).parse_next(input)?.is_some() {
            return Ok(observed);
        }
        let one = target.context(Expected::Kind("a location, a register, or `]`"));
        observed.push(cut_err(one).parse_next(input)?);
        opt(word).parse_next(input)?;
    }
}

fn keyword<'a>(
    text: &'static str,
) -> impl winnow::Parser<Input<'a>, (), winnow::error::ErrMode<Trouble>> {
    word.verify(move |word: &Spanned<&str>| word.value == text)
        .void()
        .context(Expected::Text(text))
}

/// `a => b`, which binds loosest, from the right.
fn implication<'a>(input: &mut Input<'a>, depth: usize) -> Parsed<Written<'a>> {
    let mut parts = list(input, |input| any(input, depth), "=>")?;
    Ok(match (parts.pop(), parts.is_empty()) {
        (Some(only), true) => only,
        // a => (b => c) is: not a, or not b, or c.
        (last, _) => {
            let not = |of| Written::Not(Box::new(of));
            Written::Any(parts.into_iter().map(not).chain(last).collect())
        }
    })
}

fn any<'a>(input: &mut Input<'a>, depth: usize) -> Parsed<Written<'a>> {
    let mut parts = list(input, |input| all(input, depth), "\\/")?;
    Ok(match parts.len() {
        1 => parts.remove(0),
        _ => Written::Any(parts),
    })
}

fn all<'a>(input: &mut Input<'a>, depth: usize) -> Parsed<Written<'a>> {
    let mut parts = list(input, |input| one(input, depth), "/\\")?;
    Ok(match parts.len() {
        1 => parts.remove(0),
        _ => Written::All(parts),
    })
}

fn one<'a>(input: &mut Input<'a>, depth: usize) -> Parsed<Written<'a>> {
    if depth > DEEPEST {
        let expected = Expected::Kind("at most 100 parentheses within each other");
        return Err(Trouble::cut(input.current_token_start(), expected));
    }
    let not = |input: &mut Input<'a>| {
        cut_err(|input: &mut Input<'a>| one(input, depth + 1)).parse_next(input)
    };
    let inner = |input: &mut Input<'a>| {
        cut_err(|input: &mut Input<'a>| implication(input, depth + 1)).parse_next(input)
    };
    let negated = alt((keyword("not"), sign("~")));
    alt((
        preceded(negated, not).map(|of| Written::Not(Box::new(of))),
        delimited(sign("("), inner, cut_err(sign(")"))),
        keyword("true").value(Written::All(Vec::new())),
        keyword("false").value(Written::Any(Vec::new())),
        equation,
    ))
    .context(Expected::Kind(
        "a proposition such as `x=1`, `0:rax=1`, `not (...)` or `true`",
    ))
    .parse_next(input)
}

/// `x=1`, `[x]=1`, `0:rax=1`, or the same with `!=` or `<>`.
fn equation<'a>(input: &mut Input<'a>) -> Parsed<Written<'a>> {
    let target = target(input)?;
    let equal = alt((
        either("==", "=").value(true),
        either("!=", "<>").value(false),
    ));
    let equal = cut_err(equal).parse_next(input)?;
    let value = number.context(Expected::Kind(
        "a number; negative numbers, addresses and other locations are not supported",
    ));
    let value = cut_err(value).parse_next(input)?;
    let equation = Written::Equal(target, value.value);
    Ok(match equal {
        true => equation,
        false => Written::Not(Box::new(equation)),
    })
}
