//! A datagram on its way through the switch, as the [stages](mind_common::switch) see it: headers made from its fields
//! and written back to them; slots that do not change meanwhile, and tables as they were when the datagram came in.

use mind_common::{
    addr::{Region, Va},
    directory::{
        Answer, AnswerVerdict, Invalidations, Request, RequestVerdict, Transition, Want, Word,
        admit, machine::on_answer,
    },
    id::{BladeId, BladeSet, Connection, DomainId},
    memo::Location,
    serial::{Seq, Version},
    stop, switch,
    table::Port,
    verdict::{Staged, Stop},
    wire::{Atomic, AtomicEth, Bth, Ceth, Cost, Opcode, Reth, Syndrome},
};

use super::{Switch, Tables, View, slot::number};
use crate::{
    Node,
    datagram::{Body, Datagram, Envelope, PageRequest, answer_header, atomic_header},
};

/// A datagram in the switch.
pub(super) struct Passage<'a, P> {
    pub(super) switch: &'a mut Switch,
    /// The tables when the datagram came in, unless that is now.
    pub(super) view: Option<&'a View>,
    pub(super) datagram: Datagram<P>,
    pub(super) port: Port,
    /// How many pages of which region were falsely invalidated, as the datagram says.
    pub(super) invalidated: Option<(Region, u16)>,
}

impl<P> Passage<'_, P> {
    fn tables(&self) -> &Tables {
        self.view.map_or(&self.switch.tables, |view| &view.0)
    }

    /// Replaces the headers by those of another body.
    fn put(&mut self, bth: Bth, body: Body<P>) {
        self.datagram = Datagram::new(&bth, body);
    }
}

/// The header of a datagram that has none of the kind: no page of the window, no slot.
fn no_reth() -> Reth {
    Reth::new(Va(0), DomainId(0), 0)
}

impl<P> switch::Passage for Passage<'_, P> {
    type Slot = usize;
    type Peer = Node;

    fn bth(&self) -> Bth {
        self.datagram.bth()
    }

    fn payload_len(&self) -> usize {
        self.datagram.body.wire_len()
    }

    /// A simulated datagram makes no hops.
    fn is_expired(&self) -> bool {
        false
    }

    fn reth(&self) -> Reth {
        match &self.datagram.body {
            Body::Request { page, .. } | Body::Write { page, .. } => page.reth(),
            _ => no_reth(),
        }
    }

    fn atomic(&self) -> AtomicEth {
        match self.datagram.body {
            Body::Atomic {
                va,
                domain,
                operation,
            } => atomic_header(va, domain, operation),
            _ => atomic_header(Va(0), DomainId(0), Atomic::FetchAdd { addend: 0 }),
        }
    }

    fn ceth(&self) -> Ceth {
        match &self.datagram.body {
            Body::Answer {
                invalidation, cost, ..
            } => answer_header(invalidation, cost, Version::default()),
            Body::Forward {
                invalidation,
                cost,
                version,
                ..
            } => answer_header(invalidation, cost, *version),
            Body::Invalidate(invalidation) => Ceth::new(invalidation, BladeSet::EMPTY),
            Body::FanOut {
                invalidation,
                pending,
            } => Ceth::new(invalidation, *pending),
            _ => Ceth::default(),
        }
    }

    fn put_bth(&mut self, bth: Bth) {
        self.datagram.envelope = Envelope::of(&bth);
    }

    fn put_reth(&mut self, bth: Bth, reth: Reth) {
        let wanted = PageRequest {
            page: reth.va(),
            domain: reth.domain(),
        };
        match &mut self.datagram.body {
            Body::Write { page, .. } if bth.opcode == Opcode::Write as u8 => *page = wanted,
            _ => {
                let want = Opcode::from_u8(bth.opcode).and_then(Opcode::want);
                let want = want.unwrap_or(Want::Read);
                self.put(bth, Body::Request { want, page: wanted });
            }
        }
    }

    fn put_atomic(&mut self, bth: Bth, atomic: AtomicEth) {
        self.datagram.envelope = Envelope::of(&bth);
        if let Body::Atomic { va, domain, .. } = &mut self.datagram.body {
            (*va, *domain) = (Va(atomic.va.get()), DomainId(atomic.rkey.get()));
        }
    }

    fn put_ceth(&mut self, bth: Bth, ceth: Ceth) {
        let Ok(invalidation) = ceth.invalidation() else {
            return;
        };
        let body = if bth.opcode == Opcode::FanOut as u8 {
            let pending = BladeSet::from_bits(ceth.pending.get());
            Body::FanOut {
                invalidation,
                pending,
            }
        } else {
            Body::Invalidate(invalidation)
        };
        self.put(bth, body);
    }

    fn put_aeth(&mut self, bth: Bth, syndrome: Syndrome, version: Version) {
        self.put(bth, Body::Acknowledge { syndrome, version });
    }

    fn port(&self) -> &Port {
        &self.port
    }

    fn compute(&self, blade: BladeId) -> Option<(Node, Connection)> {
        let connection = self.tables().compute.get(&blade)?;
        Some((Node::Compute(blade), *connection))
    }

    fn memory(&self, number: u32) -> Option<Node> {
        let number = u8::try_from(number).ok()?;
        let is_there = self.tables().memory.contains(&number);
        is_there.then_some(Node::Memory(number))
    }

    fn is_placed(&self, domain: DomainId, blade: BladeId) -> bool {
        #[cfg(feature = "mutants")]
        if crate::mutant::Mutant::DomainNotChecked.is_active() {
            return true;
        }
        self.tables().is_placed(domain, blade)
    }

    /// There are no memos here.
    fn admit(
        &mut self,
        _slot: Option<usize>,
        domain: DomainId,
        va: Va,
        class: u32,
    ) -> Staged<Option<Location>> {
        #[cfg(feature = "mutants")]
        if crate::mutant::Mutant::DomainNotChecked.is_active() {
            return Ok(None);
        }
        match self.tables().permission(domain, va) {
            Some(permission) if permission.allows(class) => Ok(None),
            Some(permission) if permission.is_lost() => Err(stop!(Lost)),
            _ => Err(stop!(Protected)),
        }
    }

    fn translate(&self, va: Va) -> Option<Location> {
        self.tables().location(va)
    }

    fn slot_number(&self, va: Va) -> u32 {
        self.tables().slot(va).map_or(0, number)
    }

    fn slot(&self, number: u32) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        (index < self.switch.slots.len()).then_some(index)
    }

    fn open(&mut self, va: Va) -> u32 {
        self.switch.touch_first(va).map_or(0, number)
    }

    fn request(
        &mut self,
        slot: usize,
        va: Va,
        request: Request,
    ) -> Staged<(RequestVerdict, Region, Transition)> {
        let slot = &mut self.switch.slots[slot];
        let region = slot.region_with(va).ok_or(stop!(Moved))?;
        let step = admit(slot.word, slot.queue, request);
        #[cfg(feature = "mutants")]
        let step = crate::mutant::admitted(slot.word, request, step);
        let transition = Transition::between(slot.word, step.next);
        (slot.word, slot.queue) = (step.next, step.queue);
        Ok((step.verdict, region, transition))
    }

    fn answer(
        &mut self,
        slot: usize,
        number: u32,
        va: Va,
        answer: Answer,
        cost: Cost,
    ) -> Staged<(AnswerVerdict, Transition)> {
        let slot = &mut self.switch.slots[slot];
        let Some(region) = slot.region_with(va) else {
            return Err(stop!(StaleAnswer));
        };
        let step = on_answer(number, slot.word, answer);
        #[cfg(feature = "mutants")]
        let step = crate::mutant::answered(number, slot.word, answer, step);
        let transition = Transition::between(slot.word, step.next);
        slot.word = step.next;
        // What is stale is not told by the program either.
        let is_stale = matches!(step.verdict, AnswerVerdict::Stale);
        self.invalidated = Some((region, cost.dropped)).filter(|_| !is_stale && cost.dropped != 0);
        Ok((step.verdict, transition))
    }

    fn word(&self, slot: usize, va: Va) -> Staged<Word> {
        let slot = &self.switch.slots[slot];
        match slot.region_with(va) {
            Some(_) => Ok(slot.word),
            None => Err(stop!(Moved)),
        }
    }

    fn origin_of(
        &mut self,
        slot: usize,
        invalidations: &Invalidations,
        region: Region,
        page: Va,
        seq: Seq,
    ) -> Staged<(Seq, Va)> {
        self.switch.slots[slot]
            .origin_of(invalidations, region, page, seq)
            .map_err(Stop::because)
    }

    /// Accesses are not counted.
    fn touch(&mut self, _slot: usize) {}
}
