//! A state as the checker stores it: a list of pieces, each shared by all states that have it.
//! Millions of states have a few thousand different blades, packets, switches.

use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

use ahash::RandomState;
use mind_machines::{
    controller::{Controller, Session},
    memory::Memory,
    switch::Switch,
};
use rustc_hash::FxHashSet;

use crate::{
    controller::Message,
    property::Violation,
    rights::Rights,
    setting::{Budget, Setting},
    value::{Book, Value},
    world::{Flight, Host, World},
};

/// A part of a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Piece {
    Switch(Box<Switch>),
    Memory(Memory<Value>),
    Controller(Arc<Controller>, Vec<(Session, Message)>),
    Rest(Setting, Budget, Rights, Vec<Book>, Option<Violation>),
    Host(Option<Box<Host>>),
    Flight(Flight),
}

/// A piece with its hash, computed once.
#[derive(Debug, PartialEq, Eq)]
struct Hashed {
    hash: u64,
    piece: Piece,
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packed(Box<[Arc<Hashed>]>);

thread_local! {
    /// The state that was unpacked last: the checker asks for one several times in a row.
    static LAST: RefCell<Option<(Packed, Rc<World>)>> = const { RefCell::new(None) };
}

impl Packed {
    /// The state as a whole.
    pub fn world(&self) -> Rc<World> {
        LAST.with_borrow_mut(|last| {
            if let Some((packed, world)) = last
                && packed == self
            {
                return Rc::clone(world);
            }
            let world = Rc::new(self.unpack());
            *last = Some((self.clone(), Rc::clone(&world)));
            world
        })
    }

    fn unpack(&self) -> World {
        let [switch, memory, controller, rest, others @ ..] = &*self.0 else {
            unreachable!("a state begins with four pieces");
        };
        let (
            Piece::Switch(switch),
            Piece::Memory(memory),
            Piece::Controller(controller, links),
            Piece::Rest(setting, budget, rights, books, violation),
        ) = (&switch.piece, &memory.piece, &controller.piece, &rest.piece)
        else {
            unreachable!("a state begins with these pieces");
        };
        let mut world = World {
            switch: (**switch).clone(),
            memory: memory.clone(),
            controller: Arc::clone(controller),
            links: links.clone(),
            hosts: Vec::new(),
            network: Vec::new(),
            setting: *setting,
            budget: *budget,
            rights: *rights,
            books: books.clone(),
            violation: *violation,
        };
        for part in others {
            match &part.piece {
                Piece::Host(host) => world.hosts.push(host.as_deref().cloned()),
                Piece::Flight(flight) => world.network.push(*flight),
                _ => unreachable!("blades and packets follow"),
            }
        }
        world
    }
}

/// The pieces that there are.
#[derive(Debug)]
pub struct Pool {
    hasher: RandomState,
    shards: [Mutex<FxHashSet<Arc<Hashed>>>; 64],
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            // The same in every run, so that a search can be repeated.
            hasher: RandomState::with_seeds(1, 2, 3, 4),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Pool {
    /// Splits a state into pieces.
    pub fn pack(&self, world: World) -> Packed {
        let World {
            switch,
            memory,
            controller,
            links,
            hosts,
            network,
            setting,
            budget,
            rights,
            books,
            violation,
        } = world;
        let whole = [
            Piece::Switch(Box::new(switch)),
            Piece::Memory(memory),
            Piece::Controller(controller, links),
            Piece::Rest(setting, budget, rights, books, violation),
        ];
        let pieces = whole.into_iter();
        let pieces = pieces.chain(
            hosts
                .into_iter()
                .map(|host| Piece::Host(host.map(Box::new))),
        );
        let pieces = pieces.chain(network.into_iter().map(Piece::Flight));
        Packed(pieces.map(|piece| self.share(piece)).collect())
    }

    /// How many different pieces there are.
    pub fn len(&self) -> usize {
        let shards = self.shards.iter();
        let lens = shards.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len());
        lens.sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn share(&self, piece: Piece) -> Arc<Hashed> {
        let hash = self.hasher.hash_one(&piece);
        let shard = &self.shards[hash as usize % self.shards.len()];
        let hashed = Hashed { hash, piece };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shard.get(&hashed) {
            return Arc::clone(known);
        }
        let part = Arc::new(hashed);
        shard.insert(Arc::clone(&part));
        part
    }
}
