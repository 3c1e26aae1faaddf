//! The daemons of a testbed: what is started where, when one is ready, in which order they end.
//!
//! A service reports that it is ready as systemd's do: it sends a datagram with the line `READY=1` to the Unix socket
//! that `NOTIFY_SOCKET` names.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mind_cli::Interrupt;
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    halt::Halt,
    namespace, paths,
    plan::{INTERFACE, Kind, Plan, SWITCH},
    program::{self, Process},
    state::RunningService,
    testbed::Options,
};

/// How long a service may take to be ready. A memory blade allocates its memory first.
const LIMIT: Duration = Duration::from_secs(60);

/// Has a daemon read no configuration: what is in the host's /etc is not for a testbed.
const NO_FILE: &str = "--config=/dev/null";

/// Lines of a dead service's log that its error shows.
const TAIL: usize = 10;

/// What a service does. Services are started in this order and end in the opposite one, so that senders stop first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The controller: loads the switch's programs and registers blades.
    Controller,
    /// Offers memory.
    Memory,
    /// Runs a page cache.
    Compute,
}

impl Role {
    /// All of them, in the order of their start.
    pub const ALL: [Self; 3] = [Self::Controller, Self::Memory, Self::Compute];
}

/// A daemon to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name: the blade's, or `ctl`.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// The namespace that it runs in.
    pub namespace: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// The services of a testbed, from the programs in the folder `programs`.
pub fn standard(plan: &Plan, options: &Options, programs: &Path) -> Vec<Service> {
    let program = |name: &str| programs.join(name).to_string_lossy().into_owned();
    let controller = Plan::controller().to_string();

    let mut command = vec![
        program("mind-controller"),
        NO_FILE.to_owned(),
        format!("--listen={controller}"),
        format!("--pin={}", paths::pins(SWITCH).display()),
        format!("--state={}", paths::records().display()),
        format!("--metrics={}", Plan::controller_metrics()),
    ];
    command.extend(
        plan.blades
            .iter()
            .map(|blade| format!("--port={}", blade.name)),
    );
    command.extend(options.slots.map(|slots| format!("--slots={slots}")));
    command.extend(options.epoch.map(|epoch| format!("--epoch={epoch}")));
    if options.controller_copies {
        command.push("--fan-out=controller".to_owned());
    }
    if options.lose_on_purpose {
        command.push("--lose-on-purpose".to_owned());
    }
    let mut services = vec![Service {
        name: "ctl".to_owned(),
        role: Role::Controller,
        namespace: Plan::switch_namespace(),
        command,
    }];
    services.extend(plan.blades.iter().map(|blade| {
        let (verb, role, own) = match blade.kind {
            Kind::Memory => (
                "memory",
                Role::Memory,
                vec![
                    format!("--size={}", options.memory_size),
                    format!("--pin={}", paths::pins(&blade.name).display()),
                ],
            ),
            Kind::Compute => (
                "compute",
                Role::Compute,
                vec![
                    format!("--cache={}", options.cache),
                    format!("--socket={}", paths::blade_socket(&blade.name).display()),
                ],
            ),
        };
        let mut command = vec![
            program("mind-blade"),
            verb.to_owned(),
            format!("--name={}", blade.name),
            format!("--interface={INTERFACE}"),
            format!("--controller={controller}"),
            format!("--metrics={}", blade.metrics()),
        ];
        command.extend(own);
        command.push(NO_FILE.to_owned());
        Service {
            name: blade.name.clone(),
            role,
            namespace: blade.namespace.clone(),
            command,
        }
    }));
    services
}

/// A service that was started and may not be ready yet.
#[derive(Debug)]
pub struct Starting {
    service: RunningService,
    socket: UnixDatagram,
}

impl Starting {
    /// The service, ready or not.
    pub fn service(&self) -> &RunningService {
        &self.service
    }

    /// Waits until the service reports that it is ready.
    ///
    /// # Errors
    ///
    /// When it ends before, or does not report for a minute.
    pub fn ready(self) -> Result<()> {
        self.ready_unless(&Halt::of(&Interrupt::default())?)
    }

    /// Waits until it reports that it is ready, unless `halt` comes before.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and as [`ready`](Self::ready).
    pub(crate) fn ready_unless(self, halt: &Halt) -> Result<()> {
        let result = self.wait(Instant::now() + LIMIT, halt);
        let path = paths::notify_socket(&self.service.name);
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        result
    }

    fn wait(&self, deadline: Instant, halt: &Halt) -> Result<()> {
        let name = &self.service.name;
        let log = paths::log(name);
        let Some(handle) = self.service.process.open() else {
            return Err(died(name));
        };
        loop {
            let mut events = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&handle, PollFlags::IN),
                PollFd::new(halt, PollFlags::IN),
            ];
            if !program::poll_until(&mut events, deadline) {
                return Err(Error::ServiceLate {
                    service: name.clone(),
                    log,
                    limit: LIMIT,
                });
            }
            halt.check()?;
            let [message, end, _] = events.map(|event| !event.revents().is_empty());
            if message {
                let mut bytes = [0; 4096];
                let count = self.socket.recv(&mut bytes).map_err(Error::io(
                    "read the message on",
                    &paths::notify_socket(name),
                ))?;
                if says_ready(&bytes[..count]) {
                    return Ok(());
                }
            } else if end {
                return Err(died(name));
            }
        }
    }
}

fn died(service: &str) -> Error {
    let log = paths::log(service);
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    Error::ServiceDied {
        service: service.to_owned(),
        log,
        tail: lines[lines.len().saturating_sub(TAIL)..].join("\n"),
    }
}

/// Whether a datagram to `NOTIFY_SOCKET` reports that the sender is ready (sd_notify(3)).
fn says_ready(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == b'\n')
        .any(|line| line == b"READY=1")
}

/// Starts a service; it outlives the caller.
///
/// # Errors
///
/// When its program, its log or its socket cannot be opened.
pub fn start(service: &Service) -> Result<Starting> {
    let socket_path = paths::notify_socket(&service.name);
    match fs::remove_file(&socket_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &socket_path)(error));
        }
        _ => {}
    }
    let socket =
        UnixDatagram::bind(&socket_path).map_err(Error::io("make the socket", &socket_path))?;
    let log_path = paths::log(&service.name);
    // The log of an earlier process stays.
    let log = File::options()
        .create(true)
        .append(true)
        .open(&log_path)
        .map_err(Error::io("write the log", &log_path))?;
    let errors = log
        .try_clone()
        .map_err(Error::io("write the log", &log_path))?;
    let [program, arguments @ ..] = service.command.as_slice() else {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(Error::io("start nothing as", service.name.as_ref())(error));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("NOTIFY_SOCKET", &socket_path)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // Ctrl-C at the terminal must not reach it.
        .process_group(0);
    let child = namespace::spawn(&service.namespace, &mut command)?;
    let pid = child.id().cast_signed();
    let process = Process::with_pid(pid).unwrap_or(Process { pid, start: 0 });
    Ok(Starting {
        service: RunningService {
            name: service.name.clone(),
            role: service.role,
            namespace: service.namespace.clone(),
            command: service.command.clone(),
            process,
        },
        socket,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_blade_and_the_controller_has_a_service_in_its_namespace() {
        let plan = Plan::new(1, 1).unwrap();
        let services = standard(&plan, &Options::default(), Path::new("/opt"));
        let places: Vec<_> = services
            .iter()
            .map(|service| {
                (
                    service.name.as_str(),
                    service.namespace.as_str(),
                    service.role,
                )
            })
            .collect();
        assert_eq!(
            places,
            [
                ("ctl", "mind-sw", Role::Controller),
                ("c0", "mind-c0", Role::Compute),
                ("m0", "mind-m0", Role::Memory)
            ]
        );
        assert_eq!(services[0].command[0], "/opt/mind-controller");
        assert!(services[0].command.contains(&"--port=c0".to_owned()));
        for service in &services {
            assert!(
                service.command.contains(&NO_FILE.to_owned()),
                "{}",
                service.name
            );
        }
        assert!(
            services[1]
                .command
                .contains(&"--socket=/run/mind/sockets/c0.sock".to_owned())
        );
        assert!(services[2].command.contains(&"--size=268435456".to_owned()));
    }

    #[test]
    fn only_the_whole_line_means_ready() {
        assert!(says_ready(b"READY=1"));
        assert!(says_ready(b"STATUS=loaded\nREADY=1\n"));
        assert!(!says_ready(b"STATUS=READY=1"));
        assert!(!says_ready(b"READY=10"));
    }

    #[test]
    fn the_controller_is_first_to_start_and_last_to_end() {
        assert!(Role::ALL.is_sorted());
        assert_eq!(Role::ALL[0], Role::Controller);
    }
}
