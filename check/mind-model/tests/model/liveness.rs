//! Once faults stop, every request completes.

use mind_model::{
    liveness::{SAMPLES, sample},
    settings::{FULL, QUICK},
};

#[test]
fn once_faults_stop_all_comes_to_rest() {
    for named in QUICK.iter().chain(FULL) {
        let outcome = sample(&named.setting, SAMPLES);
        println!(
            "{}: {} samples, {} states, {} cut",
            named.name, outcome.samples, outcome.states, outcome.cut
        );
        assert!(outcome.stuck.is_none(), "{}: {outcome:?}", named.name);
        assert!(
            outcome.states > outcome.samples,
            "{}: runs end amid something",
            named.name
        );
        assert!(
            outcome.cut * 4 < outcome.samples,
            "{}: few are cut",
            named.name
        );
    }
}
