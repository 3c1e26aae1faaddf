//! Attaching the programs to interfaces, with links that are pinned and so outlive the process.
//!
//! The order matters. What XDP passes up without a TC program behind it reaches the bridge, which
//! floods it to all ports; so TC is attached first, then XDP, and only then may the port pass
//! anything up ([`PORT_FANS_OUT`](mind_common::table::PORT_FANS_OUT)). Detaching goes backwards.
//!
//! XDP is attached natively or not at all: generic XDP has no frames of several buffers.

use std::{
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
};

use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode,
    links::{FdLink, LinkError, PinnedLink},
    tc::{SchedClassifierLink, TcAttachOptions},
    xdp::XdpLink,
};

use crate::{
    Error, Responder, Result, Switch,
    object::{pinned_classifier, pinned_xdp, program},
};

/// What often helps where native XDP is refused.
const XDP_HINT: &str = " (native XDP with frames of 9000 bytes: the driver must have multi-buffer XDP, and no other XDP \
                        program may be attached)";
/// What often helps where tcx is refused.
const TC_HINT: &str = " (tcx takes Linux 6.6 or newer)";

/// The index of the interface called `name` in this network namespace.
///
/// # Errors
///
/// [`Error::Interface`] when there is none.
pub fn index_of(name: &str) -> Result<u32> {
    let missing = |source| Error::Interface {
        name: name.to_owned(),
        source,
    };
    let text =
        CString::new(name).map_err(|_| missing(io::Error::from(io::ErrorKind::InvalidInput)))?;
    // SAFETY: a string that ends in zero and lives through the call.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(missing(io::Error::last_os_error())),
        index => Ok(index),
    }
}

/// What copies a packet for several blades that comes in at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// The switch itself, by its TC program.
    Switch,
    /// The controller, which reads it from a ring buffer ([`Copies`](crate::Copies)).
    Controller,
}

/// Attaches the switch to the port `interface`, and pins the links in `folder`. Call
/// [`Switch::set_port`] first, which says what is behind the port.
///
/// # Errors
///
/// When the interface is missing or the driver refuses; then nothing stays attached. [`Error::is_of_fan_out`] says
/// whether it is tcx that is refused, so that [`FanOut::Controller`] may work.
pub fn attach_port(
    switch: &mut Switch,
    interface: &str,
    folder: &Path,
    fan_out: FanOut,
) -> Result<()> {
    let ifindex = index_of(interface)?;
    if fan_out == FanOut::Switch {
        attach_fan_out(switch.fan_out()?, interface, folder)?;
    }
    let attached =
        attach_xdp(switch.xdp()?, program::SWITCH, interface, folder).and_then(
            |()| match fan_out {
                FanOut::Switch => switch.set_fans_out(ifindex, true),
                FanOut::Controller => switch.set_hands_over(ifindex, true),
            },
        );
    if attached.is_err() {
        // The first error is the one to report.
        let _ = detach_port(switch, interface, folder);
    }
    attached
}

/// Detaches the switch from the port `interface`, whose links are pinned in `folder`; as far as
/// it is attached.
///
/// # Errors
///
/// When a link is there and cannot be removed.
pub fn detach_port(switch: &mut Switch, interface: &str, folder: &Path) -> Result<()> {
    // An interface that is gone took its links along; its pins are still to be removed.
    if let Ok(ifindex) = index_of(interface) {
        switch.set_fans_out(ifindex, false)?;
        switch.set_hands_over(ifindex, false)?;
    }
    detach_links(interface, folder)
}

/// The same for links whose maps are of another build: XDP is detached first, so that nothing is passed up to TC any
/// more.
///
/// # Errors
///
/// As of [`detach_port`].
pub fn detach_links(interface: &str, folder: &Path) -> Result<()> {
    remove(&link(folder, interface, program::SWITCH))?;
    remove(&link(folder, interface, program::FAN_OUT))
}

/// Whether the switch's programs are attached to the port `interface`, by links that are pinned in `folder`: XDP, and
/// TC where the port's entry says so. Otherwise returns which is not, and why.
///
/// # Errors
///
/// When the kernel does not say which programs the switch's are.
pub fn check_port(
    switch: &mut Switch,
    interface: &str,
    folder: &Path,
) -> Result<Result<(), String>> {
    let unknown = |name| {
        move |source| Error::Program {
            name,
            source: Box::new(source),
        }
    };
    let xdp = switch.xdp()?.info().map_err(unknown(program::SWITCH))?.id();
    let fan_out = switch.fan_out()?.info();
    let fan_out = fan_out.map_err(unknown(program::FAN_OUT))?.id();
    let fans_out = match index_of(interface) {
        Ok(ifindex) => switch.port(ifindex)?.fans_out(),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let fan_out = fans_out.then_some((program::FAN_OUT, fan_out));
    for (name, id) in [(program::SWITCH, xdp)].into_iter().chain(fan_out) {
        let path = link(folder, interface, name);
        let info = PinnedLink::from_pin(&path).and_then(|link| FdLink::from(link).info());
        match info {
            Ok(info) if info.program_id() == id => {}
            Ok(info) => {
                let other = info.program_id();
                return Ok(Err(format!(
                    "the link pinned at {} is of program {other}, not {id} ({name})",
                    path.display()
                )));
            }
            Err(error) => {
                return Ok(Err(format!(
                    "{name} has no link pinned at {}: {error}",
                    path.display()
                )));
            }
        }
    }
    Ok(Ok(()))
}

/// Has all links of ports that are pinned in `folder` lead to the programs pinned in `programs`: the next packet that comes
/// finds those. A link of an interface that is gone is removed.
///
/// # Errors
///
/// When a program or link cannot be opened, and when the kernel refuses.
pub(crate) fn lead(folder: &Path, programs: &Path) -> Result<()> {
    let mut xdp = pinned_xdp(programs, program::SWITCH)?;
    let mut fan_out = pinned_classifier(programs, program::FAN_OUT)?;
    // What XDP passes up is for a TC program that knows the same tables: that one goes first.
    for path in links(folder, program::FAN_OUT)? {
        lead_one(&path, |link| {
            let link = SchedClassifierLink::try_from(link)?;
            Ok(fan_out.attach_to_link(link).map(drop))
        })?;
    }
    for path in links(folder, program::SWITCH)? {
        lead_one(&path, |link| {
            let link = XdpLink::try_from(link)?;
            Ok(xdp.attach_to_link(link).map(drop))
        })?;
    }
    Ok(())
}

fn lead_one(
    path: &Path,
    lead: impl FnOnce(FdLink) -> Result<Result<(), ProgramError>, LinkError>,
) -> Result<()> {
    let failed = |reason: String| Error::Pin {
        action: "lead to another program the link pinned at",
        path: path.to_owned(),
        reason,
    };
    let link = PinnedLink::from_pin(path).map_err(|error| failed(error.to_string()))?;
    match lead(link.into()).map_err(|error| failed(error.to_string()))? {
        Ok(()) => Ok(()),
        // The interface is gone, and the link leads nowhere.
        Err(ProgramError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOLINK) =>
        {
            remove(path)
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Where links of `program` are pinned in `folder`.
fn links(folder: &Path, program: &str) -> Result<Vec<PathBuf>> {
    let failed = |error: io::Error| Error::Pin {
        action: "list the folder",
        path: folder.to_owned(),
        reason: error.to_string(),
    };
    let mut links = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_its = name
            .strip_suffix(program)
            .is_some_and(|it| it.ends_with(':'));
        links.extend(is_its.then(|| entry.path()));
    }
    Ok(links)
}

/// Attaches the responder to `interface`, and pins the link in `folder`.
///
/// # Errors
///
/// When the interface is missing or the driver refuses.
pub fn attach_responder(responder: &mut Responder, interface: &str, folder: &Path) -> Result<()> {
    index_of(interface)?;
    attach_xdp(responder.xdp()?, program::RESPONDER, interface, folder)
}

/// Detaches the responder from `interface`, whose link is pinned in `folder`; if it is attached.
///
/// # Errors
///
/// When the link is there and cannot be removed.
pub fn detach_responder(interface: &str, folder: &Path) -> Result<()> {
    remove(&link(folder, interface, program::RESPONDER))
}

fn attach_xdp(program: &mut Xdp, name: &'static str, interface: &str, folder: &Path) -> Result<()> {
    let refused = |reason: String| Error::Attach {
        program: name,
        interface: interface.to_owned(),
        reason,
        hint: XDP_HINT,
    };
    let id = program
        .attach(interface, XdpMode::Driver)
        .map_err(|error| refused(error.to_string()))?;
    let owned = program
        .take_link(id)
        .map_err(|error| refused(error.to_string()))?;
    let owned = FdLink::try_from(owned).map_err(|error| refused(error.to_string()))?;
    pin(owned, link(folder, interface, name))
}

fn attach_fan_out(program: &mut SchedClassifier, interface: &str, folder: &Path) -> Result<()> {
    let refused = |reason: String| Error::Attach {
        program: program::FAN_OUT,
        interface: interface.to_owned(),
        reason,
        hint: TC_HINT,
    };
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let id = program
        .attach_with_options(interface, TcAttachType::Ingress, options)
        .map_err(|error| refused(error.to_string()))?;
    let owned = program
        .take_link(id)
        .map_err(|error| refused(error.to_string()))?;
    let owned = FdLink::try_from(owned).map_err(|error| refused(error.to_string()))?;
    pin(owned, link(folder, interface, program::FAN_OUT))
}

/// Where the link of `program` to `interface` is pinned.
fn link(folder: &Path, interface: &str, program: &str) -> PathBuf {
    folder.join(format!("{interface}:{program}"))
}

/// Pins a link; one that cannot be pinned is dropped, which detaches it.
fn pin(link: FdLink, path: PathBuf) -> Result<()> {
    match link.pin(&path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Pin {
            action: "pin",
            path,
            reason: error.to_string(),
        }),
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::Pin {
            action: "remove",
            path: path.to_owned(),
            reason: error.to_string(),
        }),
    }
}
