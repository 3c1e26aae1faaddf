//! A state that is stored is the state that was, and equal states are stored once.

use mind_model::{action::actions, packed::Pool, setting::Setting, step::step, world::World};

#[test]
fn a_state_comes_back_whole_and_equal_states_are_one() {
    let pool = Pool::default();
    let mut world = World::new(&Setting::SMALLEST);
    for turn in 0..40 {
        let packed = pool.pack(world.clone());
        assert_eq!(*packed.world(), world);
        let pieces = pool.len();
        assert_eq!(pool.pack(world.clone()), packed);
        assert_eq!(pool.len(), pieces, "equal states have the same pieces");

        let mut possible = Vec::new();
        actions(&world, &mut possible);
        let after = possible.iter().filter_map(|action| step(&world, action));
        let after: Vec<_> = after.collect();
        assert!(!after.is_empty(), "something can happen");
        world = after[turn % after.len()].clone();
    }
    assert!(!pool.is_empty());
}
