//! Configuration files of daemons. A key of the file is a long flag of the daemon's command line, and its value goes
//! through the flag's own parser. What the command line says comes before the environment, the environment before the
//! file, the file before the default.
//!
//! * [`file`](mod@file) reads a file and checks it against the flags,
//! * [`example`] writes the file in which every key is explained,
//! * [`effective`] says what a daemon would run with.

mod effective;
mod example;
mod file;
#[cfg(test)]
mod tests;

use std::{ffi::OsString, fs, io, path::Path, path::PathBuf};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches,
    builder::{StyledStr, ValueRange},
    error::{ContextKind, ContextValue, ErrorKind},
    value_parser,
};

pub use file::{Error, Fault};

use file::Setting;

/// The folder of the configuration files.
const FOLDER: &str = "/etc/mind";

/// The flags that this module adds to a daemon's. None is a key.
const CONFIG: &str = "config";
const CHECK: &str = "check-config";
const EXAMPLE: &str = "example-config";

/// The exit code for a wrong command line, and for a wrong file.
const USAGE: i32 = 2;

/// A daemon that can have a configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Daemon {
    /// Its name, and the file's without `.toml`.
    pub name: &'static str,
    /// The verb of the program that it is; none if it is the program itself.
    pub verb: Option<&'static str>,
    /// What the example file has for keys without a default, as TOML.
    pub examples: &'static [(&'static str, &'static str)],
}

impl Daemon {
    /// Its file in `folder`.
    fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.toml", self.name))
    }
}

/// Parses the command line of a program, and the file of the daemon that it asks for. Ends the program if either is
/// wrong, or if no more than their check or the example is wanted.
pub fn parse<C: CommandFactory + FromArgMatches>(daemons: &[Daemon]) -> C {
    let command = command(C::command(), daemons);
    let name = command.get_name().to_owned();
    match run(
        command,
        daemons,
        std::env::args_os().collect(),
        Path::new(FOLDER),
    ) {
        Ok(Outcome::Run(matches)) => {
            C::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
        }
        Ok(Outcome::Print(text)) => {
            // Not being able to print is what `print` itself reports.
            let printed = crate::print(text.trim_end());
            std::process::exit(i32::from(printed.is_err()))
        }
        Err(Failure::Usage(error)) => error.exit(),
        Err(Failure::File(error)) => {
            eprintln!("{name}: {error}");
            std::process::exit(USAGE)
        }
    }
}

/// The command line with what each daemon of it takes besides its own flags: the file and its check. A switch can be
/// turned off, as the file may have turned it on.
#[must_use]
pub fn command(mut command: Command, daemons: &[Daemon]) -> Command {
    for daemon in daemons {
        let change = |command: Command| {
            let default = daemon.file(Path::new(FOLDER));
            let help = format!(
                "The configuration file, in TOML: its keys are these flags' names, without dashes in front. By default \
                 {}, if it is there. Flags and environment come before it",
                default.display()
            );
            let config = Arg::new(CONFIG).long(CONFIG).value_name("FILE").help(help);
            let check = Arg::new(CHECK)
                .long(CHECK)
                .help("Print what all of it amounts to, as such a file, and end; fails if any of it is wrong");
            let example = Arg::new(EXAMPLE).long(EXAMPLE).hide(true);
            command
                .mut_args(|arg| {
                    if is_switch(&arg) {
                        with_value(arg)
                    } else {
                        arg
                    }
                })
                .arg(config.value_parser(value_parser!(PathBuf)))
                .arg(check.action(ArgAction::SetTrue))
                .arg(example.action(ArgAction::SetTrue))
        };
        command = of_daemon(command, daemon, change);
    }
    command
}

/// For the tests of a program: checks that the example of each of its daemons, uncommented, is a configuration.
///
/// # Errors
///
/// What is wrong with an example; a flag without a default must have a value among [`Daemon::examples`].
pub fn check_examples(program: Command, daemons: &[Daemon]) -> Result<(), Error> {
    let command = command(program, daemons);
    for daemon in daemons {
        let keys = keys(&command, daemon);
        let text = example::uncommented(&example::text(daemon, &keys));
        file::check(Path::new(daemon.name), text.as_bytes(), &keys)?;
    }
    Ok(())
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// A switch that can also be said to be off: `--keep=false`.
fn with_value(switch: Arg) -> Arg {
    switch
        .action(ArgAction::Set)
        .num_args(ValueRange::from(0..=1))
        .require_equals(true)
        .value_parser(value_parser!(bool))
        .value_name("BOOL")
        .default_missing_value("true")
        .default_value("false")
        .hide_default_value(true)
        .hide_possible_values(true)
}

/// Has the part of the command line changed that is the daemon's.
fn of_daemon(
    command: Command,
    daemon: &Daemon,
    change: impl FnOnce(Command) -> Command,
) -> Command {
    match daemon.verb {
        Some(verb) => command.mut_subcommand(verb, change),
        None => change(command),
    }
}

/// What a command line asks for.
enum Outcome {
    /// To run, with what this says.
    Run(ArgMatches),
    /// To print this.
    Print(String),
}

/// Why a program cannot begin.
#[derive(Debug)]
enum Failure {
    /// The command line is wrong, or asks for help.
    Usage(clap::Error),
    /// The file is.
    File(Error),
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

/// Parses `arguments`, with the files in `folder`, of a program whose [`command`] this is.
fn run(
    command: Command,
    daemons: &[Daemon],
    arguments: Vec<OsString>,
    folder: &Path,
) -> Result<Outcome, Failure> {
    let relaxed = daemons.iter().fold(command.clone(), |command, daemon| {
        of_daemon(command, daemon, |command| {
            command.mut_args(|arg| arg.required(false))
        })
    });
    // Whatever is wrong besides a flag that is missing is as wrong without the file.
    let Ok(first) = relaxed.try_get_matches_from(&arguments) else {
        return Ok(Outcome::Run(command.try_get_matches_from(arguments)?));
    };
    let is_asked = |daemon: &&Daemon| daemon.verb == first.subcommand_name();
    let Some(daemon) = daemons.iter().find(is_asked) else {
        return Ok(Outcome::Run(command.try_get_matches_from(arguments)?));
    };
    let chosen = part(&first, daemon);
    let keys = keys(&command, daemon);
    if chosen.get_flag(EXAMPLE) {
        return Ok(Outcome::Print(example::text(daemon, &keys)));
    }
    let default = daemon.file(folder);
    let (path, settings) = match chosen.get_one::<PathBuf>(CONFIG) {
        Some(path) => (path, read(path, &keys)?),
        None if is_there(&default) => (&default, read(&default, &keys)?),
        None => (&default, Vec::new()),
    };
    let command = of_daemon(command, daemon, |command| with_settings(command, &settings));
    let matches = command
        .try_get_matches_from(arguments)
        .map_err(|error| pointing_at(error, path))?;
    if part(&matches, daemon).get_flag(CHECK) {
        let text = effective::text(path, &settings, &keys, part(&matches, daemon));
        return Ok(Outcome::Print(text));
    }
    Ok(Outcome::Run(matches))
}

/// What was said to the daemon.
fn part<'a>(matches: &'a ArgMatches, daemon: &Daemon) -> &'a ArgMatches {
    let verb = daemon
        .verb
        .and_then(|verb| matches.subcommand_matches(verb));
    verb.unwrap_or(matches)
}

/// The flags of a daemon that are keys of its file.
fn keys(command: &Command, daemon: &Daemon) -> Vec<Arg> {
    let own = daemon.verb.and_then(|verb| command.find_subcommand(verb));
    let all = own.unwrap_or(command).get_arguments();
    all.filter(|arg| arg.get_long().is_some() && !arg.is_hide_set())
        .filter(|arg| ![CONFIG, CHECK].contains(&arg.get_id().as_str()))
        .cloned()
        .collect()
}

/// Whether something is there to be read; what cannot be looked at is, and reading it says why it cannot be.
fn is_there(path: &Path) -> bool {
    !matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// The settings of the file at `path`.
fn read(path: &Path, keys: &[Arg]) -> Result<Vec<Setting>, Failure> {
    file::read(path, keys).map_err(Failure::File)
}

/// The command line with what the file says in place of its defaults.
fn with_settings(command: Command, settings: &[Setting]) -> Command {
    command.mut_args(|arg| {
        match settings
            .iter()
            .find(|setting| Some(&*setting.key) == arg.get_long())
        {
            Some(setting) => arg.required(false).default_values(&setting.values),
            None => arg,
        }
    })
}

/// The error, which says that a missing flag may as well stand in the file at `path`.
fn pointing_at(mut error: clap::Error, path: &Path) -> clap::Error {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let tip = format!(
            "say it in {}, without the dashes, or on the command line",
            path.display()
        );
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

/// Whether a flag takes several values.
fn is_list(arg: &Arg) -> bool {
    let several = |range: ValueRange| range.max_values() > 1;
    matches!(arg.get_action(), ArgAction::Append) || arg.get_num_args().is_some_and(several)
}

/// Whether a flag is on or off, in a command line that [`command`] has changed.
fn is_boolean(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == value_parser!(bool).type_id()
}

/// A text as TOML has it: a number or a boolean as it is, everything else in quotes.
fn as_toml(text: &str, is_boolean: bool) -> String {
    match is_boolean
        || text
            .parse::<i64>()
            .is_ok_and(|number| number.to_string() == text)
    {
        true => text.to_owned(),
        false => toml::Value::from(text).to_string(),
    }
}

/// The texts as the value of one key.
fn as_value(texts: &[String], arg: &Arg) -> String {
    let values: Vec<_> = texts
        .iter()
        .map(|text| as_toml(text, is_boolean(arg)))
        .collect();
    match (&values[..], is_list(arg)) {
        ([value], false) => value.clone(),
        _ => format!("[{}]", values.join(", ")),
    }
}
