//! A program with a daemon of every kind of flag, and what becomes of files for it.

use std::path::Path;

use clap::{FromArgMatches as _, Parser, Subcommand};
use tempfile::TempDir;

use super::*;

#[derive(Parser, Debug)]
#[command(name = "blade")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Serve.
    Serve(Args),
    /// Something that is no daemon.
    Other,
}

#[derive(clap::Args, Debug)]
struct Args {
    /// The ports of the switch.
    #[arg(long = "port", value_name = "IFACE", required = true, num_args = 1..)]
    ports: Vec<String>,
    /// Where to listen.
    #[arg(long)]
    listen: Option<std::net::SocketAddrV4>,
    /// Bytes of a frame.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(1500..))]
    mtu: u32,
    /// What to offer.
    #[arg(long, value_parser = crate::whole_pages, default_value = "1G")]
    size: u64,
    /// How.
    #[arg(long, default_value = "quick", value_parser = ["quick", "thorough"])]
    way: String,
    /// Where to look, by a variable that every process has.
    #[arg(long, env = "PATH")]
    search: Option<String>,
    /// Leave everything as it is.
    #[arg(long)]
    keep: bool,
    /// For tests only.
    #[arg(long, hide = true, default_value_t = 0)]
    die_at: u64,
}

const DAEMON: Daemon = Daemon {
    name: "blade-serve",
    verb: Some("serve"),
    examples: &[
        ("port", r#"["eth1", "eth2"]"#),
        ("listen", r#""198.18.0.1:4790""#),
        ("search", r#""/usr/bin""#),
    ],
};

/// A folder with this file of the daemon.
fn folder(text: impl AsRef<[u8]>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(DAEMON.file(folder.path()), text).unwrap();
    folder
}

fn outcome(line: &str, folder: &Path) -> Result<Outcome, Failure> {
    let arguments = line.split(' ').map(OsString::from).collect();
    run(
        command(Cli::command(), &[DAEMON]),
        &[DAEMON],
        arguments,
        folder,
    )
}

/// What the daemon is told by a command line and a file.
fn told(line: &str, text: &str) -> Args {
    match outcome(line, folder(text).path()) {
        Ok(Outcome::Run(matches)) => match Cli::from_arg_matches(&matches).unwrap().verb {
            Verb::Serve(args) => args,
            Verb::Other => panic!("{line} does not serve"),
        },
        Ok(Outcome::Print(text)) => panic!("{line} prints {text}"),
        Err(failure) => panic!("{line} with {text}: {failure:?}"),
    }
}

/// What is wrong with a file, without its folder.
fn complaint(text: impl AsRef<[u8]>) -> String {
    let folder = folder(text);
    match outcome("blade serve --port p0", folder.path()) {
        Err(Failure::File(error)) => error
            .to_string()
            .replace(&*folder.path().to_string_lossy(), ""),
        Err(Failure::Usage(error)) => panic!("a wrong command line: {error}"),
        Ok(_) => panic!("the file is taken"),
    }
}

fn printed(line: &str, folder: &Path) -> String {
    match outcome(line, folder) {
        Ok(Outcome::Print(text)) => text,
        Ok(Outcome::Run(_)) => panic!("{line} runs"),
        Err(failure) => panic!("{line}: {failure:?}"),
    }
}

#[test]
fn the_command_line_is_well_formed() {
    command(Cli::command(), &[DAEMON]).debug_assert();
}

#[test]
fn every_type_of_value_reaches_its_flag() {
    let text = "port = ['p0', \"p1\"]\nlisten = '198.18.0.1:4790'\nmtu = 0x2328\nsize = '2M'\nkeep = true\n";
    let args = told("blade serve", text);
    assert_eq!(args.ports, ["p0", "p1"]);
    assert_eq!(args.listen.unwrap().to_string(), "198.18.0.1:4790");
    assert_eq!((args.mtu, args.size, args.keep), (9000, 2 << 20, true));
    let args = told(
        "blade serve",
        "port = 'p0'\nmtu = '1_500'\n".replace('_', "").as_str(),
    );
    assert_eq!((args.ports, args.mtu), (vec!["p0".to_owned()], 1500));
    let args = told("blade serve", "port = ['p0']\nsize = 8192\n");
    assert_eq!(args.size, 8192);
}

#[test]
fn a_flag_comes_before_the_file_and_the_file_before_the_default() {
    let text = "port = ['p0', 'p1']\nmtu = 2000\nkeep = true\n";
    let args = told("blade serve --port q0 --mtu 3000 --keep=false", text);
    assert_eq!(
        (args.ports, args.mtu, args.keep),
        (vec!["q0".to_owned()], 3000, false)
    );
    assert_eq!(args.way, "quick");
    assert!(told("blade serve --port q0 --keep", "").keep);
}

#[test]
fn the_environment_comes_before_the_file_and_a_flag_before_the_environment() {
    let environment = std::env::var("PATH").unwrap();
    let text = "port = 'p0'\nsearch = '/of/the/file'\n";
    assert_eq!(told("blade serve", text).search, Some(environment));
    let args = told("blade serve --search /of/the/flag", text);
    assert_eq!(args.search.as_deref(), Some("/of/the/flag"));
}

#[test]
fn an_unknown_key_is_named_with_the_nearest() {
    let error = complaint("mtu = 2000\n\nlissten = '198.18.0.1:4790'\n");
    assert_eq!(
        error,
        "/blade-serve.toml:3: there is no key `lissten`; `listen` is the nearest, and --help lists all"
    );
    for none in ["die-at", "config", "check-config", "help", "version"] {
        let error = complaint(format!("{none} = 1\n"));
        assert!(
            error.contains(&format!("there is no key `{none}`")),
            "{error}"
        );
    }
}

#[test]
fn a_wrong_value_is_named_with_file_line_and_key() {
    let cases = [
        (
            "mtu = 20\n",
            ":1: `mtu`: invalid value '20' for '--mtu <MTU>': 20 is not in 1500..=4294967295",
        ),
        (
            "\nway = 'slow'\n",
            ":2: `way`: invalid value 'slow' for '--way <WAY>' [possible values: quick, thorough]",
        ),
        ("size = 1.5\n", "`1.5` is no size"),
        (
            "mtu = true\n",
            "`mtu` is a boolean; expected a string or a number",
        ),
        (
            "mtu = [1500]\n",
            "`mtu` is an array; expected a string or a number",
        ),
        (
            "keep = 'yes'\n",
            "`keep` is a string; expected true or false",
        ),
        ("keep = 1\n", "`keep` is a number; expected true or false"),
        (
            "port = []\n",
            "`port` is an empty array; expected an array of strings",
        ),
        (
            "port = [['p0']]\n",
            "`port` is an array; expected an array of strings",
        ),
        (
            "port = ['p0', true]\n",
            "`port` is a boolean; expected an array of strings",
        ),
        ("[mtu]\nbytes = 3\n", ":1: `mtu` is a table; expected"),
        ("mtu.bytes = 3\n", ":1: `mtu` is a table; expected"),
        ("mtu = 1979-05-27\n", "`mtu` is a date; expected"),
        (
            "mtu = 99999999999999999999\n",
            "`mtu`: invalid value '99999999999999999999'",
        ),
    ];
    for (text, expected) in cases {
        let error = complaint(text);
        assert!(
            error.starts_with("/blade-serve.toml:") && error.contains(expected),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_file_that_is_no_toml_is_named_with_the_line() {
    for (text, line) in [
        (&b"mtu = 2000\nmtu = 3000\n"[..], 2),
        (b"keep = true\n\nmtu 2000\n", 3),
        (b"#\n\xff\n", 2),
    ] {
        let error = complaint(text);
        assert!(
            error.starts_with(&format!("/blade-serve.toml:{line}: ")),
            "{error}"
        );
    }
}

#[test]
fn a_file_is_needed_only_if_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        outcome("blade serve --port p0", folder.path()),
        Ok(Outcome::Run(_))
    ));
    for asked in ["/nowhere/blade.toml", folder.path().to_str().unwrap()] {
        match outcome(
            &format!("blade serve --port p0 --config {asked}"),
            folder.path(),
        ) {
            Err(Failure::File(error)) => {
                let text = error.to_string();
                assert!(
                    text.starts_with(&format!("{asked}: cannot read the configuration: ")),
                    "{text}"
                );
            }
            _ => panic!("{asked} is taken"),
        }
    }
    let other = folder.path().join("other.toml");
    fs::write(&other, "port = 'p7'\n").unwrap();
    let line = format!("blade serve --config {} --check-config", other.display());
    assert!(printed(&line, folder.path()).contains("port = [\"p7\"] # /"));
    // A file that says nothing, whatever there is by default.
    fs::write(DAEMON.file(folder.path()), "nonsense").unwrap();
    let line = "blade serve --port p0 --config /dev/null";
    assert!(matches!(outcome(line, folder.path()), Ok(Outcome::Run(_))));
    assert!(matches!(
        outcome("blade other", folder.path()),
        Ok(Outcome::Run(_))
    ));
}

#[test]
fn what_is_missing_in_both_is_named_with_the_file() {
    let folder = folder("mtu = 2000\n");
    let Err(Failure::Usage(error)) = outcome("blade serve", folder.path()) else {
        panic!("no port is taken for enough");
    };
    let text = error.to_string();
    assert!(
        text.contains("--port <IFACE>...") && text.contains("blade-serve.toml"),
        "{text}"
    );
}

#[test]
fn a_check_says_what_comes_from_where() {
    let folder = folder("port = ['p0', 'p1']\nmtu = 2000\n");
    let text = printed(
        "blade serve --check-config --mtu 3000 --keep",
        folder.path(),
    );
    let environment = std::env::var("PATH").unwrap();
    let file = DAEMON.file(folder.path());
    let file = file.display();
    let expected = format!(
        "port = [\"p0\", \"p1\"] # {file}\n# listen is not set\nmtu = 3000 # command line\nsize = \"1G\" # default\n\
         way = \"quick\" # default\nsearch = \"{environment}\" # environment\nkeep = true # command line\n"
    );
    assert_eq!(text, expected);
    // It can be read again.
    fs::write(DAEMON.file(folder.path()), &text).unwrap();
    assert!(
        printed("blade serve --check-config", folder.path())
            .contains(&format!("keep = true # {file}"))
    );
}

#[test]
fn the_example_explains_every_key_and_can_be_used_as_it_is_or_uncommented() {
    let folder = tempfile::tempdir().unwrap();
    let text = printed("blade serve --example-config", folder.path());
    for line in text.lines().filter(|line| !line.is_empty()) {
        assert!(
            line.starts_with('#') && line.chars().count() <= 120,
            "{line}"
        );
    }
    assert!(
        text.contains("# Bytes of a frame.\n# The default:\n#mtu = 9000\n"),
        "{text}"
    );
    assert!(text.contains(
        "It must be set, here or by the flag. An example:\n#port = [\"eth1\", \"eth2\"]\n"
    ));
    assert!(
        !text.contains("die-at") && !text.contains("#config"),
        "{text}"
    );
    assert_eq!(told("blade serve --port p0", &text).mtu, 9000);
    let args = told("blade serve", &example::uncommented(&text));
    assert_eq!(
        (args.ports.len(), args.size, args.keep),
        (2, 1 << 30, false)
    );
    assert!(args.listen.is_some());
}
