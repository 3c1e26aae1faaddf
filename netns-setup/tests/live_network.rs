//! The testbed on a real kernel, as root: network, services, debris. No eBPF program is loaded.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mind_cli::Interrupt;
use netns_setup::condition::Condition;
use netns_setup::program::Process;
use netns_setup::state::{Phase, State};
use netns_setup::testbed::{self, Removed};
use netns_setup::{Error, Options, Plan, Testbed, namespace, paths};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// There is one testbed on a machine, so these tests take turns. `None`, with a message, where they cannot run.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if !testbed::is_testable() {
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn assert_nothing_is_left() {
    assert_eq!(testbed::look().unwrap(), Condition::Absent);
    assert!(!Path::new(paths::RUN).exists());
    assert!(!Path::new(paths::LOCK).exists());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let left: Vec<_> = mounts
        .lines()
        .filter(|line| line.contains(paths::RUN) || line.contains("/netns/mind-"))
        .collect();
    assert!(left.is_empty(), "mounts are left: {left:?}");
}

fn address_of(testbed: &Testbed, name: &str) -> SocketAddr {
    let blade = testbed.plan().blade(name).unwrap();
    SocketAddr::from((blade.address, 7000))
}

/// Sends `count` bytes from one blade to another and back.
fn echo(testbed: &Testbed, from: &str, to: &str, count: usize) {
    let address = address_of(testbed, to);
    let listener = testbed
        .within::<_, anyhow::Error>(to, || Ok(TcpListener::bind(address)?))
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; count];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let mut stream = testbed
            .within::<_, anyhow::Error>(from, || {
                Ok(TcpStream::connect_timeout(
                    &address,
                    Duration::from_secs(5),
                )?)
            })
            .unwrap();
        let sent: Vec<u8> = (0..count).map(|n| n as u8).collect();
        stream.write_all(&sent).unwrap();
        let mut received = vec![0; count];
        stream.read_exact(&mut received).unwrap();
        assert!(sent == received, "what came back is not what was sent");
    });
}

#[test]
fn every_blade_reaches_every_other_through_the_bridge() {
    let Some(_turn) = turn() else { return };
    let testbed = Testbed::guarded(&Options::default()).unwrap();
    for from in ["c0", "c1", "m0", "m1"] {
        for to in ["c0", "c1", "m0", "m1"] {
            echo(&testbed, from, to, 100_000);
        }
    }
    let port = SocketAddr::from((Plan::switch_address(), 1));
    let refused = testbed.within::<(), anyhow::Error>("c1", || {
        TcpStream::connect(port)?;
        Ok(())
    });
    let refused = refused.unwrap_err().downcast::<std::io::Error>().unwrap();
    assert_eq!(
        refused.kind(),
        std::io::ErrorKind::ConnectionRefused,
        "the switch is there and nothing listens"
    );
    drop(testbed);
    assert_nothing_is_left();
}

#[test]
fn a_page_and_its_headers_fit_in_one_frame() {
    let Some(_turn) = turn() else { return };
    let testbed = Testbed::guarded(&Options::default()).unwrap();
    for interface in ["c0", "c1", "m0", "m1", "br0"] {
        let mtu = in_blade(&testbed, "sw", &format!("/sys/class/net/{interface}/mtu"));
        assert_eq!(mtu, "9000", "{interface}");
    }
    assert_eq!(in_blade(&testbed, "c1", "/sys/class/net/eth0/mtu"), "9000");
    let mac = in_blade(&testbed, "c1", "/sys/class/net/eth0/address");
    assert_eq!(mac, testbed.plan().blade("c1").unwrap().mac.to_string());
}

/// The text of a file as a program sees it that `netns-setup exec` runs.
fn in_blade(testbed: &Testbed, blade: &str, file: &str) -> String {
    assert!(testbed.plan().namespace_of(blade).is_ok());
    let output = Command::new(env!("CARGO_BIN_EXE_netns-setup"))
        .args(["exec", blade, "--", "cat", file])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_second_testbed_is_refused_and_the_first_left_alone() {
    let Some(_turn) = turn() else { return };
    let first = Testbed::guarded(&Options::default()).unwrap();
    let error = Testbed::up(&Options::default()).unwrap_err();
    assert!(matches!(error, Error::Running { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("2 compute and 2 memory blades"), "{text}");
    assert!(text.contains("netns-setup down"), "{text}");
    echo(&first, "c0", "m1", 10);
    drop(first);
    assert_nothing_is_left();
}

#[test]
fn the_debris_of_a_killed_run_is_removed_whatever_it_is() {
    let Some(_turn) = turn() else { return };
    // A namespace and nothing else.
    namespace::create("mind-c9").unwrap();
    drop(Testbed::guarded(&Options::default()).unwrap());
    assert_nothing_is_left();

    // Killed half way: the file of a namespace, and a state that says so.
    let state = State::new(Plan::new(2, 2).unwrap(), Process::current(), false);
    assert_eq!(state.phase, Phase::Starting);
    fs::create_dir_all(paths::RUN).unwrap();
    state.write(&paths::state()).unwrap();
    namespace::create("mind-sw").unwrap();
    fs::write(namespace::path("mind-c0"), "").unwrap();
    let removed = testbed::down().unwrap();
    assert!(
        matches!(&removed, Removed::Debris(why) if why.contains("its start was cut off")),
        "{removed:?}"
    );
    assert_nothing_is_left();

    // A state that cannot be parsed.
    fs::create_dir_all(paths::RUN).unwrap();
    fs::write(paths::state(), "not JSON").unwrap();
    drop(Testbed::guarded(&Options::default()).unwrap());
    assert_nothing_is_left();
    assert_eq!(testbed::down().unwrap(), Removed::Nothing);
}

#[test]
fn programs_in_a_blade_end_with_the_testbed() {
    let Some(_turn) = turn() else { return };
    let testbed = Testbed::guarded(&Options::default()).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $MIND_BLADE $MIND_BLADE_SOCKET; exec sleep 1000"])
        .stdout(Stdio::piped());
    let mut child = testbed.spawn("c1", &mut command).unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(line, "c1 /run/mind/sockets/c1.sock\n");
    let process = Process::with_pid(child.id().cast_signed()).unwrap();
    drop(testbed);
    assert!(!process.is_alive());
    // Taken by the testbed already, perhaps.
    child.wait().ok();
    assert_nothing_is_left();
}

#[test]
fn eight_and_eight_blades_are_up_and_down() {
    let Some(_turn) = turn() else { return };
    let options = Options {
        compute: 8,
        memory: 8,
        ..Options::default()
    };
    let testbed = Testbed::guarded(&options).unwrap();
    echo(&testbed, "c7", "m7", 100_000);
    drop(testbed);
    assert_nothing_is_left();
}

/// Set for [`stands_for_a_daemon`] when it is to be one.
const DAEMON: &str = "NETNS_SETUP_TEST_DAEMON";

/// A folder with programs that stand for the project's daemons.
struct Programs(PathBuf);

impl Programs {
    /// `mind-controller` and `mind-blade`, which do what the shell script `blade` says.
    fn new(name: &str, blade: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("netns-setup-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let own = std::env::current_exe().unwrap();
        let serve = format!(
            "echo started \"$@\"\n{DAEMON}=1 exec '{}' --exact stands_for_a_daemon --nocapture\n",
            own.display()
        );
        for (name, text) in [
            ("mind-controller", &*serve),
            ("mind-blade", if blade.is_empty() { &serve } else { blade }),
        ] {
            let path = folder.join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    fn options(&self) -> Options {
        Options {
            services: Some(self.0.clone()),
            ..Options::default()
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn stands_for_a_daemon() {
    // What the programs of the tests below execute; for itself it has nothing to do.
    if std::env::var_os(DAEMON).is_none() {
        return;
    }
    let path = std::env::var_os("NOTIFY_SOCKET").unwrap();
    let socket = UnixDatagram::unbound().unwrap();
    socket.send_to(b"STATUS=waking up", &path).unwrap();
    socket.send_to(b"READY=1\n", &path).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn services_are_waited_for_watched_and_ended() {
    let Some(_turn) = turn() else { return };
    let programs = Programs::new("well", "");
    let testbed = Testbed::guarded(&programs.options()).unwrap();
    let state = testbed.state().clone();
    let names: Vec<_> = state
        .services
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert_eq!(names, ["ctl", "m0", "m1", "c0", "c1"]);
    assert!(
        state
            .services
            .iter()
            .all(|service| service.process.is_alive())
    );
    let log = fs::read_to_string(paths::log("m1")).unwrap();
    assert!(log.starts_with("started memory --name=m1 "), "{log}");

    let gone = &state.services[1];
    netns_setup::program::end(&[gone.process]).unwrap();
    assert_eq!(Testbed::current().unwrap().dead(), ["m0"]);

    drop(testbed);
    assert!(
        state
            .services
            .iter()
            .all(|service| !service.process.is_alive())
    );
    assert_nothing_is_left();
}

#[test]
fn a_service_that_dies_at_its_start_is_named_and_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let programs = Programs::new("ill", "echo no memory left >&2\nexit 1\n");
    let error = Testbed::up(&programs.options()).unwrap_err();
    assert!(
        matches!(&error, Error::ServiceDied { service, tail, .. } if service == "m0" && tail == "no memory left"),
        "{error}"
    );
    assert_nothing_is_left();
}

/// With memory blades that are never ready, and a fifo that can be written to once one is started.
fn programs_that_are_never_ready(name: &str) -> (Programs, PathBuf) {
    let programs = Programs::new(name, "read line <\"$0.started\"\nexec sleep 1000\n");
    let fifo = programs.0.join("mind-blade.started");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    (programs, fifo)
}

#[test]
fn an_interrupted_testbed_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let (programs, started) = programs_that_are_never_ready("late");

    let interrupt = Interrupt::default();
    let error = std::thread::scope(|scope| {
        let up = scope.spawn(|| Testbed::up_unless(&programs.options(), &interrupt));
        fs::write(&started, "\n").unwrap();
        interrupt.happen();
        up.join().unwrap().unwrap_err()
    });
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_nothing_is_left();
    let error = Testbed::up_unless(&programs.options(), &interrupt).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_nothing_is_left();
}

#[test]
fn ctrl_c_ends_the_program_with_130() {
    let Some(_turn) = turn() else { return };
    let (programs, started) = programs_that_are_never_ready("interrupted");
    // It looks for the services' programs where it lies itself.
    let program = programs.0.join("netns-setup");
    fs::copy(env!("CARGO_BIN_EXE_netns-setup"), &program).unwrap();

    let mut up = Command::new(&program)
        .arg("up")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(&started, "\n").unwrap();
    kill_process(Pid::from_child(&up), Signal::TERM).unwrap();
    let mut said = String::new();
    let mut stderr = up.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(130), "{said}");
    assert_eq!(said, "netns-setup: interrupted; no testbed is left\n");
    assert_nothing_is_left();
}

#[test]
fn a_missing_program_is_named_and_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let options = Options {
        services: Some("/nowhere".into()),
        ..Options::default()
    };
    let error = Testbed::up(&options).unwrap_err();
    assert_eq!(error.to_string(), "cannot start /nowhere/mind-controller");
    assert_nothing_is_left();
}
