//! The eBPF object of benches and tests: loading it, by itself or beside a switch whose slots it shares.

use std::{
    ffi::CString,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::{Error, Result, maps::Maps};

/// The object that `cargo xtask build` built.
pub(super) static OBJECT: &[u8] = include_bytes_aligned!(env!("MIND_EBPF_HARNESS_OBJECT"));

/// The map that the switch and the object's programs share.
const SLOTS: &str = "SLOTS";

/// Loads the object, its maps as large as `sizes` says and else with the one entry that the object gives them.
pub(super) fn load(sizes: &[(&'static str, u32)]) -> Result<Ebpf> {
    load_with(&mut EbpfLoader::new(), sizes)
}

/// The same; its slots are those of the switch whose maps these are.
pub(super) fn load_beside(switch: &Maps) -> Result<Ebpf> {
    // The loader finds a map of another object by its pin only.
    let pins = Pins::new()?;
    let path = pins.folder.join(SLOTS);
    switch.pin_one(SLOTS, &path)?;
    load_with(EbpfLoader::new().map_pin_path(SLOTS, path.as_path()), &[])
}

fn load_with(loader: &mut EbpfLoader<'_>, sizes: &[(&'static str, u32)]) -> Result<Ebpf> {
    for &(name, entries) in sizes {
        loader.map_max_entries(name, entries);
    }
    loader
        .load(OBJECT)
        .map_err(|source| Error::Load(Box::new(source)))
}

/// A BPF file system of this value's own, which goes with it.
struct Pins {
    folder: PathBuf,
}

impl Pins {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mind-harness-{}", std::process::id()));
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
