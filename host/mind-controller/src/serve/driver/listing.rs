//! Lists of what the books say: domains, what vmas have lost, vmas. Each call makes one part, in bounded time, however
//! many there are.

use mind_api::{
    Reply,
    message::BladeKind,
    operator::{AccessRange, DomainLoss, DomainStatus, LossStatus, VmaStatus},
};
use mind_common::addr::Va;
use mind_machines::controller::books::{
    Books,
    domains::{Domain, Vma},
};

use super::part::Part;

/// Domains or vmas that are looked at for one part, whether they are in it or not.
const LOOKS: usize = 4_096;
/// Ranges of permissions that are listed in one part of a list of vmas.
const RANGES: usize = 1_000;
/// Regions that are counted for one part of a list of vmas.
const COUNTED: usize = 4_096;

/// Counts regions: those from the first address to before the second, so many at most; and where to go on.
pub(super) type Count<'a> = &'a dyn Fn(Va, Va, usize) -> (usize, Option<Va>);

/// Domains with processes, by number, without what they have lost.
pub(super) fn domains(books: &Books, from: u64, limit: u32) -> Reply {
    let mut part = Part::new(limit);
    let mut next = None;
    if let Ok(from) = u32::try_from(from) {
        for (looks, (number, domain)) in books.domains.from(from).enumerate() {
            if part.is_full() || looks == LOOKS {
                next = Some(number.into());
                break;
            }
            if !domain.processes.is_empty() {
                part.push(domain_status(number, domain));
            }
        }
    }
    let domains = part.entries();
    Reply::Domains { domains, next }
}

fn domain_status(number: u32, domain: &Domain) -> DomainStatus {
    DomainStatus {
        domain: number,
        name: domain.name.clone(),
        processes: domain.processes.len() as u32,
        vmas: domain.open.vmas,
        bytes: domain.open.bytes,
        on_loss: domain.on_loss,
        losses: Vec::new(),
    }
}

/// What vmas have lost, by address.
pub(super) fn losses(books: &Books, from: u64, limit: u32) -> Reply {
    let mut part = Part::new(limit);
    let mut next = None;
    for (looks, vma) in books.domains.vmas_from(Va(from)).enumerate() {
        if part.is_full() || looks == LOOKS {
            next = Some(vma.va().0);
            break;
        }
        if let Some(loss) = loss_of(vma).filter(|_| !vma.is_closing) {
            let domain = vma.domain;
            part.push(DomainLoss { domain, loss });
        }
    }
    let losses = part.entries();
    Reply::Losses { losses, next }
}

fn loss_of(vma: &Vma) -> Option<LossStatus> {
    let lost = vma.lost.as_ref()?;
    Some(LossStatus {
        va: vma.va().0,
        length: vma.length,
        area: vma.area.clone(),
        regions: lost.regions,
        last: lost.last,
        blade: lost.blade.clone(),
    })
}

/// Vmas with an address from `from` on, and of each what it has from there on. The part may end within a vma.
pub(super) fn vmas(books: &Books, from: u64, limit: u32, count: Count<'_>) -> Reply {
    let mut part = Part::new(limit);
    let (mut ranges, mut counted) = (0, 0);
    let within = books.domains.vma_at(Va(from));
    let within = within.filter(|vma| vma.va().0 < from);
    let vmas = within.into_iter().chain(books.domains.vmas_from(Va(from)));
    for (looks, vma) in vmas.enumerate() {
        let start = vma.va().0.max(from);
        let is_spent = ranges >= RANGES || counted >= COUNTED || looks == LOOKS;
        if part.is_full() || is_spent {
            let (vmas, next) = (part.entries(), Some(start));
            return Reply::Vmas { vmas, next };
        }
        if vma.is_closing {
            continue;
        }
        let (status, next) = vma_status(books, vma, start, RANGES - ranges, |from, to| {
            count(from, to, COUNTED - counted)
        });
        ranges += status.access.len();
        // One that has no region takes a look as well.
        counted += status.regions as usize + 1;
        part.push(status);
        if next.is_some() {
            let vmas = part.entries();
            return Reply::Vmas { vmas, next };
        }
    }
    let (vmas, next) = (part.entries(), None);
    Reply::Vmas { vmas, next }
}

/// What a vma has from `start` on, with so many ranges of permissions at most; and where to go on, if that is not all.
fn vma_status(
    books: &Books,
    vma: &Vma,
    start: u64,
    ranges: usize,
    count: impl Fn(Va, Va) -> (usize, Option<Va>),
) -> (VmaStatus, Option<u64>) {
    let domain = books.domains.get(vma.domain);
    let memory = vma.memories().into_iter();
    let memory = memory.filter_map(|number| books.blades.get(BladeKind::Memory, number));
    let (mut access, more) = domain.map_or_else(Default::default, |domain| {
        let protection = &domain.protection;
        protection.over_at_most(start, vma.end(), ranges)
    });
    let stop = more.unwrap_or(vma.end());
    let (regions, next) = count(Va(start), Va(stop));
    let next = match next {
        // Not before the first address: a part goes on beyond where it began.
        Some(next) if next.0 > start => Some(next.0),
        _ => more,
    };
    let stop = next.unwrap_or(stop);
    access.retain(|(from, _, _)| *from < stop);
    let access = access.into_iter().map(|(from, to, access)| AccessRange {
        va: from,
        length: to.min(stop) - from,
        access,
    });
    let status = VmaStatus {
        va: vma.va().0,
        length: vma.length,
        domain: vma.domain,
        domain_name: domain.map_or_else(String::new, |domain| domain.name.clone()),
        memory: memory.map(|blade| blade.name.clone()).collect(),
        area: vma.area.clone(),
        users: vma.users.count(),
        access: access.collect(),
        regions: regions as u32,
        lost: vma.lost.as_ref().map_or(0, |lost| lost.regions),
    };
    (status, next)
}

#[cfg(test)]
mod tests;
