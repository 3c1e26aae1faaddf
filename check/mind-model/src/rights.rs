//! What programs may do with the memory while they map, unmap and protect it, and what its pages then are.

use mind_api::message::Request;
use mind_common::permission::PermissionClass;

use crate::{
    value::{Age, Value},
    world::{DOMAIN, World, page},
};

/// The numbers of requests for rights begin here.
const FIRST: u64 = 3;

/// What the domain may do with the memory, as far as its programs know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// What they may do for sure.
    pub least: PermissionClass,
    /// What they may do at most.
    pub most: PermissionClass,
    /// What they could do before the request under way, and what it asks for.
    asked: Option<(PermissionClass, PermissionClass)>,
    /// Whether the memory is that of a vma; otherwise its pages are nothing until they are zeros.
    pub is_mapped: bool,
}

impl Rights {
    /// Whether a request is under way.
    pub const fn is_changing(&self) -> bool {
        self.asked.is_some()
    }
}

impl World {
    /// A program has the memory mapped, unmapped or protected.
    pub(crate) fn ask_for(&mut self, class: PermissionClass) {
        let Some(asker) = self.asker() else {
            return;
        };
        let length = self.memory_size();
        let (domain, va) = (DOMAIN.0, page(0).0);
        let now = self.rights.most;
        let body = match (now, class) {
            (PermissionClass::None, access) => Request::Map {
                domain,
                length,
                access,
            },
            (_, PermissionClass::None) => Request::Unmap {
                domain,
                pid: 1,
                va,
                length,
            },
            (_, access) => Request::Protect {
                domain,
                va,
                length,
                access,
            },
        };
        self.rights = Rights {
            least: now.min(class),
            most: now.max(class),
            asked: Some((now, class)),
            ..self.rights
        };
        self.excuse();
        let used = self.setting.budget.rights() - self.budget.rights();
        self.request(asker, FIRST + u64::from(used), body);
    }

    /// Bytes of memory.
    fn memory_size(&self) -> u64 {
        page(1 << self.setting.order).0 - page(0).0
    }

    /// A request is answered: it is done, or nothing is.
    pub(crate) fn answered(&mut self, id: u64, is_done: bool) {
        if id >= FIRST
            && let Some((before, after)) = self.rights.asked.take()
        {
            let class = if is_done { after } else { before };
            self.rights.least = class;
            self.rights.most = class;
        }
    }

    /// Entries of the protection table have changed: the memory may have become a vma's, whose pages are zeros, or is
    /// none's any more.
    pub(crate) fn rights_changed(&mut self) {
        let vma = self.controller.books().domains.vma_at(page(0));
        let is_mapped = vma.is_some_and(|vma| !vma.is_closing);
        let was_mapped = std::mem::replace(&mut self.rights.is_mapped, is_mapped);
        if is_mapped && !was_mapped {
            for number in 0..self.books.len() as u8 {
                self.books[usize::from(number)].writer = None;
                self.age(number, |age| match age {
                    Age::Zeroed => Age::Latest,
                    _ => Age::Old,
                });
            }
        }
    }

    /// Memory zeros pages.
    pub(crate) fn zero(&mut self, first: u64, count: u64) {
        self.memory.zero(first, count);
        for number in first..(first + count).min(1 << self.setting.order) {
            let mut zeroed = self.memory.page(number);
            zeroed.data = Value {
                page: number as u8,
                age: Age::Zeroed,
            };
            self.memory.set_page(number, zeroed);
        }
    }

    /// Threads that wait for an access that may be denied from now on may be told so.
    fn excuse(&mut self) {
        let least = self.rights.least;
        for host in self.hosts.iter_mut().flatten() {
            for (number, excused) in host.excused.iter_mut().enumerate() {
                let waiting = host.blade.waiting(page(number as u8));
                *excused |= waiting.is_some_and(|access| least < crate::step::needed(access));
            }
        }
    }
}
