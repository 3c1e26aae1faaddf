//! Requests that are answered without the machine, since they change nothing in it; and what only operators on the
//! switch may ask for.

use mind_api::{Errno, Failure, Reply, Request, message::BladeKind, operator::TraceFilter};
use mind_common::id::BladeId;
use mind_connection::endpoint::Peer;
use mind_machines::controller::{Input, Session, books::blades::Incarnation};

use super::{super::tracer::Wanted, Driver, check, listing};

impl Driver {
    /// A request: answered, or handed to the machine.
    pub(super) fn request(&mut self, session: Session, (id, answered): (u64, u64), body: Request) {
        if let Some(answer) = self.at_once(&body) {
            return self.answer(session, id, answer);
        }
        let answer = match body {
            Request::Resume {
                kind,
                number,
                incarnation,
            } => {
                let incarnation = Incarnation {
                    kind,
                    number,
                    incarnation,
                };
                return self.resume(session, id, incarnation);
            }
            Request::ChangeRegion { .. }
            | Request::ListVmas { .. }
            | Request::ListRegions { .. }
            | Request::ListCaches { .. }
            | Request::Check
            | Request::ListDiscrepancies { .. }
            | Request::Trace(_)
                if !self.is_operator(session) =>
            {
                let message = "only an operator on the switch may ask for that";
                Err(Failure::new(Errno::EACCES, message))
            }
            Request::ListVmas { from, limit } => {
                let count = |from, to, most| {
                    let (found, next) = self.regions_of(from, to, most);
                    (found.len(), next)
                };
                Ok(listing::vmas(self.controller.books(), from, limit, &count))
            }
            Request::ListRegions {
                from,
                to,
                order,
                limit,
            } => return self.list_regions((session, id), from..to, order, limit),
            Request::Check if self.checking >= check::CHECKS => {
                let message = format!(
                    "the controller carries {} checks out, as many as it does: ask again later",
                    check::CHECKS
                );
                Err(Failure::new(Errno::EBUSY, message))
            }
            Request::Check => {
                self.checking += 1;
                return self.check(check::Asked {
                    session,
                    id,
                    looks: 0,
                });
            }
            Request::ListDiscrepancies { from, limit } => {
                Ok(self.list_discrepancies(session, from, limit))
            }
            Request::Trace(filter) => self.trace(session, &filter),
            body => {
                return self.give(Input::Request {
                    session,
                    id,
                    answered,
                    body,
                });
            }
        };
        self.answer(session, id, answer);
    }

    /// What every session may ask for and is answered at once; `None` for everything else.
    pub(super) fn at_once(&self, body: &Request) -> Option<Result<Reply, Failure>> {
        let books = self.controller.books();
        Some(Ok(match *body {
            Request::Status => Reply::Status(self.summary()),
            Request::ListBlades { from, limit } => self.list_blades(from, limit),
            Request::ListPorts { from, limit } => self.list_ports(from, limit),
            Request::ListDomains { from, limit } => listing::domains(books, from, limit),
            Request::ListLosses { from, limit } => listing::losses(books, from, limit),
            _ => return None,
        }))
    }

    /// Whether the connection is that of an operator on the switch.
    fn is_operator(&self, session: Session) -> bool {
        let connection = self.connections.get(&session);
        connection.is_some_and(|connection| match connection.peer {
            Peer::Local => true,
            Peer::Network(from) => from.ip() == self.address || from.ip().is_loopback(),
        })
    }

    /// The agent of a blade is back, if it calls from the blade's address.
    fn resume(&mut self, session: Session, id: u64, incarnation: Incarnation) {
        let peer = self
            .connections
            .get(&session)
            .map(|connection| connection.peer);
        let blade = self.controller.books().blades.here(incarnation);
        let is_its = blade.is_some_and(
            |blade| matches!(peer, Some(Peer::Network(from)) if from.ip() == blade.address),
        );
        if is_its {
            return self.give(Input::Resume {
                session,
                id,
                incarnation,
            });
        }
        let message = format!(
            "incarnation {} of {:?} blade {} is not one that this controller knows at that address, or is over",
            incarnation.incarnation, incarnation.kind, incarnation.number
        );
        self.answer(session, id, Err(Failure::new(Errno::ESRCH, message)));
    }

    /// From now on an operator's connection notes what becomes of packets.
    fn trace(&mut self, session: Session, filter: &TraceFilter) -> Result<Reply, Failure> {
        let blade = match &filter.blade {
            None => None,
            Some(name) => {
                let mut compute = self.controller.books().blades.of(BladeKind::Compute);
                let blade = compute.find(|blade| blade.name == *name);
                let number = blade.and_then(|blade| BladeId::new(blade.incarnation.number));
                let none = || {
                    let message =
                        format!("there is no compute blade {name}; `mind-ctl blades` lists them");
                    Failure::new(Errno::ENOENT, message)
                };
                Some(number.ok_or_else(none)?)
            }
        };
        let following = self.tracer.follow(Wanted::new(blade, &filter.ranges));
        let following = following.map_err(|error| Failure::new(Errno::EIO, error.to_string()))?;
        if let Some(connection) = self.connections.get(&session) {
            connection.trace.begin(following);
        }
        Ok(Reply::Done)
    }
}
