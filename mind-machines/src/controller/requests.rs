//! What is asked, and what is answered: who asks for what, whether there is room for it, what it claims, and answers that
//! are kept for agents that ask again.

use std::collections::VecDeque;

use mind_api::{
    errno::{Errno, Failure},
    message::{BladeKind, Registration, Reply, Request},
};
use mind_common::{
    addr::{Va, WINDOW_BASE, WINDOW_SIZE},
    id::MAX_BLADES,
};

use super::{
    Controller, OperationId, Output, Session, Stage,
    books::{
        Answer,
        blades::{Incarnation, Port},
        domains::Process,
        memory::GRANULE,
        records, tables,
    },
    operation::{Asker, Claim, Operation, Otherwise, Task, Thing},
};

/// Whether a request is carried out once only, however often it is made: its answer is kept.
pub(super) const fn is_kept(request: &Request) -> bool {
    matches!(
        request,
        Request::EnterProcess { .. }
            | Request::ExitProcess { .. }
            | Request::Map { .. }
            | Request::Unmap { .. }
            | Request::Protect { .. }
            | Request::OpenArea { .. }
            | Request::UnlinkArea { .. }
            | Request::ReportLoss { .. }
    )
}

impl Controller {
    /// A session asks for something.
    pub(super) fn requested(&mut self, session: Session, id: u64, answered: u64, body: Request) {
        let by = self.agent(session);
        if let Some(by) = by {
            self.forget_answers(by, answered);
            let operation = self.index.of_request(by, id);
            let operation = operation.and_then(|operation| self.operations.get_mut(&operation));
            if let Some(asker) = operation.and_then(|operation| operation.asker.as_mut()) {
                // It is asked for again, on another connection. Its answer may be kept already, and is not given yet.
                asker.session = session;
                return;
            }
            let answer = self.books.answers.get(&(by, id)).cloned();
            if let Some(answer) = answer.filter(|_| !seeded!(CarriedOutTwice)) {
                return self.answer_at_once(session, id, answer);
            }
        }
        if let Err(failure) = self.check_room(by, &body) {
            return self.answer_at_once(session, id, Err(failure));
        }
        let claim = Self::claim_of(by, &body);
        let asker = Asker { session, by, id };
        self.begin(claim, Some(asker), vec![Task::Decide(Box::new(body))]);
    }

    /// Whether there is room for one more operation, and for its answer.
    fn check_room(&self, by: Option<Incarnation>, body: &Request) -> Result<(), Failure> {
        self.check_operations(0)?;
        if let Some(by) = by.filter(|_| is_kept(body)) {
            let kept = self.books.answers.range((by, 0)..=(by, u64::MAX)).count();
            if kept >= self.config.answers {
                let message = format!(
                    "{} has not said of {kept} answers that it got them, which is as many as are kept",
                    self.name_of(by)
                );
                return Err(Failure::new(Errno::EBUSY, message));
            }
        }
        Ok(())
    }

    /// Whether there is room for one more operation that answers something, where there may be `more` than usual.
    fn check_operations(&self, more: usize) -> Result<(), Failure> {
        let asked = self.index.asked();
        if asked < self.config.operations.saturating_add(more) {
            return Ok(());
        }
        let message = format!(
            "the controller has {asked} requests under way, which is as many as it takes: ask again later"
        );
        Err(Failure::new(Errno::EBUSY, message))
    }

    /// Answers to requests of lower numbers are not asked for any more.
    fn forget_answers(&mut self, by: Incarnation, answered: u64) {
        let old = self.books.answers.range((by, 0)..(by, answered));
        let old: Vec<_> = old.map(|(key, _)| *key).collect();
        for key in old {
            self.books.answers.remove(&key);
            self.books.touch(records::Key::Answer(key.0, key.1));
        }
    }

    /// What a request will touch.
    fn claim_of(by: Option<Incarnation>, request: &Request) -> Claim {
        match request {
            // A process that has left may still be giving up what it had when its number comes again.
            Request::EnterProcess { pid, .. } | Request::ExitProcess { pid, .. } => {
                let process = |by: Incarnation| Process {
                    blade: by.number,
                    pid: *pid,
                };
                let thing = by.map(|by| Thing::Process(process(by)));
                thing.map_or_else(Claim::default, Claim::thing)
            }
            Request::Unmap { .. } if seeded!(UnmapClaimsNothing) => Claim::default(),
            Request::ReportStuck { .. } | Request::ChangeRegion { .. }
                if seeded!(ClaimTooSmall) =>
            {
                Claim::default()
            }
            // Its regions end where its memory ends.
            Request::Unmap { va, length, .. } => {
                let length = length.checked_next_multiple_of(GRANULE);
                Claim::range(Va(*va), length.unwrap_or(u64::MAX))
            }
            Request::Protect { va, length, .. } => Claim::range(Va(*va), *length),
            Request::Sync { va, length, .. } => Claim::blocks(Va(*va), *length),
            Request::ReportStuck { va } | Request::ChangeRegion { va, .. } => Claim::block(Va(*va)),
            Request::OpenArea { domain, name, .. } | Request::UnlinkArea { domain, name } => {
                Claim::thing(Thing::Area(*domain, name.clone()))
            }
            _ => Claim::default(),
        }
    }

    pub(super) fn answer_at_once(&mut self, session: Session, id: u64, body: Answer) {
        let operation = OperationId(0);
        self.outbox.push_back(Output::Reply {
            operation,
            session,
            id,
            body,
        });
    }

    /// The answer is recorded with whatever is recorded next; not that to a blade which is gone, as it does not ask again.
    pub(super) fn keep_answer(&mut self, operation: &Operation, answer: &Answer) {
        if let Some(asker) = &operation.asker
            && let Some(by) = asker.by.filter(|by| self.books.blades.here(*by).is_some())
        {
            self.books.answers.insert((by, asker.id), answer.clone());
            self.books.touch(records::Key::Answer(by, asker.id));
        }
    }

    /// The tables follow, what has changed is recorded together with the answer, and the asker gets it.
    pub(super) fn finish(
        &mut self,
        operation: &mut Operation,
        keys: VecDeque<tables::Key>,
        answer: Answer,
        is_kept: bool,
    ) {
        if is_kept {
            self.keep_answer(operation, &answer);
        }
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Reply(answer),
            Task::Release,
        ]);
    }

    /// The request is done, and what it changed is recorded: the asker gets its answer. If the controller dies before the
    /// answer is recorded and before the asker has it, the asker asks again, and everything is done again.
    pub(super) fn done(&mut self, operation: &mut Operation, answer: Answer) {
        self.keep_answer(operation, &answer);
        self.keep_soon();
        operation.first([Task::Reply(answer)]);
    }

    /// A blade's agent registers.
    pub(super) fn registers(
        &mut self,
        session: Session,
        id: u64,
        registration: Registration,
        port: Port,
    ) {
        // There is room for every blade when requests have used theirs up.
        if let Err(failure) = self.check_operations(2 * MAX_BLADES) {
            return self.answer_at_once(session, id, Err(failure));
        }
        let asker = Asker {
            session,
            by: None,
            id,
        };
        self.begin(
            Claim::thing(Thing::Port(port)),
            Some(asker),
            vec![Task::Join(port, Box::new(registration))],
        );
    }

    /// An agent that was awaited, and registers anew, does not come back.
    pub(super) fn will_not_resume(&mut self, kind: BladeKind, address: std::net::Ipv4Addr) {
        let books = &self.books;
        let is_its = |incarnation: &Incarnation| {
            let blade = books.blades.get(incarnation.kind, incarnation.number);
            incarnation.kind == kind && blade.is_some_and(|blade| blade.address == address)
        };
        if let Stage::TakingOver(awaited) = &mut self.stage {
            awaited.retain(|incarnation| !is_its(incarnation));
        }
    }

    /// The answer to a blade that has joined, or is back.
    pub(super) fn welcome(&self, incarnation: Incarnation) -> Reply {
        Reply::Registered {
            number: incarnation.number,
            incarnation: incarnation.incarnation,
            switch: self.config.address,
            window_base: WINDOW_BASE,
            window_size: WINDOW_SIZE,
        }
    }
}
