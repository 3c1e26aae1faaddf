//! The example of a daemon's configuration file, made from its flags: each key with what it means, commented out.

use std::fmt::Write as _;

use clap::Arg;

use super::{Daemon, as_value, is_boolean};

/// Columns of a comment's text.
const COLUMNS: usize = 98;

/// The file of `daemon`, whose keys are the flags `keys`. Explanations begin with `# `, settings with `#`.
pub(super) fn text(daemon: &Daemon, keys: &[Arg]) -> String {
    let program = match daemon.verb {
        Some(verb) => daemon
            .name
            .replace(&format!("-{verb}"), &format!(" {verb}")),
        None => daemon.name.to_owned(),
    };
    let mut text = comment(&format!(
        "Configuration of `{program}`. Each key is a flag of it, without the dashes in front. Flags come before the \
         environment, the environment before this file, this file before defaults. `{program} --check-config` prints \
         what all of it amounts to."
    ));
    for arg in keys {
        text.push('\n');
        text.push_str(&entry(daemon, arg));
    }
    text
}

/// A key with what it means.
fn entry(daemon: &Daemon, arg: &Arg) -> String {
    let key = arg.get_long().unwrap_or_default();
    let help = arg.get_long_help().or(arg.get_help());
    let mut text = comment(&sentence(
        &help.map(ToString::to_string).unwrap_or_default(),
    ));
    if let Some(variable) = arg.get_env() {
        text.push_str(&comment(&format!(
            "The environment variable {} comes before it.",
            variable.display()
        )));
    }
    let choices: Vec<_> = arg.get_possible_values();
    if !choices.is_empty() && !is_boolean(arg) {
        let names: Vec<_> = choices
            .iter()
            .map(|choice| format!("\"{}\"", choice.get_name()))
            .collect();
        text.push_str(&comment(&format!("One of {}.", names.join(", "))));
    }
    let example = daemon.examples.iter().find(|(name, _)| *name == key);
    let value = match example {
        Some((_, value)) => {
            let need = match arg.is_required_set() {
                true => "It must be set, here or by the flag.",
                false => "By default it is not set.",
            };
            text.push_str(&comment(&format!("{need} An example:")));
            (*value).to_owned()
        }
        None => {
            text.push_str(&comment("The default:"));
            default(arg)
        }
    };
    let _ = writeln!(text, "#{key} = {value}");
    text
}

/// What a flag has if nothing sets it, as TOML.
fn default(arg: &Arg) -> String {
    let values = arg.get_default_values();
    let texts: Vec<_> = values
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    as_value(&texts, arg)
}

/// With its full stop, which clap takes off.
fn sentence(help: &str) -> String {
    match help.ends_with(['.', ':']) {
        true => help.to_owned(),
        false => format!("{help}."),
    }
}

/// A comment, in lines.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(lines, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(lines, "#{line}");
    lines
}

/// An example with all of its settings in force.
pub(super) fn uncommented(text: &str) -> String {
    let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let lines = text.lines().filter(is_setting);
    lines.map(|line| format!("{}\n", &line[1..])).collect()
}
