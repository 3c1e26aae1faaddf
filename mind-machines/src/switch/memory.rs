//! What goes to memory without changing the directory: write-backs and atomic operations.

use mind_common::{
    addr::Va,
    directory::machine::{may_operate, may_write_back},
    id::{BladeId, DomainId},
    table::MAY_WRITE,
    verdict::Verdict,
    wire::message::PageRequest,
};

use super::{Exit, Left, Staged, Switch, request::page};
use crate::{
    Node,
    packet::{Body, Packet},
};

/// Bytes of the word that an atomic operation is about.
const WORD: u64 = 8;

impl Switch {
    /// A blade writes a page back. Neither domain nor protection is asked.
    pub(super) fn write_back<P>(&self, from: BladeId, mut packet: Packet<P>) -> Staged<Left<P>> {
        let Body::Write { page: wanted, .. } = &mut packet.body else {
            return Err(Verdict::UnexpectedOpcode);
        };
        let page = page(wanted.page)?;
        let place = self.tables.place(page).ok_or(Verdict::NoMemory)?;
        let (index, _) = self.find(page)?;
        if !may_write_back(self.slots[index].word, from) {
            return Err(Verdict::NotOwner);
        }
        *wanted = PageRequest {
            page: place.offset,
            domain: DomainId(0),
        };
        Ok((
            Verdict::WriteBack,
            Exit::To(Node::Memory(place.memory), packet),
        ))
    }

    /// A blade wants an atomic operation carried out.
    pub(super) fn operate<P>(&self, from: BladeId, mut packet: Packet<P>) -> Staged<Left<P>> {
        let Body::Atomic { va, domain, .. } = &mut packet.body else {
            return Err(Verdict::UnexpectedOpcode);
        };
        let at: Va = *va;
        if !at.0.is_multiple_of(WORD) || !at.is_in_window(WORD) {
            return Err(Verdict::Invalid);
        }
        self.allowed(from, *domain, at, MAY_WRITE)?;
        let place = self.tables.place(at).ok_or(Verdict::NoMemory)?;
        let (index, _) = self.find(at)?;
        may_operate(self.slots[index].word, from).map_err(Verdict::of_directory)?;
        (*va, *domain) = (place.offset, DomainId(0));
        Ok((
            Verdict::Operate,
            Exit::To(Node::Memory(place.memory), packet),
        ))
    }
}
