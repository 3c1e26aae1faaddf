//! An operator's command line, from outside of every namespace, as a person uses it.

use std::process::{Command, ExitCode, Output};

use anyhow::{Context as _, Result, ensure};
use mind_common::{
    addr::Va,
    id::{BladeId, BladeSet, DomainId},
};
use mind_dataplane::Switch;
use mind_e2e::{Bed, Domain, bed, suite};
use netns_setup::{paths, plan::SWITCH};
use serde_json::Value;

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_script_learns_when_all_blades_are_ready", ready),
            ("lists_show_what_programs_have", lists),
            ("tables_for_people_have_a_row_for_each", tables),
            ("a_check_finds_nothing_where_nothing_is_wrong", agrees),
            ("a_check_names_what_is_wrong_and_the_fix", discrepancies),
            ("an_error_has_a_code", errors),
            ("a_blade_that_is_missing_is_named", missing),
        ],
        || Bed::up(2, 2, 1 << 20),
    )
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
    ensure!(
        vma["area"] == "heap" && vma["length"] == 40_960 && vma["users"].as_u64() >= Some(1),
        "{vma}"
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
    // While the last processes are still being taken off the books.
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
    let blocks = switch.blocks()?;
    let (_, table) = *blocks.first().context("no block has a table")?;
    let directory = switch.open_directory()?;
    let entry = directory.entry(table, va)?;
    let number = entry.swap(0, std::sync::atomic::Ordering::AcqRel);

    let output = mind_ctl("check -o json")?;
    ensure!(!output.status.success(), "a check finds nothing");
    let check: Value = serde_json::from_slice(&output.stdout)?;
    let text = String::from_utf8(mind_ctl("check")?.stdout)?;
    // Before anything is asserted: the tests that follow need tables that are right.
    entry.store(number, std::sync::atomic::Ordering::Release);
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
