//! The model for the checker (Stateright).

use std::sync::Arc;

use stateright::{Model, Property};

use crate::{
    action::{Action, actions},
    canonical::canonical,
    packed::{Packed, Pool},
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
    /// What the states are made of.
    pub pool: Arc<Pool>,
}

impl Protocol {
    /// The protocol in that setting.
    pub fn new(setting: Setting) -> Self {
        Self {
            setting,
            pool: Arc::default(),
        }
    }
}

impl Model for Protocol {
    type State = Packed;
    type Action = Action;

    fn init_states(&self) -> Vec<Packed> {
        let mut world = World::new(&self.setting);
        canonical(&mut world);
        vec![self.pool.pack(world)]
    }

    fn actions(&self, state: &Packed, out: &mut Vec<Action>) {
        actions(&state.world(), out);
    }

    fn next_state(&self, last: &Packed, action: Action) -> Option<Packed> {
        step(&last.world(), &action).map(|world| self.pool.pack(world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        vec![
            always("one writer or many readers", |_, state| {
                property::single_writer(&state.world())
            }),
            always("the latest write is read", |_, state| {
                property::latest_is_read(&state.world())
            }),
            always("no acknowledged write is lost", |_, state| {
                property::acknowledged_is_kept(&state.world())
            }),
            always("no program can do more than its domain may", |_, state| {
                property::rights_are_kept(&state.world())
            }),
            always(
                "controller and switch agree when the controller rests",
                |_, state| property::controller_agrees(&state.world()),
            ),
            always("directory and caches agree when quiet", |_, state| {
                property::directory_agrees(&state.world())
            }),
            always(
                "programs' mappings are those that the blade has",
                |_, state| property::cache_agrees(&state.world()),
            ),
            always("nothing happens that never may", |_, state| {
                property::nothing_wrong(&state.world())
            }),
            always("a waiting blade can go on", |_, state| {
                property::no_deadlock(&state.world())
            }),
        ]
    }
}
