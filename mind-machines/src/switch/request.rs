//! Requests for a page: READ, ACQUIRE, UPGRADE.

use mind_common::{
    addr::{PAGE_SIZE, Region, Va},
    directory::{Order, Path, Request, RequestVerdict, Want, admit},
    id::{BladeId, DomainId},
    rewrite,
    serial::Version,
    table::{MAY_READ, MAY_WRITE},
    verdict::Verdict,
    wire::{Bth, Invalidation, Opcode, Syndrome, message::PageRequest},
};

use super::{Exit, Left, Place, Staged, Switch, slot::number};
use crate::{
    Node,
    packet::{Body, Packet},
};

/// The permission that a request takes.
const fn class_of(want: Want) -> u32 {
    match want {
        Want::Read => MAY_READ,
        Want::Acquire | Want::Upgrade => MAY_WRITE,
    }
}

/// `va` if it is a page's in the window.
pub(super) fn page(va: Va) -> Staged<Va> {
    if va.is_page_aligned() && va.is_in_window(PAGE_SIZE as u64) {
        Ok(va)
    } else {
        Err(Verdict::Invalid)
    }
}

/// A READ of what is kept at `place`.
pub(super) fn fetch<P>(bth: &Bth, place: Place) -> (Node, Packet<P>) {
    let page = PageRequest {
        page: place.offset,
        domain: DomainId(0),
    };
    let want = Want::Read;
    let packet = Packet::new(bth, Body::Request { want, page });
    (Node::Memory(place.memory), packet)
}

/// A bare acknowledgement.
pub(super) fn acknowledgement<P>(bth: &Bth) -> Packet<P> {
    let body = Body::Acknowledge {
        syndrome: Syndrome::Ack,
        version: Version::new(0),
    };
    Packet::new(bth, body)
}

impl Switch {
    /// Refuses unless the blade, in the domain, may do with `va` what `class` says.
    pub(super) fn allowed(
        &self,
        blade: BladeId,
        domain: DomainId,
        va: Va,
        class: u32,
    ) -> Staged<()> {
        #[cfg(feature = "mutants")]
        if crate::mutant::Mutant::DomainNotChecked.is_active() {
            return Ok(());
        }
        if !self.tables.is_placed(domain, blade) {
            return Err(Verdict::NotPlaced);
        }
        match self.tables.permission(domain, va) {
            Some(permission) if permission.allows(class) => Ok(()),
            _ => Err(Verdict::Protected),
        }
    }

    /// The slot of the page at `va`, and its region.
    pub(super) fn find(&self, va: Va) -> Staged<(usize, Region)> {
        let found = self.tables.slot(va);
        let index = found.filter(|index| *index < self.slots.len());
        let index = index.ok_or(Verdict::NoSlot)?;
        let region = self.slots[index].region_with(va);
        Ok((index, region.ok_or(Verdict::Moved)?))
    }

    /// The blade behind the port wants a page.
    pub(super) fn request<P>(
        &mut self,
        port: Node,
        from: BladeId,
        bth: &Bth,
        want: Want,
        wanted: PageRequest,
    ) -> Staged<Left<P>> {
        let page = page(wanted.page)?;
        self.allowed(from, wanted.domain, page, class_of(want))?;
        // Before the word changes: a page that nobody can supply must not be given away.
        let place = match want {
            Want::Read | Want::Acquire => self.tables.place(page).ok_or(Verdict::NoMemory)?.into(),
            Want::Upgrade => None,
        };
        let (index, region) = self.find(page)?;
        let slot = &mut self.slots[index];
        let request = Request {
            from,
            want,
            repeated: bth.attempt() > 0,
        };
        let step = admit(slot.word, slot.queue, request);
        #[cfg(feature = "mutants")]
        let step = crate::mutant::admitted(slot.word, request, step);
        let path = Path::between(slot.word, step.next);
        (slot.word, slot.queue) = (step.next, step.queue);
        match step.verdict {
            RequestVerdict::Fetch => {
                let bth = rewrite::granted(bth, Opcode::Read, path);
                let (memory, read) = fetch(&bth, place.ok_or(Verdict::NoMemory)?);
                Ok((Verdict::Fetch, Exit::To(memory, read)))
            }
            RequestVerdict::Grant => {
                let bth = rewrite::granted(bth, Opcode::Acknowledge, path);
                Ok((Verdict::Grant, Exit::To(port, acknowledgement(&bth))))
            }
            RequestVerdict::Invalidate(order) => {
                self.invalidate(port, index, region, page, bth, &order)
            }
            RequestVerdict::Refuse(refusal) => Err(Verdict::of_directory(refusal)),
        }
    }

    /// The request becomes the INVALIDATE: to one blade from here, to several by way of TC.
    fn invalidate<P>(
        &mut self,
        port: Node,
        index: usize,
        region: Region,
        page: Va,
        bth: &Bth,
        order: &Order,
    ) -> Staged<Left<P>> {
        let (seq, page) = self.slots[index].origin_of(order, region, page, bth.seq())?;
        let invalidation = Invalidation {
            page,
            region,
            slot: number(index),
            episode: order.episode,
            requester: order.requester,
            target: order.target,
            supply: order.supply,
        };
        if !order.blades.is_single() {
            let is_handed_over = self.tables.hands_over.contains(&port);
            if self.tables.without_tc.contains(&port) && !is_handed_over {
                return Err(Verdict::NoFanOut);
            }
            let body = Body::FanOut {
                invalidation,
                pending: order.blades,
            };
            let bth = rewrite::pass_up(bth, seq);
            let packet = Packet::new(&bth, body);
            return Ok(match self.tables.without_tc.contains(&port) {
                true => (Verdict::HandedOver, Exit::Over(packet)),
                false => (Verdict::PassedUp, Exit::Up(packet)),
            });
        }
        let blade = order.blades.first().ok_or(Verdict::DeadBlade)?;
        let bth = rewrite::invalidate(self.compute(blade)?, seq);
        let packet = Packet::new(&bth, Body::Invalidate(invalidation));
        Ok((Verdict::Invalidate, Exit::To(Node::Compute(blade), packet)))
    }
}
