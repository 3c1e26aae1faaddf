//! Records as short texts.

use mind_common::{
    addr::{Region, WINDOW_BASE},
    directory::{Source, Want},
    wire::{Invalidation, Syndrome},
};
use mind_machines::{
    compute::Access,
    controller::{Ask, Request},
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

/// A request to the controller.
pub(super) fn asked(ask: &Ask) -> String {
    let what = match ask.request {
        Request::Register(blade) => format!("register {blade}"),
        Request::Lost(connection) => format!("lost {}", connection.blade),
        Request::ReportStuck(va) => format!("stuck {va}"),
        Request::ReportLoss(va) => format!("lost writes {va}"),
        Request::Sync { start, length } => format!("sync {start}+{}K", length >> 10),
        Request::Reset(va) => format!("reset {va}"),
        Request::Split(va) => format!("split {va}"),
        Request::Merge(va) => format!("merge {va}"),
        Request::Map { domain, region, .. } => format!("map {region} {domain}"),
        Request::Protect {
            domain,
            region,
            permission,
        } => format!("protect {region} {domain} {permission:?}"),
        Request::Unmap { domain, region } => format!("unmap {region} {domain}"),
        Request::Place {
            domain,
            blade,
            is_placed,
        } => format!("place {domain} {blade} {is_placed}"),
    };
    match ask.from {
        Some(connection) => format!("{}: {what}", connection.blade),
        None => what,
    }
}
