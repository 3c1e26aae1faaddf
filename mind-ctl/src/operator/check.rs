//! `mind-ctl check`: whether the controller's books, the tables and the blades agree.

use anyhow::Result;
use mind_api::operator::Check;

use super::{Common, error::Failed, lines, table};

/// What `mind-ctl check` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let controller = args.common.connect().await?;
    let check = controller.0.check().await?;
    args.common.print(&check, as_text)?;
    match check.discrepancies.len() as u64 + check.left_off {
        0 => Ok(()),
        count => Err(Failed::Discrepancies(count).into()),
    }
}

fn as_text(check: &Check) -> String {
    let compared = check.compared.iter();
    let compared: Vec<_> = compared
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let mut text = format!("compared: {}", compared.join(", "));
    if check.discrepancies.is_empty() {
        return text + "\nbooks, tables and blades agree";
    }
    let mut rows = table(["OBJECT", "SHOULD BE", "IS", "FIX"], &[]);
    for found in &check.discrepancies {
        rows.add_row([&found.object, &found.expected, &found.found, &found.fix]);
    }
    text += "\n\n";
    text += &lines(&rows, "");
    if check.left_off > 0 {
        text += &format!("\nand {} more", check.left_off);
    }
    text
}
