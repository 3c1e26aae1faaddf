//! Another data plane takes the place of the one that is pinned, while blades use it: with more slots or fewer, or with
//! the programs of another build.

use std::{net::Ipv4Addr, path::Path};

use anyhow::{Context as _, Result};
use mind_dataplane::{Switch, SwitchLimits, replace};
use mind_machines::switch::Carry;

use crate::serve::fuse::Fuse;

/// What came of it.
pub(super) enum Outcome {
    /// The new one is there.
    Replaced(Switch),
    /// The old one stays until enough of its slots are in no use.
    NeedsRoom(Switch),
    /// The old one stays.
    Kept(Switch, anyhow::Error),
}

/// Replaces the data plane `old`, pinned in `folder`, by one with these limits and this address. In case of doubt the old
/// one stays. Which of both it is has its address then, and the other one may be stopped.
///
/// # Errors
///
/// When neither of both can be used.
pub(super) fn replace(
    old: Switch,
    limits: &SwitchLimits,
    folder: &Path,
    identity: (Ipv4Addr, [u8; 6]),
    fuse: &mut Fuse,
) -> Result<Outcome> {
    match try_to_replace(old, limits, folder, identity, fuse) {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            let is_new = replace::finish(folder)?;
            let switch = Switch::open(folder)?;
            Ok(match is_new {
                true => Outcome::Replaced(switch),
                false => Outcome::Kept(switch, error),
            })
        }
    }
}

fn try_to_replace(
    mut old: Switch,
    limits: &SwitchLimits,
    folder: &Path,
    (ipv4, mac): (Ipv4Addr, [u8; 6]),
    fuse: &mut Fuse,
) -> Result<Outcome> {
    let mut new = Switch::load(limits).context("cannot load the data plane")?;
    // From here on packets are lost, and asked for again, until either of both has an identity.
    old.stop()?;
    fuse.burn();
    let carried = carry(&mut new, &old);
    fuse.burn();
    let carried = carried.and_then(|outcome| match outcome {
        true => Ok(Some(replace::install(&mut new, folder, ipv4, mac)?)),
        false => Ok(None),
    });
    fuse.burn();
    match carried {
        Ok(Some(())) => Ok(Outcome::Replaced(new)),
        Ok(None) => {
            old.set_identity(ipv4, mac)?;
            Ok(Outcome::NeedsRoom(old))
        }
        Err(error) => {
            if !replace::finish(folder)? {
                old.set_identity(ipv4, mac)?;
            }
            Err(error)
        }
    }
}

/// Has `new` take over from `old`, which is stopped; whether there is room for what is in use.
fn carry(new: &mut Switch, old: &Switch) -> Result<bool> {
    let slots = u32::try_from(new.directory().slots() - 1)?;
    match Carry::new(old.directory().words(), slots) {
        Ok(carry) => {
            new.take_over(old, carry.slots(), carry.free_word())?;
            Ok(true)
        }
        Err(error) => {
            tracing::info!(%error, "the data plane is replaced when regions have given up their slots");
            Ok(false)
        }
    }
}
