//! Debian's kernels: which one a version means, how apt fetches it, where it lies unpacked. The machine's own apt
//! configuration, package lists and installed kernels stay as they are.

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::workspace;

/// The suites whose kernels can be had: Debian 12's backport, and the newest that Debian backports.
const SUITES: &[&str] = &["bookworm-backports", "trixie-backports"];

/// Signs the archives of all suites.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const IMAGE: &str = "linux-image-";
const FLAVOUR: &str = "-amd64";

/// Which kernel is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The one with the highest version.
    Newest,
    /// The highest version that begins with these numbers.
    Series(Vec<u32>),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "newest" {
            return Ok(Self::Newest);
        }
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        numbers.map(Self::Series).map_err(|_| {
            format!("`{text}` is no kernel version; expected `newest` or numbers such as 6.12 or 6.12.95")
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("newest"),
            Self::Series(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
                f.write_str(&numbers.join("."))
            }
        }
    }
}

impl Wanted {
    fn matches(&self, release: &str) -> bool {
        match self {
            Self::Newest => true,
            Self::Series(numbers) => version_of(release).starts_with(numbers),
        }
    }

    /// The highest of `releases` that is meant.
    fn choose<'a>(&self, releases: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        releases
            .into_iter()
            .filter(|release| self.matches(release))
            .max_by(|a, b| compare(a, b))
    }
}

/// An unpacked kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What `uname -r` says on it.
    pub(crate) release: String,
    /// The bootable image.
    pub(crate) image: PathBuf,
    /// The folder with its modules and `modules.dep`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// Major and minor number, as in `6.12`.
    pub(crate) fn series(&self) -> String {
        let version = version_of(&self.release);
        let numbers: Vec<_> = version.iter().take(2).map(u32::to_string).collect();
        numbers.join(".")
    }
}

/// The kernel that `wanted` means: one that is here, or else (and always with `update`) the best that apt knows.
pub(crate) fn get(wanted: &Wanted, update: bool) -> Result<Kernel> {
    if std::env::consts::ARCH != "x86_64" {
        bail!(
            "`cargo xtask vm` boots Debian's amd64 kernels; this machine is {}",
            std::env::consts::ARCH
        );
    }
    let folder = folder().join("kernels");
    if !update {
        let here = unpacked(&folder);
        let meant = match wanted {
            // The highest here need not be the highest there is: only apt's last answer counts.
            Wanted::Newest => fs::read_to_string(newest()).ok(),
            Wanted::Series(_) => wanted
                .choose(here.iter().map(String::as_str))
                .map(str::to_owned),
        };
        if let Some(release) = meant.filter(|release| here.contains(release)) {
            return open(&folder.join(&release), &release);
        }
    }
    let kernel = fetch(wanted, &folder)?;
    if *wanted == Wanted::Newest {
        let path = newest();
        fs::write(&path, &kernel.release)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(kernel)
}

/// The file that names what was the newest release when apt was asked last.
fn newest() -> PathBuf {
    folder().join("newest")
}

/// Where everything of the virtual machines lies.
pub(crate) fn folder() -> PathBuf {
    workspace::target().join("vm")
}

/// The releases that lie unpacked in `folder`. A download that was cut off has another name.
fn unpacked(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

fn open(root: &Path, release: &str) -> Result<Kernel> {
    let modules = ["lib/modules", "usr/lib/modules"]
        .map(|place| root.join(place).join(release))
        .into_iter()
        .find(|path| path.is_dir())
        .with_context(|| format!("{} holds no modules of {release}", root.display()))?;
    let image = [
        root.join("boot").join(format!("vmlinuz-{release}")),
        modules.join("vmlinuz"),
        root.join("usr/lib/linux").join(release).join("vmlinuz"),
    ]
    .into_iter()
    .find(|path| path.is_file())
    .with_context(|| format!("{} holds no vmlinuz of {release}", root.display()))?;
    Ok(Kernel {
        release: release.to_owned(),
        image,
        modules,
    })
}

/// Downloads and unpacks with package lists of its own.
fn fetch(wanted: &Wanted, folder: &Path) -> Result<Kernel> {
    if !process::program_exists("apt-get") || !process::program_exists("dpkg-deb") {
        bail!(
            "kernel {wanted} is not in {}, and without apt-get and dpkg-deb it cannot be fetched; \
             unpack Debian's linux-image-*{FLAVOUR} there, in a folder named as `uname -r`",
            folder.display()
        );
    }
    let apt = Apt::new(&self::folder().join("apt"))?;
    process::step(format_args!(
        "looking for kernel {wanted} in {}",
        SUITES.join(" and ")
    ));
    apt.update()?;
    let names = process::output(apt.cache().args(["pkgnames", IMAGE]))?;
    let releases: Vec<_> = names.lines().filter_map(release_of_package).collect();
    let release = wanted
        .choose(releases.iter().copied())
        .with_context(|| no_such_kernel(wanted, &releases))?;

    let root = folder.join(release);
    if !root.is_dir() {
        let part = folder.join(format!(".{release}.{}", std::process::id()));
        let result = apt.unpack(&format!("{IMAGE}{release}"), &part);
        if let Err(error) = result {
            fs::remove_dir_all(&part).ok();
            return Err(error);
        }
        run_depmod(&part, release)?;
        fs::rename(&part, &root)
            .with_context(|| format!("cannot move {} to {}", part.display(), root.display()))?;
    }
    open(&root, release)
}

fn no_such_kernel(wanted: &Wanted, releases: &[&str]) -> String {
    let mut releases = releases.to_vec();
    releases.sort_by(|a, b| compare(a, b));
    format!(
        "no kernel {wanted} in {}; there are: {}",
        SUITES.join(" and "),
        releases.join(", ")
    )
}

/// Writes `modules.dep`, which Debian's package leaves to its installation.
fn run_depmod(root: &Path, release: &str) -> Result<()> {
    let modules = open(root, release)?.modules;
    let base = modules
        .ancestors()
        .nth(3)
        .context("the folder of modules lies too high")?;
    let mut depmod = Command::new("depmod");
    // Debian's users find it, root's path or not.
    depmod.env(
        "PATH",
        process::path_with_first(&[Path::new("/usr/sbin"), Path::new("/sbin")])?,
    );
    process::run(depmod.arg("-b").arg(base).arg(release))
        .with_context(|| format!("cannot list the modules of {release}"))
}

/// apt with a state of its own.
struct Apt {
    state: PathBuf,
}

impl Apt {
    fn new(state: &Path) -> Result<Self> {
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = state.join(folder);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        let mirror = machines_mirror()?;
        let sources: String = SUITES
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"))
            .collect();
        let list = state.join("sources.list");
        fs::write(&list, sources).with_context(|| format!("cannot write {}", list.display()))?;
        Ok(Self {
            state: state.to_owned(),
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, value) in [
            ("Dir::Etc::sourcelist", self.state.join("sources.list")),
            ("Dir::Etc::sourceparts", PathBuf::from("-")),
            ("Dir::State::lists", self.state.join("lists")),
            ("Dir::Cache", self.state.join("cache")),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        // apt's own unprivileged user cannot read a checkout in a user's home.
        command.args(["-q", "-o", "APT::Sandbox::User=root"]);
        command
    }

    fn cache(&self) -> Command {
        self.command("apt-cache")
    }

    fn update(&self) -> Result<()> {
        process::run_logged(
            self.command("apt-get").arg("update"),
            &workspace::log("vm-apt-update"),
        )
        .context("cannot fetch the package lists of Debian's backports")
    }

    /// Downloads `image` and what the kernel consists of besides, and unpacks all into `root`.
    fn unpack(&self, image: &str, root: &Path) -> Result<()> {
        let downloads = root.join("packages");
        fs::create_dir_all(&downloads)
            .with_context(|| format!("cannot create the folder {}", downloads.display()))?;
        let packages = self.parts(image)?;
        process::step(format_args!(
            "downloading {}, about 100 MB",
            packages.join(", ")
        ));
        process::run_logged(
            self.command("apt-get")
                .arg("download")
                .args(&packages)
                .current_dir(&downloads),
            &workspace::log("vm-apt-download"),
        )
        .with_context(|| format!("cannot download {}", packages.join(", ")))?;
        for entry in downloads
            .read_dir()
            .with_context(|| format!("cannot list {}", downloads.display()))?
        {
            let package = entry.context("cannot list the downloaded packages")?.path();
            process::run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(root))?;
        }
        fs::remove_dir_all(&downloads)
            .with_context(|| format!("cannot remove {}", downloads.display()))
    }

    /// `image` and the packages of image and modules that it depends on: one package up to 6.x, several since.
    fn parts(&self, image: &str) -> Result<Vec<String>> {
        let mut parts = vec![image.to_owned()];
        let mut next = 0;
        while next < parts.len() {
            let text = process::output(self.cache().args([
                "depends",
                "--no-recommends",
                "--no-suggests",
                &parts[next],
            ]))?;
            for name in kernel_parts(&text) {
                if !parts.iter().any(|part| part == name) {
                    parts.push(name.to_owned());
                }
            }
            next += 1;
        }
        Ok(parts)
    }
}

/// The packages that a kernel consists of, out of what `apt-cache depends` says.
fn kernel_parts(text: &str) -> impl Iterator<Item = &str> {
    const PARTS: &[&str] = &[IMAGE, "linux-binary-", "linux-modules-"];
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| {
            PARTS.iter().any(|part| {
                name.strip_prefix(part)
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            })
        })
}

/// The release in the name of an image's package; `None` for meta-packages and special builds.
fn release_of_package(name: &str) -> Option<&str> {
    let release = name.strip_prefix(IMAGE)?;
    let version = release.strip_suffix(FLAVOUR)?;
    let plain = version.starts_with(|c: char| c.is_ascii_digit())
        && !["-rt", "-cloud"].iter().any(|word| version.ends_with(word));
    plain.then_some(release)
}

/// The leading numbers of a release.
fn version_of(release: &str) -> Vec<u32> {
    let numbers = release
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()
        .unwrap_or_default();
    numbers.split('.').map_while(|n| n.parse().ok()).collect()
}

fn compare(a: &str, b: &str) -> Ordering {
    (version_of(a), a).cmp(&(version_of(b), b))
}

/// The Debian mirror that this machine uses.
fn machines_mirror() -> Result<String> {
    const PLACES: &[&str] = &[
        "/etc/apt/sources.list.d/debian.sources",
        "/etc/apt/sources.list",
    ];
    PLACES
        .iter()
        .filter_map(|place| fs::read_to_string(place).ok())
        .find_map(|text| mirror_in(&text).map(str::to_owned))
        .with_context(|| format!("no Debian mirror in {}", PLACES.join(" or ")))
}

/// The first mirror of a file of apt sources, in either of its two forms.
fn mirror_in(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let uris = line
            .strip_prefix("URIs:")
            .or_else(|| line.strip_prefix("deb "))?;
        uris.split_whitespace()
            .find(|word| word.starts_with("http://") || word.starts_with("https://"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASES: &[&str] = &[
        "6.12.9+deb12-amd64",
        "6.12.95+deb12-amd64",
        "7.3.4+deb13-amd64",
        "7.3.12+deb13-amd64",
    ];

    fn choose(wanted: &str) -> Option<&'static str> {
        let wanted: Wanted = wanted.parse().unwrap();
        wanted.choose(RELEASES.iter().copied())
    }

    #[test]
    fn a_series_means_its_highest_version_by_number() {
        assert_eq!(choose("6.12"), Some("6.12.95+deb12-amd64"));
        assert_eq!(choose("7"), Some("7.3.12+deb13-amd64"));
        assert_eq!(choose("newest"), Some("7.3.12+deb13-amd64"));
    }

    #[test]
    fn a_series_is_not_a_prefix_of_letters() {
        assert_eq!(choose("6.12.9"), Some("6.12.9+deb12-amd64"));
        assert_eq!(choose("6.1"), None);
    }

    #[test]
    fn a_kernel_that_is_not_there_is_answered_with_those_that_are() {
        let text = no_such_kernel(&Wanted::Series(vec![5, 10]), RELEASES);
        assert!(
            text.contains("no kernel 5.10 in bookworm-backports"),
            "{text}"
        );
        assert!(
            text.ends_with("7.3.4+deb13-amd64, 7.3.12+deb13-amd64"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_version_is_refused_with_what_was_expected() {
        let error = "6.x".parse::<Wanted>().unwrap_err();
        assert!(
            error.contains("`6.x`") && error.contains("newest"),
            "{error}"
        );
    }

    #[test]
    fn only_plain_images_count() {
        assert_eq!(
            release_of_package("linux-image-6.12.95+deb12-amd64"),
            Some("6.12.95+deb12-amd64")
        );
        for name in [
            "linux-image-amd64",
            "linux-image-6.12.95+deb12-rt-amd64",
            "linux-image-6.12.95+deb12-cloud-amd64",
            "linux-image-6.12.95+deb12-amd64-unsigned",
            "linux-image-6.12.95+deb12-amd64-dbg",
            "linux-image-rt-amd64",
        ] {
            assert_eq!(release_of_package(name), None, "{name}");
        }
    }

    #[test]
    fn a_kernel_consists_of_its_own_packages_only() {
        let text = "linux-image-7.3.4+deb13-amd64\n  Depends: linux-binary-7.3.4+deb13-amd64\n  \
                    Depends: linux-modules-7.3.4+deb13-amd64\n  Depends: kmod\n  Depends: linux-base\n \
                    |Depends: initramfs-tools\n";
        let parts: Vec<_> = kernel_parts(text).collect();
        assert_eq!(
            parts,
            [
                "linux-binary-7.3.4+deb13-amd64",
                "linux-modules-7.3.4+deb13-amd64"
            ]
        );
    }

    #[test]
    fn the_mirror_is_found_in_both_forms_of_sources() {
        let new = "Types: deb\n# http://old.example/debian\nURIs: http://mirror.example/debian\nSuites: bookworm\n";
        assert_eq!(mirror_in(new), Some("http://mirror.example/debian"));
        let old = "# deb http://no.example/ x\ndeb [signed-by=/k] https://mirror.example/debian bookworm main\n";
        assert_eq!(mirror_in(old), Some("https://mirror.example/debian"));
        assert_eq!(mirror_in("deb cdrom:[x]/ bookworm main\n"), None);
    }
}
