//! The ages of page contents: which write is the latest, whether it is acknowledged, and how the
//! ages of all copies change with that.

use crate::{
    value::{Age, Value},
    world::{Copied, World},
};
use mind_common::permission::PermissionClass;

impl World {
    /// Changes the ages of all copies of a page, in caches, memory and packets.
    pub(crate) fn age(&mut self, page: u8, change: impl Fn(Age) -> Age) {
        for host in self.hosts.iter_mut().flatten() {
            if let Some(copy) = host.cache.get_mut(usize::from(page))
                && copy.mapping != PermissionClass::None
            {
                copy.age = change(copy.age);
            }
        }
        for flight in &mut self.network {
            if let Some(data) = flight.packet.data_mut()
                && data.page == page
            {
                data.age = change(data.age);
            }
        }
        let mut stored = self.memory.page(u64::from(page));
        stored.data.age = change(stored.data.age);
        self.memory.set_page(u64::from(page), stored);
    }

    /// A program writes.
    pub(crate) fn store(&mut self, at: usize, page: u8) {
        let Some(book) = self.books.get(usize::from(page)).copied() else {
            return;
        };
        let host = self.hosts.get(at).and_then(Option::as_ref);
        let writer = host.map(|host| host.blade.connection());
        self.age(page, |age| match (age, book.writer) {
            (Age::Latest, None) => Age::Acknowledged,
            // The write before is not acknowledged; this one replaces it.
            (Age::Latest, Some(_)) => Age::Old,
            (age, _) => age,
        });
        self.put(
            at,
            page,
            Copied {
                mapping: PermissionClass::Write,
                age: Age::Latest,
            },
        );
        self.books[usize::from(page)].writer = writer;
    }

    /// Memory has a page.
    pub(crate) fn stored(&mut self, data: Value) {
        if data.age == Age::Latest {
            self.acknowledge(data.page);
        }
    }

    /// The latest write of a page is acknowledged.
    pub(crate) fn acknowledge(&mut self, page: u8) {
        if let Some(book) = self.books.get_mut(usize::from(page))
            && book.writer.take().is_some()
        {
            self.age(page, |age| match age {
                Age::Acknowledged => Age::Old,
                age => age,
            });
        }
    }

    /// A copy comes to a blade. That acknowledges another blade's latest write; a write that was
    /// lost with its blade is given up when a blade gets what was acknowledged before.
    pub(crate) fn installed(&mut self, at: usize, data: Value) {
        let writer = self
            .books
            .get(usize::from(data.page))
            .and_then(|book| book.writer);
        let Some(writer) = writer else {
            return;
        };
        if !self.is_accepted(at) {
            return;
        }
        match data.age {
            Age::Latest => self.acknowledge(data.page),
            Age::Acknowledged if !self.accepts(writer) => {
                self.books[usize::from(data.page)].writer = None;
                self.age(data.page, |age| match age {
                    Age::Latest | Age::Old => Age::Old,
                    Age::Acknowledged => Age::Latest,
                    Age::Zeroed => Age::Zeroed,
                });
            }
            Age::Acknowledged | Age::Old | Age::Zeroed => {}
        }
    }

    /// The age of a packet's page after that; the packet is no longer on its way.
    pub(crate) fn seen(&self, data: Value) -> Option<Age> {
        let book = self.books.get(usize::from(data.page))?;
        (data.age == Age::Acknowledged && book.writer.is_none()).then_some(Age::Latest)
    }
}
