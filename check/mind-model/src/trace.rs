//! A path through the states as a table: one row a step, one column for each of blades, switch,
//! memory and controller, and the directory's words after it.

use comfy_table::{Table, presets};
use mind_common::wire::Invalidation;
use mind_machines::{
    Node,
    datagram::{Body, Datagram},
};

use crate::{
    action::Action,
    controller::connection,
    packed::Packed,
    value::Value,
    world::{Flight, Position, World, number},
};

/// The column of an action.
enum Place {
    Blade(usize),
    Switch,
    Memory,
    Controller,
}

/// The steps of a path, each state with the action taken in it.
pub fn table(path: &[(Packed, Option<Action>)]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let blades = path
        .first()
        .map_or(0, |(state, _)| state.world().hosts.len());
    let names = (0..blades).map(|blade| format!("c{blade}"));
    let others = ["switch", "memory", "controller", "directory"];
    let names = names.chain(others.map(str::to_owned));
    table.set_header(["#".to_owned()].into_iter().chain(names));
    for (step, pair) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = pair else {
            continue;
        };
        let (place, text) = describe(&before.world(), action);
        let mut row = vec![String::new(); 1 + blades + others.len()];
        row[0] = (step + 1).to_string();
        let column = match place {
            Place::Blade(blade) => 1 + blade,
            Place::Switch => 1 + blades,
            Place::Memory => 2 + blades,
            Place::Controller => 3 + blades,
        };
        row[column] = text;
        row[4 + blades] = words(&after.world());
        table.add_row(row);
    }
    table
}

fn words(world: &World) -> String {
    let slots = world.switch.slots().iter();
    let taken = slots.filter(|slot| slot.region.is_some());
    let words: Vec<_> = taken.map(|slot| format!("{:?}", slot.word)).collect();
    words.join("\n")
}

fn describe(world: &World, action: &Action) -> (Place, String) {
    match action {
        Action::Fault {
            blade,
            page,
            access,
            is_stranger,
        } => {
            let whose = if *is_stranger { " of a stranger" } else { "" };
            (
                Place::Blade(*blade),
                format!("{access:?} fault p{page}{whose}"),
            )
        }
        Action::Store { blade, page } => (Place::Blade(*blade), format!("writes p{page}")),
        Action::Deliver(flight) => at(flight, ""),
        Action::Repeat(flight) => at(flight, "(and again later) "),
        Action::Lose(flight) => at(flight, "LOST: "),
        Action::Fire {
            blade,
            alarm,
            is_early,
            ..
        } => {
            let early = if *is_early { "early: " } else { "" };
            (Place::Blade(*blade), format!("{early}timer {alarm:?}"))
        }
        Action::Control => {
            let act = world.wanted();
            (
                Place::Controller,
                act.map_or_else(String::new, |act| format!("{act:?}")),
            )
        }
        Action::Hear(session) => {
            let mut links = world.links.iter();
            let heard = links.find(|(to, _)| to == session);
            let heard = heard.map_or_else(String::new, |(_, message)| format!("told {message:?}"));
            let place = match connection(*session) {
                Some(connection) => Place::Blade(usize::from(connection.blade.get())),
                None => Place::Memory,
            };
            (place, heard)
        }
        Action::Overdue(order) => {
            let mut orders = world.controller.orders();
            let late = orders.find(|(number, _)| number == order);
            let place = late.map_or(Place::Controller, |(_, to)| {
                Place::Blade(usize::from(to.number))
            });
            (place, format!("LATE with order {order}"))
        }
        Action::Operate { blade, page } => (
            Place::Blade(*blade),
            format!("begins an operation on p{page}"),
        ),
        Action::Resend(blade) => (Place::Blade(*blade), "sends its operation again".to_owned()),
        Action::Crash(blade) => (Place::Blade(*blade), "CRASHES".to_owned()),
        Action::Rejoin(blade) => (Place::Blade(*blade), "comes back".to_owned()),
        Action::Reclaim => (Place::Controller, "told that few slots are left".to_owned()),
        Action::Wake => (Place::Controller, "looks again".to_owned()),
        Action::Reset => (Place::Controller, "asked for a reset".to_owned()),
        Action::Split => (Place::Controller, "asked for a split".to_owned()),
        Action::Merge => (Place::Controller, "asked for a merge".to_owned()),
        Action::Map => (Place::Controller, "asked to map".to_owned()),
        Action::Unmap => (Place::Controller, "asked to unmap".to_owned()),
        Action::Protect(class) => (Place::Controller, format!("asked to protect: {class:?}")),
    }
}

fn at(flight: &Flight, how: &str) -> (Place, String) {
    let what = packet(&flight.packet);
    match flight.position {
        Position::From(from) => (Place::Switch, format!("{how}{from:?}: {what}")),
        Position::To(Node::Compute(blade)) => (
            Place::Blade(usize::from(blade.get())),
            format!("{how}{what}"),
        ),
        Position::To(Node::Memory(_)) => (Place::Memory, format!("{how}{what}")),
    }
}

fn packet(packet: &Datagram<Value>) -> String {
    let of = |it: &Invalidation| {
        let page = number(it.page);
        format!("p{page} {:?} for {:?}", it.episode, it.requester)
    };
    let seq = packet.envelope.seq.get();
    let body = match &packet.body {
        Body::Request { want, page } => format!("{want:?} p{}", number(page.page)),
        Body::Write { version, data, .. } => {
            format!("Write p{} {version:?} ({:?})", data.page, data.age)
        }
        Body::ReadResponse { version, data } => {
            format!("page p{} {version:?} ({:?})", data.page, data.age)
        }
        Body::Acknowledge { syndrome, .. } => format!("{syndrome:?}"),
        Body::Atomic { va, .. } => format!("Atomic p{}", number(*va)),
        Body::AtomicAcknowledge { .. } => "Atomic done".to_owned(),
        Body::Invalidate(it) => format!("Invalidate {} -> {:?}", of(it), it.target),
        Body::Answer {
            invalidation,
            fetch,
            ..
        } => {
            let fetch = if *fetch { ", fetch" } else { "" };
            format!("Answer {}{fetch}", of(invalidation))
        }
        Body::Forward {
            invalidation, data, ..
        } => format!("Forward {} ({:?})", of(invalidation), data.age),
        Body::FanOut { invalidation, .. } => format!("fan-out {}", of(invalidation)),
    };
    format!("{body} #{seq}")
}
