//! The data plane as a controller begins and ends: loaded anew, or taken over as it is pinned, where an earlier
//! controller's records belong to it. [`replace`] puts another one in its place.

mod replace;

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use mind_dataplane::{Switch, SwitchLimits, attach, replace as replacement};
use mind_machines::controller::books::{
    blades::Blade,
    domains::MAX_DOMAIN,
    records::{Key, Record},
};

use self::replace::Outcome;
use super::{
    Args, FanOut, fdb,
    fuse::Fuse,
    slots::Rule,
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
    pub(super) slots: Slots,
}

/// What is to become of the number of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// What decides about it.
    pub(super) rule: Rule,
    /// So many fewer there are to be as soon as no more are in use.
    pub(super) fewer: Option<u32>,
    /// So many could not be had.
    pub(super) refused: Option<u32>,
}

impl Plane {
    /// Takes a data plane over, or loads one.
    ///
    /// # Errors
    ///
    /// When the one that is pinned, with records of who uses it, cannot be taken over; when a blade that is here is behind
    /// a port that is not wanted any more; and when the kernel refuses.
    pub(super) fn begin(args: &Args, address: Ipv4Addr, fuse: &mut Fuse) -> Result<Begun> {
        let store = Store::open(&args.state)?;
        let mut wanted = owner(args, address)?;
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
            // The controller before may have ended while it replaced the data plane.
            replacement::finish(&args.pin)?;
        }
        if let Some(known) = known
            && let Ok(switch) = Switch::open(&args.pin)
        {
            let records = store.records()?;
            let is_left = |port: &&String| !wanted.ports.contains(port);
            let left: Vec<_> = known.ports.iter().filter(is_left).cloned().collect();
            are_vacant(&left, &records)?;
            let offered = offered(&records);
            let identity = (address, fdb::address_of(&args.bridge)?);
            let (mut switch, slots) =
                plane.replace(args, switch, (&known, &mut wanted), offered, identity, fuse)?;
            // A controller before may have stopped it.
            switch.set_identity(identity.0, identity.1)?;
            plane.take_ports(args, &store, &left, &wanted, &mut switch)?;
            return Ok(Begun {
                plane,
                switch,
                store,
                is_taken_over: true,
                slots,
            });
        }
        plane.is_left = false;
        // What a controller has left that kept no records.
        plane.detach();
        store.begin(&wanted)?;
        let rule = args.rule();
        let switch = plane.load(args, address, rule.wanted(0, None))?;
        Ok(Begun {
            plane,
            switch,
            store,
            is_taken_over: false,
            slots: Slots {
                rule,
                fewer: None,
                refused: None,
            },
        })
    }

    /// Another data plane takes the place of `switch`, if this one is to have other slots or other programs. What stays of
    /// it is noted in `wanted`.
    fn replace(
        &self,
        args: &Args,
        switch: Switch,
        (known, wanted): (&Owner, &mut Owner),
        offered: u64,
        identity: (Ipv4Addr, [u8; 6]),
        fuse: &mut Fuse,
    ) -> Result<(Switch, Slots)> {
        let now = u32::try_from(switch.directory().slots() - 1)?;
        let rule = args.rule();
        let mut slots = Slots {
            rule,
            fewer: None,
            refused: None,
        };
        let number = rule.wanted(offered, Some(now));
        let is_other =
            known.object != wanted.object || known.loses_on_purpose != wanted.loses_on_purpose;
        let interfaces = switch.interfaces()?;
        let has_room = highest(&args.ports)? < interfaces;
        if number == now && !is_other && has_room {
            return Ok((switch, slots));
        }
        let limits = limits(args, number, interfaces)?;
        let (switch, is_replaced) =
            match replace::replace(switch, &limits, &self.folder, identity, fuse)? {
                Outcome::Replaced(switch) => {
                    tracing::info!(
                        slots = number,
                        before = now,
                        other_programs = is_other,
                        "another data plane has taken the place of the one that was there"
                    );
                    (switch, true)
                }
                Outcome::NeedsRoom(switch) => {
                    slots.fewer = Some(number);
                    (switch, false)
                }
                Outcome::Kept(switch, error) => {
                    let error = format!("{error:#}");
                    tracing::error!(
                        error,
                        slots = now,
                        wanted = number,
                        "the data plane stays what it was"
                    );
                    slots.refused = Some(number);
                    (switch, false)
                }
            };
        if !is_replaced {
            wanted.object.clone_from(&known.object);
            wanted.loses_on_purpose = known.loses_on_purpose;
        }
        Ok((switch, slots))
    }

    fn load(&self, args: &Args, address: Ipv4Addr, slots: u32) -> Result<Switch> {
        let limits = limits(args, slots, 0)?;
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
    /// this one did not have; detaches those that it had and this one does not, which are `left`.
    ///
    /// # Errors
    ///
    /// When an interface's index is beyond the tables, and when the kernel refuses.
    fn take_ports(
        &self,
        args: &Args,
        store: &Store,
        left: &[String],
        wanted: &Owner,
        switch: &mut Switch,
    ) -> Result<()> {
        // Whichever of both a controller that follows has, it finds those of the other.
        let mut both = wanted.clone();
        both.ports.extend(left.iter().cloned());
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

/// The sizes of a data plane's tables for these ports, with so many slots and so many interfaces at least.
fn limits(args: &Args, slots: u32, interfaces: u32) -> Result<SwitchLimits> {
    Ok(SwitchLimits {
        interfaces: interfaces.max(highest(&args.ports)? + 1 + MORE_INTERFACES),
        domains: MAX_DOMAIN + 1,
        slots: slots.saturating_add(1),
        lose_on_purpose: args.lose_on_purpose,
        ..SwitchLimits::default()
    })
}

/// The highest index of these interfaces.
fn highest(ports: &[String]) -> Result<u32> {
    let mut highest = 0;
    for port in ports {
        highest = highest.max(attach::index_of(port)?);
    }
    Ok(highest)
}

/// Bytes that memory blades offer that are here.
fn offered(records: &[(Key, Record)]) -> u64 {
    let blades = records.iter().filter_map(|(_, record)| match record {
        Record::Blade(blade) => Some(blade),
        _ => None,
    });
    blades.map(Blade::offers).sum()
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
        layout: mind_dataplane::object_layout()?,
        address,
        ports,
        loses_on_purpose: args.lose_on_purpose,
    })
}

/// Refuses to take ports away that blades are behind.
fn are_vacant(ports: &[String], records: &[(Key, Record)]) -> Result<()> {
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
        ("tables of another layout", known.layout != wanted.layout),
        ("another address", known.address != wanted.address),
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
            layout: "layout".into(),
            address: Ipv4Addr::new(198, 18, 0, 1),
            ports: vec!["c0".into(), "m0".into()],
            loses_on_purpose: false,
        };
        let pins = Path::new("/pins");
        compare(&known, &known, pins).unwrap();
        let wanted = Owner {
            object: "another".into(),
            loses_on_purpose: true,
            ..known.clone()
        };
        compare(&known, &wanted, pins).unwrap();
        let wanted = Owner {
            layout: "another".into(),
            address: Ipv4Addr::new(198, 18, 0, 2),
            ..known.clone()
        };
        let error = compare(&known, &wanted, pins).unwrap_err().to_string();
        for part in [
            "/pins",
            "tables of another layout, another address",
            "--fresh",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
