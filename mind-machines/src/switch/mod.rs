//! The switch: its directory and its tables, and what becomes of a packet. The stages of a packet
//! are the XDP program's own ([`mind_common::switch`]); the copies that TC sends are here as well.
//!
//! Between two packets the controller may change slots and tables, as in the real switch. A packet reads and changes its
//! region's word in one step; what it found in the tables it may have read earlier ([`View`]).

mod carry;
mod execute;
mod fan_out;
mod first_touch;
mod passage;
mod slot;
mod tables;

use std::{collections::BTreeSet, sync::Arc};

use mind_common::{
    addr::Region,
    directory::{Origin, Word},
    id::{BladeSet, DomainId},
    serial::Seq,
    verdict::Verdict,
};

pub use carry::{Carry, TooFew};
pub use execute::{node_at, port_of};
pub use slot::Slot;
pub use tables::{Port, Tables};

use passage::Passage;

use crate::{Node, datagram::Datagram};

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Switch {
    slots: Vec<Slot>,
    /// Slots that packets can open.
    free: BTreeSet<usize>,
    /// Slots that were taken out of the directory while packets were in the switch that may have found them.
    retired: BTreeSet<usize>,
    /// Tables of the index, if they are limited.
    most_tables: Option<usize>,
    /// Whether packets can open slots.
    is_opening: bool,
    /// Whether the controller was told that little is left, and still is.
    is_told: bool,
    tables: Arc<Tables>,
}

/// The tables as a packet finds them that comes in now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View(Arc<Tables>);

impl View {
    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.0
    }
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handled<P> {
    /// What XDP counts.
    pub verdict: Verdict,
    /// What TC counts, if XDP passed the packet up.
    pub fan_out: Option<Verdict>,
    /// The datagrams sent, each with its destination.
    pub sent: Vec<(Node, Datagram<P>)>,
    /// How many pages of which region were falsely invalidated, as the packet says.
    pub invalidated: Option<(Region, u16)>,
}

/// How a packet leaves XDP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Exit<P> {
    /// It ends here.
    Ends,
    /// It goes to a blade.
    To(Node, Datagram<P>),
    /// TC gets it, and sends one INVALIDATE to each blade that it lists.
    Up(Datagram<P>),
    /// The controller gets it, and does the same.
    Over(Datagram<P>),
}

/// What XDP makes of a packet.
struct Passed<P> {
    verdict: Verdict,
    exit: Exit<P>,
    invalidated: Option<(Region, u16)>,
}

impl Switch {
    /// A switch with that many slots, all of them free, and empty tables.
    pub fn new(slots: usize) -> Self {
        Self {
            slots: vec![Slot::default(); slots],
            free: (0..slots).collect(),
            retired: BTreeSet::new(),
            most_tables: None,
            is_opening: true,
            is_told: false,
            tables: Arc::default(),
        }
    }

    /// Handles `packet`, which came in at `port`, in XDP and TC.
    pub fn handle<P: Clone>(&mut self, port: Node, packet: Datagram<P>) -> Handled<P> {
        let left = self.pass(None, port, packet);
        self.egress(left)
    }

    /// The tables as they are now.
    pub fn view(&self) -> View {
        View(Arc::clone(&self.tables))
    }

    /// Handles `packet`, which came in at `port` when the tables were as in `view`, and was held up until now.
    pub fn handle_late<P: Clone>(
        &mut self,
        view: &View,
        port: Node,
        packet: Datagram<P>,
    ) -> Handled<P> {
        let left = self.pass(Some(view), port, packet);
        self.egress(left)
    }

    fn egress<P: Clone>(&self, passed: Passed<P>) -> Handled<P> {
        let Passed {
            verdict,
            exit,
            invalidated,
        } = passed;
        let (fan_out, sent) = match exit {
            Exit::Ends => (None, Vec::new()),
            Exit::To(node, packet) => (None, vec![(node, packet)]),
            Exit::Up(packet) => {
                let (verdict, copies) = self.fan_out(&packet);
                (verdict, copies)
            }
            Exit::Over(packet) => (None, self.fan_out(&packet).1),
        };
        Handled {
            verdict,
            fan_out,
            sent,
            invalidated,
        }
    }

    /// The XDP program: handles `datagram`, which came in at `port`.
    pub fn ingress<P>(&mut self, port: Node, datagram: Datagram<P>) -> (Verdict, Exit<P>) {
        let Passed { verdict, exit, .. } = self.pass(None, port, datagram);
        (verdict, exit)
    }

    fn pass<P>(&mut self, view: Option<&View>, port: Node, datagram: Datagram<P>) -> Passed<P> {
        let tables = view.map_or(&self.tables, |view| &view.0);
        let behind = tables.port(port);
        let mut passage = Passage {
            switch: self,
            view,
            datagram,
            port: behind,
            invalidated: None,
        };
        let passed = mind_common::switch::pass(&mut passage);
        let Passage {
            datagram,
            invalidated,
            ..
        } = passage;
        let (verdict, exit) = match passed {
            Ok((verdict, exit)) => {
                let exit = match exit {
                    mind_common::switch::Exit::To(node) => Exit::To(node, datagram),
                    mind_common::switch::Exit::Back => Exit::To(port, datagram),
                    mind_common::switch::Exit::Up => Exit::Up(datagram),
                    mind_common::switch::Exit::Over => Exit::Over(datagram),
                };
                (verdict, exit)
            }
            Err(stop) => (stop.verdict(), Exit::Ends),
        };
        Passed {
            verdict,
            exit,
            invalidated,
        }
    }

    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The tables, to be changed: one at a time, as the controller does it.
    pub fn tables_mut(&mut self) -> &mut Tables {
        Arc::make_mut(&mut self.tables)
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot at `index`, to be changed.
    pub fn slot_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    /// Stores the word `new` in the slot at `index` if `old` is there; returns whether it was.
    pub fn swap_word(&mut self, index: usize, old: Word, new: Word) -> bool {
        match self.slots.get_mut(index) {
            Some(slot) if slot.word == old => {
                slot.word = new;
                true
            }
            _ => false,
        }
    }

    /// Gives the free slot at `index` to `region`, with that word in the next episode, as the
    /// controller does.
    pub fn open(&mut self, index: usize, region: Region, word: Word) {
        if let Some(slot) = self.slots.get_mut(index) {
            let episode = slot.word.episode().next();
            *slot = Slot {
                word: Word::new(word.state(), word.requester(), episode, word.blades()),
                // Of this episode, so that the origins of later ones replace it.
                origin: Origin::new(episode, Seq::default(), region.base()),
                region: Some(region),
                ..Slot::default()
            };
        }
    }

    /// Makes the slot at `index` that of all pages of `region`; `None` for none.
    pub fn assign(&mut self, region: Region, index: Option<usize>) {
        let pages = &mut self.tables_mut().pages;
        for page in region.pages() {
            match index {
                Some(index) => pages.insert(page, index),
                None => pages.remove(&page),
            };
        }
    }

    /// Sets on which blades `domain` is placed.
    pub fn place(&mut self, domain: DomainId, blades: BladeSet) {
        let grants = &mut self.tables_mut().grants;
        if blades.is_empty() {
            grants.remove(&domain);
        } else {
            grants.insert(domain, blades);
        }
    }
}
