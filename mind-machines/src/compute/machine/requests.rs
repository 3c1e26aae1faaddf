//! Requests and write-backs under way: sent, answered, repeated, given up, reported as stuck.

use crate::datagram::{Body, Datagram};
use std::vec::Vec;

use super::{Action, Blade, Timer};
use crate::{
    compute::page::Event,
    datagram::{Envelope, PageRequest},
};
use mind_common::{
    addr::Va,
    directory::{Transition, Want},
    refusal::Refusal,
    serial::{Seq, Version},
    wire::bth,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Request(Want),
    WriteBack(Version),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transaction {
    pub(super) page: Va,
    pub(super) purpose: Purpose,
    /// When the switch last said that it is to wait, or it began.
    pub(super) heard_at: u64,
    pub(super) sent: u64,
    /// How often it went unanswered.
    pub(super) attempt: u8,
    /// How often it was refused as "busy".
    pub(super) refusals: u32,
    /// When it was last sent as a repeat (attempt above 0), or began.
    pub(super) repeated_at: u64,
    /// When it was last reported to the controller, or began.
    pub(super) reported_at: u64,
    /// What its timer waits for: a pause to be over, or an answer.
    pub(super) pausing: bool,
    pub(super) due: u64,
    /// Whether threads that faulted after it was first sent wait for it, too.
    pub(super) is_joined: bool,
}

impl Blade {
    pub(super) fn answered(
        &mut self,
        now: u64,
        envelope: &Envelope,
        about: Option<Va>,
        event: Event,
        out: &mut Vec<Action>,
    ) {
        let seq = envelope.seq.get();
        let known = self.transactions.get(&seq).copied().filter(|transaction| {
            about.is_none_or(|page| page == transaction.page)
                && match (transaction.purpose, event) {
                    // A grant without the page is no answer to a READ.
                    (Purpose::Request(want), Event::Granted) => want != Want::Read,
                    (Purpose::Request(_), Event::Data(_) | Event::Refused(_)) => true,
                    // One "busy" is enough.
                    (Purpose::WriteBack(_), Event::NotStored(Refusal::Busy)) => {
                        !transaction.pausing
                    }
                    (Purpose::WriteBack(_), Event::Stored | Event::NotStored(_)) => true,
                    _ => false,
                }
        });
        let Some(transaction) = known else {
            self.counters.ignored += 1;
            return;
        };
        let page = transaction.page;
        let is_joined = transaction.is_joined;
        #[cfg(feature = "mutants")]
        let is_joined = is_joined && !crate::mutant::Mutant::DeniedToLater.is_active();
        if event == Event::Refused(Refusal::Denied) && is_joined {
            self.ask_anew(now, page, transaction.purpose, out);
            return;
        }
        match event {
            Event::Refused(Refusal::Busy) | Event::NotStored(Refusal::Busy) => {
                self.counters.busy += 1;
                if let Some(transaction) = self.transactions.get_mut(&seq) {
                    transaction.heard_at = now;
                }
                let owed = self
                    .pages
                    .get(&page)
                    .is_some_and(|entry| entry.page.owed.is_some());
                if transaction.pausing && !owed {
                    return;
                }
            }
            _ => {
                if transaction.attempt == 0 && transaction.refusals == 0 {
                    self.trip.sample(now.saturating_sub(transaction.sent));
                }
                self.end(page);
                if matches!(event, Event::Data(_) | Event::Granted)
                    && let Some(entry) = self.pages.get_mut(&page)
                    && let Some(faulted_at) = entry.faulted_at.take()
                {
                    out.push(Action::Served {
                        transition: Transition::from_u8(envelope.attempt),
                        nanos: now.saturating_sub(faulted_at),
                    });
                }
            }
        }
        self.apply(now, page, event, out);
    }

    /// A fault on a page with a request under way.
    pub(super) fn join(&mut self, page: Va) {
        let seq = self.pages.get(&page).and_then(|entry| entry.seq);
        if let Some(seq) = seq
            && let Some(transaction) = self.transactions.get_mut(&seq.get())
        {
            transaction.is_joined = true;
        }
    }

    /// Sends a denied request again under a new number: the denial may be older than the last of
    /// its threads' faults, and the permission granted in between. The new answer is for all of
    /// them.
    fn ask_anew(&mut self, now: u64, page: Va, purpose: Purpose, out: &mut Vec<Action>) {
        let entry = self.pages.get(&page);
        let owes = entry.is_some_and(|entry| entry.page.owed.is_some());
        self.end(page);
        if owes {
            // The request was not granted; it is made again when the region has been given up.
            self.apply(now, page, Event::Refused(Refusal::Busy), out);
        } else {
            self.begin(now, page, purpose, out);
        }
    }

    pub(super) fn begin(&mut self, now: u64, page: Va, purpose: Purpose, out: &mut Vec<Action>) {
        let mut seq = self.next_seq;
        while self.transactions.contains_key(&seq.get()) {
            seq = seq.next();
        }
        self.next_seq = seq.next();
        #[cfg(feature = "mutants")]
        if crate::mutant::Mutant::NumberUsedAgain.is_active() {
            self.next_seq = self.config.first_seq;
        }
        match purpose {
            Purpose::Request(_) => self.counters.requests += 1,
            Purpose::WriteBack(_) => self.counters.write_backs += 1,
        }
        let transaction = Transaction {
            page,
            purpose,
            heard_at: now,
            sent: now,
            attempt: 0,
            refusals: 0,
            repeated_at: now,
            reported_at: now,
            pausing: false,
            due: 0,
            is_joined: false,
        };
        self.transactions.insert(seq.get(), transaction);
        if let Some(entry) = self.pages.get_mut(&page) {
            entry.seq = Some(seq);
        }
        self.send(now, seq, 0, out);
    }

    /// Sends the request with that number and sets its timer.
    fn send(&mut self, now: u64, seq: Seq, attempt: u8, out: &mut Vec<Action>) {
        let Some(transaction) = self.transactions.get_mut(&seq.get()) else {
            return;
        };
        let Some(entry) = self.pages.get(&transaction.page) else {
            return;
        };
        let page = PageRequest {
            page: transaction.page,
            domain: entry.domain,
        };
        transaction.sent = now;
        transaction.pausing = false;
        let wait = self.trip.timeout(transaction.attempt);
        out.push(Action::Send(Datagram {
            envelope: Envelope {
                qp: self.config.connection.to_qp(),
                seq,
                attempt,
            },
            body: match transaction.purpose {
                Purpose::Request(want) => Body::Request { want, page },
                Purpose::WriteBack(version) => Body::Write {
                    page,
                    version,
                    data: page,
                },
            },
        }));
        self.set_due(seq, now.saturating_add(wait));
    }

    fn set_due(&mut self, seq: Seq, due: u64) {
        if let Some(transaction) = self.transactions.get_mut(&seq.get()) {
            self.timers
                .remove(&(transaction.due, Timer::Transaction(seq.get())));
            transaction.due = due;
            self.timers.insert((due, Timer::Transaction(seq.get())));
        }
    }

    /// Removes the request that a page has under way.
    pub(super) fn end(&mut self, page: Va) {
        if let Some(seq) = self.pages.get_mut(&page).and_then(|e| e.seq.take())
            && let Some(transaction) = self.transactions.remove(&seq.get())
        {
            self.timers
                .remove(&(transaction.due, Timer::Transaction(seq.get())));
        }
    }

    pub(super) fn pause(&mut self, now: u64, page: Va) {
        let Some(seq) = self.pages.get(&page).and_then(|entry| entry.seq) else {
            return;
        };
        let Some(transaction) = self.transactions.get_mut(&seq.get()) else {
            return;
        };
        transaction.refusals = transaction.refusals.saturating_add(1);
        transaction.pausing = true;
        let pause = self.trip.pause(transaction.refusals);
        self.set_due(seq, now.saturating_add(pause));
    }

    /// A pause is over, or an answer did not come in time.
    pub(super) fn on_due(&mut self, now: u64, seq: u32, out: &mut Vec<Action>) {
        let repeat_after = self.trip.timeout(0);
        let Some(transaction) = self.transactions.get(&seq) else {
            return;
        };
        let page = transaction.page;
        // A write-back is all that is left of what programs wrote: it is never given up.
        if matches!(transaction.purpose, Purpose::Request(_))
            && now.saturating_sub(transaction.heard_at) >= self.config.deadline
        {
            self.counters.expired += 1;
            self.end(page);
            self.apply(now, page, Event::Refused(Refusal::Unreachable), out);
            return;
        }
        self.report_stuck(now, seq, out);
        let Some(transaction) = self.transactions.get_mut(&seq) else {
            return;
        };
        let owed = self
            .pages
            .get(&page)
            .is_some_and(|entry| entry.page.owed.is_some());
        if !transaction.pausing && owed && matches!(transaction.purpose, Purpose::Request(_)) {
            // Another blade wants the region, so either the answer to this request is lost, or its
            // repeat only repeated the invalidation sent to this blade. Treated as "busy".
            self.counters.timeouts += 1;
            self.apply(now, page, Event::Refused(Refusal::Busy), out);
            return;
        }
        let attempt = if transaction.pausing {
            // The switch answers, so no packet of this request is lost; but the request that the
            // region is busy with may be stuck.
            if now.saturating_sub(transaction.repeated_at) >= repeat_after {
                transaction.repeated_at = now;
                1
            } else {
                0
            }
        } else {
            self.counters.timeouts += 1;
            transaction.repeated_at = now;
            transaction.attempt = transaction.attempt.saturating_add(1).min(bth::MAX_ATTEMPT);
            transaction.attempt
        };
        self.send(now, Seq::new(seq), attempt, out);
    }

    /// Reports a request that does not complete to the controller, every
    /// [`Config::stuck_after`](super::Config::stuck_after). Not a write-back: the controller's
    /// reset of the region waits for that.
    fn report_stuck(&mut self, now: u64, seq: u32, out: &mut Vec<Action>) {
        let Some(transaction) = self.transactions.get_mut(&seq) else {
            return;
        };
        let is_due = now.saturating_sub(transaction.reported_at) >= self.config.stuck_after;
        if is_due
            && matches!(transaction.purpose, Purpose::Request(_))
            && let Some(entry) = self.pages.get(&transaction.page)
        {
            transaction.reported_at = now;
            self.counters.reported_stuck += 1;
            out.push(Action::ReportStuck {
                page: PageRequest {
                    page: transaction.page,
                    domain: entry.domain,
                },
            });
        }
    }
}
