//! What runs in the guest: the scripts that mount the host's root and run the commands, and what they report.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::initramfs::{STAGE2, Scripts};
use super::kernel::Kernel;
use crate::process;

/// The ports between guest and host, by name.
pub(crate) mod port {
    /// What the command writes to stdout.
    pub(crate) const STDOUT: &str = "mind.stdout";
    /// What the command writes to stderr.
    pub(crate) const STDERR: &str = "mind.stderr";
    /// [`Report`](super::Report)s, one a line.
    pub(crate) const REPORT: &str = "mind.report";
}

/// Names of the 9p shares.
pub(crate) mod share {
    /// The host's root, read-only.
    pub(crate) const ROOT: &str = "root";
    /// The folder that the guest writes for real.
    pub(crate) const WRITABLE: &str = "writable";
}

/// On the kernel's command line: shut down as soon as `init` runs.
pub(crate) const PROBE: &str = "mind.probe";

/// What the guest says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The kernel has booted and `init` runs.
    Booted,
    /// The command begins.
    Started,
    /// The guest could not be made ready.
    Unready(String),
    /// The verifier walked so many instructions of the program.
    Verified {
        /// The program's name in the object.
        program: String,
        /// Instructions.
        instructions: u64,
    },
    /// All commands have ended, the first that failed with this code.
    Ended(u8),
}

impl Report {
    /// Reads a line of the report port.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "booted" => Some(Self::Booted),
            "started" => Some(Self::Started),
            "unready" => Some(Self::Unready(rest.to_owned())),
            "verified" => {
                let (program, instructions) = rest.split_once(' ')?;
                Some(Self::Verified {
                    program: program.to_owned(),
                    instructions: instructions.parse().ok()?,
                })
            }
            "ended" => rest.parse().ok().map(Self::Ended),
            _ => None,
        }
    }
}

/// A command to run in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Where it begins.
    pub(crate) folder: PathBuf,
}

/// All that the guest does.
pub(crate) struct Work {
    /// In this order; all run, also when one fails.
    pub(crate) jobs: Vec<Job>,
    /// A program that prints a line `PROGRAM INSTRUCTIONS` for each eBPF program, if it is wanted.
    pub(crate) verifier: Option<PathBuf>,
    /// Set in its environment, beside the usual.
    pub(crate) environment: Vec<(String, String)>,
    /// The folder that the guest writes for real.
    pub(crate) writable: PathBuf,
}

/// The scripts for `work` on `kernel`.
pub(crate) fn scripts(kernel: &Kernel, work: &Work) -> Result<Scripts> {
    Ok(Scripts {
        init: init(),
        stage2: stage2(kernel, work)?,
    })
}

/// Finds the device of a port; for both scripts.
const FIND_PORT: &str = r#"
port() {
    for node in /sys/class/virtio-ports/*; do
        read -r name < "$node/name"
        [ "$name" = "$1" ] && echo "/dev/${node##*/}" && return
    done
    echo /dev/null
}
"#;

fn init() -> String {
    format!(
        r#"#!/bin/sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do
    insmod "$module" || echo "mind-vm: cannot load $module" > /dev/kmsg
done
{FIND_PORT}
report=$(port {report})
unready() {{
    echo "unready $1" > "$report"
    poweroff -f
}}
echo booted > "$report"
grep -qw {PROBE} /proc/cmdline && poweroff -f
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose {root} /lower ||
    unready "cannot mount the host's root"
mount -t tmpfs -o size=90% tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work,xino=off overlay /root ||
    unready "cannot lay a writable layer over the host's root"
mount -t tmpfs -o mode=755 tmpfs /root/run
mkdir -p /root/run/lock /root/run/mind-vm
cp /{STAGE2} /root/run/mind-vm/
for folder in proc sys dev; do mount --move /$folder /root/$folder; done
exec switch_root /root /bin/sh /run/mind-vm/{STAGE2}
"#,
        report = port::REPORT,
        root = share::ROOT,
    )
}

fn stage2(kernel: &Kernel, work: &Work) -> Result<String> {
    let mut text = format!(
        r#"#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
{FIND_PORT}
report=$(port {report})
exec < /dev/null > "$(port {stdout})" 2> "$(port {stderr})"
unready() {{
    echo "unready $1" > "$report"
    poweroff -f
}}
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
{fresh}mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /lib/modules/{release}
mount --bind {modules} /lib/modules/{release} || unready "cannot show the kernel's modules"
mount --make-rshared /
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap {share} {writable} ||
    unready "cannot mount the writable folder"
hostname mind-vm
ip link set lo up
"#,
        fresh = fresh(kernel, work),
        report = port::REPORT,
        stdout = port::STDOUT,
        stderr = port::STDERR,
        release = kernel.release,
        modules = quoted(&kernel.modules)?,
        share = share::WRITABLE,
        writable = quoted(&work.writable)?,
    );
    for (name, value) in &work.environment {
        writeln!(text, "export {name}={}", process::quoted(value))?;
    }
    text.push_str("code=0\necho started > \"$report\"\n");
    for job in &work.jobs {
        let words: Vec<_> = job.words.iter().map(|word| process::quoted(word)).collect();
        writeln!(
            text,
            "( cd {} && {} )\nlast=$?; [ $code = 0 ] && code=$last",
            quoted(&job.folder)?,
            words.join(" ")
        )?;
    }
    if let Some(verifier) = &work.verifier {
        writeln!(
            text,
            "{} | sed 's/^/verified /' > \"$report\"\n",
            quoted(verifier)?
        )?;
    }
    text.push_str("sync\necho \"ended $code\" > \"$report\"\n");
    // Not `poweroff -f`: on a host with systemd that would ask an init that is not there. And nothing that would be
    // read from the host's disk, which is gone before the machine is: an init that ends is a panic.
    let off = "mkfifo /run/mind-vm/off; exec 3<>/run/mind-vm/off; echo o > /proc/sysrq-trigger; read -r _ <&3";
    text.push_str(off);
    text.push('\n');
    Ok(text.replace("poweroff -f", off))
}

/// Temporary folders of the guest's own. The host's are seen where the project itself lies in one.
fn fresh(kernel: &Kernel, work: &Work) -> String {
    let folders = work.jobs.iter().map(|job| &job.folder);
    let used: Vec<_> = folders.chain([&kernel.modules, &work.writable]).collect();
    ["/tmp", "/var/tmp"]
        .into_iter()
        .filter(|folder| !used.iter().any(|path| path.starts_with(folder)))
        .map(|folder| format!("mount -t tmpfs tmpfs {folder}\n"))
        .collect()
}

fn quoted(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .with_context(|| format!("the path {} is not UTF-8", path.display()))?;
    Ok(process::quoted(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work {
            jobs: vec![
                Job {
                    words: vec!["sh".into(), "-c".into(), "echo 'it'".into()],
                    folder: "/with space".into(),
                },
                Job {
                    words: vec!["true".into()],
                    folder: "/".into(),
                },
            ],
            verifier: Some("/t/report".into()),
            environment: vec![("MIND_X".into(), "a b".into())],
            writable: "/t".into(),
        }
    }

    fn kernel() -> Kernel {
        Kernel {
            release: "6.12.0-amd64".into(),
            image: PathBuf::new(),
            modules: "/k/lib/modules/6.12.0-amd64".into(),
        }
    }

    #[test]
    fn reports_are_read_line_by_line() {
        assert_eq!(Report::parse("booted\n"), Some(Report::Booted));
        assert_eq!(Report::parse("started"), Some(Report::Started));
        assert_eq!(Report::parse("ended 101"), Some(Report::Ended(101)));
        assert_eq!(
            Report::parse("unready no root here"),
            Some(Report::Unready("no root here".into()))
        );
        assert_eq!(
            Report::parse("verified mind_switch 4711"),
            Some(Report::Verified {
                program: "mind_switch".into(),
                instructions: 4711
            })
        );
        assert_eq!(Report::parse("verified mind_switch many"), None);
        assert_eq!(Report::parse("something else"), None);
    }

    #[test]
    fn commands_reach_the_guest_word_for_word_and_in_their_folders() {
        let text = stage2(&kernel(), &work()).unwrap();
        assert!(
            text.contains(r"( cd '/with space' && sh -c 'echo '\''it'\''' )"),
            "{text}"
        );
        assert!(text.contains("export MIND_X='a b'\n"), "{text}");
    }

    #[test]
    fn a_project_in_a_temporary_folder_is_not_covered() {
        let covered = |work: &Work| {
            let text = stage2(&kernel(), work).unwrap();
            ["/tmp", "/var/tmp"].map(|folder| text.contains(&format!("tmpfs {folder}\n")))
        };
        let mut work = work();
        assert_eq!(covered(&work), [true, true]);
        work.writable = "/var/tmp/mind/target".into();
        assert_eq!(covered(&work), [true, false]);
        work.jobs[1].folder = "/tmp/mind".into();
        assert_eq!(covered(&work), [false, false]);
    }

    #[test]
    fn the_scripts_are_well_formed_for_the_shell() {
        let scripts = scripts(&kernel(), &work()).unwrap();
        for script in [&scripts.init, &scripts.stage2] {
            let check =
                process::output(std::process::Command::new("sh").args(["-n", "-c", script]));
            assert!(check.is_ok(), "{check:?}\n{script}");
        }
    }

    #[test]
    fn the_code_of_the_first_command_that_failed_is_reported() {
        let text = stage2(&kernel(), &work()).unwrap();
        let commands = text.split("code=0\n").nth(1).unwrap();
        let (commands, _) = commands.split_once("sync\n").unwrap();
        let commands: String = commands
            .lines()
            .filter(|line| !line.contains("report"))
            .map(|line| match line.strip_prefix("( cd '/with space'") {
                Some(_) => "( exit 7 )\n".to_owned(),
                None => format!("{line}\n"),
            })
            .collect();
        let script = format!("code=0\n{commands}\necho $code");
        let code = process::output(std::process::Command::new("sh").args(["-c", &script])).unwrap();
        assert_eq!(code.trim(), "7");
    }
}
