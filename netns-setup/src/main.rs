//! `netns-setup`: the testbed's command line. What it does is in the library.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use comfy_table::{Table, presets};

use mind_cli::Interrupt;
use mind_cli::manual;
use netns_setup::condition::Condition;
use netns_setup::plan::{Kind, Plan, SWITCH};
use netns_setup::testbed::{self, Options, Removed, Testbed};
use serde_json::json;

/// The exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Switch, compute and memory blades on this machine, each in a network namespace.
#[derive(Parser)]
#[command(name = "netns-setup", version)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring a testbed up.
    Up {
        /// Compute blades: c0, c1 and so on.
        #[arg(long, value_name = "N", default_value_t = 2)]
        compute: u8,
        /// Memory blades: m0, m1 and so on.
        #[arg(long, value_name = "N", default_value_t = 2)]
        memory: u8,
        /// Memory that each memory blade offers.
        #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = mind_cli::whole_pages)]
        memory_size: u64,
        /// Page cache of each compute blade.
        #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = mind_cli::whole_pages)]
        cache: u64,
        /// Directory slots of the switch: regions that can be cached at a time; by default as the controller chooses.
        #[arg(long, value_name = "N")]
        slots: Option<u32>,
        /// What copies an invalidation for several blades.
        #[arg(long, value_enum, default_value_t = FanOut::Switch)]
        fan_out: FanOut,
        /// Start no daemons: the network only.
        #[arg(long, hide = true)]
        no_services: bool,
    },
    /// Run a command in a blade's namespace.
    Exec {
        /// The blade, or sw.
        blade: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Kill a daemon, as a crash would, and start it again as it was started.
    Restart {
        /// The blade, or ctl.
        service: String,
        /// More arguments for it.
        #[arg(last = true)]
        more: Vec<String>,
    },
    /// Print the testbed's state. Exits with 0 if it is whole.
    Status {
        /// The output format.
        #[arg(short, long, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Take the testbed down, whole or not.
    Down,
    /// Print what a shell needs to complete this command line.
    Completions(manual::Completions),
    /// Write manual pages of this program and its verbs.
    Man(manual::Man),
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FanOut {
    /// The switch's TC program.
    Switch,
    /// The controller.
    Controller,
}

fn main() -> ExitCode {
    mind_cli::tell_on_stderr(mind_cli::LevelFilter::INFO);
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("netns-setup: {error:#}");
            match error.downcast_ref() {
                Some(netns_setup::Error::Interrupted) => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up {
            compute,
            memory,
            memory_size,
            cache,
            slots,
            fan_out,
            no_services,
        } => up(&Options {
            compute,
            memory,
            memory_size,
            cache,
            slots,
            controller_copies: fan_out == FanOut::Controller,
            services: if no_services {
                None
            } else {
                Some(own_folder()?)
            },
            ..Options::default()
        }),
        Verb::Exec { blade, command } => exec(&blade, &command),
        Verb::Restart { service, more } => {
            let process = testbed::restart(&service, &more)?;
            eprintln!("netns-setup: {service} is process {} now", process.pid);
            Ok(ExitCode::SUCCESS)
        }
        Verb::Status { output } => status(output),
        Verb::Completions(args) => args.print(Cli::command()).map(|()| ExitCode::SUCCESS),
        Verb::Man(args) => args.write(Cli::command()).map(|()| ExitCode::SUCCESS),
        Verb::Down => {
            match testbed::down()? {
                Removed::Nothing => eprintln!("netns-setup: there was no testbed"),
                Removed::Testbed(what) => eprintln!("netns-setup: {what} are down"),
                Removed::Debris(why) => {
                    eprintln!("netns-setup: removed the debris of a testbed ({why})")
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn up(options: &Options) -> Result<ExitCode> {
    let interrupt = Interrupt::with_signals().context("cannot take Ctrl-C")?;
    let testbed = Testbed::up_unless(options, &interrupt)?;
    eprintln!(
        "netns-setup: {} are up; `netns-setup exec {} -- CMD` runs a command in one",
        testbed.plan(),
        testbed
            .plan()
            .blades
            .first()
            .map_or(SWITCH, |blade| &blade.name),
    );
    Ok(ExitCode::SUCCESS)
}

/// Where the programs of the services lie: beside this one.
fn own_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let folder = own.parent().context("this program lies nowhere")?;
    Ok(folder.to_owned())
}

fn exec(blade: &str, command: &[std::ffi::OsString]) -> Result<ExitCode> {
    let testbed = Testbed::current()?;
    let environment = testbed.environment(blade)?;
    testbed.enter(blade)?;
    let [program, arguments @ ..] = command else {
        anyhow::bail!("there is no command");
    };
    let error = Command::new(program)
        .args(arguments)
        .envs(environment)
        .exec();
    Err(error).with_context(|| format!("cannot run {} in {blade}", program.display()))
}

fn status(format: Format) -> Result<ExitCode> {
    let condition = testbed::look()?;
    let whole = matches!(&condition, Condition::Running { dead, .. } if dead.is_empty());
    let text = match format {
        Format::Json => {
            let value = as_json(&condition);
            serde_json::to_string_pretty(&value).context("cannot write JSON")?
        }
        Format::Text => as_text(&condition),
    };
    mind_cli::print(&text).context("cannot print")?;
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn as_json(condition: &Condition) -> serde_json::Value {
    match condition {
        Condition::Absent => json!({ "condition": "absent" }),
        Condition::Debris { reasons, .. } => json!({ "condition": "debris", "reasons": reasons }),
        Condition::Running { state, dead } => json!({
            "condition": "running",
            "age_seconds": state.age().as_secs(),
            "maker": state.maker.pid,
            "switch": {
                "namespace": Plan::switch_namespace(),
                "address": Plan::switch_address(),
                "mac": Plan::switch_mac(),
                "controller": Plan::controller(),
            },
            "blades": state.plan.blades,
            "services": state.services.iter().map(|service| json!({
                "name": service.name,
                "role": service.role,
                "pid": service.process.pid,
                "alive": !dead.contains(&service.name),
            })).collect::<Vec<_>>(),
        }),
    }
}

fn as_text(condition: &Condition) -> String {
    let (state, dead) = match condition {
        Condition::Absent => return "no testbed is running".to_owned(),
        Condition::Debris { reasons, .. } => {
            return format!(
                "debris of a testbed ({}); `netns-setup down` removes it",
                reasons.join("; ")
            );
        }
        Condition::Running { state, dead } => (state, dead),
    };
    let service = |name: &str| {
        let service = state.services.iter().find(|service| service.name == name);
        match service {
            None => "none".to_owned(),
            Some(service) if dead.contains(&service.name) => "dead".to_owned(),
            Some(service) => format!("process {}", service.process.pid),
        }
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "BLADE",
        "KIND",
        "NAMESPACE",
        "ADDRESS",
        "MAC",
        "SERVICE",
    ]);
    table.add_row([
        SWITCH.to_owned(),
        "switch".to_owned(),
        Plan::switch_namespace(),
        Plan::switch_address().to_string(),
        Plan::switch_mac().to_string(),
        service("ctl"),
    ]);
    for blade in &state.plan.blades {
        let kind = match blade.kind {
            Kind::Compute => "compute",
            Kind::Memory => "memory",
        };
        table.add_row([
            blade.name.clone(),
            kind.to_owned(),
            blade.namespace.clone(),
            blade.address.to_string(),
            blade.mac.to_string(),
            service(&blade.name),
        ]);
    }
    format!("{}\n{}", state.describe(), table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
