//! A state and its canonical form can do the same: on random runs, the successors of both are, in canonical form, the
//! same; except for actions without effect, such as a timer that is over. Time may pass differently in both.

use std::collections::HashSet;

use mind_model::{
    action::actions,
    canonical::canonical,
    setting::Setting,
    settings::{FULL, QUICK},
    step::raw,
    world::World,
};

const RUNS: u64 = 50;
const STEPS: usize = 120;

fn forms_of_next(world: &World) -> (Vec<World>, HashSet<World>) {
    let mut list = Vec::new();
    actions(world, &mut list);
    let next: Vec<_> = list.iter().map(|action| raw(world, action)).collect();
    let mut forms: HashSet<_> = next.iter().cloned().map(form_of).collect();
    forms.remove(&form_of(world.clone()));
    (next, forms)
}

fn form_of(mut world: World) -> World {
    canonical(&mut world);
    world
}

/// How many steps were compared.
fn follow(of: &str, setting: &Setting, seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new(setting);
    for step in 0..STEPS {
        let (mut next, forms) = forms_of_next(&world);
        let form = form_of(world.clone());
        let (_, of_form) = forms_of_next(&form);
        assert!(
            forms == of_form,
            "{of}, seed {seed}, step {step}: {} states follow, and {} of the canonical form; \
             {} of them are the same",
            forms.len(),
            of_form.len(),
            forms.intersection(&of_form).count(),
        );
        if next.is_empty() {
            return step;
        }
        world = next.swap_remove(random.usize(..next.len()));
        for host in world.hosts.iter_mut().flatten() {
            host.blade.rewind();
        }
    }
    STEPS
}

#[test]
fn a_state_and_its_canonical_form_can_do_the_same() {
    let mut steps = 0;
    for named in QUICK.iter().chain(FULL) {
        for seed in 0..RUNS {
            steps += follow(named.name, &named.setting, seed);
        }
    }
    println!("{steps} steps");
    assert!(steps > 10_000, "runs are long: {steps}");
}

#[test]
fn the_canonical_form_of_a_canonical_form_is_itself() {
    for named in QUICK.iter().chain(FULL) {
        for seed in 0..RUNS {
            let mut random = fastrand::Rng::with_seed(seed);
            let world = mind_model::liveness::walk(&named.setting, &mut random, STEPS);
            assert!(form_of(world.clone()) == world, "{}, {seed}", named.name);
        }
    }
}
