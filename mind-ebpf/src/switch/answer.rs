//! Answers to an INVALIDATE: INVALIDATE-ACK, INVALIDATE-ACK-FETCH, FORWARD.

use mind_common::{
    addr::PAGE_SIZE,
    directory::{Answer, AnswerVerdict, Path, Supply},
    id::DomainId,
    rewrite,
    serial::Version,
    verdict::Verdict,
    wire::{
        FORWARD_LEN, Invalidation, Opcode, PAGE_REQUEST_LEN, Reth, SHORT_REQUEST_LEN, Syndrome,
        message::Toll,
    },
};

use super::{
    Passage,
    admission::{self, Place},
    directory, send,
};
use crate::decision::{Staged, stop};

/// Bytes that an answer must have to become what completes the request.
#[inline(always)]
const fn len_of(supply: Supply) -> usize {
    match supply {
        Supply::Grant => SHORT_REQUEST_LEN,
        Supply::Fetch => PAGE_REQUEST_LEN,
        Supply::Forward => FORWARD_LEN,
    }
}

impl Passage<'_> {
    /// The blade behind the port has given a region up.
    #[inline(always)]
    pub(super) fn answer(&mut self, supply: Supply) -> Staged {
        // All of it before the word changes: a last answer that could not be sent on would leave
        // the requester with a region and nobody to tell it.
        if self.len < len_of(supply) {
            return Err(stop!(Truncated));
        }
        let ceth = self.frame.ceth();
        let Ok(invalidation) = ceth.invalidation() else {
            return Err(stop!(Malformed));
        };
        let place = match supply {
            Supply::Fetch => Some(admission::translate(invalidation.page).ok_or(stop!(DeadBlade))?),
            Supply::Grant | Supply::Forward => None,
        };
        let number = directory::number(invalidation.page);
        let slot = directory::slot(number).ok_or(stop!(StaleAnswer))?;
        let answer = Answer {
            from: self.from,
            requester: invalidation.requester,
            slot: invalidation.slot,
            episode: invalidation.episode,
        };
        let toll = Toll {
            dropped: ceth.dropped.get(),
            flushed: ceth.flushed.get(),
        };
        let (verdict, path) = slot.answer(number, invalidation.page, answer, toll)?;
        match verdict {
            AnswerVerdict::Stale => Err(stop!(StaleAnswer)),
            AnswerVerdict::Counted => Err(stop!(Counted)),
            AnswerVerdict::Complete => self.complete(supply, &invalidation, place, path),
        }
    }

    /// The last answer becomes what the requester waits for.
    #[inline(always)]
    fn complete(
        &mut self,
        supply: Supply,
        invalidation: &Invalidation,
        place: Option<Place>,
        path: Path,
    ) -> Staged {
        let blade = invalidation.requester;
        let requester = send::compute(blade).ok_or(stop!(DeadBlade))?;
        let connection = requester.connection_of(blade);
        let opcode = supply.completion();
        let bth = rewrite::complete(&self.frame.bth, opcode, connection, path);
        match supply {
            Supply::Grant => {
                self.frame.put_aeth(bth, Syndrome::Ack, Version::new(0));
                self.redirect(requester, Verdict::Granted)
            }
            Supply::Fetch => {
                let place = place.ok_or(stop!(DeadBlade))?;
                let reth = Reth::new(place.offset, DomainId(0), PAGE_SIZE as u32);
                self.frame.put_reth(bth, reth);
                self.redirect(place.peer, Verdict::Fetched)
            }
            Supply::Forward => {
                self.frame.bth = bth;
                self.redirect(requester, Verdict::Supplied)
            }
        }
    }
}

const _: () = assert!(matches!(Supply::Grant.completion(), Opcode::Acknowledge));
const _: () = assert!(matches!(Supply::Fetch.completion(), Opcode::Read));
const _: () = assert!(matches!(Supply::Forward.completion(), Opcode::Forward));
