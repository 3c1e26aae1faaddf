//! The condition of a machine's testbed, from what is found there: none, a running one, or the debris of a killed run.
//! Pure.

use std::collections::BTreeSet;

use crate::state::{Phase, State};

/// What was found on the machine.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The state file, or why it cannot be read.
    pub state: Option<Result<State, String>>,
    /// The namespaces with the testbed's prefix.
    pub namespaces: BTreeSet<String>,
    /// Whether the testbed's folder is there.
    pub folder: bool,
    /// Whether the process that made it, by its state, still runs.
    pub maker_alive: bool,
    /// The names of the services in the state whose processes still run.
    pub services_alive: BTreeSet<String>,
}

/// The condition of a machine's testbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is none, and nothing of one.
    Absent,
    /// It is whole; the services named here have died.
    Running {
        /// Its state.
        state: State,
        /// Services that are gone.
        dead: Vec<String>,
    },
    /// Part of one. It cannot be used; it is to be removed.
    Debris {
        /// Its state, as far as there is one.
        state: Option<State>,
        /// What is missing or left over, for people.
        reasons: Vec<String>,
    },
}

/// The condition that follows from the findings. The lock must be held: a testbed that is just being brought up looks
/// like debris.
pub fn judge(findings: Findings) -> Condition {
    let namespaces = &findings.namespaces;
    let state = match findings.state {
        None if namespaces.is_empty() && !findings.folder => return Condition::Absent,
        None => {
            let mut reasons = Vec::new();
            if !namespaces.is_empty() {
                reasons.push(format!("namespaces without a state: {}", list(namespaces)));
            }
            if findings.folder {
                reasons.push(format!("{} without a state", crate::paths::RUN));
            }
            return Condition::Debris {
                state: None,
                reasons,
            };
        }
        Some(Err(reason)) => {
            return Condition::Debris {
                state: None,
                reasons: vec![reason],
            };
        }
        Some(Ok(state)) => state,
    };

    let mut reasons = Vec::new();
    match state.phase {
        Phase::Up => {}
        Phase::Starting => reasons.push("its start was cut off".to_owned()),
        Phase::Stopping => reasons.push("its end was cut off".to_owned()),
    }
    if state.bound && !findings.maker_alive {
        reasons.push(format!(
            "process {}, which it belongs to, is gone",
            state.maker.pid
        ));
    }
    let planned: BTreeSet<_> = state.plan.namespaces().collect();
    let missing: BTreeSet<_> = planned.difference(namespaces).cloned().collect();
    if !missing.is_empty() {
        reasons.push(format!("missing namespaces: {}", list(&missing)));
    }
    let left: BTreeSet<_> = namespaces.difference(&planned).cloned().collect();
    if !left.is_empty() {
        reasons.push(format!("namespaces of another testbed: {}", list(&left)));
    }
    let services = state.services.iter().map(|service| service.name.clone());
    let dead: Vec<_> = services
        .filter(|name| !findings.services_alive.contains(name))
        .collect();
    if !dead.is_empty() && dead.len() == state.services.len() {
        reasons.push("all of its services are gone".to_owned());
    }

    if reasons.is_empty() {
        Condition::Running { state, dead }
    } else {
        Condition::Debris {
            state: Some(state),
            reasons,
        }
    }
}

fn list(names: &BTreeSet<String>) -> String {
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::program::Process;
    use crate::service::Role;
    use crate::state::RunningService;

    fn whole() -> Findings {
        let process = Process { pid: 7, start: 1 };
        let mut state = State::new(Plan::new(2, 1).unwrap(), process, false);
        state.phase = Phase::Up;
        Findings {
            namespaces: state.plan.namespaces().collect(),
            state: Some(Ok(state)),
            folder: true,
            maker_alive: false,
            services_alive: BTreeSet::new(),
        }
    }

    fn with_services(alive: &[&str]) -> Findings {
        let mut findings = whole();
        let Some(Ok(state)) = &mut findings.state else {
            unreachable!("whole() has a state");
        };
        state.services = ["ctl", "m0"]
            .map(|name| RunningService {
                name: name.into(),
                role: Role::Memory,
                namespace: "mind-sw".into(),
                command: vec![name.into()],
                process: Process { pid: 9, start: 1 },
            })
            .to_vec();
        findings.services_alive = alive.iter().map(|name| (*name).to_owned()).collect();
        findings
    }

    fn reasons(findings: Findings) -> String {
        match judge(findings) {
            Condition::Debris { reasons, .. } => reasons.join("; "),
            other => panic!("expected debris, found {other:?}"),
        }
    }

    #[test]
    fn nothing_at_all_is_no_testbed() {
        assert_eq!(judge(Findings::default()), Condition::Absent);
    }

    #[test]
    fn a_whole_testbed_runs_also_when_its_maker_has_gone() {
        assert!(matches!(judge(whole()), Condition::Running { dead, .. } if dead.is_empty()));
    }

    #[test]
    fn a_testbed_that_belongs_to_a_process_ends_with_it() {
        let mut findings = whole();
        if let Some(Ok(state)) = &mut findings.state {
            state.bound = true;
        }
        assert_eq!(
            reasons(findings.clone()),
            "process 7, which it belongs to, is gone"
        );
        findings.maker_alive = true;
        assert!(matches!(judge(findings), Condition::Running { .. }));
    }

    #[test]
    fn a_start_or_an_end_that_was_cut_off_leaves_debris() {
        for (phase, word) in [(Phase::Starting, "start"), (Phase::Stopping, "end")] {
            let mut findings = whole();
            if let Some(Ok(state)) = &mut findings.state {
                state.phase = phase;
            }
            assert_eq!(reasons(findings), format!("its {word} was cut off"));
        }
    }

    #[test]
    fn namespaces_without_a_state_and_a_state_without_namespaces_are_debris() {
        let findings = Findings {
            state: None,
            ..whole()
        };
        assert!(reasons(findings).starts_with("namespaces without a state: mind-c0"));
        let findings = Findings {
            namespaces: BTreeSet::new(),
            ..whole()
        };
        assert!(reasons(findings).starts_with("missing namespaces: mind-c0"));
        let mut findings = whole();
        findings.namespaces.remove("mind-c1");
        assert_eq!(reasons(findings), "missing namespaces: mind-c1");
        let mut findings = whole();
        findings.namespaces.insert("mind-m9".into());
        assert_eq!(reasons(findings), "namespaces of another testbed: mind-m9");
        let findings = Findings {
            folder: true,
            ..Findings::default()
        };
        assert_eq!(reasons(findings), "/run/mind without a state");
    }

    #[test]
    fn an_unreadable_state_is_debris_and_says_why() {
        let findings = Findings {
            state: Some(Err("state.json is not a testbed's state".into())),
            ..whole()
        };
        assert_eq!(reasons(findings), "state.json is not a testbed's state");
    }

    #[test]
    fn one_dead_service_is_told_and_all_dead_are_debris() {
        let condition = judge(with_services(&["ctl"]));
        assert!(
            matches!(&condition, Condition::Running { dead, .. } if *dead == ["m0"]),
            "{condition:?}"
        );
        assert_eq!(reasons(with_services(&[])), "all of its services are gone");
    }
}
