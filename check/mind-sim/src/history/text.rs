//! Records as short texts.

use mind_api::message::{RegionChange, Request};
use mind_common::{
    addr::{Region, Va, WINDOW_BASE},
    directory::{Source, Want},
    wire::{Invalidation, Syndrome},
};
use mind_machines::{
    compute::Access,
    controller::books::tables::Value,
    datagram::{Body, Datagram},
};

use crate::{
    plan::{Image, text::words},
    trace::Cache,
};

/// How many copies arrive, unless it is one.
pub(super) fn copies(count: usize) -> String {
    match count {
        0 => " LOST".to_owned(),
        1 => String::new(),
        more => format!(" x{more}"),
    }
}

/// The access of a thread.
pub(super) const fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}

/// A change of a copy.
pub(super) const fn cached(change: Cache) -> &'static str {
    match change {
        Cache::Installed(true) => "installs to write",
        Cache::Installed(false) => "installs to read",
        Cache::Mapped(true) => "maps to write",
        Cache::Mapped(false) => "maps to read",
        Cache::Protected => "protects",
        Cache::Dropped => "drops",
    }
}

/// The size of a region that the page is in; which one it is follows.
pub(super) fn region(region: Region) -> String {
    format!("{}K", region.size() >> 10)
}

fn invalidation(it: &Invalidation) -> String {
    format!(
        "{} slot {} e{} for {}",
        region(it.region),
        it.slot,
        it.episode,
        it.requester
    )
}

/// A packet: its name, its number, how often it was sent before, what is in it.
pub(super) fn packet(packet: &Datagram<Image>) -> String {
    let envelope = &packet.envelope;
    let what = match &packet.body {
        Body::Request { want, page } => {
            let name = match want {
                Want::Read => "READ",
                Want::Acquire => "ACQUIRE",
                Want::Upgrade => "UPGRADE",
            };
            // On its way to memory, it has the transition in the attempt's place, and an offset for
            // an address.
            let again = match envelope.attempt {
                attempt if attempt > 0 && page.page.0 >= WINDOW_BASE => format!(" again {attempt}"),
                _ => String::new(),
            };
            format!("{name}{again}")
        }
        Body::Write { version, data, .. } => format!("WRITE v{version} {:?}", words(data)),
        Body::ReadResponse { version, data } => format!("PAGE v{version} {:?}", words(data)),
        Body::Acknowledge { syndrome, .. } => match syndrome {
            Syndrome::Ack => "ACK".to_owned(),
            Syndrome::Refused(refusal) => format!("REFUSED {refusal:?}"),
        },
        Body::Atomic { .. } => "ATOMIC".to_owned(),
        Body::AtomicAcknowledge { original, .. } => format!("ATOMIC ACK {original}"),
        Body::Invalidate(it) => {
            let source = match it.source {
                Source::Grant => "",
                Source::Fetch => ", fetch",
                Source::Forward => ", forward",
            };
            format!("INVALIDATE {} to {:?}{source}", invalidation(it), it.target)
        }
        Body::Answer {
            invalidation: it,
            fetch,
            ..
        } => {
            let fetch = if *fetch { ", fetch" } else { "" };
            format!("ANSWER {}{fetch}", invalidation(it))
        }
        Body::Forward {
            invalidation: it,
            version,
            data,
            ..
        } => format!("FORWARD {} v{version} {:?}", invalidation(it), words(data)),
        Body::FanOut {
            invalidation: it,
            pending,
        } => format!("FAN-OUT {} to {pending:?}", invalidation(it)),
    };
    format!("#{} {what}", envelope.seq)
}

/// What a domain may do by an entry of the table of protection.
pub(super) fn class(value: Option<Value>) -> String {
    match value {
        Some(Value::Protection(class)) => format!("{class:?}").to_lowercase(),
        Some(_) | None => "do nothing".to_owned(),
    }
}

/// A request to the controller.
pub(super) fn asked(request: &Request) -> String {
    let range = |va: u64, length: u64| format!("{}+{}K", Va(va), length >> 10);
    match *request {
        Request::ReportStuck { va } => format!("stuck {}", Va(va)),
        Request::ReportLoss { va } => format!("lost writes {}", Va(va)),
        Request::Sync { va, length, .. } => format!("sync {}", range(va, length)),
        Request::ChangeRegion { va, change } => {
            let name = match change {
                RegionChange::Reset => "reset",
                RegionChange::Split => "split",
                RegionChange::Merge => "merge",
            };
            format!("{name} {}", Va(va))
        }
        Request::Map { domain, length, .. } => format!("map {}K of domain {domain}", length >> 10),
        Request::Protect {
            va, length, access, ..
        } => format!("protect {} {access:?}", range(va, length)),
        Request::Unmap { va, length, .. } => format!("unmap {}", range(va, length)),
        _ => request.name().to_owned(),
    }
}
