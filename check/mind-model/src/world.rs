//! A state: all machines, the packets between them, and the ages of pages.

use mind_common::permission::PermissionClass;
use mind_common::{
    addr::{PAGE_SHIFT, Prefix, Region, SLICE_SHIFT, Va, WINDOW_BASE},
    id::{BladeId, Connection, DomainId},
    serial::Version,
    table::{MAY_READ, MAY_WRITE, Permission, Translation},
};
use mind_machines::{
    Node,
    compute::{Blade, Config},
    controller::{Ask, Command, Controller, Input, Link, Patience, Progress, Request},
    datagram::Datagram,
    memory::{Memory, Page},
    switch::{Port, Switch},
};

use crate::{
    operation::Operation,
    property::Violation,
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
    /// The atomic operation under way.
    pub operation: Option<Operation>,
}

impl Host {
    /// One with an empty cache, on this connection.
    pub fn new(connection: Connection, setting: &Setting) -> Self {
        let config = Config::without_clock(connection, setting.capacity, setting.is_locked);
        Self {
            blade: Blade::new(config),
            cache: vec![Copied::default(); usize::from(setting.pages)],
            operation: None,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    /// The switch.
    pub switch: Switch,
    /// The memory blade.
    pub memory: Memory<Value>,
    /// The controller.
    pub controller: Controller,
    /// The compute blades; `None` where one crashed or left.
    pub hosts: Vec<Option<Host>>,
    /// The packets on their way. None is there twice, and their order has no meaning.
    pub network: Vec<Flight>,
    /// The controller's messages on their way, in order.
    pub links: Vec<(Link, Command)>,
    /// The model's size.
    pub setting: Setting,
    /// The budget of faults that is left.
    pub budget: Budget,
    /// What is known of pages.
    pub books: Vec<Book>,
    /// The violation that has happened, if any.
    pub violation: Option<Violation>,
}

impl World {
    /// All blades are registered with empty caches; the region is mapped.
    pub fn new(setting: &Setting) -> Self {
        let mut switch = Switch::new(setting.slots);
        let tables = switch.tables_mut();
        tables.ports.insert(MEMORY, Port::Memory);
        tables.memory.insert(0);
        let base = Va(WINDOW_BASE);
        let slice = Prefix {
            base,
            shift: SLICE_SHIFT,
        };
        let translation = Translation::new(0, base, 0);
        tables.translation.insert(slice, translation);
        let patience = Patience {
            full: 0,
            optional: 0,
            stuck: 0,
            pause: 0,
        };
        let mut world = Self {
            switch,
            memory: Memory::new(1 << setting.order),
            controller: Controller::new(patience, setting.slots, [0]),
            hosts: Vec::new(),
            network: Vec::new(),
            links: Vec::new(),
            setting: *setting,
            budget: setting.budget,
            books: vec![Book::default(); usize::from(setting.pages)],
            violation: None,
        };
        let blades: Vec<_> = (0..setting.blades).filter_map(BladeId::new).collect();
        for &blade in &blades {
            world.join(blade);
        }
        if let Some(region) = Region::containing(base, setting.order) {
            world.ask(Request::Map {
                domain: DOMAIN,
                region,
                permission: Permission {
                    bits: MAY_READ | MAY_WRITE,
                },
                fails: false,
            });
        }
        world.settle_controller();
        for blade in blades {
            let connection = world.controller.life(blade);
            world
                .hosts
                .push(connection.map(|connection| Host::new(connection, setting)));
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

    /// A blade registers, and programs of both domains are started on it.
    pub fn join(&mut self, blade: BladeId) {
        self.ask(Request::Register(blade));
        for domain in [DOMAIN, STRANGER] {
            self.ask(Request::Place {
                domain,
                blade,
                is_placed: true,
            });
        }
    }

    /// Sends the controller a request.
    pub fn ask(&mut self, request: Request) {
        self.controller.handle(Input::Ask(Ask::of_nobody(request)));
    }

    /// Runs the controller to its end, before there is a blade that it could wait for.
    fn settle_controller(&mut self) {
        let mut out = Vec::new();
        while self.controller.step(0, &mut self.switch, &mut out) != Progress::Idle {
            for (_, command) in out.drain(..) {
                if let Command::Zero { id, .. } = command {
                    self.controller.handle(Input::Answer { id, done: true });
                }
            }
        }
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
