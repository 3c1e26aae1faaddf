//! Answers to an INVALIDATE: INVALIDATE-ACK, INVALIDATE-ACK-FETCH, FORWARD.

use mind_common::{
    directory::{Answer, AnswerVerdict, Path, Supply, machine::on_answer},
    id::BladeId,
    rewrite,
    verdict::Verdict,
    wire::Invalidation,
};

use super::{
    Exit, Left, Staged, Switch,
    request::{acknowledgement, fetch},
    slot::number,
};
use crate::{Node, packet::Packet};

impl Switch {
    /// A blade has given a region up.
    pub(super) fn answer<P>(
        &mut self,
        from: BladeId,
        supply: Supply,
        invalidation: &Invalidation,
        packet: Packet<P>,
    ) -> Staged<Left<P>> {
        let page = invalidation.page;
        if !page.is_page_aligned() || !page.is_in_window(1) {
            return Err(Verdict::Malformed);
        }
        let place = match supply {
            Supply::Fetch => Some(self.tables.place(page).ok_or(Verdict::DeadBlade)?),
            Supply::Grant | Supply::Forward => None,
        };
        let (index, _) = self.find(page).map_err(|_| Verdict::StaleAnswer)?;
        let slot = &mut self.slots[index];
        let answer = Answer {
            from,
            requester: invalidation.requester,
            slot: invalidation.slot,
            episode: invalidation.episode,
        };
        let step = on_answer(number(index), slot.word, answer);
        #[cfg(feature = "mutants")]
        let step = crate::mutant::answered(number(index), slot.word, answer, step);
        let path = Path::between(slot.word, step.next);
        slot.word = step.next;
        match step.verdict {
            AnswerVerdict::Stale => return Err(Verdict::StaleAnswer),
            AnswerVerdict::Counted => return Err(Verdict::Counted),
            AnswerVerdict::Complete => {}
        }
        let requester = invalidation.requester;
        let connection = self.compute(requester)?;
        let bth = rewrite::complete(&packet.bth(), supply.completion(), connection, path);
        let requester = Node::Compute(requester);
        Ok(match supply {
            Supply::Grant => (Verdict::Granted, Exit::To(requester, acknowledgement(&bth))),
            Supply::Fetch => {
                let (memory, read) = fetch(&bth, place.ok_or(Verdict::DeadBlade)?);
                (Verdict::Fetched, Exit::To(memory, read))
            }
            Supply::Forward => (
                Verdict::Supplied,
                Exit::To(requester, Packet::new(&bth, packet.body)),
            ),
        })
    }
}
