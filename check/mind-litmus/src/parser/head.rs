//! The head of a litmus file, up to the program: architecture, name, description, lines of
//! information, and the initial state in braces.

use winnow::Parser as _;
use winnow::combinator::{alt, cut_err, delimited, opt, peek, preceded, terminated};
use winnow::stream::Location as _;
use winnow::token::take_while;

use super::error::{Expected, Spanned, Trouble};
use super::lexical::{Input, Parsed, blank, number, sign, word};

/// Which assembly language a program is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `X86_64`: AT&T's, sources first.
    Att,
    /// `X86`: Intel's, targets first, 32 bits wide by default.
    Intel,
}

pub(super) struct Head<'a> {
    pub(super) syntax: Syntax,
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) info: Vec<(&'a str, &'a str)>,
    pub(super) initial: Vec<Item<'a>>,
}

/// What an item of the initial state or of a condition is about.
#[derive(Clone, Debug)]
pub(super) enum Target<'a> {
    /// A thread's register.
    Register { thread: u64, name: &'a str },
    /// A memory location.
    Memory(&'a str),
}

/// An item of the initial state: a declaration, an initial value, or both.
pub(super) struct Item<'a> {
    pub(super) kind: Option<Spanned<&'a str>>,
    pub(super) target: Spanned<Target<'a>>,
    pub(super) value: Option<Spanned<u64>>,
}

pub(super) fn head<'a>(input: &mut Input<'a>) -> Parsed<Head<'a>> {
    blank(input)?;
    let (syntax, name) = title(input)?;
    let mut description = None;
    let mut info = Vec::new();
    loop {
        blank(input)?;
        if description.is_none() && input.starts_with('"') {
            description = Some(quoted(input)?);
        } else if input.starts_with('{') {
            break;
        } else {
            info.push(line(input)?);
        }
    }
    let initial = initial_state(input)?;
    Ok(Head {
        syntax,
        name,
        description,
        info,
        initial,
    })
}

/// The first line: architecture and name.
fn title<'a>(input: &mut Input<'a>) -> Parsed<(Syntax, &'a str)> {
    let space = |input: &mut Input<'a>| {
        take_while(0.., |letter: char| letter.is_whitespace() && letter != '\n')
            .void()
            .parse_next(input)
    };
    let black = take_while(1.., |letter: char| !letter.is_whitespace());
    let begin = input.current_token_start();
    let syntax = match opt(black).parse_next(input)? {
        Some("X86_64") => Syntax::Att,
        Some("X86") => Syntax::Intel,
        _ => {
            let expected =
                Expected::Kind("the architecture, `X86_64` or `X86`, and the test's name");
            return Err(Trouble::cut(begin, expected));
        }
    };
    let black = take_while(1.., |letter: char| !letter.is_whitespace());
    let name = preceded(
        space,
        black.context(Expected::Kind("the test's name, one word")),
    )
    .parse_next(input)?;
    space(input)?;
    let end = input.current_token_start();
    if !input.is_empty() && !input.starts_with('\n') {
        let expected = Expected::Kind("the end of the line after the test's name");
        return Err(Trouble::cut(end, expected));
    }
    Ok((syntax, name))
}

fn quoted<'a>(input: &mut Input<'a>) -> Parsed<&'a str> {
    let text = take_while(0.., |letter: char| !matches!(letter, '"' | '\n' | '\r'));
    let end = '"'.context(Expected::Kind("`\"` before the end of the line"));
    delimited('"', text, end).parse_next(input)
}

/// `key=value` to the end of the line.
fn line<'a>(input: &mut Input<'a>) -> Parsed<(&'a str, &'a str)> {
    let key = take_while(1.., |letter: char| {
        letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
    })
    .context(Expected::Kind(
        "a line `key=value`, a description in quotes, or the initial state in braces",
    ));
    let space = take_while(0.., [' ', '\t']);
    let sign = preceded(space, "=".context(Expected::Text("=")));
    let value = take_while(0.., |letter: char| !matches!(letter, '\n' | '\r'));
    (terminated(key, sign), value.map(str::trim)).parse_next(input)
}

fn initial_state<'a>(input: &mut Input<'a>) -> Parsed<Vec<Item<'a>>> {
    sign("{").parse_next(input)?;
    let mut items = Vec::new();
    loop {
        while opt(sign(";")).parse_next(input)?.is_some() {}
        if opt(sign("}")).parse_next(input)?.is_some() {
            return Ok(items);
        }
        items.push(
            cut_err(item.context(Expected::Kind(
                "an initial value (`x=1`, `0:rax=1`), a declaration (`uint64_t x`) or `}`",
            )))
            .parse_next(input)?,
        );
        let end = alt((sign(";"), sign("}")));
        cut_err(peek(end)).parse_next(input)?;
    }
}

fn item<'a>(input: &mut Input<'a>) -> Parsed<Item<'a>> {
    // A name is a type if another target follows.
    let kind = opt(terminated(
        word,
        peek(alt((word.void(), number.void(), sign("[")))),
    ))
    .parse_next(input)?;
    let target = target(input)?;
    let value = opt(preceded(
        sign("="),
        cut_err(number.context(Expected::Kind(
            "a number; negative numbers and addresses are not supported",
        ))),
    ))
    .parse_next(input)?;
    Ok(Item {
        kind,
        target,
        value,
    })
}

/// `x`, `[x]`, `0:rax` or `P0:rax`.
pub(super) fn target<'a>(input: &mut Input<'a>) -> Parsed<Spanned<Target<'a>>> {
    let register = cut_err(word.context(Expected::Kind("a register")));
    if let Some((thread, name)) =
        opt((terminated(number, sign(":")), register)).parse_next(input)?
    {
        let span = thread.span.start..name.span.end;
        let (thread, name) = (thread.value, name.value);
        let value = Target::Register { thread, name };
        return Ok(Spanned { value, span });
    }
    if opt(sign("[")).parse_next(input)?.is_some() {
        let name = cut_err(terminated(word, sign("]"))).parse_next(input)?;
        let value = Target::Memory(name.value);
        return Ok(Spanned {
            value,
            span: name.span,
        });
    }
    let name = word(input)?;
    let thread = name.value.strip_prefix('P').map(str::parse);
    if let Some(Ok(thread)) = thread
        && opt(sign(":")).parse_next(input)?.is_some()
    {
        let register = cut_err(word.context(Expected::Kind("a register"))).parse_next(input)?;
        let span = name.span.start..register.span.end;
        let name = register.value;
        let value = Target::Register { thread, name };
        return Ok(Spanned { value, span });
    }
    let value = Target::Memory(name.value);
    Ok(Spanned {
        value,
        span: name.span,
    })
}
