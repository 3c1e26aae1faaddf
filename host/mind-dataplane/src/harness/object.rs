//! The eBPF object of benches and tests: loading it, by itself or beside a switch whose slots it shares.

use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use super::Pins;
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
    let path = pins.folder().join(SLOTS);
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
