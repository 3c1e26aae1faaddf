//! The encoding of frames: a length, and JSON.

use std::{io, os::fd::AsFd, time::Duration};

use bytes::Bytes;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use mind_api::message::Frame;

/// Longest frame in bytes. What can be longer comes in parts ([`lists`](crate::lists)); garbage is refused early.
pub const MAX_LENGTH: usize = 1 << 20;

/// After how long a silent connection is probed, and how long after each probe the next one
/// follows.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Probes without an answer before the connection is closed.
const KEEPALIVE_TRIES: u32 = 3;
/// How long what was sent may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(4);

/// Makes a TCP connection fit for control messages: they are small, and a caller waits for each. A peer that is out of
/// reach (its host is down, or its port) is known to be gone after about 4 seconds, silent or not.
///
/// # Errors
///
/// When it is no TCP connection.
pub fn prepare(connection: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&connection, true)?;
    sockopt::set_socket_keepalive(&connection, true)?;
    sockopt::set_tcp_keepidle(&connection, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&connection, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(&connection, KEEPALIVE_TRIES)?;
    sockopt::set_tcp_user_timeout(&connection, UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}

/// A connection as a stream and sink of frames' bytes; see [`encode`] and [`decode`].
pub fn framed<T: AsyncRead + AsyncWrite>(connection: T) -> Framed<T, LengthDelimitedCodec> {
    LengthDelimitedCodec::builder()
        .max_frame_length(MAX_LENGTH)
        .new_framed(connection)
}

/// The bytes of a frame, without their length.
///
/// # Errors
///
/// `InvalidData` for a frame longer than [`MAX_LENGTH`].
pub fn encode(frame: &Frame) -> io::Result<Bytes> {
    let bytes = serde_json::to_vec(frame)?;
    if bytes.len() > MAX_LENGTH {
        let text = format!(
            "a frame of {} bytes; at most {MAX_LENGTH} are sent",
            bytes.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(bytes.into())
}

/// The frame in these bytes.
///
/// # Errors
///
/// `InvalidData` or `UnexpectedEof` for bytes that are none.
pub fn decode(bytes: &[u8]) -> io::Result<Frame> {
    Ok(serde_json::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::errno::{Errno, Failure};
    use mind_api::message::{Access, Command, Hello, Reply, Report, Request};
    use mind_api::operator::{AddressRange, TraceFilter, Traced, TracedPacket};

    #[test]
    fn a_frame_reads_as_people_would_write_it() {
        let frame = Frame::Request {
            id: 7,
            answered: 5,
            body: Request::Map {
                domain: 1,
                length: 4096,
                access: Access::Write,
            },
        };
        assert_eq!(
            encode(&frame).unwrap(),
            r#"{"frame":"request","id":7,"answered":5,"body":{"request":"map","domain":1,"length":4096,"access":"write"}}"#
        );
    }

    #[test]
    fn every_kind_of_frame_survives_the_wire() {
        let failure = Failure::new(Errno::EINVAL, "length 0");
        for frame in [
            Frame::Hello(Hello {
                version: 1,
                name: "c0".into(),
            }),
            Frame::Refused(failure.clone()),
            Frame::Request {
                id: u64::MAX,
                answered: 0,
                body: Request::Status,
            },
            Frame::Request {
                id: 3,
                answered: 0,
                body: Request::Trace(TraceFilter {
                    blade: Some("c0".into()),
                    ranges: vec![AddressRange {
                        va: 0x1000_0000_0000,
                        length: u64::MAX,
                    }],
                }),
            },
            Frame::Reply {
                id: 1,
                body: Ok(Reply::Done),
            },
            Frame::Reply {
                id: 3,
                body: Ok(Reply::Traced(Traced {
                    packets: vec![TracedPacket {
                        when: 1_800_000_000_000_000_000,
                        before: Some(u64::MAX),
                        ..TracedPacket::default()
                    }],
                    lost: 2,
                })),
            },
            Frame::Reply {
                id: 1,
                body: Err(failure),
            },
            Frame::Command {
                id: 2,
                body: Command::FlushRange {
                    va: 0x1000_0000_0000,
                    length: 0x4000,
                },
            },
            Frame::Carried {
                id: 2,
                body: Ok(Report::Done),
            },
        ] {
            let bytes = encode(&frame).unwrap();
            assert_eq!(decode(&bytes).unwrap(), frame);
        }
    }

    #[test]
    fn an_added_field_is_no_error_and_an_unknown_message_is() {
        let added = br#"{"frame":"hello","version":1,"name":"c0","mood":"good"}"#;
        assert!(decode(added).is_ok());
        assert!(decode(br#"{"frame":"request","id":1,"body":{"request":"dance"}}"#).is_err());
        assert!(decode(b"").is_err());
    }
}
