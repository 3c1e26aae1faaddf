//! A command line's definition as plain data, from which the book's reference of commands and of configuration is made.

use clap::{Arg, ArgAction, Command};
use serde::{Deserialize, Serialize};

/// A program, or a verb of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verb {
    /// Its own name, without those that it stands behind.
    pub name: String,
    /// What it does: a sentence, or more.
    pub about: String,
    /// How it is called, with all names that it stands behind.
    pub usage: String,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// Its verbs.
    pub verbs: Vec<Verb>,
}

/// An option, a flag, or a value that stands by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The long form without its dashes; `None` for what stands by itself.
    pub long: Option<String>,
    /// The short form without its dash.
    pub short: Option<char>,
    /// What stands for the value; `None` for a flag.
    pub value: Option<String>,
    /// What it means: a sentence, or more.
    pub meaning: String,
    /// The value where none is given; `None` also where it is hidden, since it is the machine's.
    pub default: Option<String>,
    /// All values that there are, if they are few.
    pub choices: Vec<String>,
    /// The environment variable that gives the value where the command line does not.
    pub variable: Option<String>,
    /// Whether it cannot be left out.
    pub is_required: bool,
    /// Whether it may be given several times, or takes several values.
    pub is_list: bool,
}

impl Verb {
    /// What `command` says of itself; without what is hidden, and what every command line has (`--help`, `--version`).
    pub fn of(mut command: Command) -> Self {
        command.build();
        Self::of_built(&mut command)
    }

    fn of_built(command: &mut Command) -> Self {
        let usage = command.render_usage().to_string();
        let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
        let about = command.get_long_about().or(command.get_about());
        let shown = |arg: &&Arg| !arg.is_hide_set() && !is_everywhere(arg);
        let verbs = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
            .map(|verb| Self::of_built(&mut verb.clone()))
            .collect();
        Self {
            name: command.get_name().to_owned(),
            about: about.map(ToString::to_string).unwrap_or_default(),
            usage,
            parameters: command
                .get_arguments()
                .filter(shown)
                .map(Parameter::of)
                .collect(),
            verbs,
        }
    }
}

fn is_everywhere(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

impl Parameter {
    fn of(arg: &Arg) -> Self {
        let takes_value = arg.get_action().takes_values();
        let names = arg.get_value_names().unwrap_or_default();
        let value = takes_value.then(|| match names {
            [] => arg.get_id().as_str().to_uppercase(),
            names => names.join(" "),
        });
        let defaults: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let help = arg.get_long_help().or(arg.get_help());
        let is_many = arg
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1);
        Self {
            long: arg.get_long().map(str::to_owned),
            short: arg.get_short(),
            value,
            meaning: help.map(ToString::to_string).unwrap_or_default(),
            default: (takes_value && !defaults.is_empty() && !arg.is_hide_default_value_set())
                .then(|| defaults.join(" ")),
            choices: choices(arg, takes_value),
            variable: arg
                .get_env()
                .map(|name| name.to_string_lossy().into_owned()),
            is_required: arg.is_required_set(),
            is_list: is_many || matches!(arg.get_action(), ArgAction::Append),
        }
    }
}

/// The values that an argument can have, if they are listed; a flag has none.
fn choices(arg: &Arg, takes_value: bool) -> Vec<String> {
    if !takes_value {
        return Vec::new();
    }
    let values = arg.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set());
    shown.map(|value| value.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let size = Arg::new("size")
            .long("size")
            .value_name("BYTES")
            .help("How much.")
            .default_value("4K")
            .env("SIZE");
        let quick = Arg::new("quick")
            .long("quick")
            .short('q')
            .action(ArgAction::SetTrue);
        let secret = Arg::new("secret").long("secret").hide(true);
        let files = Arg::new("files")
            .value_name("FILE")
            .required(true)
            .num_args(1..);
        let verb = Command::new("read")
            .about("Reads.")
            .args([size, quick, secret, files]);
        Command::new("program")
            .version("1")
            .about("Does things.")
            .subcommand(verb)
            .subcommand(Command::new("hidden").hide(true))
    }

    #[test]
    fn a_verb_has_what_its_command_declares_and_nothing_hidden() {
        let program = Verb::of(program());
        assert_eq!(
            (&*program.name, &*program.about),
            ("program", "Does things.")
        );
        assert_eq!(program.parameters, []);
        let [read] = &program.verbs[..] else {
            panic!("{:?}", program.verbs);
        };
        assert_eq!(read.usage, "program read [OPTIONS] <FILE>...");
        let [size, quick, files] = &read.parameters[..] else {
            panic!("{:?}", read.parameters);
        };
        assert_eq!(size.value.as_deref(), Some("BYTES"));
        assert_eq!(size.default.as_deref(), Some("4K"));
        assert_eq!(size.variable.as_deref(), Some("SIZE"));
        assert_eq!((quick.short, &quick.value), (Some('q'), &None));
        assert!(quick.default.is_none() && quick.choices.is_empty());
        assert!(files.long.is_none() && files.is_required && files.is_list);
    }
}
