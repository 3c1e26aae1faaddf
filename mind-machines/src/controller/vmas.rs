//! Vmas: memory is found for them, they are opened, protected and closed, and what of them is lost is noted.

use std::collections::VecDeque;

use mind_api::{
    errno::{Errno, Failure},
    message::{Access, Reply, Request},
};
use mind_common::{addr::Va, permission::PermissionClass};

use super::{
    Controller, Event, OperationId,
    books::{
        PAGE,
        domains::{Domain, Lost, Process, Users, Vma},
        memory::NoMemory,
        records, tables,
    },
    operation::{Mapping, Operation, Otherwise, Task, Waits},
};

impl Controller {
    /// Finds memory for a new vma, or waits until some is zeroed.
    pub(super) fn allocate(
        &mut self,
        operation: &mut Operation,
        (domain, length, access, area): (u32, u64, Access, Option<(String, Process)>),
        again: Request,
    ) -> Result<(), Failure> {
        if access == Access::Lost {
            let message = "memory cannot be mapped as lost".to_owned();
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let blades = &self.books.blades;
        let pieces = match self
            .books
            .memory
            .allocate(length, |number| blades.has_memory(number))
        {
            Ok(pieces) => pieces,
            Err(NoMemory::Zeroing { .. }) => {
                operation.waits = Waits::Zeroed;
                operation.tasks.push(Task::Decide(Box::new(again)));
                return Ok(());
            }
            Err(error) => {
                let errno = match error {
                    NoMemory::Empty => Errno::EINVAL,
                    NoMemory::TooLong { .. } => Errno::EFBIG,
                    NoMemory::Full { .. }
                    | NoMemory::Scattered { .. }
                    | NoMemory::Zeroing { .. } => Errno::ENOMEM,
                };
                return Err(Failure::new(errno, error.to_string()));
            }
        };
        // Not above the pieces' length, which is a multiple of a page.
        let length = length.next_multiple_of(PAGE);
        let mapping = Mapping {
            domain,
            pieces,
            length,
            access,
            area,
        };
        operation.tasks.push(Task::Map(mapping));
        Ok(())
    }

    /// All is ready for a new vma.
    pub(super) fn map(&mut self, id: OperationId, operation: &mut Operation, mapping: Mapping) {
        self.hold(id);
        let Mapping {
            domain,
            pieces,
            length,
            access,
            area,
        } = mapping;
        let va = Va(pieces.first().map_or(0, |piece| piece.va));
        let places = self.books.places.replace(&[], &pieces);
        let (area, users) = match area {
            Some((name, process)) => (Some(name), Users::Openers(vec![(process, 1)])),
            None => (None, Users::Domain),
        };
        self.books.domains.put_vma(Vma {
            domain,
            pieces,
            length,
            users,
            area,
            lost: None,
            is_closing: false,
        });
        self.books.touch(records::Key::Vma(va.0));
        if self
            .books
            .domains
            .get(domain)
            .is_none_or(|domain| domain.processes.is_empty())
        {
            // The domain has ended meanwhile.
            let keys = self.close(va);
            let message = format!("domain {domain} has ended");
            let answer = Err(Failure::new(Errno::ESRCH, message));
            return self.finish(operation, keys, answer, true);
        }
        // Where it is kept comes before what may be done with it.
        let mut keys: VecDeque<_> = places.into_iter().map(tables::Key::Translation).collect();
        keys.extend(self.allow(domain, va, length, access));
        let answer = Ok(Reply::Mapped { va: va.0, length });
        self.keep_answer(operation, &answer);
        // Blades may have copies once the tables allow it: a controller that follows this one must know of the vma then.
        let mut tasks = [
            Task::Keep,
            Task::Install(keys, Otherwise::Unmap(va)),
            Task::Reply(answer),
            Task::Release,
        ];
        if seeded!(AnsweredBeforeRecord) {
            tasks.rotate_left(1);
            tasks.swap(2, 3);
        }
        if seeded!(AnsweredBeforeTables) {
            tasks.swap(1, 2);
        }
        operation.first(tasks);
    }

    /// A process opens an area that is there.
    pub(super) fn open_area(
        &mut self,
        va: Va,
        process: Process,
        name: &str,
        length: u64,
    ) -> Result<Reply, Failure> {
        let vma = self.books.domains.vma(va);
        let vma = vma.ok_or_else(|| Failure::new(Errno::ENOENT, format!("no area `{name}`")))?;
        if length > vma.length {
            let message = format!("area `{name}` has {} bytes, not {length}", vma.length);
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let length = vma.length;
        self.books.domains.add_user(va, process);
        self.books.touch(records::Key::Vma(va.0));
        Ok(Reply::Mapped { va: va.0, length })
    }

    /// A whole vma is given up by a process that uses it; with its last user it goes, unless it is an area that has a
    /// name.
    pub(super) fn unmap(
        &mut self,
        operation: &mut Operation,
        domain: u32,
        process: Process,
        va: Va,
        length: u64,
    ) -> Result<(), Failure> {
        let wanted = length.checked_next_multiple_of(PAGE);
        let vma = self.books.domains.vma(va);
        let is_it = |vma: &&Vma| {
            vma.domain == domain && !vma.is_closing && Some(vma.length) == wanted && length > 0
        };
        let vma = vma.filter(is_it).ok_or_else(|| {
            let message = format!("{length} bytes at {va} are no whole vma of domain {domain}");
            Failure::new(Errno::EINVAL, message)
        })?;
        let end = vma.memory_end();
        if !self.books.domains.remove_user(va, process) {
            let message = format!(
                "process {} has not opened the area at {va} of domain {domain}",
                process.pid
            );
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let goes = self
            .books
            .domains
            .vma(va)
            .is_some_and(|vma| match &vma.users {
                Users::Domain => true,
                Users::Openers(openers) => openers.is_empty() && vma.area.is_none(),
            });
        self.books.touch(records::Key::Vma(va.0));
        if !goes {
            self.finish(operation, VecDeque::new(), Ok(Reply::Done), true);
            return Ok(());
        }
        let keys = self.disallow(va);
        // From here on it happens, whether or not by this controller: one that follows has the same answer.
        self.keep_answer(operation, &Ok(Reply::Done));
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Release,
            Task::FreeRegions(va, end),
            Task::Unmapped(va),
            Task::Reply(Ok(Reply::Done)),
        ]);
        Ok(())
    }

    /// The domain may do something else with whole pages from now on; blades fetch them anew.
    pub(super) fn protect(
        &mut self,
        operation: &mut Operation,
        domain: u32,
        va: Va,
        length: u64,
        access: Access,
    ) -> Result<(), Failure> {
        let rounded = length.checked_next_multiple_of(PAGE);
        let end = rounded.and_then(|length| va.0.checked_add(length));
        let Some(end) = end.filter(|_| va.is_page_aligned()) else {
            let message = format!("{length} bytes at {va} are no whole pages");
            return Err(Failure::new(Errno::EINVAL, message));
        };
        if !self.books.domains.covers(domain, va.0, end) {
            let message =
                format!("part of {length} bytes at {va} is not mapped in domain {domain}");
            return Err(Failure::new(Errno::ENOMEM, message));
        }
        if access == Access::Lost {
            let message = "memory cannot be protected as lost".to_owned();
            return Err(Failure::new(Errno::EINVAL, message));
        }
        let known = self.books.domains.get(domain);
        let before = known.map_or_else(Vec::new, |domain| domain.protection.over(va.0, end));
        let blades = known
            .filter(|_| !seeded!(ProtectedUnflushed))
            .map(Domain::blades)
            .unwrap_or_default();
        // What is lost stays lost until it is unmapped.
        let left = before.iter().filter(|(_, _, class)| *class != Access::Lost);
        let left: Vec<_> = left.map(|(from, to, _)| (*from, *to)).collect();
        let mut keys = VecDeque::new();
        for (from, to) in left {
            keys.extend(self.allow(domain, Va(from), to - from, access));
        }
        operation.first([
            Task::Install(keys, Otherwise::Restore(domain, before)),
            Task::Keep,
            Task::Release,
            Task::Flush(blades, va.0, end),
            Task::Finish(Ok(Reply::Done)),
        ]);
        Ok(())
    }

    /// The domain may do that with pages of it from now on; the entries of the table that change.
    pub(super) fn allow(
        &mut self,
        domain: u32,
        va: Va,
        length: u64,
        class: PermissionClass,
    ) -> VecDeque<tables::Key> {
        let Some(known) = self.books.domains.get_mut(domain) else {
            return VecDeque::new();
        };
        let prefixes = known.protection.set(va, length, class);
        let end = va.0 + length;
        let first = self.books.domains.vma_at(va).map_or(va, Vma::va);
        let vmas = self
            .books
            .domains
            .vmas_from(first)
            .take_while(|vma| vma.va().0 < end);
        let vmas: Vec<_> = vmas.map(|vma| records::Key::Vma(vma.va().0)).collect();
        for vma in vmas {
            self.books.touch(vma);
        }
        let key = |prefix| tables::Key::Protection(domain, prefix);
        prefixes.into_iter().map(key).collect()
    }

    /// The vma is closing: its domain may do nothing with it any more.
    pub(super) fn disallow(&mut self, va: Va) -> VecDeque<tables::Key> {
        let Some(vma) = self.books.domains.close_vma(va) else {
            return VecDeque::new();
        };
        let (domain, length) = (vma.domain, vma.length);
        let area = vma.area.clone();
        if let Some(name) = area {
            self.books.domains.take_name(domain, &name);
        }
        self.allow(domain, va, length, PermissionClass::None)
    }

    /// A vma has no regions any more.
    pub(super) fn unmapped(&mut self, id: OperationId, operation: &mut Operation, va: Va) {
        self.hold(id);
        if let Some(vma) = self.books.domains.take_vma(va) {
            self.books.touch(records::Key::Vma(va.0));
            if self.books.domains.forget_if_empty(vma.domain) {
                self.books.touch(records::Key::Domain(vma.domain));
            }
            for piece in &vma.pieces {
                self.books.memory.free(*piece);
                if seeded!(ZeroingNotAwaited) {
                    self.books.memory.zeroed(*piece);
                }
                self.books.put_unclean(*piece);
                self.books.touch(records::Key::Unclean(piece.va));
            }
            for memory in vma.memories() {
                self.begin_zeroing(memory);
            }
        }
        // Until that is recorded it is a vma that is closing, which a controller that follows ends once more.
        self.keep_soon();
        operation.first([Task::Release]);
    }

    /// A table does not take an entry: what was decided does not happen.
    pub(super) fn not_installed(
        &mut self,
        operation: &mut Operation,
        failure: Failure,
        otherwise: Otherwise,
    ) {
        let keys = match otherwise {
            Otherwise::Report => {
                let what = "changing the switch's tables; see `mind-ctl check`";
                return self.event(Event::Failed { what, failure });
            }
            Otherwise::KeepSlot => {
                let what = "noting in the protection table that a region is lost";
                operation.tasks.clear();
                operation.tasks.push(Task::Release);
                return self.event(Event::Failed { what, failure });
            }
            Otherwise::Unmap(va) => self.close(va),
            Otherwise::Restore(domain, ranges) => {
                let mut keys = VecDeque::new();
                for (from, to, class) in ranges {
                    keys.extend(self.allow(domain, Va(from), to - from, class));
                }
                keys
            }
        };
        let answer = Err(failure);
        self.keep_answer(operation, &answer);
        // What was to come after the tables does not come.
        operation.tasks.clear();
        operation.first([
            Task::Install(keys, Otherwise::Report),
            Task::Keep,
            Task::Reply(answer),
            Task::Release,
        ]);
    }

    /// What was written to the page's region is lost, or memory is: the vma remembers it. The vma's domain and first
    /// address, if there is one.
    pub(super) fn note_loss(&mut self, page: Va, blade: &str) -> Option<(u32, Va)> {
        let va = self.books.domains.vma_with(page)?.va();
        let vma = self.books.domains.vma_mut(va)?;
        let regions = vma.lost.as_ref().map_or(0, |lost| lost.regions) + 1;
        vma.lost = Some(Lost {
            regions,
            last: page.0,
            blade: blade.to_owned(),
        });
        let domain = vma.domain;
        self.books.touch(records::Key::Vma(va.0));
        Some((domain, va))
    }
}
