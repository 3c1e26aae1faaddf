//! Which of the writes of a page a copy of it has. The model asks no more of a page's bytes than
//! whether they are the latest, so there are only three: what is older than the last acknowledged
//! write is all the same.

use mind_common::id::Connection;
use mind_machines::datagram::Content;

/// How new a page's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    /// Older than what was acknowledged last.
    #[default]
    Old,
    /// What was acknowledged last; there is a later write, which is not.
    Acknowledged,
    /// The latest write.
    Latest,
}

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    /// Which page it is of.
    pub page: u8,
    /// What is in it.
    pub age: Age,
}

impl Content for Value {
    fn word(&self, _: usize) -> u64 {
        self.age as u64
    }

    fn set_word(&mut self, _: usize, _: u64) {
        // An atomic operation: whoever has it carried out makes a write of it.
    }
}

/// What the model knows of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Book {
    /// The life of the blade that made the latest write, if that is not acknowledged.
    pub writer: Option<Connection>,
}
