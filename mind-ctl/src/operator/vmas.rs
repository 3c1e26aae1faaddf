//! `mind-ctl vmas`: what is mapped, where it is kept, and who may do what with it.

use anyhow::Result;
use mind_api::{
    message::Access,
    operator::{AccessRange, VmaStatus},
};

use super::{Common, bytes, lines, table};

/// What `mind-ctl vmas` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only those of the protection domain of that name.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    let mut vmas = controller.0.vmas().await?;
    if let Some(domain) = &args.domain {
        vmas.retain(|vma| vma.domain_name == *domain);
    }
    args.common.print(&vmas, |vmas| as_text(vmas))
}

fn as_text(vmas: &[VmaStatus]) -> String {
    let mut rows = table(
        [
            "VMA", "SIZE", "DOMAIN", "AREA", "ACCESS", "MEMORY", "USERS", "REGIONS", "LOST",
        ],
        &[1, 6, 7, 8],
    );
    for vma in vmas {
        rows.add_row([
            format!("{:#x}", vma.va),
            bytes(vma.length),
            vma.domain_name.clone(),
            vma.area.clone().unwrap_or_default(),
            access(&vma.access),
            vma.memory.join(" "),
            vma.users.to_string(),
            vma.regions.to_string(),
            vma.lost.to_string(),
        ]);
    }
    lines(&rows, "no vmas")
}

/// As in /proc/PID/maps; where parts differ, each with its bytes.
fn access(ranges: &[AccessRange]) -> String {
    let letters = |access| match access {
        Access::Lost => "lost",
        Access::None => "--",
        Access::Read => "r-",
        Access::Write => "rw",
    };
    match ranges {
        [range] => letters(range.access).to_owned(),
        _ => ranges
            .iter()
            .map(|range| format!("{} {}", bytes(range.length), letters(range.access)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}
