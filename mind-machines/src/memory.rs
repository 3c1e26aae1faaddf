//! A memory blade: the responder's answers, and the controller's commands.

use std::collections::BTreeMap;

#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use mind_common::{
    addr::{PAGE_SHIFT, PAGE_SIZE, Va},
    directory::Want,
    id::{BladeId, Connection},
    memory::{Attempt, Claim, Store, fenced, on_operation, on_write},
    rewrite,
    serial::{Seq, Version},
    verdict::{Kind, Verdict},
    wire::{Atomic, Syndrome},
};

use crate::datagram::{Body, Content, Datagram};

/// Bytes of the word that an atomic operation changes.
const WORD: u64 = 8;

/// A page of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page<P> {
    /// Counts its write-backs.
    pub version: Version,
    /// What is in it.
    pub data: P,
}

/// A compute blade's latest atomic operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Which one.
    pub claim: Claim,
    /// The value before it.
    pub original: u64,
}

/// A memory blade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory<P> {
    count: u64,
    /// Pages that were changed; all others are zeros of version 0.
    pages: BTreeMap<u64, Page<P>>,
    operations: BTreeMap<BladeId, Operation>,
}

type Staged<T> = Result<T, Verdict>;

impl<P: Content> Memory<P> {
    /// A memory blade with that many pages, all zeros.
    pub fn new(count: u64) -> Self {
        Self {
            count,
            pages: BTreeMap::new(),
            operations: BTreeMap::new(),
        }
    }

    /// Handles `packet`: the verdict, and the answer to the switch, if there is one.
    pub fn handle(&mut self, packet: Datagram<P>) -> (Verdict, Option<Datagram<P>>) {
        let bth = packet.bth();
        let answered = self.dispatch(packet);
        let (verdict, body) = match answered {
            Ok((verdict, body)) => (verdict, body),
            Err(verdict) => {
                let Kind::Refused(refusal) = verdict.kind() else {
                    return (verdict, None);
                };
                let body = Body::Acknowledge {
                    syndrome: Syndrome::Refused(refusal),
                    version: Version::new(0),
                };
                (verdict, body)
            }
        };
        let bth = rewrite::answer(&bth, body.opcode());
        (verdict, Some(Datagram::new(&bth, body)))
    }

    fn dispatch(&mut self, packet: Datagram<P>) -> Staged<(Verdict, Body<P>)> {
        match packet.body {
            Body::Request {
                want: Want::Read,
                page,
            } => self.read(page.page),
            Body::Write {
                page,
                version,
                data,
            } => self.write(page.page, version, data),
            Body::Atomic { va, operation, .. } => {
                let connection = Connection::from_qp(packet.envelope.qp);
                self.operate(va, operation, connection, packet.envelope.seq)
            }
            Body::Request { .. }
            | Body::ReadResponse { .. }
            | Body::Acknowledge { .. }
            | Body::AtomicAcknowledge { .. }
            | Body::Invalidate(_)
            | Body::Answer { .. }
            | Body::Forward { .. }
            | Body::FanOut { .. } => Err(Verdict::UnexpectedOpcode),
        }
    }

    fn read(&self, offset: Va) -> Staged<(Verdict, Body<P>)> {
        let number = self.whole(offset)?;
        let Page { version, data } = self.page(number);
        Ok((Verdict::Read, Body::ReadResponse { version, data }))
    }

    fn write(&mut self, offset: Va, version: Version, data: P) -> Staged<(Verdict, Body<P>)> {
        let number = self.whole(offset)?;
        let store = on_write(self.version(number), version);
        #[cfg(feature = "mutants")]
        let store = match store {
            Store::Stale if Mutant::OldWriteStored.is_active() => Store::Accept,
            Store::Duplicate if Mutant::WriteStoredTwice.is_active() => Store::Accept,
            _ => store,
        };
        let verdict = match store {
            Store::Accept => {
                self.pages.insert(number, Page { version, data });
                Verdict::Stored
            }
            Store::Duplicate => Verdict::Duplicate,
            Store::Stale => return Err(Verdict::Outdated),
        };
        let syndrome = Syndrome::Ack;
        Ok((verdict, Body::Acknowledge { syndrome, version }))
    }

    fn operate(
        &mut self,
        at: Va,
        operation: Atomic,
        connection: Option<Connection>,
        seq: Seq,
    ) -> Staged<(Verdict, Body<P>)> {
        if !at.0.is_multiple_of(WORD) {
            return Err(Verdict::Invalid);
        }
        let number = self.find(at)?;
        let connection = connection.ok_or(Verdict::StaleConnection)?;
        let latest = self.operations.get(&connection.blade).copied();
        let latest = latest.unwrap_or_default();
        let attempt = on_operation(latest.claim, connection, seq);
        #[cfg(feature = "mutants")]
        let attempt = match attempt {
            Attempt::Replay if Mutant::OperatedTwice.is_active() => Attempt::CarryOut(latest.claim),
            _ => attempt,
        };
        let (verdict, original) = match attempt {
            Attempt::CarryOut(claim) => {
                let original = self.carry_out(number, at, operation);
                let claim = claim.closed();
                let done = Operation { claim, original };
                self.operations.insert(connection.blade, done);
                (Verdict::Operated, original)
            }
            Attempt::Replay => (Verdict::Replayed, latest.original),
            Attempt::Ignore => return Err(Verdict::StaleOperation),
        };
        let syndrome = Syndrome::Ack;
        Ok((verdict, Body::AtomicAcknowledge { syndrome, original }))
    }

    fn carry_out(&mut self, number: u64, at: Va, operation: Atomic) -> u64 {
        let word = (at.0 as usize & (PAGE_SIZE - 1)) / WORD as usize;
        let page = self.pages.entry(number).or_default();
        let original = page.data.word(word);
        match operation {
            Atomic::FetchAdd { addend } => {
                page.data.set_word(word, original.wrapping_add(addend));
            }
            Atomic::CmpSwap { expected, new } if original == expected => {
                page.data.set_word(word, new);
            }
            Atomic::CmpSwap { .. } => {}
        }
        page.version = page.version.next();
        original
    }

    fn whole(&self, offset: Va) -> Staged<u64> {
        if !offset.is_page_aligned() {
            return Err(Verdict::Invalid);
        }
        self.find(offset)
    }

    fn find(&self, offset: Va) -> Staged<u64> {
        let number = offset.0 >> PAGE_SHIFT;
        if number < self.count {
            Ok(number)
        } else {
            Err(Verdict::OutOfRange)
        }
    }

    fn version(&self, number: u64) -> Version {
        self.pages
            .get(&number)
            .map_or_else(Version::default, |page| page.version)
    }

    /// The page with that number.
    pub fn page(&self, number: u64) -> Page<P> {
        self.pages.get(&number).cloned().unwrap_or_default()
    }

    /// The latest atomic operation of a blade.
    pub fn operation(&self, blade: BladeId) -> Operation {
        self.operations.get(&blade).copied().unwrap_or_default()
    }

    /// Puts a compute blade's latest atomic operation there.
    pub fn set_operation(&mut self, blade: BladeId, operation: Operation) {
        self.operations.insert(blade, operation);
    }

    /// Puts a page there, with its version.
    pub fn set_page(&mut self, number: u64, page: Page<P>) {
        self.pages.insert(number, page);
    }

    // The controller's commands.

    /// Fills `count` pages from `first` on with zeros, as a write with a version of its own.
    pub fn zero(&mut self, first: u64, count: u64) {
        self.advance(first, count, |page| Page {
            version: page.version.next(),
            data: P::default(),
        });
    }

    /// Refuses from now on write-backs that a blade which is gone may still have on their way to
    /// `count` pages from `first` on. The pages' content stays.
    pub fn fence(&mut self, first: u64, count: u64) {
        #[cfg(feature = "mutants")]
        if Mutant::PagesNotFenced.is_active() {
            return;
        }
        self.advance(first, count, |page| Page {
            version: fenced(page.version),
            data: page.data,
        });
    }

    /// Refuses from now on atomic operations of an incarnation of a compute blade that has ended.
    pub fn fence_blade(&mut self, ended: Connection) {
        #[cfg(feature = "mutants")]
        if Mutant::BladeNotFenced.is_active() {
            return;
        }
        let latest = self.operation(ended.blade);
        // No operation is being carried out between two datagrams.
        if let Some(claim) = latest.claim.over(ended) {
            self.operations
                .insert(ended.blade, Operation { claim, ..latest });
        }
    }

    fn advance(&mut self, first: u64, count: u64, change: impl Fn(Page<P>) -> Page<P>) {
        let end = first.saturating_add(count).min(self.count);
        for number in first..end {
            let page = self.page(number);
            self.pages.insert(number, change(page));
        }
    }
}
