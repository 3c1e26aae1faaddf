//! Which write of a page a copy has. The model only distinguishes whether a page's bytes are the
//! latest, so there are few ages: everything older than the last acknowledged write is one.

use mind_common::id::Connection;
use mind_machines::datagram::Content;

/// The age of a page's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    /// Older than what was acknowledged last.
    #[default]
    Old,
    /// What was acknowledged last; there is a later write, which is not.
    Acknowledged,
    /// The latest write; or zeros, of memory that was zeroed before it was mapped.
    Latest,
    /// Zeros, of memory that is not mapped.
    Zeroed,
}

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    /// Which page it is.
    pub page: u8,
    /// What is in it.
    pub age: Age,
}

impl Content for Value {
    fn word(&self, _: usize) -> u64 {
        self.age as u64
    }

    fn set_word(&mut self, _: usize, _: u64) {
        // An atomic operation: it counts as a write of the blade that has it carried out.
    }
}

/// What the model knows of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Book {
    /// The connection of the blade that made the latest write, if that is not acknowledged.
    pub writer: Option<Connection>,
}
