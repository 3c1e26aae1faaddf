//! How an operator's failure is printed: one line for people, or JSON with a code for scripts; on stderr in both cases,
//! so that stdout has a whole answer or nothing.

use anyhow::Error;
use mind_connection::ClientError;
use serde_json::json;

use super::Format;

/// A failure of the command itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// Blades are missing after the time that was given.
    #[error("{0}")]
    NotReady(String),
    /// A check found something.
    #[error("{0} discrepancies")]
    Discrepancies(u64),
    /// A region is as it was.
    #[error("{0}")]
    Unchanged(String),
}

/// The failure's code: Linux's name of what the controller refused with, or one of `UNREACHABLE`, `LOST`, `TIMEOUT`,
/// `NOT_READY`, `DISCREPANCIES`, `UNCHANGED`, `FAILED`.
fn code(error: &Error) -> String {
    if let Some(failed) = error.downcast_ref::<Failed>() {
        return match failed {
            Failed::NotReady(_) => "NOT_READY",
            Failed::Discrepancies(_) => "DISCREPANCIES",
            Failed::Unchanged(_) => "UNCHANGED",
        }
        .to_owned();
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(failure)) => failure.errno.to_string(),
        Some(ClientError::Connect { .. }) => "UNREACHABLE".to_owned(),
        Some(ClientError::Lost(_)) => "LOST".to_owned(),
        Some(ClientError::Late(_)) => "TIMEOUT".to_owned(),
        None => "FAILED".to_owned(),
    }
}

/// The failure as it is printed.
pub(crate) fn render(error: &Error, format: Format) -> String {
    match format {
        Format::Text => format!("mind-ctl: {error:#}{}", hint(error)),
        Format::Json => {
            json!({ "error": { "code": code(error), "message": format!("{error:#}") } }).to_string()
        }
    }
}

/// A wrong command line, as it is printed for scripts.
pub(crate) fn usage(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let message = first.trim_start_matches("error: ");
    json!({ "error": { "code": "USAGE", "message": message } }).to_string()
}

/// What often helps.
fn hint(error: &Error) -> &'static str {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Connect { .. }) => {
            "; does `mind-ctl serve` run here? Elsewhere, say --controller ADDRESS:PORT"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::{Errno, Failure};

    #[test]
    fn a_failure_has_a_code_and_a_message() {
        let refused = ClientError::Refused(Failure::new(Errno::EFAULT, "nothing is mapped at 0x1"));
        for (error, code) in [
            (Error::from(refused), "EFAULT"),
            (Failed::Discrepancies(2).into(), "DISCREPANCIES"),
            (ClientError::Lost("closed".into()).into(), "LOST"),
            (anyhow::anyhow!("something"), "FAILED"),
        ] {
            let text = render(&error, Format::Json);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["error"]["code"], code);
            assert_eq!(value["error"]["message"], error.to_string());
            assert!(render(&error, Format::Text).starts_with("mind-ctl: "));
        }
    }
}
