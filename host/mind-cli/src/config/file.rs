//! A configuration file as it is read: its settings, each checked by the flag that it stands for.

use std::{fmt, fs, io, path::Path, path::PathBuf};

use clap::{
    Arg, ArgAction, Command,
    builder::{OsStr, Resettable},
};
use toml::de::{DeTable, DeValue};

use super::{is_boolean, is_list};

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", Place { path, line: *line })]
pub struct Error {
    /// The file.
    path: PathBuf,
    /// The line, counted from one, if it is about one.
    line: Option<usize>,
    /// What is wrong.
    #[source]
    fault: Fault,
}

/// What can be wrong with a configuration file, or with a line of it.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("cannot read the configuration: {0}")]
    Unreadable(io::Error),
    /// It has bytes that are no text.
    #[error("the configuration is not UTF-8 here")]
    NoText,
    /// It is no TOML.
    #[error("no TOML: {0}")]
    Syntax(String),
    /// It has a key that is not a flag.
    #[error("there is no key `{key}`; `{nearest}` is the nearest, and --help lists all")]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key that looks most like it.
        nearest: String,
    },
    /// A value has not the type that the key needs.
    #[error("`{key}` is {actual}; expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// What it has.
        actual: &'static str,
        /// What it needs.
        expected: &'static str,
    },
    /// The flag does not take the value.
    #[error("`{key}`: {reason}")]
    Refused {
        /// The key.
        key: String,
        /// What the flag's parser says.
        reason: String,
    },
}

/// A file, or a line in it.
struct Place<'a> {
    path: &'a Path,
    line: Option<usize>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match self.line {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// A key and its values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The flag's long name.
    pub(super) key: String,
    /// What would be said to the flag.
    pub(super) values: Vec<String>,
}

/// Reads the file at `path`, whose keys are the flags `keys`.
pub(super) fn read(path: &Path, keys: &[Arg]) -> Result<Vec<Setting>, Error> {
    let bytes = fs::read(path).map_err(|cause| Error {
        path: path.to_owned(),
        line: None,
        fault: Fault::Unreadable(cause),
    })?;
    check(path, &bytes, keys)
}

/// Checks the contents of the file at `path`, whose keys are the flags `keys`.
pub(super) fn check(path: &Path, bytes: &[u8], keys: &[Arg]) -> Result<Vec<Setting>, Error> {
    let error = |line, fault| Error {
        path: path.to_owned(),
        line,
        fault,
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|cause| error(Some(line_of(bytes, cause.valid_up_to())), Fault::NoText))?;
    parse(text, keys).map_err(|(at, fault)| error(at.map(|at| line_of(bytes, at)), fault))
}

/// The number of the line, from one, in which the byte number `at` is.
fn line_of(bytes: &[u8], at: usize) -> usize {
    let before = bytes.iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// The settings in `text`, or what is wrong with the first one that is wrong, and at which byte.
fn parse(text: &str, keys: &[Arg]) -> Result<Vec<Setting>, (Option<usize>, Fault)> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        (at, Fault::Syntax(error.message().to_owned()))
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut settings = Vec::new();
    for (key, value) in entries {
        let setting = setting(key.get_ref(), value.get_ref(), keys);
        settings.push(setting.map_err(|fault| (Some(key.span().start), fault))?);
    }
    Ok(settings)
}

/// The setting of one line.
fn setting(key: &str, value: &DeValue<'_>, keys: &[Arg]) -> Result<Setting, Fault> {
    let Some(arg) = keys.iter().find(|arg| arg.get_long() == Some(key)) else {
        return Err(unknown(key, keys));
    };
    let values = values(key, value, arg)?;
    for value in &values {
        try_flag(key, value, arg)?;
    }
    Ok(Setting {
        key: key.to_owned(),
        values,
    })
}

fn unknown(key: &str, keys: &[Arg]) -> Fault {
    let likeness = |other: &&str| strsim::jaro_winkler(key, other);
    let all = keys.iter().filter_map(Arg::get_long);
    let nearest = all.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    Fault::UnknownKey {
        key: key.to_owned(),
        nearest: nearest.unwrap_or_default().to_owned(),
    }
}

/// The texts that a value is to the flag.
fn values(key: &str, value: &DeValue<'_>, arg: &Arg) -> Result<Vec<String>, Fault> {
    let wrong = |value: &DeValue<'_>| Fault::WrongType {
        key: key.to_owned(),
        actual: kind(value),
        expected: expected(arg),
    };
    match value {
        DeValue::Array(items) if is_list(arg) && !items.is_empty() => {
            let text = |item: &toml::Spanned<DeValue<'_>>| {
                text(item.get_ref(), arg).ok_or_else(|| wrong(item.get_ref()))
            };
            items.iter().map(text).collect()
        }
        value => match text(value, arg) {
            Some(text) => Ok(vec![text]),
            None => Err(wrong(value)),
        },
    }
}

/// The text that a single value is to the flag; none if it has a type that the flag cannot take.
fn text(value: &DeValue<'_>, arg: &Arg) -> Option<String> {
    match (value, is_boolean(arg)) {
        (DeValue::Boolean(value), true) => Some(value.to_string()),
        (DeValue::String(value), false) => Some(value.to_string()),
        (DeValue::Integer(value), false) => {
            Some(match i128::from_str_radix(value.as_str(), value.radix()) {
                Ok(number) => number.to_string(),
                // Larger than what any flag takes, which the flag says best.
                Err(_) => value.as_str().to_owned(),
            })
        }
        (DeValue::Float(value), false) => Some(value.as_str().to_owned()),
        _ => None,
    }
}

/// A value's type, for people.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(items) if items.is_empty() => "an empty array",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The type that a flag takes, for people.
fn expected(arg: &Arg) -> &'static str {
    match (is_boolean(arg), is_list(arg)) {
        (true, _) => "true or false",
        (false, true) => "an array of strings",
        (false, false) => "a string or a number",
    }
}

/// Checks a value with the flag's parser.
fn try_flag(key: &str, value: &str, arg: &Arg) -> Result<(), Fault> {
    // Alone: not needed, not in anything's way, not set by anything else.
    let alone = arg
        .clone()
        .action(ArgAction::Set)
        .required(false)
        .env(Resettable::<OsStr>::Reset)
        .requires(Resettable::Reset)
        .conflicts_with(Resettable::Reset)
        .group(Resettable::Reset);
    let command = Command::new("file").no_binary_name(true).arg(alone);
    let parsed = command.try_get_matches_from([format!("--{key}={value}")]);
    parsed.map(drop).map_err(|error| Fault::Refused {
        key: key.to_owned(),
        reason: first_part(&error.to_string()),
    })
}

/// What clap says of an error, without its frame.
fn first_part(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let part = text.split("\n\n").next().unwrap_or_default();
    part.split_whitespace().collect::<Vec<_>>().join(" ")
}
