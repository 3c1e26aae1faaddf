//! `mind-ctl blades`: blades, and how the caches of compute blades do.

use anyhow::Result;
use comfy_table::Table;
use mind_api::{message::BladeKind, operator::BladeStatus, program::BladeReport};
use serde::Serialize;

use super::{Common, bytes, lines, table};

/// What `mind-ctl blades` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A blade, and what it counts.
#[derive(Serialize)]
struct Blade {
    #[serde(flatten)]
    status: BladeStatus,
    /// None for a memory blade, and for one that does not answer.
    cache: Option<BladeReport>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    let status = controller.status().await?;
    let mut caches = controller.0.caches().await?;
    let blades: Vec<_> = status
        .blades
        .into_iter()
        .map(|status| Blade {
            cache: match status.kind {
                BladeKind::Compute => caches.remove(&status.name),
                BladeKind::Memory => None,
            },
            status,
        })
        .collect();
    args.common.print(&blades, |blades| as_text(blades))
}

/// Blades as the controller knows them.
pub(super) fn as_table<'a>(blades: impl IntoIterator<Item = &'a BladeStatus>) -> Table {
    let mut rows = table(
        [
            "BLADE", "KIND", "PORT", "ADDRESS", "LIFE", "STATE", "SIZE", "IN USE",
        ],
        &[4, 6, 7],
    );
    for blade in blades {
        rows.add_row([
            blade.name.clone(),
            match blade.kind {
                BladeKind::Compute => "compute",
                BladeKind::Memory => "memory",
            }
            .to_owned(),
            blade.port.clone().unwrap_or_default(),
            blade.address.to_string(),
            blade.incarnation.to_string(),
            match (blade.here, blade.connected) {
                (true, true) => "ready",
                (true, false) => "away",
                (false, _) => "gone",
            }
            .to_owned(),
            bytes(blade.pages << 12),
            match blade.kind {
                BladeKind::Compute => String::new(),
                BladeKind::Memory => bytes(blade.allocated << 12),
            },
        ]);
    }
    rows
}

fn as_text(blades: &[Blade]) -> String {
    let known = as_table(blades.iter().map(|blade| &blade.status));
    let mut caches = table(
        [
            "CACHE",
            "PAGES",
            "OF",
            "PROGRAMS",
            "FAULTS",
            "HITS",
            "EVICTIONS",
            "WRITE-BACKS",
            "INVALIDATIONS",
            "FALSE",
        ],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9],
    );
    for blade in blades {
        if let Some(cache) = &blade.cache {
            caches.add_row([
                blade.status.name.clone(),
                cache.pages.to_string(),
                cache.capacity.to_string(),
                cache.programs.to_string(),
                cache.faults.to_string(),
                percent(cache.hits, cache.faults),
                cache.evictions.to_string(),
                cache.write_backs.to_string(),
                cache.invalidations.to_string(),
                cache.false_invalidations.to_string(),
            ]);
        }
    }
    let known = lines(&known, "no blades");
    match caches.is_empty() {
        true => known,
        false => format!("{known}\n\n{}", lines(&caches, "")),
    }
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", 100.0 * part as f64 / whole as f64),
    }
}
