//! The history of a page in a run that failed, as a table: one row a moment, one column for each
//! blade, the switch, memory and the controller.

#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, HashSet};

use comfy_table::{Table, presets};
use mind_api::message::{BladeKind, Command, Request};
use mind_common::{
    addr::{PAGE_SHIFT, SLICE_SHIFT, Va, WINDOW_BASE},
    wire::Invalidation,
};
use mind_machines::{
    Node,
    controller::{Act, Event, Input, Output, Session, books::tables::Key},
    datagram::{Body, Datagram},
};

use crate::{
    Failure, Wrong,
    plan::{Disturbance, Image, Plan},
    trace::{Record, What},
};

/// Rows that are shown, the last ones.
const ROWS: usize = 1_000;

/// Addresses that have these bits in common are near each other: no area of a seed's plan is larger.
const NEAR: u64 = !((32 << PAGE_SHIFT) - 1);

/// Where something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Host(Node),
    Switch,
    Controller,
}

impl Failure {
    /// The page that the failure is about, if it is about one.
    pub const fn page(&self) -> Option<Va> {
        match self {
            Self::Wrong(_, Wrong::Load { page, .. } | Wrong::Page { page, .. })
            | Self::Shared { page, .. }
            | Self::Older(_, page)
            | Self::Unprotected(_, page)
            | Self::NoData(_, page)
            | Self::NotHere(_, page)
            | Self::Refused(_, page)
            | Self::Foreign(_, page)
            | Self::Refusal(_, page, _)
            | Self::Unlisted(_, page, _)
            | Self::Disagrees(_, page)
            | Self::Denied(_, page)
            | Self::Broken(page)
            | Self::Written(_, page)
            | Self::Forgotten(_, page)
            | Self::Silent(page) => Some(*page),
            Self::Disagreement(disagreement) => disagreement.page(),
            Self::Endless(_) | Self::Stuck(_) | Self::Gone(_) | Self::Busy(_) => None,
        }
    }
}

/// The page that a failure is about: for threads that wait without end, the page that the first of them faulted on
/// last; if that is unknown, the page of the last fault of any.
pub fn page(failure: &Failure, records: &[Record]) -> Option<Va> {
    let waits = match failure {
        Failure::Endless(threads) | Failure::Stuck(threads) => threads.first(),
        _ => None,
    };
    let faulted = |record: &Record| match record.what {
        What::Fault(thread, page, _) if waits.is_none_or(|waits| *waits == thread) => Some(page),
        _ => None,
    };
    let last = || records.iter().rev().find_map(faulted);
    failure.page().or_else(last)
}

/// The history of a page: datagrams about it, also on their way to and from memory, changes of its
/// region's word, changes of cached copies, accesses, and disturbances meanwhile.
pub fn table(plan: &Plan, page: Va, records: &[Record]) -> Table {
    let blades = (0..plan.blades).map(|number| At::Host(Node::Compute(crate::plan::blade(number))));
    let memories = (0..plan.memories).map(|number| At::Host(Node::Memory(number)));
    let columns = blades.chain([At::Switch]).chain(memories);
    let columns: Vec<_> = columns.chain([At::Controller]).collect();
    let mut history = History {
        plan,
        page,
        own: HashSet::new(),
        names: BTreeMap::new(),
    };
    let mut rows: Vec<(u64, Vec<String>)> = Vec::new();
    for record in records {
        let Some((at, text)) = history.of(&record.what) else {
            continue;
        };
        let Some(column) = columns.iter().position(|column| *column == at) else {
            continue;
        };
        if rows.last().is_none_or(|(time, _)| *time != record.at) {
            rows.push((record.at, vec![String::new(); columns.len()]));
        }
        if let Some((_, row)) = rows.last_mut() {
            let cell = &mut row[column];
            if !cell.is_empty() {
                cell.push('\n');
            }
            cell.push_str(&text);
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let names = columns.iter().map(|column| match column {
        At::Host(node) => node.to_string(),
        At::Switch => "switch".to_owned(),
        At::Controller => "controller".to_owned(),
    });
    table.set_header(["µs".to_owned()].into_iter().chain(names));
    let left_out = rows.len().saturating_sub(ROWS);
    if left_out > 0 {
        table.add_row([format!("{left_out} moments before")]);
    }
    for (time, row) in rows.into_iter().skip(left_out) {
        let time = format!("{}.{:03}", time / 1_000, time % 1_000);
        table.add_row([time].into_iter().chain(row));
    }
    table
}

/// Selects the records of a page.
struct History<'a> {
    plan: &'a Plan,
    page: Va,
    /// Connections and numbers of requests for it and of its write-backs.
    own: HashSet<(u32, u32)>,
    /// Whose agents sessions are of.
    names: BTreeMap<Session, String>,
}

impl History<'_> {
    /// Where the record happened, and its text, if it belongs to the page.
    fn of(&mut self, what: &What) -> Option<(At, String)> {
        let page = self.page;
        let blade_of = |number: &usize| At::Host(Node::Compute(self.plan.programs[*number].blade));
        let sent = match what {
            What::Sent(node, packet, copies) => {
                self.learn(packet);
                let copies = text::copies(*copies);
                self.belongs(packet).then(|| {
                    let text = format!("→ {}{copies}", text::packet(packet));
                    (At::Host(*node), text)
                })?
            }
            What::Switched(node, packet, verdict) => self.belongs(packet).then(|| {
                let text = format!("{node}: {}: {}", text::packet(packet), verdict.name());
                (At::Switch, text)
            })?,
            What::Forwarded(node, packet, copies) => {
                let copies = text::copies(*copies);
                self.belongs(packet).then(|| {
                    let text = format!("→ {node}: {}{copies}", text::packet(packet));
                    (At::Switch, text)
                })?
            }
            What::Arrived(node, packet) => self
                .belongs(packet)
                .then(|| (At::Host(*node), text::packet(packet)))?,
            What::Word(region, before, after) if region.contains(page) => {
                let region = text::region(*region);
                (At::Switch, format!("{region}: {before:?} ⇒ {after:?}"))
            }
            What::Cache(blade, va, change) if *va == page => (
                At::Host(Node::Compute(*blade)),
                text::cached(*change).to_owned(),
            ),
            What::Fault(thread, va, access) if *va == page => {
                let text = format!("t{thread} faults to {}", text::access(*access));
                (blade_of(thread), text)
            }
            What::Failed(thread, va, refusal) if *va == page => {
                (blade_of(thread), format!("t{thread} fails: {refusal:?}"))
            }
            What::Loaded(thread, place, value) if place.page == page => {
                let text = format!("t{thread} loads [{}] = {value}", place.word);
                (blade_of(thread), text)
            }
            What::Stored(thread, place, value) if place.page == page => {
                let text = format!("t{thread} stores [{}] = {value}", place.word);
                (blade_of(thread), text)
            }
            What::Output(output) => (At::Controller, self.output(output)?),
            What::Input(input) => (At::Controller, self.input(input)?),
            What::Died => (At::Controller, "dies".to_owned()),
            What::Replaced(slots, true) => (At::Switch, format!("has {slots} slots from now on")),
            What::Replaced(slots, false) => {
                (At::Switch, format!("has more in use than {slots} slots"))
            }
            What::Cut(node) => (At::Switch, format!("{node} is cut off")),
            What::Disturbed(disturbance) => {
                let node = match disturbance {
                    // The controller's input is shown instead.
                    Disturbance::Change(..)
                    | Disturbance::Mapping(..)
                    | Disturbance::Counts
                    | Disturbance::OperatorsLeave
                    | Disturbance::ControllerDies { .. } => return None,
                    Disturbance::Unzeroed { memory, .. }
                    | Disturbance::MemoryCrash { memory, .. } => Node::Memory(*memory),
                    Disturbance::LinkDown { node, .. } => *node,
                    other => Node::Compute(other.blade()?),
                };
                (At::Host(node), disturbance.to_string())
            }
            What::Word(..)
            | What::Cache(..)
            | What::Fault(..)
            | What::Failed(..)
            | What::Loaded(..)
            | What::Stored(..) => return None,
        };
        Some(sent)
    }

    /// A request for the page is under way, or its write-back.
    fn learn(&mut self, packet: &Datagram<Image>) {
        if let Body::Request { page, .. } | Body::Write { page, .. } = &packet.body
            && page.page == self.page
        {
            self.own.insert(number(packet));
        }
    }

    fn belongs(&self, packet: &Datagram<Image>) -> bool {
        let is_about = |it: &Invalidation| it.region.contains(self.page);
        match &packet.body {
            Body::Invalidate(invalidation)
            | Body::Answer { invalidation, .. }
            | Body::Forward { invalidation, .. }
            | Body::FanOut { invalidation, .. } => is_about(invalidation),
            _ => self.own.contains(&number(packet)),
        }
    }

    fn is_near(&self, va: u64) -> bool {
        va & NEAR == self.page.0 & NEAR
    }

    fn is_in(&self, va: u64, length: u64) -> bool {
        (va..va.saturating_add(length)).contains(&self.page.0)
    }

    fn name(&self, session: Session) -> &str {
        self.names.get(&session).map_or("operator", String::as_str)
    }

    fn output(&self, output: &Output) -> Option<String> {
        match output {
            Output::Act {
                operation,
                act:
                    Act::Install {
                        key: Key::Protection(domain, prefix),
                        value,
                    },
            } if self.is_in(prefix.base.0, prefix.size()) => {
                let class = text::class(*value);
                Some(format!("o{}: domain {domain} may {class}", operation.0))
            }
            Output::Order {
                operation,
                session,
                command,
                ..
            } => {
                let to = self.name(*session);
                let text = self.command(to, command)?;
                Some(format!("o{} → {to}: {text}", operation.0))
            }
            Output::Event(event) => self.event(event),
            Output::Act { .. }
            | Output::Reply { .. }
            | Output::KeepSoon { .. }
            | Output::WaitForPackets { .. } => None,
        }
    }

    fn command(&self, to: &str, command: &Command) -> Option<String> {
        let page = self.page.0.checked_sub(WINDOW_BASE)?;
        let own = (page & ((1 << SLICE_SHIFT) - 1)) >> PAGE_SHIFT;
        let is_own = |first: u64, count: u64| {
            to == Node::Memory((page >> SLICE_SHIFT) as u8).to_string()
                && (first..first + count).contains(&own)
        };
        Some(match *command {
            Command::Leave => "leave".to_owned(),
            Command::FlushRange { va, length } if self.is_in(va, length) => {
                format!("flush {}+{}K", Va(va), length >> 10)
            }
            Command::ZeroPages { first, count } if is_own(first, count) => "zero".to_owned(),
            Command::FencePages { first, count } if is_own(first, count) => "fence".to_owned(),
            _ => return None,
        })
    }

    fn event(&self, event: &Event) -> Option<String> {
        match event {
            Event::Lost { region, .. } if region.contains(self.page) => {
                Some(format!("writes to {region} are lost"))
            }
            Event::VmaLost { va, .. } if self.is_near(va.0) => Some(format!("{va} is lost")),
            Event::Fenced { name, .. } => Some(format!("{name} is fenced")),
            Event::Missed(_, name) => Some(format!("{name} has not come back")),
            Event::TakenOver => Some("has taken over".to_owned()),
            _ => None,
        }
    }

    fn input(&mut self, input: &Input) -> Option<String> {
        let (session, request) = match input {
            Input::Register {
                session,
                registration,
                ..
            } => {
                self.names.insert(*session, registration.name.clone());
                return Some(format!("{} registers", registration.name));
            }
            Input::Closed(session) => return Some(format!("{} is gone", self.name(*session))),
            Input::Request { session, body, .. } => (*session, body),
            Input::Resume {
                session,
                incarnation,
                ..
            } => {
                let node = match incarnation.kind {
                    BladeKind::Compute => Node::Compute(incarnation.connection().blade),
                    BladeKind::Memory => Node::Memory(incarnation.number),
                };
                self.names.insert(*session, node.to_string());
                return Some(format!("{node} is back"));
            }
            Input::Report { .. } | Input::Done { .. } | Input::Short | Input::Epoch { .. } => {
                return None;
            }
        };
        let is_about = match *request {
            Request::ReportStuck { va }
            | Request::ReportLoss { va }
            | Request::ChangeRegion { va, .. } => self.is_near(va),
            Request::Sync { va, length, .. }
            | Request::Protect { va, length, .. }
            | Request::Unmap { va, length, .. } => self.is_in(va, length),
            Request::Map { .. } => true,
            _ => false,
        };
        is_about.then(|| format!("{}: {}", self.name(session), text::asked(request)))
    }
}

/// What identifies a request and all packets that it becomes.
const fn number(packet: &Datagram<Image>) -> (u32, u32) {
    (packet.envelope.qp, packet.envelope.seq.get())
}
