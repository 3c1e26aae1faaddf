//! The wire format: what is emitted parses to what it was, and no bytes make the parser panic.

use mind_common::{
    addr::{PAGE_SIZE, Page, Region, Va, WINDOW_BASE, WINDOW_SIZE},
    directory::{Source, Target},
    id::{BladeId, DomainId},
    refusal::Refusal,
    serial::{Episode, Seq, Version},
    wire::{Atomic, Cost, Invalidation, Malformed, Opcode, Syndrome, UDP_PORT},
};
use mind_machines::datagram::{Body, Datagram, Envelope, PageRequest};
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
    Coherence(Opcode, Invalidation, Cost, Version),
}

impl Shape {
    fn body<'a>(&self, data: &'a Page) -> Body<&'a Page> {
        match *self {
            Self::Request(Opcode::Read, request) => Body::read(request),
            Self::Request(Opcode::Acquire, request) => Body::acquire(request),
            Self::Request(_, request) => Body::upgrade(request),
            Self::Write(request, version) => Body::Write {
                page: request,
                version,
                data,
            },
            Self::ReadResponse(version) => Body::ReadResponse { version, data },
            Self::Acknowledge(syndrome, version) => Body::Acknowledge { syndrome, version },
            Self::AtomicAcknowledge(syndrome, original) => {
                Body::AtomicAcknowledge { syndrome, original }
            }
            Self::Atomic(va, domain, operation) => Body::Atomic {
                va,
                domain,
                operation,
            },
            Self::Coherence(opcode, invalidation, cost, version) => match opcode {
                Opcode::Invalidate => Body::Invalidate(invalidation),
                Opcode::InvalidateAck => Body::answer(invalidation, cost),
                Opcode::InvalidateAckFetch => Body::answer_with_fetch(invalidation, cost),
                _ => Body::Forward {
                    invalidation,
                    cost,
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
    let source = prop_oneof![
        Just(Source::Grant),
        Just(Source::Fetch),
        Just(Source::Forward)
    ];
    (
        0..WINDOW_SIZE,
        0u8..=9,
        any::<u32>(),
        any::<u32>(),
        0u8..32,
        target,
        source,
    )
        .prop_map(
            |(offset, order, slot, episode, requester, target, source)| {
                let page = Va(WINDOW_BASE + offset).page();
                Invalidation {
                    page,
                    region: Region::containing(page, order).expect("orders up to 9 are regions'"),
                    slot,
                    episode: Episode::new(episode),
                    requester: BladeId::new(requester).expect("below 32"),
                    target,
                    source,
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
                Shape::Coherence(opcode, invalidation, Cost { dropped, flushed }, version)
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
        let datagram = Datagram { envelope, body: shape.body(&data) };
        let mut buffer = [0xaa; 5000];
        let len = datagram.emit_into(&mut buffer).expect("5000 bytes hold any message");
        prop_assert_eq!(len, datagram.body.wire_len());
        prop_assert_eq!(Datagram::parse(&buffer[..len]), Ok(datagram));
        // Padding behind it changes nothing.
        prop_assert_eq!(Datagram::parse(&buffer), Ok(datagram));
    }

    #[test]
    fn a_message_cut_short_is_truncated(shape in shape(), envelope in envelope(), cut: u16) {
        let data = page(0);
        let datagram = Datagram { envelope, body: shape.body(&data) };
        let (headers, page) = datagram.emit();
        let whole = headers.as_bytes().len() + page.map_or(0, |page| page.len());
        let mut buffer = [0; 5000];
        datagram.emit_into(&mut buffer).expect("5000 bytes hold any message");
        let have = cut as usize % whole;
        let Err(Malformed::Truncated { have: said, need }) = Datagram::parse(&buffer[..have]) else {
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
        let _ = Datagram::parse(&bytes);
    }
}

#[test]
fn a_read_request_is_these_bytes() {
    let datagram: Datagram<&Page> = Datagram {
        envelope: Envelope {
            qp: 0x00_0102,
            seq: Seq::new(9),
            attempt: 0,
        },
        body: Body::read(PageRequest {
            page: Va(WINDOW_BASE + 0x2000),
            domain: DomainId(5),
        }),
    };
    let mut buffer = [0xaa; 5000];
    let len = datagram
        .emit_into(&mut buffer)
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
    let datagram: Datagram<&Page> = Datagram {
        envelope: Envelope {
            qp: 1,
            seq: Seq::new(2),
            attempt: 1,
        },
        body: Body::Write {
            page: PageRequest {
                page: Va(WINDOW_BASE),
                domain: DomainId(1),
            },
            version: Version::new(0x01_0203),
            data: &data,
        },
    };
    let (headers, body) = datagram.emit();
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
        assert_eq!(Datagram::parse(&bytes), Err(Malformed::Opcode(opcode)));
    }
}

#[test]
fn a_request_that_is_not_one_whole_page_is_refused() {
    let datagram: Datagram<&Page> = Datagram {
        envelope: Envelope {
            qp: 1,
            seq: Seq::new(2),
            attempt: 0,
        },
        body: Body::read(PageRequest {
            page: Va(WINDOW_BASE),
            domain: DomainId(1),
        }),
    };
    let mut buffer = [0; PAGE_SIZE + 100];
    datagram
        .emit_into(&mut buffer)
        .expect("the buffer holds a page request");
    let mut misaligned = buffer;
    misaligned[12 + 7] = 8;
    assert_eq!(Datagram::parse(&misaligned), Err(Malformed::Field("va")));
    let mut long = buffer;
    long[12 + 14] = 0x20;
    assert_eq!(Datagram::parse(&long), Err(Malformed::Field("len")));
}

#[test]
fn the_port_is_the_one_assigned_to_rocev2() {
    assert_eq!(UDP_PORT, 4791);
}
