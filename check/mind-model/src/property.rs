//! What must hold in every state.

use mind_common::permission::PermissionClass;
use mind_common::{
    directory::State,
    id::{BladeId, DomainId},
    refusal::Refusal,
    verdict::Verdict,
};
use mind_machines::{agreement::disagreement, compute::page::Phase};

use crate::{
    action::progress,
    value::Age,
    world::{World, page},
};

/// What went wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A machine could not handle a packet.
    Unanswered(Verdict),
    /// A blade put a packet's page where another belongs.
    WrongPage,
    /// A blade mapped a copy that it does not have.
    NoCopy,
    /// A program of that domain was given a page of another domain.
    Granted(DomainId),
    /// Memory carried an atomic operation out twice, or one that was over.
    OperatedAgain,
    /// Memory carried out an atomic operation on bytes that are not the latest.
    OperatedOnOld,
    /// An atomic operation was acknowledged that was not carried out.
    NotOperated,
    /// A request was refused for good.
    Refused(Refusal),
    /// A write-back was refused for good.
    Lost(Refusal),
    /// The controller did not do what it was asked for.
    Failed,
}

/// The copies of a page that programs can access on blades that the switch accepts packets from.
fn copies(world: &World, number: usize) -> impl Iterator<Item = (usize, PermissionClass, Age)> {
    world
        .hosts
        .iter()
        .enumerate()
        .filter(|(blade, _)| world.is_accepted(*blade))
        .filter_map(move |(blade, host)| {
            let copy = host.as_ref()?.cache.get(number)?;
            Some((blade, copy.mapping, copy.age))
        })
        .filter(|(_, mapping, _)| *mapping != PermissionClass::None)
}

/// A page that a blade may write has no other copy (guarantee 1).
pub fn single_writer(world: &World) -> bool {
    (0..world.books.len()).all(|number| {
        let writers =
            copies(world, number).filter(|(_, mapping, _)| *mapping == PermissionClass::Write);
        writers.count() == 0 || copies(world, number).count() == 1
    })
}

/// A program reads the latest write (guarantee 1).
pub fn latest_is_read(world: &World) -> bool {
    (0..world.books.len()).all(|number| copies(world, number).all(|(_, _, age)| age == Age::Latest))
}

/// The last acknowledged write, or a newer one, is not lost (guarantee 2).
pub fn acknowledged_is_kept(world: &World) -> bool {
    !world.rights.is_mapped
        || world.books.iter().enumerate().all(|(number, book)| {
            let age = world.memory.page(number as u64).data.age;
            match book.writer {
                None => age == Age::Latest,
                Some(_) => age >= Age::Acknowledged,
            }
        })
}

/// No program can do more with a page than its domain may.
pub fn rights_are_kept(world: &World) -> bool {
    (0..world.books.len())
        .all(|number| copies(world, number).all(|(_, mapping, _)| mapping <= world.rights.most))
}

/// When the controller rests, it and the switch agree ([`disagreement`]).
pub fn controller_agrees(world: &World) -> bool {
    disagreement(&world.controller, &world.switch).is_none()
}

/// When nothing is under way, the directory lists every blade with a copy, and as owner the blade
/// that may write.
pub fn directory_agrees(world: &World) -> bool {
    !is_quiet(world)
        || (0..world.books.len()).all(|number| {
            let slot = world.switch.tables().slot(page(number as u8));
            let slot = slot.and_then(|slot| world.switch.slots().get(slot));
            let Some(word) = slot.map(|slot| slot.word) else {
                return copies(world, number).count() == 0;
            };
            copies(world, number).all(|(blade, mapping, _)| {
                let Some(blade) = BladeId::new(blade as u8) else {
                    return false;
                };
                let upgrades = word.state() == State::SharedToModified && word.requester() == blade;
                let is_listed = word.blades().contains(blade) || upgrades;
                // It may be busy for a request that came twice, the second time too late: it stays
                // so until a blade requests the region.
                let states: &[State] = match mapping {
                    PermissionClass::Write => &[
                        State::Modified,
                        State::ModifiedToShared,
                        State::ModifiedToModified,
                    ],
                    _ => &[
                        State::Modified,
                        State::ModifiedToShared,
                        State::ModifiedToModified,
                        State::Shared,
                        State::SharedToModified,
                    ],
                };
                is_listed && states.contains(&word.state())
            })
        })
}

/// Programs have the mappings that the blade has on record.
pub fn cache_agrees(world: &World) -> bool {
    world.hosts.iter().flatten().all(|host| {
        host.cache.iter().enumerate().all(|(number, copy)| {
            let (phase, _) = host.blade.page(page(number as u8));
            match copy.mapping {
                PermissionClass::Write => phase == Phase::Modified,
                PermissionClass::Read => {
                    !matches!(phase, Phase::Absent | Phase::Reading | Phase::Acquiring)
                }
                PermissionClass::None => {
                    matches!(phase, Phase::Absent | Phase::Reading | Phase::Acquiring)
                }
            }
        })
    })
}

/// No step had a [`Violation`].
pub fn nothing_wrong(world: &World) -> bool {
    world.violation.is_none()
}

/// If a blade waits, an action without a cause from outside is possible (guarantee 5).
pub fn no_deadlock(world: &World) -> bool {
    let mut next = Vec::new();
    progress(world, &mut next);
    world.violation.is_some() || is_quiet(world) || !next.is_empty()
}

/// Nothing is under way.
pub fn is_quiet(world: &World) -> bool {
    world.network.is_empty()
        && world.links.is_empty()
        && world.controller.is_idle()
        && world.hosts.iter().flatten().all(|host| {
            let pages = 0..host.cache.len() as u8;
            host.blade.is_quiet()
                && host.operation.is_none()
                && pages
                    .into_iter()
                    .all(|n| host.blade.waiting(page(n)).is_none())
        })
}
