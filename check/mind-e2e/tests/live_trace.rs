//! `mind-ctl trace`: what it shows, and that nothing is traced while it does not run.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, ExitCode, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_common::trace::{EVERY_BLADE, Tracing};
use mind_dataplane::{Switch, TraceControl};
use mind_e2e::{Bed, Domain, bed, suite};
use netns_setup::{paths, plan::SWITCH};
use serde_json::Value;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked for.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_write_to_what_another_wrote_is_shown", shows),
            ("a_trace_ends_after_as_many_packets_as_it_is_told", counts),
            ("two_operators_see_what_each_wants", two),
            ("a_trace_of_nobody_is_refused", refuses),
            ("a_controller_that_takes_over_traces_nothing", taken_over),
        ],
        || Bed::up(2, 1, 1 << 20),
    )
}

fn command(arguments: &str) -> Result<Command> {
    let program = bed::programs()?.join("mind-ctl");
    let mut command = Command::new(program);
    command
        .arg("trace")
        .args(arguments.split_whitespace())
        .env_remove("MIND_CONTROLLER");
    Ok(command)
}

/// A `mind-ctl trace` that runs; killed when it is dropped.
struct Trace {
    child: Child,
    lines: Receiver<String>,
}

impl Trace {
    /// Starts it; returns when the switch traces as `is_on` says.
    fn start(arguments: &str, is_on: impl Fn(&Tracing) -> bool) -> Result<Self> {
        let mut child = command(arguments)?
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start mind-ctl trace")?;
        let stdout = child.stdout.take().context("it has no output")?;
        let (sender, lines) = channel();
        // Ends with the program.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let trace = Self { child, lines };
        until("tracing begins", is_on)?;
        Ok(trace)
    }

    /// The next line.
    fn line(&self) -> Result<String> {
        let line = self.lines.recv_timeout(LIMIT);
        line.context("mind-ctl trace says nothing more")
    }

    /// The next packet, of a trace in JSON.
    fn packet(&self) -> Result<Value> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a packet as {line}"))
    }

    /// Waits for its end.
    fn end(&mut self) -> Result<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(PAUSE);
        }
        bail!("mind-ctl trace does not end")
    }

    /// As by `kill -9`.
    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It has ended, or ends now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn control() -> Result<TraceControl> {
    Ok(Switch::open(&paths::pins(SWITCH))?.open_trace_control()?)
}

/// Waits until the switch traces so.
fn until(what: &str, is_so: impl Fn(&Tracing) -> bool) -> Result<()> {
    let control = control()?;
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        if is_so(&control.get()?) {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    bail!("{what} does not come about: {:?}", control.get()?)
}

fn is_off(tracing: &Tracing) -> bool {
    *tracing == Tracing::default()
}

fn is_on(tracing: &Tracing) -> bool {
    tracing.on == 1
}

fn shows(bed: &Bed) -> Result<()> {
    shows_of("traced", bed)
}

fn shows_of(name: &str, bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, name)?;
    domain.run("c0", "--area heap --pages 4 fill")?;
    let va = domain.place("c1", "--area heap --pages 4")?;
    let trace = Trace::start(&format!("--domain {name} -o json"), is_on)?;
    domain.run("c1", "--area heap --pages 4 fill")?;
    let mut seen = Vec::new();
    let invalidated = loop {
        let packet = trace.packet()?;
        let address = packet["va"].as_u64();
        ensure!(
            address.is_some_and(|address| (va..va + 4 * 4096).contains(&address)),
            "of another address than from {va:#x} on: {packet}"
        );
        if packet["verdict"] == "invalidate" && packet["blade"] == "c1" {
            break packet;
        }
        seen.push(packet);
        ensure!(seen.len() < 10_000, "c0 is not invalidated: {seen:#?}");
    };
    ensure!(
        invalidated["port"] == "c1" && invalidated["kind"] == "forwarded",
        "{invalidated}"
    );
    ensure!(
        invalidated["before"]["text"] == "M{c0}",
        "c0 did not own it: {invalidated}"
    );
    let after = &invalidated["after"];
    ensure!(
        after["blades"] == serde_json::json!(["c0"]) && after["requester"] == "c1",
        "{invalidated}"
    );
    // What c0 answers completes it; what it writes back before that changes nothing.
    loop {
        let packet = trace.packet()?;
        let (before, left) = (&packet["before"], &packet["after"]);
        if packet["port"] == "c0" && before == after && left != before {
            let blades = left["blades"].as_array();
            let has_c1 = blades.is_some_and(|blades| blades.contains(&"c1".into()));
            ensure!(has_c1, "c1 has not got it: {packet}");
            break;
        }
    }
    trace.kill()?;
    until("the end of tracing", is_off)?;
    domain.end()
}

fn counts(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "counted")?;
    let mut trace = Trace::start("--count 3", is_on)?;
    domain.run("c0", "--area heap --pages 4 fill")?;
    let status = trace.end()?;
    ensure!(status.success(), "it ends with {status}");
    let lines: Vec<_> = trace.lines.iter().collect();
    ensure!(lines.len() == 3, "{lines:#?}");
    for line in &lines {
        let words: Vec<_> = line.split_whitespace().collect();
        ensure!(words.len() >= 3 && words[0].contains(':'), "{line}");
        ensure!(["c0", "c1", "m0"].contains(&words[1]), "{line}");
    }
    until("the end of tracing", is_off)?;
    domain.end()
}

fn two(bed: &Bed) -> Result<()> {
    let domain = Domain::new(bed, "shared")?;
    let of_one = |tracing: &Tracing| is_on(tracing) && tracing.blade != EVERY_BLADE;
    let of_all = |tracing: &Tracing| is_on(tracing) && tracing.blade == EVERY_BLADE;
    let first = Trace::start("--blade c0 -o json", of_one)?;
    let second = Trace::start("--blade c1 -o json", of_all)?;
    domain.run("c0", "--area heap --pages 4 fill")?;
    domain.run("c1", "--area heap --pages 4 fill")?;
    for (trace, blade) in [(&first, "c0"), (&second, "c1")] {
        for _ in 0..4 {
            let packet = trace.packet()?;
            ensure!(packet["blade"] == blade, "of {blade}'s: {packet}");
        }
    }
    first.kill()?;
    until("one operator's going", of_one)?;
    second.kill()?;
    until("the end of tracing", is_off)?;
    domain.end()
}

fn refuses(_: &Bed) -> Result<()> {
    for (arguments, code, word) in [
        ("--blade c9", "ENOENT", "no compute blade c9"),
        ("--domain nobody", "FAILED", "a domain nobody"),
        ("--vma 4096", "FAILED", "no vma has the address 0x1000"),
        ("--count 0", "USAGE", "0"),
    ] {
        let Output { status, stderr, .. } = command(arguments)?.args(["-o", "json"]).output()?;
        ensure!(!status.success(), "`{arguments}` does not fail");
        let error: Value = serde_json::from_slice(&stderr)?;
        let message = error["error"]["message"].as_str().unwrap_or_default();
        ensure!(
            error["error"]["code"] == code && message.contains(word),
            "`{arguments}`: {error}"
        );
    }
    until("that nothing is traced", is_off)
}

fn taken_over(bed: &Bed) -> Result<()> {
    let mut trace = Trace::start("", is_on)?;
    bed.kill("ctl")?;
    ensure!(
        is_on(&control()?.get()?),
        "the killed program has changed nothing"
    );
    ensure!(!trace.end()?.success(), "a lost controller is no good end");
    bed.restart("ctl", &[])?;
    ensure!(is_off(&control()?.get()?), "packets are still traced");
    // And it can be asked again.
    shows_of("traced-again", bed)
}
