//! Lists that do not fit in a frame, read part by part over frames, while what they are of changes.

use std::{cell::RefCell, collections::BTreeSet, time::Instant};

use mind_api::{
    Request,
    message::{Access, Frame},
    operator::Status,
};
use mind_common::{addr::WINDOW_BASE, permission::PermissionClass};
use mind_connection::{ClientError, frame, lists};
use mind_machines::controller::books::{
    domains::{Lost, Process, Users},
    memory::{Extent, Piece},
};

use super::*;

/// Bytes of a granule of memory, and of an initial region.
const GRANULE: u64 = 16 << 10;

type Change = Box<dyn Fn(&mut Books, usize)>;

/// What is listed, and how it changes with each part that is read.
struct World {
    books: RefCell<Books>,
    /// Called with the number of the part.
    change: Change,
    parts: RefCell<usize>,
    /// The longest frame of a part.
    longest: RefCell<usize>,
}

impl World {
    fn new(books: Books, change: impl Fn(&mut Books, usize) + 'static) -> Self {
        Self {
            books: RefCell::new(books),
            change: Box::new(change),
            parts: RefCell::new(0),
            longest: RefCell::new(0),
        }
    }

    /// Carries a request out, over frames.
    async fn ask(&self, request: Request) -> Result<Reply, ClientError> {
        let mut books = self.books.borrow_mut();
        let body = Ok(match request {
            Request::Status => Reply::Status(Default::default()),
            Request::ListBlades { .. } => Reply::Blades {
                blades: Vec::new(),
                next: None,
            },
            Request::ListPorts { .. } => Reply::Ports {
                ports: Vec::new(),
                next: None,
            },
            Request::ListDomains { from, limit } => domains(&books, from, limit),
            Request::ListLosses { from, limit } => losses(&books, from, limit),
            Request::ListVmas { from, limit } => vmas(&books, from, limit, &regions),
            other => panic!("{other:?}"),
        });
        *self.parts.borrow_mut() += 1;
        (self.change)(&mut books, *self.parts.borrow());
        let bytes = frame::encode(&Frame::Reply { id: 1, body }).expect("a part fits in a frame");
        let mut longest = self.longest.borrow_mut();
        *longest = bytes.len().max(*longest);
        match frame::decode(&bytes).expect("it is a frame") {
            Frame::Reply { body, .. } => Ok(body?),
            other => panic!("{other:?}"),
        }
    }

    async fn status(&self) -> Status {
        lists::status(&|request| self.ask(request)).await.unwrap()
    }

    async fn vmas(&self) -> Vec<VmaStatus> {
        lists::vmas(&|request| self.ask(request)).await.unwrap()
    }
}

/// All memory is in regions of 16 KiB.
fn regions(from: Va, to: Va, most: usize) -> (usize, Option<Va>) {
    let first = from.0 / GRANULE;
    let count = (to.0.div_ceil(GRANULE) - first) as usize;
    match count > most {
        true => (most, Some(Va((first + most as u64) * GRANULE))),
        false => (count, None),
    }
}

/// A name as long as names may be, which takes more bytes in JSON.
fn long_name(number: u32) -> String {
    format!("{}{number:08}", "\u{1}".repeat(247))
}

fn vma(domain: u32, granule: u64, granules: u64) -> Vma {
    let length = granules * GRANULE;
    Vma {
        domain,
        pieces: vec![Piece {
            va: WINDOW_BASE + granule * GRANULE,
            extent: Extent {
                blade: 0,
                offset: granule * GRANULE,
                length,
            },
        }],
        length,
        users: Users::Domain,
        area: None,
        lost: None,
        is_closing: false,
    }
}

fn put_domain(books: &mut Books, number: u32) {
    let domain = Domain {
        name: long_name(number),
        processes: [Process { blade: 0, pid: 1 }].into(),
        ..Domain::default()
    };
    books.domains.put(number, domain);
}

fn whole_json(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).unwrap().len()
}

#[tokio::test]
async fn more_domains_than_fit_in_a_frame_are_read_while_they_change() {
    const COUNT: u32 = 20_000;
    let mut books = Books::default();
    for number in 1..=COUNT {
        put_domain(&mut books, number);
    }
    // Odd ones end, from the last to the first, and others begin behind all that there were.
    let world = World::new(books, |books, part| {
        let number = COUNT - 2 * part as u32 - 1;
        let domain = books.domains.get_mut(number).expect("it is there");
        domain.processes.clear();
        assert!(books.domains.forget_if_empty(number));
        put_domain(books, COUNT + part as u32);
    });
    let status = world.status().await;
    let listed: Vec<_> = status.domains.iter().map(|domain| domain.domain).collect();
    assert!(
        listed.is_sorted_by(|one, other| one < other),
        "each is there once"
    );
    let stayed = (1..=COUNT).filter(|number| number % 2 == 0);
    let listed: BTreeSet<_> = listed.into_iter().collect();
    assert!(stayed.clone().all(|number| listed.contains(&number)));
    assert!(whole_json(&status.domains) > 10 * frame::MAX_LENGTH);
    assert!(*world.parts.borrow() > 40);
}

#[tokio::test]
async fn more_vmas_than_fit_in_a_frame_are_read_while_they_change() {
    const COUNT: u64 = 30_000;
    let mut books = Books::default();
    put_domain(&mut books, 1);
    for number in 0..COUNT {
        books.domains.put_vma(vma(1, 2 * number, 1));
    }
    let at = |number: u64| vma(1, 2 * number, 1).va();
    // One goes behind all that there is, and one closes; others come into the gaps.
    let world = World::new(books, move |books, part| {
        let part = part as u64;
        books
            .domains
            .take_vma(at(COUNT - part))
            .expect("it is there");
        books
            .domains
            .close_vma(at(COUNT - 200 - part))
            .expect("it is there");
        books
            .domains
            .put_vma(vma(1, 2 * (COUNT - 400 - part) + 1, 1));
    });
    let listed: Vec<_> = world.vmas().await.iter().map(|vma| vma.va).collect();
    assert!(
        listed.is_sorted_by(|one, other| one < other),
        "each is there once"
    );
    let listed: BTreeSet<_> = listed.into_iter().collect();
    let stayed = (0..COUNT - 400).map(|number| at(number).0);
    assert!(stayed.clone().all(|va| listed.contains(&va)));
    let parts = *world.parts.borrow();
    assert!(parts >= 30, "{parts} parts");
    assert!(*world.longest.borrow() < frame::MAX_LENGTH / 2);
}

#[tokio::test]
async fn a_vma_of_more_ranges_and_regions_than_one_part_has_is_put_together() {
    const RANGES_OF_IT: u64 = 20_000;
    let mut books = Books::default();
    put_domain(&mut books, 1);
    let large = vma(1, 0, 2 * RANGES_OF_IT);
    let (start, end) = (large.va(), large.end());
    books.domains.put_vma(large.clone());
    books.domains.put_vma(vma(1, 2 * RANGES_OF_IT, 3));
    let protection = &mut books.domains.get_mut(1).expect("it is there").protection;
    protection.set(start, end - start.0, PermissionClass::Write);
    // Each second granule may be read only, but for the last ones: there regions make the parts.
    for number in (0..RANGES_OF_IT).step_by(2) {
        protection.set(
            Va(start.0 + number * GRANULE),
            GRANULE,
            PermissionClass::Read,
        );
    }
    let expected = books.domains.rights(&large);
    let world = World::new(books, |_, _| {});
    let vmas = world.vmas().await;
    let listed: Vec<_> = vmas.iter().map(|vma| (vma.va, vma.regions)).collect();
    assert_eq!(listed, [(start.0, 2 * RANGES_OF_IT as u32), (end, 3)]);
    let access: Vec<_> = vmas[0]
        .access
        .iter()
        .map(|range| (range.va, range.va + range.length, range.access))
        .collect();
    assert_eq!(access, expected);
    assert_eq!(access[0].2, Access::Read);
    let parts = *world.parts.borrow();
    assert!(parts >= 20, "{parts} parts");

    let ask = |request| world.ask(request);
    let inside = lists::vma_from(&ask, start.0 + 5 * GRANULE + 7).await;
    let inside = inside.unwrap().expect("it is in the large one");
    assert_eq!((inside.va, inside.length), (start.0, end - start.0));
    assert_eq!(lists::vma_from(&ask, u64::MAX).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_lost_is_told_of_its_domain_wherever_it_is() {
    const COUNT: u64 = 50_000;
    let mut books = Books::default();
    put_domain(&mut books, 1);
    put_domain(&mut books, 2);
    let lost = |number: u64| number % 1_000 == 999;
    for number in 0..COUNT {
        let vma = vma(1 + (number % 3 == 0) as u32, number, 1);
        books.domains.put_vma(Vma {
            lost: lost(number).then(|| Lost {
                regions: number,
                last: vma.va().0,
                blade: "c7".to_owned(),
            }),
            ..vma
        });
    }
    let world = World::new(books, |_, _| {});
    let status = world.status().await;
    for domain in &status.domains {
        let of_it = (0..COUNT).filter(|number| 1 + (number % 3 == 0) as u32 == domain.domain);
        assert_eq!(domain.vmas as usize, of_it.clone().count());
        assert_eq!(domain.bytes, u64::from(domain.vmas) * GRANULE);
        let expected: Vec<_> = of_it.filter(|number| lost(*number)).collect();
        let told: Vec<_> = domain.losses.iter().map(|loss| loss.regions).collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn a_part_of_a_long_list_takes_no_longer_than_one_of_a_short_list_by_orders() {
    let time = |count: u64| {
        let mut books = Books::default();
        put_domain(&mut books, 1);
        for number in 0..count {
            books.domains.put_vma(vma(1, number, 1));
        }
        let least = (0..20).map(|_| {
            let begin = Instant::now();
            let parts = [
                domains(&books, 0, u32::MAX),
                losses(&books, 0, u32::MAX),
                vmas(&books, 0, u32::MAX, &regions),
            ];
            let took = begin.elapsed();
            assert!(matches!(parts[1], Reply::Losses { .. }));
            took
        });
        least.min().expect("20 of them")
    };
    let (short, long) = (time(8_000), time(400_000));
    assert!(long < 10 * short, "{short:?}, {long:?}");
}
