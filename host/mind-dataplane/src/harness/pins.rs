//! A BPF file system for tests that pin something.

use std::{
    ffi::CString,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{Error, Result};

/// A BPF file system of this value's own, which goes with it.
pub struct Pins {
    folder: PathBuf,
}

impl Pins {
    /// Mounts one.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, which it does without root.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mind-harness-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let failed = |action| {
            let path = folder.clone();
            move |error: io::Error| Error::Pin {
                action,
                path,
                reason: error.to_string(),
            }
        };
        std::fs::create_dir_all(&folder).map_err(failed("create the folder"))?;
        mount(&folder).map_err(failed("mount a BPF file system at"))?;
        Ok(Self { folder })
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Ok(path) = c_path(&self.folder) {
            // SAFETY: a path that ends in zero and lives through the call.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn mount(folder: &Path) -> io::Result<()> {
    let path = c_path(folder)?;
    // SAFETY: strings that end in zero and live through the call; this file system takes no data.
    let mounted = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            path.as_ptr(),
            c"bpf".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    match mounted {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
