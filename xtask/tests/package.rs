//! The Debian package is installed, configured, upgraded, removed and purged by dpkg in a folder that stands for the
//! root of a system; what it installed is run.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The daemons, each with its program and verb.
const DAEMONS: [(&str, &[&str]); 3] = [
    ("mind-controller", &["mind-controller"]),
    ("mind-blade-compute", &["mind-blade", "compute"]),
    ("mind-blade-memory", &["mind-blade", "memory"]),
];

/// Programs without which there is no test.
const NEEDED: [&str; 3] = ["dpkg", "dpkg-deb", "dpkg-shlibdeps"];

/// The folder of links to the units that are started with the system.
const ENABLED: &str = "etc/systemd/system/multi-user.target.wants";

/// What configuration files of the second version end with.
const OF_SECOND: &str = "# Of the second version.\n";

/// What a command prints on stdout; it must succeed.
fn stdout(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {complaints}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The package of what is built beside xtask, in `folder`. `None` if this system has no dpkg.
fn package(folder: &Path) -> Result<Option<PathBuf>> {
    for program in NEEDED {
        let tried = Command::new(program).arg("--version").output();
        if tried.is_err() {
            eprintln!(
                "skipped: there is no {program}; packages are tested where Debian's dpkg-dev is installed"
            );
            return Ok(None);
        }
    }
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let built = xtask.parent().context("xtask lies in no folder")?;
    let mut make = Command::new(xtask);
    make.args(["package", "--compression", "none", "--built"]);
    stdout(make.arg(built).arg("--output").arg(folder))?;
    let mut found = folder.read_dir()?;
    let file = found.next().context("no package is made")??.path();
    ensure!(
        found.next().is_none(),
        "more than a package is left in {folder:?}"
    );
    Ok(Some(file))
}

/// The package with another version, whose files of the operator's are other ones too.
fn successor(package: &Path, folder: &Path) -> Result<PathBuf> {
    let root = folder.join("successor");
    stdout(Command::new("dpkg-deb").arg("-R").arg(package).arg(&root))?;
    let control = root.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let old = format!("Version: {VERSION}-1\n");
    ensure!(text.contains(&old), "{text}");
    fs::write(
        &control,
        text.replace(&old, &format!("Version: {VERSION}-2\n")),
    )?;
    for (name, _) in DAEMONS {
        let path = root.join(format!("etc/mind/{name}.toml"));
        let text = fs::read_to_string(&path)?;
        fs::write(&path, text + OF_SECOND)?;
    }
    let file = folder.join("second.deb");
    stdout(
        Command::new("dpkg-deb")
            .args(["-Znone", "-b"])
            .arg(root)
            .arg(&file),
    )?;
    Ok(file)
}

/// A folder that stands for the root of a system, in which nothing but what the package depends on is installed.
struct System(TempDir);

impl System {
    fn new(package: &Path) -> Result<Self> {
        let system = Self(tempfile::tempdir()?);
        let admin = system.path("var/lib/dpkg");
        for folder in ["info", "updates"] {
            fs::create_dir_all(admin.join(folder))?;
        }
        fs::create_dir_all(system.path(ENABLED))?;
        fs::write(admin.join("available"), "")?;
        // As they are on this system, so that dpkg compares their versions.
        let mut installed = String::new();
        for name in dependencies(package)? {
            let query = stdout(Command::new("dpkg-query").args(["--status", &name]))?;
            installed += &format!("{}\n\n", query.trim_end());
            let is_several = query.lines().any(|line| line == "Multi-Arch: same");
            let suffix = match is_several {
                true => format!(
                    ":{}",
                    stdout(Command::new("dpkg").arg("--print-architecture"))?.trim()
                ),
                false => String::new(),
            };
            fs::write(admin.join(format!("info/{name}{suffix}.list")), "/.\n")?;
        }
        fs::write(admin.join("status"), installed)?;
        Ok(system)
    }

    fn path(&self, place: &str) -> PathBuf {
        self.0.path().join(place)
    }

    /// Runs dpkg on it. The scripts are run by this system's shell, which are told the folder.
    fn dpkg(&self, arguments: &[&str], package: Option<&Path>) -> Result<String> {
        let mut dpkg = Command::new("dpkg");
        dpkg.env("DEBIAN_FRONTEND", "noninteractive")
            .arg(format!("--root={}", self.0.path().display()))
            .arg("--force-script-chrootless")
            .args(arguments)
            .args(package);
        stdout(&mut dpkg)
    }

    /// What dpkg says of the package's state.
    fn state(&self) -> Result<String> {
        let mut query = Command::new("dpkg-query");
        query.arg(format!(
            "--admindir={}",
            self.path("var/lib/dpkg").display()
        ));
        stdout(query.args([
            "--show",
            "--showformat=${db:Status-Abbrev}${Version}",
            "mind",
        ]))
    }

    /// Runs an installed daemon with its installed configuration.
    fn run(&self, (name, command): (&str, &[&str]), arguments: &[&str]) -> Result<Output> {
        let program = self.path(&format!("usr/bin/{}", command[0]));
        let mut daemon = Command::new(&program);
        daemon
            .args(&command[1..])
            .arg("--config")
            .arg(self.configuration(name));
        for variable in [
            "MIND_CONTROLLER",
            "MIND_METRICS",
            "MIND_PIN",
            "MIND_STATE",
            "MIND_BLADE_SOCKET",
        ] {
            daemon.env_remove(variable);
        }
        daemon
            .args(arguments)
            .output()
            .with_context(|| format!("cannot run {}", program.display()))
    }

    fn configuration(&self, name: &str) -> PathBuf {
        self.path(&format!("etc/mind/{name}.toml"))
    }

    /// Puts all settings of a daemon in force that are examples in its configuration.
    fn configure(&self, name: &str) -> Result<()> {
        let path = self.configuration(name);
        let text = fs::read_to_string(&path)?;
        let uncommented = |line: &str| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        };
        fs::write(&path, text.lines().map(uncommented).collect::<String>())?;
        Ok(())
    }

    /// All files, and the folders that are this package's by their name, besides what is dpkg's own.
    fn files(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir()? {
                let path = entry?.path();
                let name = path.strip_prefix(self.0.path())?.display().to_string();
                if name == "var/lib/dpkg" {
                    continue;
                }
                let is_folder = path.symlink_metadata()?.is_dir();
                if !is_folder || name.contains("mind") {
                    found.push(name);
                }
                if is_folder {
                    folders.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// The names of the packages that a package depends on.
fn dependencies(package: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for field in ["Pre-Depends", "Depends"] {
        let text = stdout(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(package)
                .arg(field),
        )?;
        let first = text
            .split(',')
            .filter_map(|one| one.split_whitespace().next());
        names.extend(first.map(ToOwned::to_owned));
    }
    ensure!(
        names.iter().any(|name| name == "libc6"),
        "not even the C library is among {names:?}"
    );
    Ok(names)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_package_is_installed_started_upgraded_removed_and_purged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(first) = package(&folder.path().join("made"))? else {
        return Ok(());
    };
    let system = System::new(&first)?;
    let before = system.files()?;
    system.dpkg(&["--install"], Some(&first))?;
    assert_eq!(system.state()?, format!("ii {VERSION}-1"));
    let problems = system.dpkg(&["--verify", "mind"], None)?;
    assert_eq!(problems, "", "dpkg finds other files than the package has");

    for program in [
        "mind",
        "mind-blade",
        "mind-controller",
        "mind-ctl",
        "netns-setup",
    ] {
        let path = system.path(&format!("usr/bin/{program}"));
        let version = stdout(Command::new(&path).arg("--version"))?;
        assert_eq!(version.trim(), format!("{program} {VERSION}"));
        let sections = stdout(
            Command::new("readelf")
                .args(["--section-headers", "--wide"])
                .arg(path),
        )?;
        ensure!(
            !sections.contains(".debug_info"),
            "{program} is installed with what only debuggers need"
        );
    }
    let unit = "mind-controller.service";
    let enabled = system.path(ENABLED).join(unit);
    ensure!(
        enabled.symlink_metadata().is_err(),
        "a unit is enabled without an operator's doing"
    );
    // As `systemctl enable` does it.
    symlink(format!("/usr/lib/systemd/system/{unit}"), &enabled)?;

    let untouched = system.configuration("mind-controller");
    let shipped = fs::read_to_string(&untouched)?;
    // As installed, a daemon says what it has to be told, and where; with that, it takes its configuration.
    for daemon in DAEMONS {
        let (name, _) = daemon;
        let text = said(&system.run(daemon, &[])?);
        ensure!(
            text.contains("required") && text.contains(&format!("{name}.toml")),
            "{text}"
        );
        system.configure(name)?;
        let output = system.run(daemon, &["--check-config"])?;
        ensure!(output.status.success(), "{name}: {}", said(&output));
    }
    let compute = DAEMONS[1];
    let output = system.run(compute, &["--interface", "mind-none0"])?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    ensure!(said(&output).contains("mind-none0"), "{}", said(&output));

    // The operator's files stay through an upgrade that brings others; a file that was not touched is the new one.
    let configured = system.configuration(compute.0);
    let own = fs::read_to_string(&configured)?;
    fs::write(&untouched, shipped)?;
    let second = successor(&first, folder.path())?;
    system.dpkg(
        &["--force-confdef", "--force-confold", "--install"],
        Some(&second),
    )?;
    assert_eq!(system.state()?, format!("ii {VERSION}-2"));
    assert_eq!(fs::read_to_string(&configured)?, own);
    ensure!(
        fs::read_to_string(&untouched)?.ends_with(OF_SECOND),
        "the new file did not come"
    );

    system.dpkg(&["--remove", "mind"], None)?;
    assert_eq!(system.state()?, format!("rc {VERSION}-2"));
    ensure!(
        !system.path("usr/bin/mind-ctl").exists(),
        "a removed program is still there"
    );
    assert_eq!(fs::read_to_string(&configured)?, own);
    system.dpkg(&["--purge", "mind"], None)?;
    ensure!(
        system.state().is_err(),
        "dpkg knows a package that was purged"
    );
    assert_eq!(system.files()?, before);
    Ok(())
}

#[test]
fn the_units_are_what_systemd_takes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("skipped: there is no systemd-analyze");
        return Ok(());
    }
    let Some(package) = package(&folder.path().join("made"))? else {
        return Ok(());
    };
    let root = folder.path().join("root");
    stdout(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    for (name, _) in DAEMONS {
        let unit = root.join(format!("usr/lib/systemd/system/{name}.service"));
        let text = fs::read_to_string(&unit)?;
        ensure!(
            !text.contains('@'),
            "a placeholder is left in {name}: {text}"
        );
        let start = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let program = start
            .and_then(|line| line.split(' ').next())
            .context("no program")?;
        let installed = root.join(program.trim_start_matches('/'));
        ensure!(
            installed.is_file(),
            "{name} runs {program}, which is not installed"
        );
        // It looks for the program on this system.
        let local = folder.path().join(format!("{name}.service"));
        fs::write(
            &local,
            text.replace(program, &installed.display().to_string()),
        )?;
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&local)
            .output()?;
        let text = said(&output);
        if !output.status.success() || text.contains(name) {
            bail!("{name}: {text}");
        }
    }
    Ok(())
}
