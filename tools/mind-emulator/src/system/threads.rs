//! Threads: each makes its accesses one after the other, until one has to wait.

use std::cmp::Reverse;

use mind_common::{directory::State, id::BladeId};

use super::{System, blade::Evicted, pages::Kind};
use crate::{
    modes::{MOST_WRITES, Protocol},
    trace::{Access, Error, Source},
};

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) blade: BladeId,
    /// The access that it has begun.
    pub(super) access: Option<Access>,
    /// Whether that has waited.
    pub(super) has_waited: bool,
    /// Its writes under way that it does not wait for.
    pub(super) writes: u32,
    /// Whether it waits until there are fewer.
    pub(super) is_full: bool,
}

/// The latest time, in nanoseconds: 18 years. What requests take is added to times without looking.
const LATEST: u64 = 1 << 59;

/// A time so much later.
const fn later(now: u64, by: u64) -> Result<u64, Error> {
    match now.saturating_add(by) {
        at if at < LATEST => Ok(at),
        _ => Err(Error::Unfit(
            "the times of a thread add up to more than 18 years",
        )),
    }
}

/// What became of an access.
enum Went {
    /// The blade had the page.
    Hit,
    /// The thread goes on while the page comes.
    On,
    /// The thread waits, and makes the access again or goes on when it is woken.
    Waits,
}

impl Thread {
    pub(super) const fn new(blade: BladeId) -> Self {
        Self {
            blade,
            access: None,
            has_waited: false,
            writes: 0,
            is_full: false,
        }
    }
}

impl System {
    /// A thread has its turn.
    pub(super) fn on_thread(
        &mut self,
        now: u64,
        number: usize,
        source: &mut dyn Source,
    ) -> Result<(), Error> {
        let mut until = self.until();
        let mut now = now;
        loop {
            let access = match self.threads[number].access.take() {
                Some(access) => access,
                None => {
                    let Some(access) = source.next(number)? else {
                        self.end = self.end.max(now);
                        return Ok(());
                    };
                    self.counters.accesses += u64::from(access.count);
                    now = later(now, access.gap)?;
                    if access.gap > 0 && now > until {
                        self.threads[number].access = Some(access);
                        self.wake(now, number as u32);
                        return Ok(());
                    }
                    access
                }
            };
            match self.access(now, number, access) {
                Went::Hit => {
                    let has_waited = std::mem::take(&mut self.threads[number].has_waited);
                    self.counters.hits += u64::from(access.count) - u64::from(has_waited);
                }
                Went::On => {
                    self.counters.hits += u64::from(access.count) - 1;
                    until = self.until();
                }
                Went::Waits => return Ok(()),
            }
            now = later(now, self.local(access))?;
            if now > until {
                self.wake(now, number as u32);
                return Ok(());
            }
        }
    }

    /// When something else than the thread that has its turn is next.
    fn until(&self) -> u64 {
        let next = self.events.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        next.min(self.epochs.end)
    }

    /// What accesses take where the page is.
    pub(super) const fn local(&self, access: Access) -> u64 {
        self.nanos.local.saturating_mul(access.count as u64)
    }

    fn access(&mut self, now: u64, number: usize, access: Access) -> Went {
        let Access { page, is_write, .. } = access;
        let at = usize::from(self.threads[number].blade.get());
        let state = self.blades[at].pages.get(page);
        match state.kind() {
            Kind::Modified => Went::Hit,
            Kind::Shared | Kind::Upgrading if !is_write => Went::Hit,
            Kind::Shared if self.may_write_silently(page, number) => {
                self.blades[at].write_silently(page);
                Went::Hit
            }
            Kind::Acquiring | Kind::Upgrading if is_write && !self.mode.waits_for_writes() => {
                Went::Hit
            }
            Kind::Reading | Kind::Acquiring | Kind::Upgrading => {
                self.join(number, access, state.value() as u32);
                Went::Waits
            }
            Kind::Absent | Kind::Shared => self.fault(now, number, access, state.kind()),
        }
    }

    /// Whether a copy to read may be written without asking: there is no directory, or it says that the blade is the
    /// owner and the protocol lets it.
    fn may_write_silently(&self, page: u32, number: usize) -> bool {
        match self.mode.protocol() {
            Protocol::None => true,
            Protocol::Msi => false,
            Protocol::Moesi => {
                let word = self.directory.slot(self.directory.find(page)).word;
                word.state() == State::Modified
                    && word.blades().contains(self.threads[number].blade)
            }
        }
    }

    /// Waits for a request that is under way.
    fn join(&mut self, number: usize, access: Access, request: u32) {
        self.counters.joined += 1;
        let thread = &mut self.threads[number];
        thread.access = Some(access);
        thread.has_waited = true;
        self.requests[request as usize].joined.push(number as u32);
    }

    fn fault(&mut self, now: u64, number: usize, access: Access, kind: Kind) -> Went {
        let waits = !access.is_write || self.mode.waits_for_writes();
        let thread = &mut self.threads[number];
        if !waits && thread.writes == MOST_WRITES {
            thread.access = Some(access);
            thread.is_full = true;
            return Went::Waits;
        }
        let blade = thread.blade;
        let at = usize::from(blade.get());
        if kind == Kind::Absent {
            let mut evicted = Evicted::default();
            let has_room = self.blades[at].make_room(now, &mut evicted);
            self.counters.evicted += evicted.pages;
            self.counters.evicted_flushed += evicted.flushed;
            if !has_room {
                // All pages have just come, or are coming: one may go before long.
                self.counters.full += 1;
                let again = now.saturating_add(self.blades[at].least_residency());
                self.threads[number].access = Some(access);
                self.wake(again, number as u32);
                return Went::Waits;
            }
        }
        let request = self.begin(now, blade, access.page, access.is_write, number as u32);
        self.threads[number].has_waited = false;
        if waits {
            // It goes on when the request is complete.
            self.threads[number].access = Some(access);
            Went::Waits
        } else {
            self.requests[request as usize].is_waited_for = false;
            self.threads[number].writes += 1;
            Went::On
        }
    }
}
