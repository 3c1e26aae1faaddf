//! What an operator does: asks the controller, and prints what it says as tables or JSON.
//!
//! * [`status`], [`blades`], [`vmas`], [`regions`], [`ports`]: what there is,
//! * [`region`]: what can be done to a region,
//! * [`top`]: what goes on, [`trace`]: packet by packet,
//! * [`check`]: whether all of it agrees,
//! * [`error`]: how a failure is printed.

pub(crate) mod blades;
pub(crate) mod check;
pub(crate) mod error;
pub(crate) mod ports;
pub(crate) mod region;
pub(crate) mod regions;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod vmas;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use mind_api::{Reply, Request, operator::Status};
use mind_connection::{Client, Endpoint, endpoint::DEFAULT_SOCKET};
use serde::Serialize;

/// How long the controller may take to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// What all of an operator's verbs take.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// The controller: the path of its socket on the switch, or its address and port.
    #[arg(long, env = "MIND_CONTROLLER", default_value = DEFAULT_SOCKET, value_name = "PATH|ADDRESS:PORT")]
    controller: Endpoint,
    /// The form of the answer, and of an error.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables.
    Text,
    /// One JSON value.
    Json,
}

/// Where a verb asks.
struct Controller(Client);

impl Common {
    async fn connect(&self) -> Result<Controller> {
        let (client, _) = Client::connect(self.controller.clone(), "mind-ctl", LIMIT).await?;
        Ok(Controller(client))
    }

    /// Prints a value as JSON, or what is made of it for people.
    fn print<T: Serialize>(&self, value: &T, as_text: impl FnOnce(&T) -> String) -> Result<()> {
        let text = match self.output {
            Format::Json => serde_json::to_string_pretty(value)?,
            Format::Text => as_text(value),
        };
        mind_cli::print(&text).context("cannot print")
    }
}

impl Controller {
    async fn ask(&self, request: Request) -> Result<Reply> {
        Ok(self.0.call(request).await?)
    }

    async fn ask_within(&self, request: Request, limit: Duration) -> Result<Reply> {
        Ok(self.0.call_within(request, limit).await?)
    }

    async fn status(&self) -> Result<Status> {
        Ok(self.0.status().await?)
    }
}

fn unexpected<T>(reply: &Reply) -> Result<T> {
    bail!("the controller answers something else: {reply:?}")
}

/// A table without lines; the columns in `numbers` are set to the right.
fn table<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for number in numbers {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table's lines, or that there is nothing.
fn lines(table: &Table, nothing: &str) -> String {
    match table.is_empty() {
        true => nothing.to_owned(),
        // Without the padding of its last column.
        false => table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

/// A number of bytes in the largest unit that it is a multiple of.
fn bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Shortest and longest interval between two looks, in seconds.
const INTERVALS: (f64, f64) = (0.1, 60.0);

/// An interval on the command line.
fn seconds(text: &str) -> Result<f64, String> {
    let (least, most) = INTERVALS;
    match text.parse() {
        Ok(seconds) if (least..=most).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "expected a number of seconds from {least} to {most}"
        )),
    }
}

/// An address on the command line.
fn parse_address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("`{text}` is no address; expected such as 0x100000004000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_or_decimal() {
        assert_eq!(parse_address("0x100000004000"), Ok(0x1000_0000_4000));
        assert_eq!(parse_address("4096"), Ok(4096));
        for wrong in ["", "0x", "page", "-1", "0x1g"] {
            let error = parse_address(wrong).unwrap_err();
            assert!(error.contains("is no address"), "{error}");
        }
    }

    #[test]
    fn bytes_are_written_in_whole_units() {
        for (number, text) in [(0, "0"), (1000, "1000"), (16 << 10, "16K"), (3 << 30, "3G")] {
            assert_eq!(bytes(number), text);
        }
    }
}
