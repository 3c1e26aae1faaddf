//! Network namespaces: made, listed, entered, removed. Kept as `ip netns` keeps them, by a mount in `/run/netns`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Error, Result};
use crate::plan::PREFIX;

/// Where the namespaces are mounted.
const FOLDER: &str = "/run/netns";

/// The mount that keeps a namespace.
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Makes a namespace without IPv6, whose packets would only disturb.
///
/// # Errors
///
/// When it cannot be made; then nothing is left of it.
pub fn create(name: &str) -> Result<()> {
    let path = path(name);
    fs::create_dir_all(FOLDER).map_err(Error::io("create the folder", Path::new(FOLDER)))?;
    File::create_new(&path).map_err(Error::io("create", &path))?;
    let made = on_own_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(Error::io("make the namespace", &path))?;
        disable_ipv6()?;
        let own = Path::new("/proc/thread-self/ns/net");
        mount(
            Some(own),
            &path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .map_err(Error::io("mount the namespace", &path))
    });
    if made.is_err() {
        fs::remove_file(&path).ok();
    }
    made
}

/// In the namespace of this thread.
fn disable_ipv6() -> Result<()> {
    for interfaces in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
        match fs::write(&path, "1") {
            // A kernel without it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(Error::io("disable IPv6 by", Path::new(&path)))?,
        }
    }
    Ok(())
}

/// Removes a namespace: it is gone from here at once, and from the kernel when its last process is.
///
/// # Errors
///
/// When its mount or its file stays.
pub fn remove(name: &str) -> Result<()> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // Half made: the file is there, the mount is not.
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
        Err(error) => return Err(Error::io("unmount", &path)(error)),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", &path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the folder of namespaces if it holds none.
pub fn remove_empty_folder() {
    // It stays while other people's namespaces are in it.
    fs::remove_dir(FOLDER).ok();
}

/// The testbed's namespaces that are here, or what is left of them.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn list() -> Result<BTreeSet<String>> {
    let folder = Path::new(FOLDER);
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        result => result.map_err(Error::io("list", folder))?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        if let Ok(name) = entry.file_name().into_string()
            && name.starts_with(PREFIX)
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// The number by which the kernel knows the namespace, as in `/proc/PID/ns/net`; `None` if it is not there.
pub fn id(name: &str) -> Option<u64> {
    fs::metadata(path(name)).ok().map(|metadata| metadata.ino())
}

/// Runs `work` on a thread in the namespace. Sockets that it opens and processes that it starts stay there.
///
/// # Errors
///
/// When the namespace cannot be entered, and those of `work`.
pub fn within<T: Send, E: From<Error> + Send>(
    name: &str,
    work: impl FnOnce() -> std::result::Result<T, E> + Send,
) -> std::result::Result<T, E> {
    on_own_thread(|| {
        join(name)?;
        work()
    })
}

/// Starts `command` in the namespace, with a `/sys` that shows it.
///
/// # Errors
///
/// When the namespace cannot be entered or the program not be started.
pub fn spawn(name: &str, command: &mut Command) -> Result<Child> {
    on_own_thread(|| {
        enter(name)?;
        let program = PathBuf::from(command.get_program());
        command.spawn().map_err(Error::io("start", &program))
    })
}

/// Moves the calling thread, and what it executes, into the namespace, with a `/sys` that shows it.
///
/// # Errors
///
/// When the namespace cannot be entered or its `/sys` not be mounted.
pub fn enter(name: &str) -> Result<()> {
    let sys = Path::new("/sys");
    join(name)?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(Error::io("make a mount namespace for", sys))?;
    // Mounts outside appear here; not the other way round.
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, slave, None::<&str>)
        .map_err(Error::io("separate the mounts of", Path::new("/")))?;
    mount(
        Some("sysfs"),
        sys,
        Some("sysfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(Error::io("mount", sys))
}

fn join(name: &str) -> Result<()> {
    let path = path(name);
    let file = File::open(&path).map_err(Error::io("open the namespace", &path))?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(Error::io("enter the namespace", &path))
}

/// A thread's namespace is its own: whatever `work` does to it ends with the thread.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
