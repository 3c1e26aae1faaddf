//! The history of a page in a run that failed, as a table: one row a moment, one column for each
//! blade, the switch, memory and the controller.

#[cfg(test)]
mod tests;
mod text;

use std::collections::HashSet;

use comfy_table::{Table, presets};
use mind_common::{
    addr::{PAGE_SHIFT, SLICE_SHIFT, Va, WINDOW_BASE},
    wire::Invalidation,
};
use mind_machines::{
    Node,
    controller::{Command, Input, Link, Request},
    datagram::{Body, Datagram},
};

use crate::{
    Failure, Wrong,
    plan::{Disturbance, Image, Plan},
    trace::{Record, What},
};

/// Rows that are shown, the last ones.
const ROWS: usize = 1_000;

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
            | Self::Silent(page) => Some(*page),
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
            What::Command(link, command) => {
                let (to, text) = self.command(*link, *command)?;
                (At::Controller, format!("→ {to}: {text}"))
            }
            What::Input(input) => (At::Controller, self.input(input)?),
            What::Cut(node) => (At::Switch, format!("{node} is cut off")),
            What::Disturbed(disturbance) => {
                let node = match disturbance {
                    // The controller's input is shown instead.
                    Disturbance::Change(..) | Disturbance::Mapping(..) => return None,
                    Disturbance::Unzeroed { memory, .. } => Node::Memory(*memory),
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

    fn is_near(&self, va: Va) -> bool {
        let mut areas = self.plan.areas.iter();
        areas.any(|area| area.region.contains(va) && area.region.contains(self.page))
    }

    fn command(&self, link: Link, command: Command) -> Option<(String, String)> {
        let to = match link {
            Link::Memory(memory) => Node::Memory(memory).to_string(),
            Link::Compute(_) => link.life()?.blade.to_string(),
        };
        let page = self.page.0.checked_sub(WINDOW_BASE)?;
        let is_in = |first: u64, count: u64| {
            let own = (page & ((1 << SLICE_SHIFT) - 1)) >> PAGE_SHIFT;
            link == Link::Memory((page >> SLICE_SHIFT) as u8)
                && (first..first + count).contains(&own)
        };
        let text = match command {
            Command::Registered => "registered".to_owned(),
            Command::Leave => "leave".to_owned(),
            Command::Flush { start, length, .. }
                if (start.0..start.0 + length).contains(&self.page.0) =>
            {
                format!("flush {start}+{}K", length >> 10)
            }
            Command::Zero { first, count, .. } if is_in(first, count) => "zero".to_owned(),
            Command::FencePages { first, count, .. } if is_in(first, count) => "fence".to_owned(),
            _ => return None,
        };
        Some((to, text))
    }

    fn input(&self, input: &Input) -> Option<String> {
        let ask = match input {
            Input::Ask(ask) => ask,
            Input::Broken(connection) => return Some(format!("{} is gone", connection.blade)),
            _ => return None,
        };
        let va = match ask.request {
            Request::ReportStuck(va)
            | Request::ReportLoss(va)
            | Request::Reset(va)
            | Request::Split(va)
            | Request::Merge(va) => va,
            Request::Sync { start, length } => {
                let own = (start.0..start.0 + length).contains(&self.page.0);
                return own.then(|| text::asked(ask));
            }
            Request::Map { region, .. }
            | Request::Protect { region, .. }
            | Request::Unmap { region, .. } => region.base(),
            Request::Register(_) | Request::Lost(_) | Request::Place { .. } => return None,
        };
        self.is_near(va).then(|| text::asked(ask))
    }
}

/// What identifies a request and all packets that it becomes.
const fn number(packet: &Datagram<Image>) -> (u32, u32) {
    (packet.envelope.qp, packet.envelope.seq.get())
}
