//! A bare host becomes a switch, serves, gets and loses ports, and is put back as it was.

use std::{
    collections::BTreeMap,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mind_e2e::{Bed, Domain, bed, patience, scaled, suite};
use netns_setup::{
    Plan, Testbed, paths,
    plan::SWITCH,
    program::{self, Process},
    service::{self, Role, Service},
    testbed::Options,
};

/// In the switch's namespace, without the testbed's own bridge.
const BRIDGE: &str = "br1";
/// How often to look again whether a blade is gone; the controller tells nothing of that by itself.
const AGAIN: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    suite::run(
        &[
            ("a_bare_host_becomes_a_switch_and_is_put_back", put_back),
            ("an_interface_in_use_is_no_port", in_use),
            ("a_killed_controllers_bridge_is_the_next_ones", killed),
            ("ports_come_and_go_while_programs_run", ports),
        ],
        || {
            let bed = Bed::network(2, 1)?;
            // As on a host that is not prepared.
            ip("link del br0", bed.testbed())?;
            ip("link set c0 mtu 1500", bed.testbed())?;
            ip("link set m0 down", bed.testbed())?;
            Ok(bed)
        },
    )
}

fn put_back(bed: &Bed) -> Result<()> {
    let before = links(bed.testbed())?;
    let mut daemons = vec![serve("ctl", &["--port", "c0", "c1", "m0"])?];
    daemons.extend(blades(bed)?);
    let mut running = Vec::new();
    for role in Role::ALL {
        for daemon in daemons.iter().filter(|daemon| daemon.role == role) {
            running.push(start(daemon)?);
        }
    }
    let prepared = links(bed.testbed())?;
    for port in ["c0", "c1", "m0"] {
        let link = &prepared[port];
        ensure!(
            link.controller.as_deref() == Some(BRIDGE) && link.mtu == 9000 && link.is_up,
            "{port} is no port: {link:?}"
        );
    }
    let domain = Domain::new(bed, "host")?;
    domain.run("c0", "--area counter increment 1000")?;
    domain.end()?;

    running.reverse();
    program::end(&running)?;
    let after = links(bed.testbed())?;
    ensure!(before == after, "{before:#?} became {after:#?}");
    Ok(())
}

fn killed(bed: &Bed) -> Result<()> {
    let before = links(bed.testbed())?;
    let service = serve("killed", &["--port", "c0", "m0"])?;
    let first = start(&service)?;
    let prepared = links(bed.testbed())?;
    ensure!(prepared.contains_key(BRIDGE), "{prepared:#?}");
    // One that cannot start because another runs leaves that one's changes alone.
    let second = start(&serve("second", &["--port", "c0", "m0"])?);
    let error = format!("{:#}", second.err().context("two controllers run")?);
    ensure!(
        error.contains("another controller runs on this host"),
        "{error}"
    );
    ensure!(
        links(bed.testbed())? == prepared,
        "the second controller changed the host"
    );

    program::kill(first)?;
    ensure!(
        links(bed.testbed())? == prepared,
        "a killed controller changes nothing"
    );
    let next = start(&service)?;
    program::end(&[next])?;
    let after = links(bed.testbed())?;
    ensure!(before == after, "{before:#?} became {after:#?}");
    Ok(())
}

fn ports(bed: &Bed) -> Result<()> {
    const AREA: &str = "--area lanes --pages 600 lanes --threads 2";
    let before = links(bed.testbed())?;
    let serve = |ports: &[&str]| start(&serve("ports", &[&["--keep", "--port"], ports].concat())?);
    let blades = blades(bed)?;
    let blade = |name: &str| {
        let blade = blades.iter().find(|blade| blade.name == name);
        start(blade.with_context(|| format!("there is no blade {name}"))?)
    };
    let mut controller = serve(&["c1", "m0"])?;
    let mut running = vec![blade("m0")?, blade("c1")?];
    let domain = Domain::new(bed, "ports")?;
    let mut load = domain.start("c1", &format!("{AREA} --first 0 {}", scaled(150_000)))?;
    load.go()?;

    // One more.
    program::end(&[controller])?;
    controller = serve(&["c0", "c1", "m0"])?;
    let added = blade("c0")?;
    domain.run("c0", &format!("{AREA} --first 2 1000"))?;

    // It stays as long as a blade is behind it.
    program::end(&[controller])?;
    let prepared = links(bed.testbed())?;
    let refused = serve(&["c1", "m0"]).err();
    let error = format!("{:#}", refused.context("a blade is cut off")?);
    ensure!(error.contains("the blade c0 is behind it"), "{error}");
    ensure!(
        links(bed.testbed())? == prepared,
        "a controller that may not begin changed the host"
    );
    controller = serve(&["c0", "c1", "m0"])?;
    program::end(&[added])?;
    let begin = Instant::now();
    while is_here(bed, "c0")? {
        ensure!(
            begin.elapsed() < patience(),
            "c0 has ended, and is here still"
        );
        std::thread::sleep(AGAIN);
    }

    // One less.
    program::end(&[controller])?;
    controller = serve(&["c1", "m0"])?;
    let after = links(bed.testbed())?;
    ensure!(after["c0"] == before["c0"], "{:?} stays", after["c0"]);
    load.succeed()?;
    let found = bed.operator()?.check()?;
    ensure!(found.is_empty(), "a check finds {found:#?}");
    domain.end()?;

    running.reverse();
    program::end(&running)?;
    // One that is not told to keep anything.
    program::end(&[controller])?;
    let last = start(&self::serve("last", &["--port", "c1", "m0"])?)?;
    program::end(&[last])?;
    let after = links(bed.testbed())?;
    ensure!(before == after, "{before:#?} became {after:#?}");
    Ok(())
}

fn is_here(bed: &Bed, name: &str) -> Result<bool> {
    let blades = bed.status()?.blades;
    Ok(blades.iter().any(|blade| blade.name == name && blade.here))
}

/// The blades' daemons.
fn blades(bed: &Bed) -> Result<Vec<Service>> {
    let options = Options {
        memory_size: 16 << 20,
        cache: 1 << 20,
        ..Options::default()
    };
    let services = service::standard(bed.testbed().plan(), &options, &bed::programs()?);
    let is_blade = |service: &Service| service.role != Role::Controller;
    Ok(services.into_iter().filter(is_blade).collect())
}

fn in_use(bed: &Bed) -> Result<()> {
    ip("address add 198.18.9.9/32 dev m0", bed.testbed())?;
    let before = links(bed.testbed())?;
    let refused = start(&serve("refused", &["--port", "c0", "--port", "m0"])?);
    ip("address del 198.18.9.9/32 dev m0", bed.testbed())?;
    let error = refused.err().context("the controller takes m0")?;
    let error = format!("{error:#}");
    ensure!(
        error.contains("this host uses m0 itself, with the address 198.18.9.9"),
        "{error}"
    );
    ip("address add 198.18.9.9/32 dev m0", bed.testbed())?;
    let after = links(bed.testbed())?;
    ip("address del 198.18.9.9/32 dev m0", bed.testbed())?;
    ensure!(before == after, "{before:#?} became {after:#?}");
    Ok(())
}

/// The controller in the switch's namespace, which makes its bridge itself.
fn serve(name: &str, ports: &[&str]) -> Result<Service> {
    let program = bed::programs()?.join("mind-controller");
    let mut command = vec![program.display().to_string()];
    command.extend(ports.iter().map(|&port| port.to_owned()));
    command.extend([
        "--config=/dev/null".to_owned(),
        format!("--bridge={BRIDGE}"),
        format!("--address={}/16", Plan::switch_address()),
        format!("--pin={}", paths::pins(SWITCH).display()),
    ]);
    Ok(Service {
        name: name.to_owned(),
        role: Role::Controller,
        namespace: Plan::switch_namespace(),
        command,
    })
}

fn start(service: &Service) -> Result<Process> {
    let starting = service::start(service)?;
    let process = starting.service().process;
    starting.ready()?;
    Ok(process)
}

/// What is to be as before.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    controller: Option<String>,
    mtu: u64,
    is_up: bool,
    addresses: Vec<String>,
}

/// The interfaces in the switch's namespace.
fn links(testbed: &Testbed) -> Result<BTreeMap<String, Link>> {
    let text = ip("-j address show", testbed)?;
    let links: serde_json::Value = serde_json::from_str(&text)?;
    let links = links.as_array().context("`ip -j` lists nothing")?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    links
        .iter()
        .map(|link| {
            let name = text(&link["ifname"]).context("a link has no name")?;
            let flags = link["flags"].as_array().context("a link has no flags")?;
            let addresses = link["addr_info"].as_array().into_iter().flatten();
            let link = Link {
                controller: text(&link["master"]),
                mtu: link["mtu"].as_u64().context("a link has no MTU")?,
                is_up: flags.iter().any(|flag| flag == "UP"),
                addresses: addresses
                    .filter_map(|address| text(&address["local"]))
                    .collect(),
            };
            Ok((name, link))
        })
        .collect()
}

/// What `ip` says in the switch's namespace.
fn ip(arguments: &str, testbed: &Testbed) -> Result<String> {
    testbed.within(SWITCH, || {
        let output = Command::new("ip")
            .args(arguments.split_whitespace())
            .output()
            .context("cannot run ip (Debian's package is iproute2)")?;
        ensure!(
            output.status.success(),
            "`ip {arguments}` ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    })
}
