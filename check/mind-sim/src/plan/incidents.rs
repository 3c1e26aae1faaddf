//! What makes operations of the controller's meet in a phase what they rarely meet there by chance.

use mind_machines::controller::phase::{Incident, Phase};

use super::{Disturbance, MILLISECOND, Moment, blade, general};
use crate::{
    coverage::Pair,
    trigger::{Effect, Trigger},
};

/// The controller dies while an operation waits in some phase, which something else brings about.
pub(super) fn dies_in_a_phase(
    random: &mut fastrand::Rng,
    disturbances: &mut Vec<(u64, Disturbance)>,
    (blades, memories): (u8, u8),
    until: u64,
) {
    let phases = Pair::phases_with(Incident::Died);
    let phase = phases[random.usize(0..phases.len())];
    let mut dies = general::controller_dies(random, blades);
    if let Disturbance::ControllerDies { moment, .. } = &mut dies {
        *moment = Moment::Phase(phase);
    }
    let at = random.u64(0..until / 2);
    let cause = |random: &mut fastrand::Rng| match phase {
        Phase::Losing | Phase::FlushingLost => Some(general::memory_crash(random, memories)),
        Phase::Forgetting
        | Phase::MarkingLost
        | Phase::EndingProcesses
        | Phase::Exits
        | Phase::Joining => Some(Disturbance::Crash {
            blade: blade(random.u8(0..blades)),
            noticed: random.u64(0..MILLISECOND),
            back: random.u64(MILLISECOND..10 * MILLISECOND),
        }),
        Phase::Counting => Some(Disturbance::Counts),
        _ => None,
    };
    let causes: Vec<_> = (0..3).filter_map(|_| cause(random)).collect();
    let causes = causes
        .into_iter()
        .map(|cause| (random.u64(at..until), cause));
    disturbances.extend(causes);
    disturbances.push((at, dies));
    disturbances.sort_by_key(|(at, _)| *at);
}

/// Agents leave, or do not carry out what they are told.
pub(super) fn triggers(random: &mut fastrand::Rng, (blades, memories): (u8, u8)) -> Vec<Trigger> {
    let mut triggers = vec![leaves_in_a_phase(random, blades)];
    if random.bool() {
        triggers.push(told_in_vain(random, blades));
    }
    if random.bool() {
        triggers.push(zeroed_in_vain(random, memories));
    }
    triggers
}

/// A blade crashes or hangs after another one has carried out what both may have been told to.
fn told_in_vain(random: &mut fastrand::Rng, blades: u8) -> Trigger {
    let blade = blade(random.u8(0..blades));
    let happens = match random.bool() {
        true => Disturbance::Crash {
            blade,
            noticed: 0,
            back: random.u64(MILLISECOND..10 * MILLISECOND),
        },
        // Until the controller waits for it no longer.
        false => Disturbance::Hang {
            blade,
            lasts: random.u64(100 * MILLISECOND..3_000 * MILLISECOND),
        },
    };
    let phases = Pair::phases_with(Incident::TooLate);
    let phase = phases[random.usize(0..phases.len())];
    let told = Pair::Operation(phase, Incident::CarriedOut);
    let one_in = random.u32(1..=4);
    Trigger::new(told, one_in, Effect::Happens(happens), 0)
}

/// A memory blade crashes that has to zero more.
fn zeroed_in_vain(random: &mut fastrand::Rng, memories: u8) -> Trigger {
    let crash = Disturbance::MemoryCrash {
        memory: random.u8(0..memories),
        noticed: 0,
        back: random.u64(MILLISECOND..10 * MILLISECOND),
    };
    let zeroed = Pair::Operation(Phase::Zeroing, Incident::CarriedOut);
    Trigger::new(zeroed, 10, Effect::Happens(crash), MILLISECOND)
}

/// A blade's connection ends while an operation is in some phase.
fn leaves_in_a_phase(random: &mut fastrand::Rng, blades: u8) -> Trigger {
    let mut phases = Pair::phases_with(Incident::NotAwaited);
    phases.retain(|phase| {
        let done = Pair::Operation(*phase, Incident::Done);
        done.impossible().is_none()
    });
    let phase = phases[random.usize(0..phases.len())];
    let done = Pair::Operation(phase, Incident::Done);
    let leaves = Disturbance::Disconnect {
        blade: blade(random.u8(0..blades)),
        noticed: 0,
        found: random.u64(0..MILLISECOND),
    };
    let one_in = random.u32(1..=20);
    Trigger::new(done, one_in, Effect::Happens(leaves), 0)
}
