//! The actions that are possible in a state.

use mind_common::permission::PermissionClass;
use mind_machines::{
    compute::{
        Access,
        model::{Alarm, Lateness},
    },
    controller::Session,
};

use crate::{
    canonical::is_noise,
    controller::{Message, connection},
    world::{Flight, World, page},
};

/// An action: an event of the system or of the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A thread faults.
    Fault {
        /// On which blade.
        blade: usize,
        /// On which page.
        page: u8,
        /// What it wants.
        access: Access,
        /// Whether its program is of the other domain.
        is_stranger: bool,
    },
    /// A thread writes a page that it may write.
    Store {
        /// On which blade.
        blade: usize,
        /// Which page.
        page: u8,
    },
    /// A packet arrives.
    Deliver(Flight),
    /// A packet arrives, and will again.
    Repeat(Flight),
    /// A packet is lost.
    Lose(Flight),
    /// A blade's timer fires.
    Fire {
        /// On which blade.
        blade: usize,
        /// Which timer.
        alarm: Alarm,
        /// What else is due by then.
        late: Lateness,
        /// Whether it is early: the answer may still come.
        is_early: bool,
    },
    /// What the controller wants done to the switch is done.
    Control,
    /// The controller's oldest message to an agent arrives.
    Hear(Session),
    /// A compute blade has not carried out the order with this number in time.
    Overdue(u64),
    /// A compute blade crashes.
    Crash(usize),
    /// A blade that may write a page has an atomic operation carried out on it.
    Operate {
        /// Which blade.
        blade: usize,
        /// On which page.
        page: u8,
    },
    /// A blade sends its atomic operation again, as no answer came.
    Resend(usize),
    /// A blade that is gone registers again.
    Rejoin(usize),
    /// The region is to be reset.
    Reset,
    /// The region is to be split.
    Split,
    /// The region's halves are to be merged.
    Merge,
    /// Slots are to be taken back.
    Reclaim,
    /// The time has come that the controller waits for.
    Wake,
    /// A program maps memory, where none is mapped.
    Map,
    /// A program unmaps the memory.
    Unmap,
    /// A program has its domain do something else with the memory from now on.
    Protect(PermissionClass),
}

/// Lists the actions that are possible in `world`.
pub fn actions(world: &World, out: &mut Vec<Action>) {
    if world.violation.is_some() {
        return;
    }
    progress(world, out);
    let budget = world.budget;
    let matters = |flight: &&Flight| !is_noise(world, flight);
    for flight in world.network.iter().filter(matters) {
        if budget.losses > 0 {
            out.push(Action::Lose(*flight));
        }
        if budget.repeats > 0 && !world.is_put_off(flight) {
            out.push(Action::Repeat(*flight));
        }
    }
    let is_still = is_still(world);
    for (blade, host) in world.hosts.iter().enumerate() {
        let Some(host) = host else {
            if budget.rejoins > 0 && !is_coming(world, blade) {
                out.push(Action::Rejoin(blade));
            }
            continue;
        };
        for (number, copy) in host.cache.iter().enumerate() {
            let number = number as u8;
            if host.operation.is_some_and(|it| it.page == number) {
                continue;
            }
            if budget.operations > 0
                && copy.mapping == PermissionClass::Write
                && host.operation.is_none()
                && host.blade.is_quiet()
            {
                let page = number;
                out.push(Action::Operate { blade, page });
            }
            let waiting = host.blade.waiting(page(number));
            let mut fault = |access, is_stranger| {
                if waiting < Some(access) {
                    out.push(Action::Fault {
                        blade,
                        page: number,
                        access,
                        is_stranger,
                    });
                }
            };
            if budget.faults != Some(0) && host.is_ready {
                if copy.mapping == PermissionClass::None {
                    fault(Access::Read, false);
                }
                if copy.mapping < PermissionClass::Write {
                    fault(Access::Write, false);
                }
                if budget.strangers > 0 {
                    fault(Access::Read, true);
                    fault(Access::Write, true);
                }
            }
            let is_written =
                world.books[usize::from(number)].writer == Some(host.blade.connection());
            // What a blade writes that is not listened to any more, its own programs read at most.
            if copy.mapping == PermissionClass::Write && !is_written && world.is_accepted(blade) {
                out.push(Action::Store {
                    blade,
                    page: number,
                });
            }
        }
        if budget.early > 0 && !is_still {
            for alarm in host.blade.alarms() {
                let late = match alarm {
                    Alarm::Answer(_) => Lateness::OnTime,
                    Alarm::Pause(_) => Lateness::RepeatDue,
                    Alarm::Residency(_) | Alarm::Room => continue,
                };
                out.push(Action::Fire {
                    blade,
                    alarm,
                    late,
                    is_early: true,
                });
            }
        }
        if budget.crashes > 0 {
            out.push(Action::Crash(blade));
        }
    }
    if budget.overdue > 0 {
        out.extend(world.orders().map(Action::Overdue));
    }
    if budget.resets > 0 {
        out.push(Action::Reset);
    }
    if budget.splits > 0 {
        out.push(Action::Split);
    }
    if budget.merges > 0 {
        out.push(Action::Merge);
    }
    if budget.reclaims > 0 {
        out.push(Action::Reclaim);
    }
    if budget.rights() > 0 && !world.rights.is_changing() && world.asker().is_some() {
        let is_mapped = world.rights.most != PermissionClass::None;
        if budget.maps > 0 && !is_mapped {
            out.push(Action::Map);
        }
        if budget.unmaps > 0 && is_mapped {
            out.push(Action::Unmap);
        }
        if budget.protects > 0 && is_mapped {
            out.push(Action::Protect(match world.rights.most {
                PermissionClass::Write => PermissionClass::Read,
                _ => PermissionClass::Write,
            }));
        }
    }
}

/// Lists the actions that happen without a cause from outside: no fault of the network or a blade,
/// no new request of a program or an operator.
pub fn progress(world: &World, out: &mut Vec<Action>) {
    let network = world.network.iter();
    let network = network.filter(|flight| !world.is_put_off(flight));
    out.extend(network.map(|flight| Action::Deliver(*flight)));
    let mut heard = Vec::new();
    for (session, _) in &world.links {
        if !heard.contains(session) {
            heard.push(*session);
            out.push(Action::Hear(*session));
        }
    }
    if world.wanted().is_some() {
        out.push(Action::Control);
    }
    let is_still = is_still(world);
    if is_still && world.controller.waits_for_time() {
        out.push(Action::Wake);
    }
    for (blade, host) in world.hosts.iter().enumerate() {
        let Some(host) = host else {
            continue;
        };
        if world.is_unanswered(blade) {
            out.push(Action::Resend(blade));
        }
        for alarm in host.blade.alarms() {
            let late = match alarm {
                Alarm::Answer(_) if !is_still => continue,
                Alarm::Pause(_) if is_still => Lateness::RepeatDue,
                _ => Lateness::OnTime,
            };
            out.push(Action::Fire {
                blade,
                alarm,
                late,
                is_early: false,
            });
        }
    }
}

/// Whether a registration of an absent blade is on its way to the agent.
fn is_coming(world: &World, blade: usize) -> bool {
    world.links.iter().any(|(session, message)| {
        let of = connection(*session);
        *message == Message::Registered && of.is_some_and(|of| usize::from(of.blade.get()) == blade)
    })
}

/// Whether no packet is on its way. Only then do timers fire that wait for an answer, since they
/// wait for longer than packets take.
fn is_still(world: &World) -> bool {
    let mut network = world.network.iter();
    network.all(|flight| world.is_put_off(flight) || is_noise(world, flight))
        && world.links.is_empty()
        && world.wanted().is_none()
}
