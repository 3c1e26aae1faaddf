//! All of that for the checker.

use stateright::{Model, Property};

use crate::{
    action::{Action, actions},
    canonical::canonical,
    property,
    setting::Setting,
    step::step,
    world::World,
};

/// The protocol in some setting.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// What takes part.
    pub setting: Setting,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new(&self.setting);
        canonical(&mut world);
        vec![world]
    }

    fn actions(&self, state: &World, out: &mut Vec<Action>) {
        actions(state, out);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        step(last, &action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always("one writer or many readers", |_, world| {
                property::single_writer(world)
            }),
            always("the latest write is read", |_, world| {
                property::latest_is_read(world)
            }),
            always("no acknowledged write is lost", |_, world| {
                property::acknowledged_is_kept(world)
            }),
            always("directory and caches agree when quiet", |_, world| {
                property::directory_agrees(world)
            }),
            always("programs can do what the blade believes", |_, world| {
                property::cache_agrees(world)
            }),
            always("nothing happens that never may", |_, world| {
                property::nothing_wrong(world)
            }),
            always("whoever waits can go on", |_, world| {
                property::no_deadlock(world)
            }),
            sometimes("something is written back", |_, world| {
                world.books.iter().all(|book| book.writer.is_none())
                    && world.hosts.iter().flatten().any(|host| {
                        let copies = host.cache.iter();
                        copies
                            .into_iter()
                            .any(|copy| copy.mapping != crate::world::Mapping::Absent)
                    })
            }),
        ]
    }
}
