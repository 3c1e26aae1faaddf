//! Memory blades: what they keep, what they are told to do, and how they crash.

use mind_api::{
    errno::{Errno, Failure as Refused},
    message::{Command, Report},
};
use mind_common::{
    addr::{PAGE_SHIFT, PAGE_SIZE, Va},
    id::Connection,
};
use mind_machines::{Node, controller::Session, datagram::Datagram, memory::Memory};

use crate::{
    Flaw,
    plan::{Image, NetworkFaults},
    trace::What,
    world::{Event, World},
};

/// Pages that a memory blade zeros for one command: fewer than it may be told to.
const ZEROED: u64 = 4;

/// The longest that a packet takes, in nanoseconds.
const fn longest(faults: NetworkFaults) -> u64 {
    /// One that is neither late nor held up.
    const USUAL: u64 = 10_000;
    USUAL + faults.latest + faults.longest
}

impl World<'_> {
    /// A memory blade is registered: it is empty. Requests to an earlier incarnation look like those to this one, and must
    /// not be answered with its zeros: it does not listen before they are gone.
    pub(crate) fn begin_memory(&mut self, number: u8) {
        self.memories.insert(number, Memory::new(self.memory_pages));
        if !self.is_starting {
            let gone = self.queue.now() + longest(self.plan.network_faults);
            self.absent_until.insert(number, gone);
        }
    }

    /// A memory blade crashes and loses what it kept; the controller finds out, and the blade registers again.
    pub(crate) fn crash_memory(&mut self, number: u8, noticed: u64, back: u64) {
        if self.memories.remove(&number).is_some() {
            let node = Node::Memory(number);
            self.end_agent(node, noticed);
            self.queue.after(back, Event::Begin(node));
        }
    }

    /// An incarnation of a memory blade has joined: what is in no vma is zeros.
    pub(crate) fn memory_joined(&mut self, number: u8) {
        for page in self.checker.pages() {
            let is_free = self.controller.books().domains.vma_at(page).is_none();
            let kept = self.switch.tables().location(page);
            if kept.is_some_and(|kept| kept.blade == u32::from(number)) && is_free {
                self.checker.zeroed(page);
            }
        }
    }

    /// Whether the controller has reported that the page is lost with its memory blade.
    pub(crate) fn is_vma_lost(&self, page: Va) -> bool {
        let before = self.lost_ranges.range(..=page).next_back();
        before.is_some_and(|(va, length)| page.0 < va.0 + length)
    }

    /// Whether the page is in no vma, or in one that is being unmapped.
    pub(crate) fn is_closed(&self, page: Va) -> bool {
        let vma = self.controller.books().domains.vma_at(page);
        vma.is_none_or(|vma| vma.is_closing)
    }

    pub(crate) fn at_memory(&mut self, number: u8, mut packet: Datagram<Image>) {
        let node = Node::Memory(number);
        self.record(What::Arrived(node, packet));
        self.break_memory(number, &mut packet);
        let is_absent = self.absent_until.get(&number) > Some(&self.queue.now());
        let Some(memory) = self.memories.get_mut(&number).filter(|_| !is_absent) else {
            return;
        };
        let (_, answer) = memory.handle(packet);
        if let Some(answer) = answer {
            self.send(node, answer);
        }
    }

    pub(crate) fn command_memory(
        &mut self,
        session: Session,
        number: u8,
        order: u64,
        command: &Command,
    ) {
        let fences = !self.has(Flaw::NoFences);
        let Some(memory) = self.memories.get_mut(&number) else {
            return;
        };
        let mut result = Ok(Report::Done);
        match *command {
            Command::ZeroPages { .. } if self.mapped.unzeroed(number) > self.queue.now() => {
                let message = "pages cannot be zeroed".to_owned();
                result = Err(Refused::new(Errno::EIO, message));
            }
            Command::ZeroPages { first, count } => {
                let pages = count.min(ZEROED);
                result = Ok(Report::Zeroed { pages });
                memory.zero(first, pages);
                // What a blade zeros was freed: at the addresses that it had then.
                for piece in self.controller.books().unclean_of(number) {
                    let zeroed = piece.extent.first_page()..;
                    let its = zeroed.zip((piece.va..piece.end()).step_by(PAGE_SIZE));
                    for (_, va) in its.filter(|(page, _)| (first..first + pages).contains(page)) {
                        self.checker.zeroed(Va(va));
                    }
                }
            }
            Command::FencePages { first, count } if fences => memory.fence(first, count),
            Command::FencePages { .. } => {}
            Command::FenceBlade { qp } => {
                if let Some(connection) = Connection::from_qp(qp) {
                    memory.fence_blade(connection);
                }
            }
            Command::Leave
            | Command::FlushRange { .. }
            | Command::Identify
            | Command::CountCache => return,
        }
        self.report(session, order, result);
    }

    /// The content of a page in memory.
    pub(crate) fn in_memory(&self, page: Va) -> Image {
        let kept = self.switch.tables().location(page);
        let memory = kept.and_then(|kept| {
            let memory = self.memories.get(&u8::try_from(kept.blade).ok()?)?;
            Some(memory.page(kept.offset.0 >> PAGE_SHIFT).data)
        });
        memory.unwrap_or_default()
    }
}
