//! A state: all machines, the packets between them, and the ages of pages.

use std::sync::Arc;

use mind_api::message::RegionChange;
use mind_common::{
    addr::{PAGE_SHIFT, Va, WINDOW_BASE},
    id::{BladeId, Connection, DomainId},
    permission::PermissionClass,
    serial::Version,
};
use mind_machines::{
    Node,
    compute::{Blade, Config},
    controller::{Controller, Session},
    datagram::Datagram,
    memory::{Memory, Page},
    switch::{Port, Switch},
};

use crate::{
    controller::{self, Message},
    operation::Operation,
    property::Violation,
    rights::Rights,
    setting::{Budget, Setting},
    value::{Age, Book, Value},
};

/// The domain of all programs.
pub const DOMAIN: DomainId = DomainId(1);
/// A domain that runs on the same blades, and has no memory.
pub const STRANGER: DomainId = DomainId(2);
/// The memory blade.
pub const MEMORY: Node = Node::Memory(0);
/// The version that a page in memory has in every canonical state.
pub const STORED: u32 = 16;

/// A page's address.
pub const fn page(number: u8) -> Va {
    Va(WINDOW_BASE + ((number as u64) << PAGE_SHIFT))
}

/// The number of the page at an address, or at an offset in memory.
pub const fn number(at: Va) -> u8 {
    (at.0 >> PAGE_SHIFT) as u8
}

/// A page in a blade's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Copied {
    /// What programs may do.
    pub mapping: PermissionClass,
    /// What is in it.
    pub age: Age,
}

/// A compute blade with its agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// The protocol's machine.
    pub blade: Blade,
    /// The pages, by number.
    pub cache: Vec<Copied>,
    /// Whether processes of both domains run on it.
    pub is_ready: bool,
    /// The atomic operation under way.
    pub operation: Option<Operation>,
    /// Of which pages threads wait that may be denied their access, by number.
    pub excused: Vec<bool>,
}

impl Host {
    /// One with an empty cache, on this connection.
    pub fn new(connection: Connection, setting: &Setting) -> Self {
        let config = Config::without_clock(connection, setting.capacity, setting.is_locked);
        Self {
            blade: Blade::new(config),
            cache: vec![Copied::default(); usize::from(setting.pages)],
            is_ready: false,
            operation: None,
            excused: vec![false; usize::from(setting.pages)],
        }
    }
}

/// Where a packet on its way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// It will come in at that port of the switch.
    From(Node),
    /// It left the switch for that node.
    To(Node),
}

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    /// Where it is.
    pub position: Position,
    /// The packet.
    pub packet: Datagram<Value>,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The switch.
    pub switch: Switch,
    /// The memory blade.
    pub memory: Memory<Value>,
    /// The controller.
    pub controller: Arc<Controller>,
    /// The controller's messages to agents on their way; those of a session in order.
    pub links: Vec<(Session, Message)>,
    /// The compute blades; `None` where one crashed or left.
    pub hosts: Vec<Option<Host>>,
    /// The packets on their way. None is there twice, and their order has no meaning.
    pub network: Vec<Flight>,
    /// The model's size.
    pub setting: Setting,
    /// The budget of faults that is left.
    pub budget: Budget,
    /// What the domain may do with the memory.
    pub rights: Rights,
    /// What is known of pages.
    pub books: Vec<Book>,
    /// The violation that has happened, if any.
    pub violation: Option<Violation>,
}

impl World {
    /// All blades are registered with empty caches; the region is mapped.
    pub fn new(setting: &Setting) -> Self {
        let mut world = Self {
            switch: Switch::new(setting.slots),
            memory: Memory::new(1 << setting.order),
            controller: Arc::new(Controller::new(controller::config(setting))),
            links: Vec::new(),
            hosts: vec![None; usize::from(setting.blades)],
            network: Vec::new(),
            setting: *setting,
            budget: setting.budget,
            rights: Rights::default(),
            books: vec![Book::default(); usize::from(setting.pages)],
            violation: None,
        };
        world.register(MEMORY);
        world.settle();
        for blade in (0..setting.blades).filter_map(BladeId::new) {
            world.register(Node::Compute(blade));
            world.settle();
        }
        world.ask_for(PermissionClass::Write);
        world.settle();
        if !setting.is_untouched {
            world.touch();
        }
        if setting.is_split {
            world.operate(RegionChange::Split);
            world.settle();
        }
        for number in 0..1 << setting.order {
            let data = Value {
                page: number,
                age: Age::Latest,
            };
            let version = Version::new(STORED);
            let page = Page { version, data };
            world.memory.set_page(u64::from(number), page);
        }
        world
    }

    /// Whether the switch accepts packets of that blade's current incarnation.
    pub fn is_accepted(&self, number: usize) -> bool {
        let Some(Some(host)) = self.hosts.get(number) else {
            return false;
        };
        self.accepts(host.blade.connection())
    }

    /// Whether the switch accepts packets of this connection.
    pub fn accepts(&self, connection: Connection) -> bool {
        let port = self
            .switch
            .tables()
            .ports
            .get(&Node::Compute(connection.blade));
        port == Some(&Port::Compute(connection))
    }
}
