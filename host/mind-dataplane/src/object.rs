//! The eBPF object inside this library, and loading it.

use std::path::Path;

use aya::{
    Ebpf, EbpfLoader, include_bytes_aligned,
    programs::{SchedClassifier, Xdp},
};
use aya_obj::programs::XdpAttachType;

use crate::{Error, Result};

/// The object that `cargo xtask build` built.
static OBJECT: &[u8] = include_bytes_aligned!(env!("MIND_EBPF_OBJECT"));

/// Programs of the object.
pub(crate) mod program {
    /// The switch, XDP.
    pub(crate) const SWITCH: &str = "mind_switch";
    /// The switch, TC.
    pub(crate) const FAN_OUT: &str = "mind_fan_out";
    /// A memory blade, XDP.
    pub(crate) const RESPONDER: &str = "mind_responder";
}

/// Loads the object, its maps as large as `sizes` says and else with the one entry that the object
/// gives them. Programs are loaded one by one, when they are needed.
pub(crate) fn load(
    sizes: &[(&'static str, u32)],
    tries: u32,
    log_verdicts: bool,
    lose_on_purpose: bool,
) -> Result<Ebpf> {
    let mut loader = EbpfLoader::new();
    for &(name, entries) in sizes {
        loader.map_max_entries(name, entries);
    }
    let (log, lose) = (u8::from(log_verdicts), u8::from(lose_on_purpose));
    loader.override_global("LOG_VERDICTS", &log, true);
    loader.override_global("LOSE_ON_PURPOSE", &lose, true);
    loader.override_global("TRIES", &tries, true);
    loader
        .load(OBJECT)
        .map_err(|source| Error::Load(Box::new(source)))
}

/// The XDP program `name` of the object, loaded.
pub(crate) fn xdp<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp> {
    let program: &mut Xdp = ebpf
        .program_mut(name)
        .ok_or(Error::Missing { name })?
        .try_into()
        .map_err(|source| Error::Program {
            name,
            source: Box::new(source),
        })?;
    if program.fd().is_err() {
        program.load().map_err(|source| Error::Program {
            name,
            source: Box::new(source),
        })?;
    }
    Ok(program)
}

/// The TC program `name` of the object, loaded.
pub(crate) fn classifier<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier> {
    let program: &mut SchedClassifier = ebpf
        .program_mut(name)
        .ok_or(Error::Missing { name })?
        .try_into()
        .map_err(|source| Error::Program {
            name,
            source: Box::new(source),
        })?;
    if program.fd().is_err() {
        program.load().map_err(|source| Error::Program {
            name,
            source: Box::new(source),
        })?;
    }
    Ok(program)
}

/// The XDP program pinned as `name` in `folder`.
pub(crate) fn pinned_xdp(folder: &Path, name: &'static str) -> Result<Xdp> {
    let path = folder.join(name);
    Xdp::from_pin(&path, XdpAttachType::Interface).map_err(|error| Error::Pin {
        action: "open the program pinned at",
        path,
        reason: error.to_string(),
    })
}

/// The TC program pinned as `name` in `folder`.
pub(crate) fn pinned_classifier(folder: &Path, name: &'static str) -> Result<SchedClassifier> {
    let path = folder.join(name);
    SchedClassifier::from_pin(&path).map_err(|error| Error::Pin {
        action: "open the program pinned at",
        path,
        reason: error.to_string(),
    })
}

/// Makes `folder`, if it is not there.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::Pin {
        action: "create the folder",
        path: folder.to_owned(),
        reason: error.to_string(),
    })
}

/// Pins what `pin` pins as `name` in `folder`.
pub(crate) fn pin(
    folder: &Path,
    name: &str,
    pin: impl FnOnce(&Path) -> Result<(), aya::pin::PinError>,
) -> Result<()> {
    let path = folder.join(name);
    pin(&path).map_err(|error| Error::Pin {
        action: "pin",
        path,
        reason: error.to_string(),
    })
}

/// Removes the pins `names` in `folder`, as far as they are there, and the folder if it is empty
/// then.
pub(crate) fn unpin(folder: &Path, names: impl IntoIterator<Item = &'static str>) -> Result<()> {
    remove_pins(folder, names)?;
    // Links of ports that are still attached keep the folder; it is removed with the last one.
    let _ = std::fs::remove_dir(folder);
    Ok(())
}

/// Removes the pins `names` in `folder`, as far as they are there.
pub(crate) fn remove_pins(
    folder: &Path,
    names: impl IntoIterator<Item = &'static str>,
) -> Result<()> {
    for name in names {
        let path = folder.join(name);
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Error::Pin {
                    action: "remove",
                    path,
                    reason: error.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// The object's SHA-256, in hexadecimal: two objects of one digest have the same programs and maps.
pub fn digest() -> String {
    use sha2::{Digest as _, Sha256};
    let bytes = Sha256::digest(OBJECT);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of what its maps are, in hexadecimal: two objects of one layout can take over each other's maps. Sizes of
/// keys and values, and [`LAYOUT`](mind_common::table::LAYOUT) for what sizes do not say.
///
/// # Errors
///
/// When the object cannot be read.
pub fn layout() -> Result<String> {
    use sha2::{Digest as _, Sha256};
    let object =
        aya_obj::Object::parse(OBJECT).map_err(|error| Error::Load(Box::new(error.into())))?;
    let maps = object
        .maps
        .iter()
        .filter(|(name, _)| !name.starts_with('.'));
    let mut lines: Vec<_> = maps
        .map(|(name, map)| {
            let (kind, key, value) = (map.map_type(), map.key_size(), map.value_size());
            format!("{name} {kind} {key} {value}\n")
        })
        .collect();
    lines.sort();
    let text = format!("{}\n{}", mind_common::table::LAYOUT, lines.concat());
    let bytes = Sha256::digest(text);
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The object's bytes, for tests that look into it.
#[cfg(feature = "harness")]
pub fn bytes() -> &'static [u8] {
    OBJECT
}
