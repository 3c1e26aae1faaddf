//! Programs in C: what the functions do with bad arguments, without an agent, and with one that answers as it is told.

mod agent;
mod cc;

use std::{os::unix::process::ExitStatusExt as _, process::Command};

use agent::Agent;
use anyhow::{Context as _, Result, ensure};
use cc::Cc;
use mind_api::{
    Errno, Failure,
    message::{Access, OnLoss, Open},
    program::{Call, Mapping, ToBlade, VERSION},
};
use mind_common::addr::WINDOW_BASE;
use mind_userfault::Userfault;

/// The memory that every program is given.
const GIVEN: Mapping = Mapping {
    va: WINDOW_BASE,
    length: 8192,
};

/// The environment variable with the agent's socket.
const SOCKET: &str = "MIND_BLADE_SOCKET";

/// Runs a program to its good end.
fn succeed(program: &mut Command) -> Result<()> {
    let output = program.output().context("cannot run it")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program:?} ended with {}:\n{complaints}",
        output.status
    );
    Ok(())
}

/// Whether there can be programs on blades here; otherwise says why not.
fn can_attach() -> Result<bool> {
    match Userfault::open() {
        Ok(_) => Ok(true),
        Err(error) if std::env::var_os("CI").is_some() => Err(error.into()),
        Err(error) => {
            eprintln!("skipped: {error}");
            Ok(false)
        }
    }
}

#[test]
fn bad_arguments_are_errors_and_nothing_else() -> Result<()> {
    let cc = Cc::new()?;
    let folder = tempfile::tempdir()?;
    left_behind(&folder.path().join("left"))?;
    succeed(Command::new(cc.compile("tests/c/arguments.c")?).arg(folder.path()))
}

/// Makes a socket's file on which no process listens.
fn left_behind(path: &std::path::Path) -> Result<()> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(())
}

#[test]
fn every_function_asks_for_what_its_arguments_say() -> Result<()> {
    if !can_attach()? {
        return Ok(());
    }
    let cc = Cc::new()?;
    let agent = Agent::start(|call| match call {
        Call::OpenArea { name, .. } if name == "taken" => {
            Err(Failure::new(Errno::EEXIST, "`taken` is there"))
        }
        Call::Sync { va: 0, .. } => Err(Failure::new(Errno::EIO, "it is lost")),
        Call::Map { .. } | Call::OpenArea { .. } => Ok(Some(GIVEN)),
        _ => Ok(None),
    })?;
    succeed(Command::new(cc.compile("tests/c/calls.c")?).env(SOCKET, agent.socket()))?;

    let va = GIVEN.va;
    let area = |name: &str, length, access, open| Call::OpenArea {
        name: name.into(),
        length,
        access,
        open,
    };
    let calls = [
        Call::Map {
            length: 5000,
            access: Access::Write,
        },
        area("r\u{e4}nks", 0, Access::Read, Open::OrCreate),
        area("ranks", 8192, Access::None, Open::Existing),
        area("taken", 1, Access::Write, Open::New),
        Call::Protect {
            va,
            length: 4096,
            access: Access::Read,
        },
        Call::Sync { va, length: 100 },
        Call::Sync { va: 0, length: 100 },
        Call::UnlinkArea {
            name: "ranks".into(),
        },
        Call::Unmap { va, length: 8192 },
    ];
    let calls = (0..)
        .zip(calls)
        .map(|(id, call)| ToBlade::Call { id, call });
    let attach = ToBlade::Attach {
        version: VERSION,
        domain: "weather".into(),
        on_loss: Some(OnLoss::Fail),
    };
    let expected: Vec<_> = [attach, ToBlade::Userfault]
        .into_iter()
        .chain(calls)
        .chain([ToBlade::Detach])
        .collect();
    assert_eq!(agent.heard()?, expected);
    Ok(())
}

#[test]
fn a_program_whose_agent_ends_dies_of_its_next_access() -> Result<()> {
    if !can_attach()? {
        return Ok(());
    }
    let cc = Cc::new()?;
    let agent = Agent::ending(
        |_| Ok(Some(GIVEN)),
        |call| matches!(call, Call::UnlinkArea { .. }),
    )?;
    let output = Command::new(cc.compile("tests/c/abandoned.c")?)
        .env(SOCKET, agent.socket())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(said == "alone\n", "it says {said}, {complaints}");
    assert_eq!(output.status.signal(), Some(libc_sigbus()), "{complaints}");
    Ok(())
}

/// The number of SIGBUS.
fn libc_sigbus() -> i32 {
    rustix::process::Signal::BUS.as_raw()
}

#[test]
fn the_example_says_what_is_wrong() -> Result<()> {
    let cc = Cc::new()?;
    let example = cc.compile("examples/counter.c")?;
    let run = |arguments: &[&str]| {
        let output = Command::new(&example)
            .args(arguments)
            .env_remove(SOCKET)
            .output()?;
        anyhow::Ok((
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    };
    for wrong in [&["2"][..], &["0", "1"], &["2", "-1"], &["2", "many"]] {
        let usage = "usage: counter PROCESSES TIMES\n".to_owned();
        assert_eq!(run(wrong)?, (Some(2), usage), "{wrong:?}");
    }
    let (code, text) = run(&["2", "1"])?;
    assert_eq!(code, Some(1));
    ensure!(
        text.starts_with("counter: cannot attach: MIND_BLADE_SOCKET is not set"),
        "{text}"
    );
    Ok(())
}

#[test]
fn the_library_has_the_functions_of_the_header_and_no_others() -> Result<()> {
    let cc = Cc::new()?;
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(cc.library()?)
        .output()
        .context("cannot run nm")?;
    ensure!(output.status.success(), "nm: {output:?}");
    let text = String::from_utf8(output.stdout)?;
    let mut exported: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    exported.sort_unstable();
    let header = include_str!("../include/mind.h");
    let mut declared: Vec<_> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#']))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(head, _)| head.rsplit([' ', '*']).next())
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(exported, declared);
    Ok(())
}
