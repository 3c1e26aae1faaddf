//! Requests for a page: READ, ACQUIRE, UPGRADE.

use super::{
    Exit, Left, Passage,
    admission::{self, Destination},
    needs,
};
use crate::{
    addr::{PAGE_SIZE, Region, Va},
    directory::{Invalidations, Request, RequestVerdict, Transition, Want},
    id::{BladeId, DomainId},
    rewrite,
    serial::Version,
    stop,
    verdict::{Staged, Stop, Verdict},
    wire::{Ceth, Invalidation, Opcode, Reth, Syndrome},
};

/// The blade behind the port wants a page.
#[inline(always)]
pub(super) fn request<P: Passage>(
    passage: &mut P,
    from: BladeId,
    want: Want,
) -> Staged<Left<P::Peer>> {
    let (len, class) = needs(want);
    if passage.payload_len() < len {
        return Err(stop!(Invalid));
    }
    let reth = passage.reth();
    let page = admission::page(&reth)?;
    let domain = reth.domain();
    admission::placed(passage, from, domain)?;
    // Permission comes before the directory: a denied request is denied whether or not there is a
    // slot, and gets none.
    let mut number = passage.slot_number(page);
    let slot = passage.slot(number);
    let location = passage.admit(slot, domain, page, class)?;
    // Before the word changes: no blade may get a page that no memory blade stores.
    let destination = match want {
        Want::Read | Want::Acquire => {
            Some(admission::destination(passage, location, page).ok_or(stop!(NoMemory))?)
        }
        Want::Upgrade => None,
    };
    let slot = match slot {
        Some(slot) => slot,
        None => {
            number = first_touch(passage, page, number, want)?;
            passage.slot(number).ok_or(stop!(Moved))?
        }
    };
    let asked = Request {
        from,
        want,
        repeated: passage.bth().attempt() > 0,
    };
    let (verdict, region, transition) = passage.request(slot, page, asked)?;
    match verdict {
        RequestVerdict::Fetch => {
            passage.touch(slot);
            Ok(fetch(
                passage,
                destination.ok_or(stop!(NoMemory))?,
                transition,
            ))
        }
        RequestVerdict::Grant => {
            passage.touch(slot);
            Ok(grant(passage, transition))
        }
        RequestVerdict::Invalidate(invalidations) => {
            invalidate(passage, (slot, number), region, page, &invalidations)
        }
        RequestVerdict::Refuse(refusal) => Err(Stop::directory(refusal)),
    }
}

/// The page has no slot: its region gets one. The slot's number.
#[inline(always)]
fn first_touch<P: Passage>(passage: &mut P, page: Va, number: u32, want: Want) -> Staged<u32> {
    if number != 0 {
        return Err(stop!(Moved));
    }
    // No blade has a copy of it.
    if matches!(want, Want::Upgrade) {
        return Err(stop!(NoCopy));
    }
    match passage.open(page) {
        0 => Err(stop!(NoSlot)),
        number => Ok(number),
    }
}

/// On to memory, as a READ; the answer goes to the requester, under the same number.
#[inline(always)]
fn fetch<P: Passage>(
    passage: &mut P,
    destination: Destination<P::Peer>,
    transition: Transition,
) -> Left<P::Peer> {
    let bth = rewrite::granted(&passage.bth(), Opcode::Read, transition);
    let reth = Reth::new(destination.offset, DomainId(0), PAGE_SIZE as u32);
    passage.put_reth(bth, reth);
    (Verdict::Fetch, Exit::To(destination.peer))
}

/// Back, as its own acknowledgement.
#[inline(always)]
fn grant<P: Passage>(passage: &mut P, transition: Transition) -> Left<P::Peer> {
    let bth = rewrite::granted(&passage.bth(), Opcode::Acknowledge, transition);
    passage.put_aeth(bth, Syndrome::Ack, Version::new(0));
    (Verdict::Grant, Exit::Back)
}

/// The packet becomes the INVALIDATE: to one blade from here, to several through TC or the controller, since XDP can
/// send a frame only once.
#[inline(always)]
fn invalidate<P: Passage>(
    passage: &mut P,
    (slot, number): (P::Slot, u32),
    region: Region,
    page: Va,
    invalidations: &Invalidations,
) -> Staged<Left<P::Peer>> {
    let seq = passage.bth().seq();
    let (seq, page) = passage.origin_of(slot, invalidations, region, page, seq)?;
    let invalidation = Invalidation {
        page,
        region,
        slot: number,
        episode: invalidations.episode,
        requester: invalidations.requester,
        target: invalidations.target,
        source: invalidations.source,
    };
    let ceth = Ceth::new(&invalidation, invalidations.blades);
    if invalidations.blades.is_single() {
        let blade = invalidations.blades.first().ok_or(stop!(DeadBlade))?;
        let (peer, connection) = passage.compute(blade).ok_or(stop!(DeadBlade))?;
        passage.put_ceth(rewrite::invalidate(connection, seq), ceth);
        return Ok((Verdict::Invalidate, Exit::To(peer)));
    }
    let left = if passage.port().fans_out() {
        (Verdict::PassedUp, Exit::Up)
    } else if passage.port().hands_over() {
        (Verdict::HandedOver, Exit::Over)
    } else {
        // Only the bridge would take the packet up, and flood it.
        return Err(stop!(NoFanOut));
    };
    let bth = rewrite::pass_up(&passage.bth(), seq);
    passage.put_ceth(bth, ceth);
    Ok(left)
}
