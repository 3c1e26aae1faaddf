//! What is wrong with a text, and where.

use std::fmt;
use std::ops::Range;

use winnow::error::{AddContext, ErrMode, ParserError};
use winnow::stream::{Location as _, Stream as _};

use super::lexical::Input;

/// Why a text is no litmus test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong there, and what was expected.
    pub problem: String,
}

impl ParseError {
    /// A problem at the byte `offset` of `text`.
    pub(super) fn at(text: &str, offset: usize, problem: impl Into<String>) -> Self {
        let before = &text[..text.floor_char_boundary(offset)];
        let line_begins = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_begins..].chars().count() + 1,
            problem: problem.into(),
        }
    }

    /// The grammar's trouble with `text`.
    pub(super) fn unexpected(text: &str, trouble: &Trouble) -> Self {
        let found = match found_at(text, trouble.offset) {
            "" => "the end of the file".to_owned(),
            found => format!("`{found}`"),
        };
        let expected = match trouble.expected.as_slice() {
            [] => "something else".to_owned(),
            [one] => one.to_string(),
            [first @ .., last] => {
                let first: Vec<_> = first.iter().map(ToString::to_string).collect();
                format!("{} or {last}", first.join(", "))
            }
        };
        let problem = format!("expected {expected}, found {found}");
        Self::at(text, trouble.offset, problem)
    }
}

/// The word or the sign at `offset`.
fn found_at(text: &str, offset: usize) -> &str {
    const LONGEST: usize = 20;
    let rest = text.get(offset..).unwrap_or_default();
    let word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = match rest.chars().next() {
        None => 0,
        Some(first) if !word(first) => first.len_utf8(),
        Some(_) => rest.find(|letter| !word(letter)).unwrap_or(rest.len()),
    };
    &rest[..rest.floor_char_boundary(end.min(LONGEST))]
}

/// What the grammar wants somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// This very text.
    Text(&'static str),
    /// Something of this kind.
    Kind(&'static str),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Kind(kind) => f.write_str(kind),
        }
    }
}

/// Where the grammar failed, in bytes from the text's beginning, and what would have been right. Of
/// two alternatives the one that came further is kept.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) offset: usize,
    pub(super) expected: Vec<Expected>,
    /// Whether that says more than what is around it would say.
    settled: bool,
}

impl Trouble {
    /// One that no alternative can mend.
    pub(super) fn cut(offset: usize, expected: Expected) -> ErrMode<Self> {
        ErrMode::Cut(Self {
            offset,
            expected: vec![expected],
            settled: true,
        })
    }
}

impl ParserError<Input<'_>> for Trouble {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        Self {
            offset: input.current_token_start(),
            expected: Vec::new(),
            settled: false,
        }
    }

    fn or(mut self, other: Self) -> Self {
        match self.offset.cmp(&other.offset) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal => {
                self.expected.extend(other.expected);
                self
            }
        }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

impl AddContext<Input<'_>, Expected> for Trouble {
    /// What failed at its very beginning is expected as a whole.
    fn add_context(
        mut self,
        input: &Input<'_>,
        token_start: &<Input<'_> as winnow::stream::Stream>::Checkpoint,
        context: Expected,
    ) -> Self {
        let mut begin = *input;
        begin.reset(token_start);
        if !self.settled && self.offset == begin.current_token_start() {
            self.expected = vec![context];
        }
        self
    }
}

/// Something, and where it is in the text, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_and_characters() {
        let text = "ab\ncdé f\n";
        for (offset, line, column) in [(0, 1, 1), (2, 1, 3), (3, 2, 1), (7, 2, 4), (8, 2, 5)] {
            let error = ParseError::at(text, offset, "x");
            assert_eq!((error.line, error.column), (line, column), "at {offset}");
        }
        let beyond = ParseError::at(text, 99, "x");
        assert_eq!((beyond.line, beyond.column), (3, 1));
    }

    #[test]
    fn what_is_found_is_a_word_or_a_sign() {
        for (text, found) in [
            ("movq $1", "movq"),
            ("; x", ";"),
            ("é!", "é"),
            ("", ""),
            ("aaaaaaaaaabbbbbbbbbbcc", "aaaaaaaaaabbbbbbbbbb"),
        ] {
            assert_eq!(found_at(text, 0), found);
        }
    }
}
