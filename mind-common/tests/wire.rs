//! The wire format: what is emitted parses to what it was, and no bytes make the parser panic.

use mind_common::{
    addr::{PAGE_SIZE, Region, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::{Supply, Target},
    id::{BladeId, DomainId},
    serial::{Episode, Seq, Version},
    wire::{
        Invalidation, Malformed, Message, Opcode, Refusal, Syndrome, UDP_PORT,
        message::{Atomic, Envelope, Page, PageRequest, Toll, parse},
    },
};
use proptest::prelude::*;

/// A message without its page, which proptest would rather not make 4096 times.
#[derive(Clone, Debug)]
enum Shape {
    Request(Opcode, PageRequest),
    Write(PageRequest, Version),
    ReadResponse(Version),
    Acknowledge(Syndrome, Version),
    AtomicAcknowledge(Syndrome, u64),
    Atomic(Va, DomainId, Atomic),
    Coherence(Opcode, Invalidation, Toll, Version),
}

impl Shape {
    fn message<'a>(&self, data: &'a Page) -> Message<'a> {
        match *self {
            Self::Request(Opcode::Read, request) => Message::Read(request),
            Self::Request(Opcode::Acquire, request) => Message::Acquire(request),
            Self::Request(_, request) => Message::Upgrade(request),
            Self::Write(request, version) => Message::Write {
                request,
                version,
                data,
            },
            Self::ReadResponse(version) => Message::ReadResponse { version, data },
            Self::Acknowledge(syndrome, version) => Message::Acknowledge { syndrome, version },
            Self::AtomicAcknowledge(syndrome, original) => {
                Message::AtomicAcknowledge { syndrome, original }
            }
            Self::Atomic(va, domain, operation) => Message::Atomic {
                va,
                domain,
                operation,
            },
            Self::Coherence(opcode, invalidation, toll, version) => match opcode {
                Opcode::Invalidate => Message::Invalidate(invalidation),
                Opcode::InvalidateAck => Message::InvalidateAck { invalidation, toll },
                Opcode::InvalidateAckFetch => Message::InvalidateAckFetch { invalidation, toll },
                _ => Message::Forward {
                    invalidation,
                    toll,
                    version,
                    data,
                },
            },
        }
    }
}

fn page_request() -> impl Strategy<Value = PageRequest> {
    (any::<u64>(), any::<u32>()).prop_map(|(va, domain)| PageRequest {
        page: Va(va).page(),
        domain: DomainId(domain),
    })
}

fn version() -> impl Strategy<Value = Version> {
    any::<u32>().prop_map(Version::new)
}

fn syndrome() -> impl Strategy<Value = Syndrome> {
    prop_oneof![
        Just(Syndrome::Ack),
        proptest::sample::select(&Refusal::ALL[..]).prop_map(Syndrome::Refused),
    ]
}

fn invalidation() -> impl Strategy<Value = Invalidation> {
    let target = prop_oneof![Just(Target::Invalid), Just(Target::Shared)];
    let supply = prop_oneof![
        Just(Supply::Grant),
        Just(Supply::Fetch),
        Just(Supply::Forward)
    ];
    (
        0..WINDOW_SIZE,
        0u8..=9,
        any::<u32>(),
        any::<u32>(),
        0u8..32,
        target,
        supply,
    )
        .prop_map(
            |(offset, order, slot, episode, requester, target, supply)| {
                let page = Va(WINDOW_BASE + offset).page();
                Invalidation {
                    page,
                    region: Region::containing(page, order).expect("orders up to 9 are regions'"),
                    slot,
                    episode: Episode::new(episode),
                    requester: BladeId::new(requester).expect("below 32"),
                    target,
                    supply,
                }
            },
        )
}

fn shape() -> impl Strategy<Value = Shape> {
    const REQUESTS: [Opcode; 3] = [Opcode::Read, Opcode::Acquire, Opcode::Upgrade];
    const COHERENCE: [Opcode; 4] = [
        Opcode::Invalidate,
        Opcode::InvalidateAck,
        Opcode::InvalidateAckFetch,
        Opcode::Forward,
    ];
    let atomic = prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(expected, new)| Atomic::CmpSwap { expected, new }),
        any::<u64>().prop_map(|addend| Atomic::FetchAdd { addend }),
    ];
    prop_oneof![
        (proptest::sample::select(&REQUESTS[..]), page_request())
            .prop_map(|(opcode, request)| Shape::Request(opcode, request)),
        (page_request(), version()).prop_map(|(request, version)| Shape::Write(request, version)),
        version().prop_map(Shape::ReadResponse),
        (syndrome(), version()).prop_map(|(s, v)| Shape::Acknowledge(s, v)),
        (syndrome(), any::<u64>()).prop_map(|(s, value)| Shape::AtomicAcknowledge(s, value)),
        (any::<u64>(), any::<u32>(), atomic).prop_map(|(va, domain, a)| Shape::Atomic(
            Va(va & !7),
            DomainId(domain),
            a
        )),
        (
            proptest::sample::select(&COHERENCE[..]),
            invalidation(),
            (any::<u16>(), any::<u16>()),
            version()
        )
            .prop_map(|(opcode, invalidation, (dropped, flushed), version)| {
                Shape::Coherence(opcode, invalidation, Toll { dropped, flushed }, version)
            }),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (0u32..1 << 24, any::<u32>(), 0u8..128).prop_map(|(qp, seq, attempt)| Envelope {
        qp,
        seq: Seq::new(seq),
        attempt,
    })
}

/// A page whose every byte depends on its place and on `seed`.
fn page(seed: u8) -> Page {
    core::array::from_fn(|at| seed ^ (at % 251) as u8)
}

proptest! {
    #[test]
    fn what_is_emitted_parses_to_what_it_was(shape in shape(), envelope in envelope(), seed: u8) {
        let data = page(seed);
        let message = shape.message(&data);
        let mut buffer = [0xaa; 5000];
        let len = message.emit_into(&envelope, &mut buffer).expect("5000 bytes hold any message");
        prop_assert_eq!(len, message.len());
        prop_assert_eq!(parse(&buffer[..len]), Ok((envelope, message)));
        // Padding behind it changes nothing.
        prop_assert_eq!(parse(&buffer), Ok((envelope, message)));
    }

    #[test]
    fn a_message_cut_short_is_truncated(shape in shape(), envelope in envelope(), cut: u16) {
        let data = page(0);
        let message = shape.message(&data);
        let (headers, page) = message.emit(&envelope);
        let whole = headers.as_bytes().len() + page.map_or(0, |page| page.len());
        let mut buffer = [0; 5000];
        message.emit_into(&envelope, &mut buffer).expect("5000 bytes hold any message");
        let have = cut as usize % whole;
        let Err(Malformed::Truncated { have: said, need }) = parse(&buffer[..have]) else {
            return Err(TestCaseError::fail("a truncated message parsed"));
        };
        prop_assert_eq!(said, have);
        prop_assert!(need > have);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..4300), opcode in 0usize..20) {
        if let (Some(first), Some(known)) = (bytes.first_mut(), Opcode::ALL.get(opcode)) {
            *first = *known as u8;
        }
        let _ = parse(&bytes);
    }
}

#[test]
fn a_read_request_is_these_bytes() {
    let message = Message::Read(PageRequest {
        page: Va(WINDOW_BASE + 0x2000),
        domain: DomainId(5),
    });
    let envelope = Envelope {
        qp: 0x00_0102,
        seq: Seq::new(9),
        attempt: 0,
    };
    let mut buffer = [0xaa; 5000];
    let len = message
        .emit_into(&envelope, &mut buffer)
        .expect("5000 bytes hold any message");
    assert_eq!(len, 12 + 4 + 4096, "as long as the answer");
    let headers = [
        0x0c, 0, 0xff, 0xff, 0, 0, 1, 2, 0, 0, 0, 9, // BTH
        0, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 5, 0, 0, 0x10, 0, // RETH
    ];
    assert_eq!(buffer[..28], headers);
    assert!(
        buffer[28..len].iter().all(|&byte| byte == 0),
        "padding is zeroed"
    );
    assert_eq!(buffer[len], 0xaa, "and nothing is written behind it");
}

#[test]
fn a_write_is_these_bytes() {
    let data = page(3);
    let message = Message::Write {
        request: PageRequest {
            page: Va(WINDOW_BASE),
            domain: DomainId(1),
        },
        version: Version::new(0x01_0203),
        data: &data,
    };
    let envelope = Envelope {
        qp: 1,
        seq: Seq::new(2),
        attempt: 1,
    };
    let (headers, body) = message.emit(&envelope);
    assert_eq!(
        headers.as_bytes(),
        [
            0x0b, 0, 0xff, 0xff, 0, 0, 0, 1, 1, 0, 0, 2, // BTH
            0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x10, 0, // RETH
            0, 1, 2, 3, // immediate
        ]
    );
    assert_eq!(body, Some(&data));
}

#[test]
fn what_never_reaches_a_blade_is_no_message() {
    let mut bytes = [0; 100];
    for opcode in [0x00, 0x0a, 0x15, Opcode::FanOut as u8, 0xff] {
        bytes[0] = opcode;
        assert_eq!(parse(&bytes), Err(Malformed::Opcode(opcode)));
    }
}

#[test]
fn a_request_that_is_not_one_whole_page_is_refused() {
    let message = Message::Read(PageRequest {
        page: Va(WINDOW_BASE),
        domain: DomainId(1),
    });
    let envelope = Envelope {
        qp: 1,
        seq: Seq::new(2),
        attempt: 0,
    };
    let mut buffer = [0; PAGE_SIZE + 100];
    message
        .emit_into(&envelope, &mut buffer)
        .expect("the buffer holds a page request");
    let mut misaligned = buffer;
    misaligned[12 + 7] = 8;
    assert_eq!(parse(&misaligned), Err(Malformed::Field("va")));
    let mut long = buffer;
    long[12 + 14] = 0x20;
    assert_eq!(parse(&long), Err(Malformed::Field("len")));
}

#[test]
fn the_port_is_the_one_assigned_to_rocev2() {
    assert_eq!(UDP_PORT, 4791);
}
