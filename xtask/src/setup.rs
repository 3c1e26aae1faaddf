//! `cargo xtask setup`: finds out what building and testing needs and this machine lacks, and installs it. With nothing
//! missing it only looks at a few files.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::bpf_linker;
use crate::companions;
use crate::debian::{self, Need};
use crate::process;
use crate::toolchain::{self, Toolchain};
use crate::vm;
use crate::workspace;

/// What the eBPF object is built with.
pub(crate) struct Tools {
    pub(crate) toolchain: Toolchain,
    pub(crate) linker: PathBuf,
}

/// Runs `cargo xtask setup`.
pub(crate) fn run() -> Result<()> {
    let tools = ensure()?;
    process::step(format_args!(
        "nothing is missing; the eBPF object is built with {} and {}",
        tools.toolchain,
        tools.linker.display()
    ));
    Ok(())
}

/// Makes sure that everything is there. Says something only if it has something to do.
pub(crate) fn ensure() -> Result<Tools> {
    let mut machine = Machine::look();
    if machine.lacks_nothing() {
        return machine.tools();
    }

    // One of several commands in this checkout installs; the others find everything there.
    let _lock = lock()?;
    machine = Machine::look();
    let needs = machine.needs();
    if !needs.is_empty() {
        install(&needs, &machine)?;
        machine = Machine::look();
        let still = machine.needs();
        if !still.is_empty() {
            bail!("{}", still_missing(&still, &machine));
        }
    }
    if !machine.has_linker {
        bpf_linker::install()?;
        machine = Machine::look();
        if !machine.has_linker {
            bail!(
                "bpf-linker was built, but {} --version does not run or tells another version",
                bpf_linker::path().display()
            );
        }
    }
    machine.tools()
}

/// Makes sure that what one command needs besides is there. Says something only if it has something to do.
pub(crate) fn ensure_packages(needs: &[Need]) -> Result<()> {
    let missing = || -> Vec<Need> {
        let needs = needs.iter().copied();
        needs.filter(|need| !is_there(*need)).collect()
    };
    if missing().is_empty() {
        return Ok(());
    }
    let _lock = lock()?;
    let needs = missing();
    if needs.is_empty() {
        return Ok(());
    }
    install(&needs, &Machine::look())?;
    let still = missing();
    if !still.is_empty() {
        bail!("{}", still_missing(&still, &Machine::look()));
    }
    Ok(())
}

/// Whether the machine has what `need` stands for.
fn is_there(need: Need) -> bool {
    let program = process::program_exists;
    match need {
        Need::BpfToolchain => toolchain::choose(&toolchain::find()).is_some(),
        Need::Llvm => bpf_linker::has_llvm(&bpf_linker::llvm_prefix()),
        Need::CCompiler => program("cc") && program("c++"),
        Need::PkgConfig => program("pkg-config"),
        Need::Iproute2 => program("ip"),
        Need::Ethtool => program("ethtool"),
        Need::Qemu => program("qemu-system-x86_64"),
        Need::Busybox => vm::has_busybox(),
        Need::Kmod => program("depmod") && program("modprobe"),
        Need::Cpio => program("cpio"),
        Need::Xz => program("xz"),
        Need::Tshark => program("tshark") && program("dumpcap"),
        Need::Scapy => companions::has_module("scapy"),
        Need::Sqlite => program("sqlite3"),
        Need::RedisTools => program("redis-cli") && program("redis-check-rdb"),
        Need::Libevent => companions::has_library("libevent-2.1.so.7"),
        Need::StressNg => program("stress-ng"),
        Need::Memtester => program("memtester"),
        Need::NumPy => companions::has_module("numpy") && companions::has_module("pandas"),
        Need::Sklearn => companions::has_module("sklearn"),
    }
}

/// What a look at the machine's files found.
struct Machine {
    toolchains: Vec<Toolchain>,
    has_linker: bool,
    has_llvm: bool,
    has_c_compiler: bool,
    has_pkg_config: bool,
    has_ip: bool,
    has_ethtool: bool,
}

impl Machine {
    fn look() -> Self {
        Self {
            toolchains: toolchain::find(),
            has_linker: bpf_linker::is_installed(),
            has_llvm: bpf_linker::has_llvm(&bpf_linker::llvm_prefix()),
            has_c_compiler: is_there(Need::CCompiler),
            has_pkg_config: is_there(Need::PkgConfig),
            has_ip: is_there(Need::Iproute2),
            has_ethtool: is_there(Need::Ethtool),
        }
    }

    /// What must come from Debian's packages.
    fn needs(&self) -> Vec<Need> {
        let wanted = [
            (
                toolchain::choose(&self.toolchains).is_some(),
                Need::BpfToolchain,
            ),
            // The linker once built needs no more than LLVM's shared library, and that it runs shows this is there.
            (self.has_linker || self.has_llvm, Need::Llvm),
            (self.has_c_compiler, Need::CCompiler),
            (self.has_pkg_config, Need::PkgConfig),
            (self.has_ip, Need::Iproute2),
            (self.has_ethtool, Need::Ethtool),
        ];
        wanted
            .into_iter()
            .filter_map(|(is_there, need)| (!is_there).then_some(need))
            .collect()
    }

    fn lacks_nothing(&self) -> bool {
        self.needs().is_empty() && self.has_linker
    }

    fn tools(self) -> Result<Tools> {
        let toolchain = toolchain::choose(&self.toolchains)
            .cloned()
            .context("no Rust toolchain for the BPF target")?;
        Ok(Tools {
            toolchain,
            linker: bpf_linker::path(),
        })
    }
}

fn install(needs: &[Need], machine: &Machine) -> Result<()> {
    if !process::program_exists("apt-get") {
        bail!("{}", missing_without_apt(needs, machine));
    }
    if !is_root()? {
        bail!("{}", missing_without_root(needs));
    }
    debian::install(needs).with_context(|| passed_over(needs, machine))
}

fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    // The owner of a process's folder in /proc is its effective user.
    let metadata = fs::metadata("/proc/self").context("cannot tell whether this is root")?;
    Ok(metadata.uid() == 0)
}

pub(crate) fn lock() -> Result<File> {
    let folder = workspace::target();
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let path = folder.join("xtask-setup.lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// One line for each of `needs`.
fn list(needs: &[Need]) -> String {
    needs
        .iter()
        .map(|need| format!("\n  - {}", need.description()))
        .collect()
}

fn missing_without_root(needs: &[Need]) -> String {
    format!(
        "this machine lacks:{}\nOnly root can install packages. Run this, then xtask again:\n  {}",
        list(needs),
        debian::install_command(needs)
    )
}

fn missing_without_apt(needs: &[Need], machine: &Machine) -> String {
    let mut text = format!(
        "this machine lacks:{}\nand has no apt-get. On Debian this would install it:\n  {}",
        list(needs),
        debian::install_command(needs)
    );
    if needs.contains(&Need::Llvm) {
        text.push_str("\nAn LLVM 22 elsewhere is found through the variable LLVM_PREFIX.");
    }
    text.push_str(&toolchain_hint(needs, machine));
    text
}

fn still_missing(needs: &[Need], machine: &Machine) -> String {
    format!(
        "apt-get succeeded, but this machine still lacks:{}{}",
        list(needs),
        toolchain_hint(needs, machine)
    )
}

/// Why none of the toolchains here will do, and the way out that needs no packages.
fn passed_over(needs: &[Need], machine: &Machine) -> String {
    format!(
        "this machine lacks:{}{}\nthe installation failed",
        list(needs),
        toolchain_hint(needs, machine)
    )
}

fn toolchain_hint(needs: &[Need], machine: &Machine) -> String {
    if !needs.contains(&Need::BpfToolchain) {
        return String::new();
    }
    let mut text = String::new();
    for toolchain in &machine.toolchains {
        if let Err(reason) = toolchain.fitness() {
            text.push_str(&format!("\n{toolchain} will not do: {reason}."));
        }
    }
    text.push_str(&format!(
        "\nWith rustup, this installs a toolchain for the BPF target:\n  \
         rustup toolchain install {} --profile minimal --component rust-src",
        toolchain::KNOWN_NIGHTLY
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::{Origin, Version};

    fn complete() -> Machine {
        Machine {
            toolchains: vec![Toolchain {
                origin: Origin::Debian,
                bin: PathBuf::from("bin"),
                version: Version {
                    release: (1, 96),
                    nightly: false,
                    llvm: 22,
                },
                has_source: true,
            }],
            has_linker: true,
            has_llvm: true,
            has_c_compiler: true,
            has_pkg_config: true,
            has_ip: true,
            has_ethtool: true,
        }
    }

    #[test]
    fn a_complete_machine_lacks_nothing() {
        assert!(complete().lacks_nothing());
    }

    #[test]
    fn a_bare_machine_needs_everything() {
        let bare = Machine {
            toolchains: Vec::new(),
            has_linker: false,
            has_llvm: false,
            has_c_compiler: false,
            has_pkg_config: false,
            has_ip: false,
            has_ethtool: false,
        };
        assert_eq!(
            bare.needs(),
            [
                Need::BpfToolchain,
                Need::Llvm,
                Need::CCompiler,
                Need::PkgConfig,
                Need::Iproute2,
                Need::Ethtool
            ]
        );
    }

    #[test]
    fn a_linker_that_runs_needs_no_llvm_headers() {
        let machine = Machine {
            has_llvm: false,
            ..complete()
        };
        assert!(machine.lacks_nothing());
    }

    #[test]
    fn with_llvm_there_a_missing_linker_needs_no_packages_but_is_missing() {
        let machine = Machine {
            has_linker: false,
            ..complete()
        };
        assert_eq!(machine.needs(), []);
        assert!(!machine.lacks_nothing());
    }

    #[test]
    fn without_root_the_message_holds_the_exact_command() {
        let text = missing_without_root(&[Need::Iproute2, Need::Ethtool]);
        assert!(text.contains("- the program ethtool\n"), "{text}");
        assert!(
            text.ends_with(
                "sudo apt-get install --yes --no-install-recommends --no-remove iproute2 ethtool"
            ),
            "{text}"
        );
    }

    #[test]
    fn an_unfit_toolchain_is_named_with_the_reason_and_the_way_out() {
        let mut machine = complete();
        machine.toolchains[0].has_source = false;
        let text = missing_without_apt(&machine.needs(), &machine);
        assert!(
            text.contains(
                "Debian's rustc (1.96, LLVM 22) will not do: it lacks the library's source"
            ),
            "{text}"
        );
        assert!(text.contains("rustup toolchain install nightly-"), "{text}");
    }

    #[test]
    fn a_missing_tool_gives_no_advice_about_toolchains() {
        let machine = Machine {
            has_ip: false,
            ..complete()
        };
        let text = missing_without_apt(&machine.needs(), &machine);
        assert!(!text.contains("rustup"), "{text}");
    }
}
