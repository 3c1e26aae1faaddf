//! An operator's command line, from outside of every namespace, as a person uses it.

use std::{
    fs::File,
    io::Read as _,
    process::{Command, ExitCode, Output},
};

use anyhow::{Context as _, Result, ensure};
use mind_common::{
    addr::{Region, Va},
    id::{BladeId, BladeSet, DomainId},
};
use mind_dataplane::Switch;
use mind_e2e::{Bed, Domain, bed, suite};
use netns_setup::{paths, plan::SWITCH};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal},
    pty::OpenptFlags,
    termios::Winsize,
};
use serde_json::Value;

/// Of the terminal that a user looks at.
const SIZE: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// Gives the terminal its lines back (xterm's control sequences, DECRST 1049).
const LEAVE_ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049l";

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_script_learns_when_all_blades_are_ready", ready),
            ("lists_show_what_programs_have", lists),
            ("tables_for_people_have_a_row_for_each", tables),
            ("a_check_finds_nothing_where_nothing_is_wrong", agrees),
            ("a_check_names_what_is_wrong_and_the_fix", discrepancies),
            ("an_error_has_a_code", errors),
            ("top_puts_the_terminal_back_when_it_is_told_to_end", top),
            ("a_blade_that_is_missing_is_named", missing),
        ],
        || Bed::up(2, 2, 1 << 20),
    )
}

fn top(_: &Bed) -> Result<()> {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let user = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        rustix::pty::grantpt(&user)?;
        rustix::pty::unlockpt(&user)?;
        let name = rustix::pty::ptsname(&user, Vec::new())?;
        let terminal = File::options()
            .read(true)
            .write(true)
            .open(name.to_str()?)?;
        rustix::termios::tcsetwinsize(&terminal, SIZE)?;
        let before = rustix::termios::tcgetattr(&terminal)?.local_modes;
        let mut child = Command::new(bed::programs()?.join("mind-ctl"))
            .arg("top")
            .stdin(terminal.try_clone()?)
            .stdout(terminal.try_clone()?)
            .stderr(terminal.try_clone()?)
            .spawn()?;
        let mut screen = File::from(user);
        let mut shown = Vec::new();
        let mut bytes = [0; 4096];
        // Its first screen: it has the terminal, and waits for keys and signals.
        while !contains(&shown, b"BLADE") {
            let mut events = [PollFd::new(&screen, PollFlags::IN)];
            let patience = Timespec::try_from(mind_e2e::patience())?;
            ensure!(
                poll(&mut events, Some(&patience))? > 0,
                "`mind-ctl top` draws only {:?}",
                String::from_utf8_lossy(&shown)
            );
            let count = screen.read(&mut bytes)?;
            shown.extend_from_slice(&bytes[..count]);
        }
        let raw = rustix::termios::tcgetattr(&terminal)?.local_modes;
        ensure!(raw != before, "`mind-ctl top` leaves the terminal as it is");
        let pid = Pid::from_raw(child.id().cast_signed()).context("a child without a number")?;
        rustix::process::kill_process(pid, signal)?;
        // What it draws must be read, or it cannot end.
        let status = loop {
            let mut events = [PollFd::new(&screen, PollFlags::IN)];
            let moment = Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            if poll(&mut events, Some(&moment))? > 0 {
                let count = screen.read(&mut bytes)?;
                shown.extend_from_slice(&bytes[..count]);
            } else if let Some(status) = child.try_wait()? {
                break status;
            }
        };
        let after = rustix::termios::tcgetattr(&terminal)?.local_modes;
        ensure!(status.success(), "it ended with {status} by {signal:?}");
        ensure!(
            after == before,
            "after {signal:?} the terminal is {after:?}, not {before:?}"
        );
        ensure!(
            contains(&shown, LEAVE_ALTERNATE_SCREEN),
            "after {signal:?} the alternate screen stays"
        );
    }
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn mind_ctl(arguments: &str) -> Result<Output> {
    let program = bed::programs()?.join("mind-ctl");
    Command::new(&program)
        .args(arguments.split_whitespace())
        .env_remove("MIND_CONTROLLER")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))
}

fn stdout(arguments: &str) -> Result<String> {
    let output = mind_ctl(arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`mind-ctl {arguments}` fails: {errors}"
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn json(arguments: &str) -> Result<Value> {
    let text = stdout(&format!("{arguments} -o json"))?;
    serde_json::from_str(&text).with_context(|| format!("`mind-ctl {arguments}` prints {text}"))
}

/// The failure that it prints.
fn failure(arguments: &str) -> Result<Value> {
    let output = mind_ctl(&format!("{arguments} -o json"))?;
    ensure!(
        !output.status.success(),
        "`mind-ctl {arguments}` does not fail"
    );
    let text = String::from_utf8(output.stderr)?;
    let value: Value = serde_json::from_str(&text)
        .with_context(|| format!("`mind-ctl {arguments}` complains with {text}"))?;
    Ok(value["error"].clone())
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value
        .as_array()
        .with_context(|| format!("{value} is no list"))
}

fn ready(_: &Bed) -> Result<()> {
    let status = json("status --wait --timeout 60")?;
    let blades = array(&status["blades"])?;
    ensure!(
        blades.len() == 4 && blades.iter().all(|blade| blade["connected"] == true),
        "{status}"
    );
    for blade in blades {
        ensure!(blade["port"] == blade["name"], "{blade}");
    }
    Ok(())
}

fn lists(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "listed")?;
    domain.run("c1", "--area heap --pages 10 fill")?;
    let vmas = json("vmas --domain listed")?;
    let vma = array(&vmas)?.first().context("no vma is listed")?;
    ensure!(vma["area"] == "heap" && vma["length"] == 40_960, "{vma}");
    ensure!(
        vma["users"] == 0,
        "the process that opened it has ended: {vma}"
    );
    ensure!(vma["access"][0]["access"] == "write", "{vma}");
    let va = vma["va"].as_u64().context("a vma without an address")?;

    let regions = json(&format!("regions --vma {va:#x}"))?;
    let regions = array(&regions)?;
    ensure!(regions.len() == 3, "10 pages are 3 regions: {regions:?}");
    let length: u64 = regions
        .iter()
        .filter_map(|region| region["length"].as_u64())
        .sum();
    ensure!(length == 40_960 || length == 49_152, "{regions:?}");
    let owned = regions
        .iter()
        .filter(|region| region["state"] == "modified" && region["blades"][0] == "c1");
    ensure!(owned.count() > 0, "c1 owns nothing of {regions:?}");
    let busiest = json("regions --sort accesses --limit 1")?;
    ensure!(array(&busiest)?.len() == 1, "{busiest}");

    let blades = json("blades")?;
    let c1 = array(&blades)?
        .iter()
        .find(|blade| blade["name"] == "c1")
        .context("c1 is not listed")?;
    ensure!(c1["cache"]["faults"].as_u64() >= Some(10), "{c1}");
    let ports = json("ports")?;
    ensure!(array(&ports)?.len() == 4, "{ports}");
    let counters = json("counters --port c1")?;
    ensure!(
        counters[0]["packets"]["fetch"].as_u64() >= Some(1),
        "{counters}"
    );
    domain.end()
}

fn tables(_: &Bed) -> Result<()> {
    for (arguments, words) in [
        (
            "status",
            &["ready: 2 of 2 compute blades", "PORT", "c1", "m1"][..],
        ),
        ("blades", &["BLADE", "c0", "m0", "CACHE"]),
        ("vmas", &["no vmas"]),
        ("regions", &["no regions"]),
        ("ports", &["FORWARDED", "DROPPED", "m1"]),
        ("counters", &["VERDICT", "fetch"]),
        ("check", &["books, tables and blades agree"]),
    ] {
        let text = stdout(arguments)?;
        for word in words {
            ensure!(text.contains(word), "`{arguments}` lacks {word}:\n{text}");
        }
    }
    Ok(())
}

fn agrees(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "checked")?;
    let mut programs = Vec::new();
    for blade in ["c0", "c1"] {
        let mut program = domain.start(blade, "--area counter increment 0")?;
        program.go()?;
        program.expect("at work")?;
        programs.push(program);
    }
    let check = json("check")?;
    for kind in ["slots", "pages", "peers", "ports", "protections", "blades"] {
        ensure!(check["compared"][kind].as_u64() > Some(0), "{check}");
    }
    for program in programs {
        program.kill()?;
    }
    domain.end()?;
    // While the last processes are still being removed from the controller's state.
    json("check").map(|_| ())
}

fn discrepancies(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "spoilt")?;
    let mut program = domain.start("c0", "--area page increment 0")?;
    program.go()?;
    program.expect("at work")?;
    let vmas = json("vmas")?;
    let va = Va(vmas[0]["va"].as_u64().context("no vma")?);
    let mut switch = Switch::open(&paths::pins(SWITCH))?;

    let stranger = DomainId(77);
    switch.place(stranger, BladeSet::only(BladeId::from_low_bits(0)))?;
    let directory = switch.open_directory()?;
    let number = directory.slot_of(va)?;
    let page = Region::containing(va, 0).context("no region")?;
    directory.give_retired(directory.assign(page, 0)?);

    let output = mind_ctl("check -o json")?;
    ensure!(!output.status.success(), "a check finds nothing");
    let check: Value = serde_json::from_slice(&output.stdout)?;
    let text = String::from_utf8(mind_ctl("check")?.stdout)?;
    // Before anything is asserted: the tests that follow need tables that are right.
    directory.give_retired(directory.assign(page, number)?);
    switch.place(stranger, BladeSet::EMPTY)?;
    let found = array(&check["discrepancies"])?;
    let objects: Vec<_> = found
        .iter()
        .filter_map(|found| found["object"].as_str())
        .collect();
    let page = format!("the slot's number for the page at {va}");
    ensure!(
        objects == ["the blades of domain 77", page.as_str()],
        "{check}"
    );
    ensure!(
        found
            .iter()
            .all(|found| found["fix"].as_str().is_some_and(|fix| !fix.is_empty())),
        "{check}"
    );
    let first = array(&json("status")?["blades"])?
        .iter()
        .find(|blade| blade["kind"] == "compute" && blade["number"] == 0)
        .and_then(|blade| blade["name"].as_str().map(str::to_owned));
    let first = first.context("no compute blade has the number 0")?;
    ensure!(
        text.contains("SHOULD BE") && text.contains(&first),
        "{text}"
    );

    json("check")?;
    program.kill()?;
    domain.end()
}

fn errors(_: &Bed) -> Result<()> {
    for (arguments, code, word) in [
        ("region reset 0x100000000000", "EFAULT", "nothing is mapped"),
        (
            "status --controller /nowhere/ctl.sock",
            "UNREACHABLE",
            "/nowhere/ctl.sock",
        ),
        ("counters --port c9", "FAILED", "has no port c9"),
        ("regions --sort color", "USAGE", "color"),
        (
            "regions --vma 4096",
            "FAILED",
            "no vma has the address 0x1000",
        ),
    ] {
        let error = failure(arguments)?;
        ensure!(error["code"] == code, "`{arguments}`: {error}");
        let message = error["message"].as_str().unwrap_or_default();
        ensure!(message.contains(word), "`{arguments}`: {error}");
    }
    Ok(())
}

/// The last one: the blade does not come back.
fn missing(bed: &Bed) -> Result<()> {
    bed.kill("m1")?;
    let operator = bed.operator()?;
    while operator
        .status()?
        .blades
        .iter()
        .all(|blade| blade.connected)
    {}
    let error = failure("status --wait --timeout 1")?;
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(
        error["code"] == "NOT_READY" && message.contains("behind m1"),
        "{error}"
    );
    Ok(())
}
