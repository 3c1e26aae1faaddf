//! The data plane as a controller begins and ends: loaded anew, or taken over as it is pinned, where an earlier
//! controller's records belong to it.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use mind_dataplane::{Switch, SwitchLimits, attach};
use mind_machines::controller::books::{
    domains::MAX_DOMAIN,
    records::{Key, Record},
};

use super::{
    Args, FanOut, fdb,
    store::{FORMAT, Owner, Store},
};

/// How many more interfaces than there are now the tables have room for: for ports that come later. Each takes the
/// counters of a port, half a KiB a processor.
const MORE_INTERFACES: u32 = 256;

/// A data plane that is pinned. Dropped, it goes, as does the file of records.
pub(super) struct Plane {
    ports: Vec<String>,
    folder: PathBuf,
    state: PathBuf,
    is_left: bool,
}

/// What a controller begins with.
pub(super) struct Begun {
    pub(super) plane: Plane,
    pub(super) switch: Switch,
    pub(super) store: Store,
    /// Whether there was one before, whose blades are to come back.
    pub(super) is_taken_over: bool,
}

impl Plane {
    /// Takes a data plane over, or loads one.
    ///
    /// # Errors
    ///
    /// When the one that is pinned, with records of who uses it, is another than is wanted; and when the kernel refuses.
    pub(super) fn begin(args: &Args, address: Ipv4Addr) -> Result<Begun> {
        let store = Store::open(&args.state)?;
        let wanted = owner(args, address)?;
        let known = store
            .owner()?
            .filter(|known| known.boot == wanted.boot && !args.fresh);
        let mut plane = Self {
            ports: args.ports.clone(),
            folder: args.pin.clone(),
            state: args.state.clone(),
            is_left: true,
        };
        let known = known.filter(|_| Switch::is_pinned(&args.pin));
        if let Some(known) = &known {
            // Before it is opened: what another build has pinned may lack maps that this one has.
            compare(known, &wanted, &args.pin)?;
        }
        if let Some(known) = known
            && let Ok(mut switch) = Switch::open(&args.pin)
        {
            plane.take_ports(args, &store, &known, &wanted, &mut switch)?;
            return Ok(Begun {
                plane,
                switch,
                store,
                is_taken_over: true,
            });
        }
        plane.is_left = false;
        // What a controller has left that kept no records.
        plane.detach();
        store.begin(&wanted)?;
        let switch = plane.load(args, address)?;
        Ok(Begun {
            plane,
            switch,
            store,
            is_taken_over: false,
        })
    }

    fn load(&self, args: &Args, address: Ipv4Addr) -> Result<Switch> {
        let mut highest = 0;
        for port in &args.ports {
            highest = highest.max(attach::index_of(port)?);
        }
        let limits = SwitchLimits {
            interfaces: highest + 1 + MORE_INTERFACES,
            domains: MAX_DOMAIN + 1,
            slots: args.slots.saturating_add(1),
            lose_on_purpose: args.lose_on_purpose,
            ..SwitchLimits::default()
        };
        let mut switch = Switch::load(&limits).context("cannot load the data plane")?;
        let mac = fdb::address_of(&args.bridge)?;
        switch.set_identity(address, mac)?;
        switch.pin(&args.pin)?;
        for port in &args.ports {
            attach(args.fan_out, &mut switch, port, &args.pin)?;
        }
        Ok(switch)
    }

    /// Attaches ports that are not as they should be, that came anew with their names, or that the controller before
    /// this one did not have; detaches those that it had and this one does not.
    ///
    /// # Errors
    ///
    /// When a blade that is here is behind a port that is not wanted any more; when an interface's index is beyond the
    /// tables; and when the kernel refuses.
    fn take_ports(
        &self,
        args: &Args,
        store: &Store,
        known: &Owner,
        wanted: &Owner,
        switch: &mut Switch,
    ) -> Result<()> {
        let is_left = |port: &&String| !wanted.ports.contains(port);
        let left: Vec<_> = known.ports.iter().filter(is_left).collect();
        are_vacant(&left, &store.records()?)?;
        // Whichever of both a controller that follows has, it finds those of the other.
        let mut both = wanted.clone();
        both.ports.extend(left.iter().copied().cloned());
        store.hand_over(&both)?;
        for port in left {
            tracing::info!(port, "it is no port of the switch any more");
            attach::detach_port(switch, port, &self.folder)?;
        }
        self.attach_again(args, switch)?;
        store.hand_over(wanted)
    }

    /// Ports that are not as they should be, or that came anew with their names.
    fn attach_again(&self, args: &Args, switch: &mut Switch) -> Result<()> {
        for port in &self.ports {
            let state = attach::check_port(switch, port, &self.folder).with_context(|| {
                format!(
                    "{port} cannot be a port of the data plane that is there: start with other ports, or with --fresh, \
                     which ends what blades do"
                )
            })?;
            let fans_out = switch.port(attach::index_of(port)?)?.fans_out();
            let is_wanted = fans_out == (args.fan_out == FanOut::Switch);
            if let Err(why) = &state {
                tracing::warn!(port, why, "a port is attached again");
            }
            if state.is_err() || !is_wanted {
                attach::detach_port(switch, port, &self.folder)?;
                attach(args.fan_out, switch, port, &self.folder)?;
            }
        }
        Ok(())
    }

    /// Leaves everything as it is.
    pub(super) fn leave(mut self) {
        self.is_left = true;
        tracing::info!(pins = %self.folder.display(), "the data plane goes on without a controller");
    }

    /// Detaches and unpins everything, and forgets who used it.
    pub(super) fn remove(mut self) {
        self.is_left = false;
    }

    fn detach(&self) {
        let report = |what: &Path, error: &dyn std::fmt::Display| {
            tracing::error!(what = %what.display(), %error, "part of the data plane stays");
        };
        let mut switch = Switch::open(&self.folder).ok();
        for port in &self.ports {
            let detached = match &mut switch {
                Some(switch) => attach::detach_port(switch, port, &self.folder),
                // Of another build, or in part.
                None => attach::detach_links(port, &self.folder),
            };
            if let Err(error) = detached {
                report(Path::new(port), &error);
            }
        }
        if let Err(error) = Switch::unpin(&self.folder) {
            report(&self.folder, &error);
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        self.detach();
        if let Err(error) = fs::remove_file(&self.state) {
            tracing::error!(file = %self.state.display(), %error, "records of nothing stay");
        }
    }
}

/// Attaches the switch to a port.
fn attach(fan_out: FanOut, switch: &mut Switch, port: &str, pins: &Path) -> Result<()> {
    if fan_out == FanOut::Switch {
        match attach::attach_port(switch, port, pins, attach::FanOut::Switch) {
            Err(error) if error.is_of_fan_out() => {
                tracing::warn!(port, %error, "the controller copies what comes in there for several blades");
            }
            other => return Ok(other?),
        }
    }
    attach::attach_port(switch, port, pins, attach::FanOut::Controller)?;
    Ok(())
}

fn owner(args: &Args, address: Ipv4Addr) -> Result<Owner> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .context("cannot tell this boot of the machine from others")?;
    let mut ports = args.ports.clone();
    ports.sort();
    Ok(Owner {
        format: FORMAT,
        boot: boot.trim().to_owned(),
        object: mind_dataplane::object_digest(),
        address,
        ports,
        slots: args.slots,
        loses_on_purpose: args.lose_on_purpose,
    })
}

/// Refuses to take ports away that blades are behind.
fn are_vacant(ports: &[&String], records: &[(Key, Record)]) -> Result<()> {
    for port in ports {
        // An interface that is gone has taken its blade along.
        let Ok(index) = attach::index_of(port) else {
            continue;
        };
        let blade = records.iter().find_map(|(_, record)| match record {
            Record::Blade(blade) if blade.is_here && blade.port.0 == index => Some(blade),
            _ => None,
        });
        if let Some(blade) = blade {
            bail!(
                "{port} is not among the ports any more, and the blade {} is behind it: start with this port, end that \
                 blade's daemon, and try again once `mind-ctl blades` says that it is gone",
                blade.name
            );
        }
    }
    Ok(())
}

/// Refuses to take over what was made for something else: programs may be using it.
fn compare(known: &Owner, wanted: &Owner, pins: &Path) -> Result<()> {
    let differs = [
        ("records of another version", known.format != wanted.format),
        ("programs of another build", known.object != wanted.object),
        ("another address", known.address != wanted.address),
        ("another number of slots", known.slots != wanted.slots),
        (
            "--lose-on-purpose",
            known.loses_on_purpose != wanted.loses_on_purpose,
        ),
    ];
    let differs: Vec<_> = differs
        .into_iter()
        .filter_map(|(what, is)| is.then_some(what))
        .collect();
    if differs.is_empty() {
        return Ok(());
    }
    bail!(
        "the data plane in {} was left by a controller with {}, and blades may be using it: start this one as that one \
         was, or with --fresh, which ends what they do",
        pins.display(),
        differs.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_plane_of_something_else_is_refused_with_what_differs() {
        let known = Owner {
            format: FORMAT,
            boot: "boot".into(),
            object: "object".into(),
            address: Ipv4Addr::new(198, 18, 0, 1),
            ports: vec!["c0".into(), "m0".into()],
            slots: 16,
            loses_on_purpose: false,
        };
        let pins = Path::new("/pins");
        compare(&known, &known, pins).unwrap();
        let wanted = Owner {
            object: "another".into(),
            slots: 32,
            ..known.clone()
        };
        let error = compare(&known, &wanted, pins).unwrap_err().to_string();
        for part in [
            "/pins",
            "programs of another build, another number of slots",
            "--fresh",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
