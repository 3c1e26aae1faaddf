//! Messages as lines of JSON.

use std::io::{self, BufRead, Write};

use serde::{Serialize, de::DeserializeOwned};

/// Sends a line of JSON.
///
/// # Errors
///
/// Those of `to`.
pub fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Receives a line of JSON; `None` at the end.
///
/// # Errors
///
/// Those of `from`; `InvalidData` for a line that is not such a message, with the line.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|error| {
        let text = format!("unexpected message `{}`: {error}", line.trim_end());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let mut bytes = Vec::new();
        for message in ["one\nline", "", "three"] {
            send(&mut bytes, &message).unwrap();
        }
        let mut from = bytes.as_slice();
        for message in ["one\nline", "", "three"] {
            assert_eq!(receive::<String>(&mut from).unwrap().unwrap(), message);
        }
        assert_eq!(receive::<String>(&mut from).unwrap(), None);
    }

    #[test]
    fn what_is_no_message_is_shown() {
        let error = receive::<u64>(&mut &b"Segmentation fault\n"[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(
            error.to_string().contains("`Segmentation fault`"),
            "{error}"
        );
    }
}
