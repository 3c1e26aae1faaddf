//! Which connections are those of blades' agents.

use std::collections::BTreeMap;

use super::{Session, books::blades::Incarnation};

/// The connections of agents: at most one of each incarnation of a blade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sessions {
    by_blade: BTreeMap<Incarnation, Session>,
    by_session: BTreeMap<Session, Incarnation>,
}

impl Sessions {
    /// The connection is that of the agent of a blade from now on.
    pub(super) fn insert(&mut self, of: Incarnation, session: Session) {
        self.remove(of);
        if let Some(before) = self.by_session.insert(session, of) {
            self.by_blade.remove(&before);
        }
        self.by_blade.insert(of, session);
    }

    /// The blade's agent is not connected any more; the connection that was its.
    pub(super) fn remove(&mut self, of: Incarnation) -> Option<Session> {
        let session = self.by_blade.remove(&of)?;
        self.by_session.remove(&session);
        Some(session)
    }

    /// The connection of a blade's agent.
    pub(super) fn of(&self, incarnation: Incarnation) -> Option<Session> {
        self.by_blade.get(&incarnation).copied()
    }

    /// The blade of which a connection is the agent's.
    pub(super) fn agent(&self, session: Session) -> Option<Incarnation> {
        self.by_session.get(&session).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::message::BladeKind;

    #[test]
    fn a_blade_and_its_connection_find_each_other_and_the_later_one_counts() {
        let of = |number| Incarnation {
            kind: BladeKind::Compute,
            number,
            incarnation: 1,
        };
        let mut sessions = Sessions::default();
        sessions.insert(of(0), Session(1));
        sessions.insert(of(1), Session(2));
        sessions.insert(of(0), Session(3));
        assert_eq!(sessions.of(of(0)), Some(Session(3)));
        assert_eq!(sessions.agent(Session(1)), None);
        sessions.insert(of(2), Session(3));
        assert_eq!(sessions.of(of(0)), None);
        assert_eq!(sessions.agent(Session(3)), Some(of(2)));
        assert_eq!(sessions.remove(of(1)), Some(Session(2)));
        assert_eq!(sessions.remove(of(1)), None);
        assert_eq!(sessions.agent(Session(2)), None);
    }
}
