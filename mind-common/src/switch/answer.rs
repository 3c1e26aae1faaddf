//! Answers to an INVALIDATE: INVALIDATE-ACK, INVALIDATE-ACK-FETCH, FORWARD.

use super::{
    Exit, Left, Passage,
    admission::{self, Destination},
};
use crate::{
    addr::PAGE_SIZE,
    directory::{Answer, AnswerVerdict, Source, Transition},
    id::{BladeId, DomainId},
    rewrite,
    serial::Version,
    stop,
    verdict::{Staged, Verdict},
    wire::{
        FORWARD_LEN, Invalidation, Opcode, PAGE_REQUEST_LEN, Reth, SHORT_REQUEST_LEN, Syndrome,
    },
};

/// Bytes that an answer must have to become what completes the request.
#[inline(always)]
const fn len_of(source: Source) -> usize {
    match source {
        Source::Grant => SHORT_REQUEST_LEN,
        Source::Fetch => PAGE_REQUEST_LEN,
        Source::Forward => FORWARD_LEN,
    }
}

/// The blade behind the port answers an invalidation.
#[inline(always)]
pub(super) fn answer<P: Passage>(
    passage: &mut P,
    from: BladeId,
    source: Source,
) -> Staged<Left<P::Peer>> {
    // All checks come before the word changes: a last answer that could not be sent on would make the requester the
    // owner without telling it.
    if passage.payload_len() < len_of(source) {
        return Err(stop!(Truncated));
    }
    let ceth = passage.ceth();
    let Ok(invalidation) = ceth.invalidation() else {
        return Err(stop!(Malformed));
    };
    let destination = match source {
        Source::Fetch => {
            Some(admission::destination(passage, None, invalidation.page).ok_or(stop!(DeadBlade))?)
        }
        Source::Grant | Source::Forward => None,
    };
    let number = passage.slot_number(invalidation.page);
    let slot = passage.slot(number).ok_or(stop!(StaleAnswer))?;
    let answer = Answer {
        from,
        requester: invalidation.requester,
        slot: invalidation.slot,
        episode: invalidation.episode,
    };
    let (verdict, transition) =
        passage.answer(slot, number, invalidation.page, answer, ceth.cost())?;
    match verdict {
        AnswerVerdict::Stale => Err(stop!(StaleAnswer)),
        AnswerVerdict::Counted => Err(stop!(Counted)),
        AnswerVerdict::Complete => {
            complete(passage, source, &invalidation, destination, transition)
        }
    }
}

/// The last answer becomes what the requester waits for.
#[inline(always)]
fn complete<P: Passage>(
    passage: &mut P,
    source: Source,
    invalidation: &Invalidation,
    destination: Option<Destination<P::Peer>>,
    transition: Transition,
) -> Staged<Left<P::Peer>> {
    let requester = passage.compute(invalidation.requester);
    let (requester, connection) = requester.ok_or(stop!(DeadBlade))?;
    let opcode = Opcode::completing(source);
    let bth = rewrite::complete(&passage.bth(), opcode, connection, transition);
    Ok(match source {
        Source::Grant => {
            passage.put_aeth(bth, Syndrome::Ack, Version::new(0));
            (Verdict::Granted, Exit::To(requester))
        }
        Source::Fetch => {
            let destination = destination.ok_or(stop!(DeadBlade))?;
            let reth = Reth::new(destination.offset, DomainId(0), PAGE_SIZE as u32);
            passage.put_reth(bth, reth);
            (Verdict::Fetched, Exit::To(destination.peer))
        }
        Source::Forward => {
            passage.put_bth(bth);
            (Verdict::PageForwarded, Exit::To(requester))
        }
    })
}
