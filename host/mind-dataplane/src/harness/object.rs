//! The eBPF object of benches and tests: loading it, by itself or beside a switch and a memory blade whose maps it
//! shares.

use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use super::Pins;
use crate::{Error, Result, maps::Maps};

/// The object that `cargo xtask build` built.
pub(super) static OBJECT: &[u8] = include_bytes_aligned!(env!("MIND_EBPF_HARNESS_OBJECT"));

/// The switch's maps that the object's programs use as well.
const OF_SWITCH: [&str; 4] = ["DEVICES", "SLOTS", "TABLES", "FREE"];
/// A memory blade's.
const OF_RESPONDER: [&str; 1] = ["TAGS"];

/// Loads the object, its maps as large as `sizes` says and else with the one entry that the object gives them.
pub(super) fn load(sizes: &[(&'static str, u32)]) -> Result<Ebpf> {
    let mut loader = EbpfLoader::new();
    for &(name, entries) in sizes {
        loader.map_max_entries(name, entries);
    }
    load_with(&mut loader)
}

/// Loads the object. What its programs change beside the frame, and where they redirect it to, are maps of this switch and
/// of this memory blade.
pub(super) fn load_beside(switch: &Maps, responder: &Maps) -> Result<Ebpf> {
    // The loader finds a map of another object by its pin only.
    let pins = Pins::new()?;
    let of_switch = OF_SWITCH.map(|name| (switch, name));
    let of_responder = OF_RESPONDER.map(|name| (responder, name));
    let mut paths = Vec::new();
    for (maps, name) in of_switch.into_iter().chain(of_responder) {
        let path = pins.folder().join(name);
        maps.pin_one(name, &path)?;
        paths.push((name, path));
    }
    let mut loader = EbpfLoader::new();
    for (name, path) in &paths {
        loader.map_pin_path(name, path.as_path());
    }
    load_with(&mut loader)
}

fn load_with(loader: &mut EbpfLoader<'_>) -> Result<Ebpf> {
    loader
        .load(OBJECT)
        .map_err(|source| Error::Load(Box::new(source)))
}
