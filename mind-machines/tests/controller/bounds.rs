//! What the controller has to do at once does not depend on how much is under way, and that has bounds.

use std::time::{Duration, Instant};

use mind_api::{
    errno::Errno,
    message::{BladeKind, OnLoss, Registration, Reply, Report, Request},
};
use mind_common::{
    addr::{BLOCK_SHIFT, Region, WINDOW_BASE},
    directory::{State, Word},
    id::BladeSet,
};
use mind_machines::controller::{
    Act, Config, Controller, Entry, Input, Output, Seen, Session,
    books::{
        Answer,
        blades::{Incarnation, Port},
    },
};

use crate::world::{World, blade};

/// The session of the only compute blade's agent.
const AGENT: Session = Session(1);
/// A request that waits for orders to compute blades.
const LIST: Request = Request::ListCaches { from: 0, limit: 8 };

/// A controller with one compute blade, whose agent answers to no order; every region is busy for ever.
struct Bare {
    controller: Controller,
    requests: u64,
    orders: Vec<u64>,
    answers: Vec<Answer>,
}

fn config() -> Config {
    Config {
        operations: usize::MAX >> 1,
        answers: usize::MAX,
        pause: 1 << 60,
        stuck: 1 << 61,
        report: 1 << 61,
        ..Config::new([198, 18, 0, 1].into(), 4)
    }
}

impl Bare {
    fn new(config: Config) -> Self {
        let mut bare = Self {
            controller: Controller::new(config),
            requests: 0,
            orders: Vec::new(),
            answers: Vec::new(),
        };
        bare.controller.handle(0, register(AGENT));
        bare.run();
        assert!(
            matches!(bare.answers[..], [Ok(Reply::Registered { .. })]),
            "{:?}",
            bare.answers
        );
        bare
    }

    fn run(&mut self) {
        while let Some(output) = self.controller.poll(0) {
            match output {
                Output::Act { operation, act } => {
                    let result = carry_out(&act);
                    self.controller.handle(0, Input::Done { operation, result });
                }
                Output::WaitForPackets { operation } => {
                    let result = Seen::Done(Ok(()));
                    self.controller.handle(0, Input::Done { operation, result });
                }
                Output::Order { order, .. } => self.orders.push(order),
                Output::Reply { body, .. } => self.answers.push(body),
                Output::Event(_) | Output::KeepSoon { .. } => {}
            }
        }
    }

    fn hand_in(&mut self, session: Session, body: Request) {
        self.requests += 1;
        let input = Input::Request {
            session,
            id: self.requests,
            answered: self.requests,
            body,
        };
        self.controller.handle(0, input);
    }

    fn ask(&mut self, session: Session, body: Request) {
        self.hand_in(session, body);
        self.run();
    }

    /// A process comes and goes, a list of caches is asked for and an operator's connection ends, an order is answered.
    fn go_round(&mut self) {
        self.answers.clear();
        let enter = Request::EnterProcess {
            domain: "d".into(),
            pid: 1,
            on_loss: Some(OnLoss::Fail),
        };
        self.ask(AGENT, enter);
        let Some(Ok(Reply::Entered { domain })) = self.answers.last() else {
            panic!("{:?}", self.answers);
        };
        let exit = Request::ExitProcess {
            domain: *domain,
            pid: 1,
        };
        self.ask(AGENT, exit);
        assert_eq!(self.answers.last(), Some(&Ok(Reply::Done)));
        self.ask(Session(2), LIST);
        self.controller.handle(0, Input::Closed(Session(2)));
        let order = self.orders.pop().expect("it was given");
        let result = Ok(Report::Done);
        self.controller.handle(0, Input::Report { order, result });
        self.run();
        assert!(self.controller.deadline().is_some());
    }
}

fn register(session: Session) -> Input {
    Input::Register {
        session,
        id: 0,
        registration: Registration {
            kind: BladeKind::Compute,
            name: "c0".into(),
            address: [198, 18, 1, 0].into(),
            mac: [2, 0, 0, 0, 0, 0],
            pages: 1,
        },
        port: Port(1),
    }
}

/// Each block is one region, which is busy.
fn carry_out(act: &Act) -> Seen {
    match act {
        Act::Find { from, .. } => {
            let region = Region::containing(*from, (BLOCK_SHIFT - 12) as u8).expect("a region");
            let found = vec![Entry { region, slot: 1 }];
            Seen::Regions { found, next: None }
        }
        Act::Look { .. } | Act::Swap { .. } => {
            let all = BladeSet::only(blade(0));
            Seen::Word(Word::default().settled(State::ModifiedToShared, all))
        }
        Act::Forget { .. } => Seen::Swept {
            lost: Vec::new(),
            next: None,
        },
        _ => Seen::Done(Ok(())),
    }
}

fn stuck(block: u64) -> Request {
    Request::ReportStuck {
        va: WINDOW_BASE + (block << BLOCK_SHIFT),
    }
}

/// The least time that some rounds take while so many operations are under way.
fn time(count: u64, request: fn(u64) -> Request) -> Duration {
    let mut bare = Bare::new(config());
    for number in 0..count {
        let session = match request(number) {
            Request::ListCaches { .. } => Session(10 + number),
            _ => AGENT,
        };
        bare.ask(session, request(number));
    }
    let times = (0..10).map(|_| {
        let begin = Instant::now();
        for _ in 0..50 {
            bare.go_round();
        }
        begin.elapsed()
    });
    times.min().unwrap_or_default()
}

/// What operations wait for, and the requests for that, by number.
type Waiting = (&'static str, fn(u64) -> Request);

#[test]
fn a_request_costs_the_same_with_a_hundred_times_as_many_operations_under_way() {
    let requests: [Waiting; 3] = [
        ("that wait for times, each for another region", stuck),
        ("that wait for each other", |_| stuck(0)),
        ("that wait for orders", |_| LIST),
    ];
    for (name, request) in requests {
        let (few, many) = (time(1_000, request), time(100_000, request));
        // A look at each of them would cost a hundred times as much; caches of the processor make the difference.
        assert!(
            many < few * 12,
            "{name}: {few:?} with 1,000, {many:?} with 100,000"
        );
    }
}

fn refusals(answers: &[Answer]) -> Vec<&str> {
    let failures = answers.iter().filter_map(|answer| answer.as_ref().err());
    let refusals = failures.filter(|failure| failure.errno == Errno::EBUSY);
    refusals.map(|failure| &failure.message[..]).collect()
}

#[test]
fn more_requests_than_may_be_under_way_are_refused_and_a_blade_may_still_join() {
    let config = Config {
        operations: 8,
        ..config()
    };
    let mut bare = Bare::new(config);
    for number in 0..10 {
        bare.ask(AGENT, stuck(number));
    }
    let refused = refusals(&bare.answers);
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("8 requests under way"), "{refused:?}");
    let answered = bare.answers.len();
    bare.controller.handle(0, register(Session(3)));
    bare.run();
    assert!(matches!(
        bare.answers[answered..],
        [.., Ok(Reply::Registered { .. })]
    ));
}

#[test]
fn more_requests_than_may_wait_for_a_takeover_are_refused_and_the_others_carried_out() {
    let (world, va) = World::with_memory(4, OnLoss::LastWritten);
    let config = Config {
        operations: 8,
        ..world.config
    };
    let mut controller = Controller::take_over(config, world.records.clone(), 0);
    let incarnation = |number| Incarnation {
        number,
        ..world.incarnation(mind_machines::Node::Compute(blade(0)))
    };
    let session = |number: u8| Session(u64::from(number) + 1);
    controller.handle(
        0,
        Input::Resume {
            session: session(0),
            id: 1,
            incarnation: incarnation(0),
        },
    );
    for id in 2..12 {
        let body = Request::Protect {
            domain: 1,
            va: va.0,
            length: 1,
            access: mind_api::message::Access::Read,
        };
        controller.handle(
            0,
            Input::Request {
                session: session(0),
                id,
                answered: 2,
                body,
            },
        );
    }
    let mut answers = Vec::new();
    while let Some(output) = controller.poll(0) {
        if let Output::Reply { id, body, .. } = output {
            answers.push((id, body));
        }
    }
    let (ids, answers): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    assert_eq!(ids, [1, 10, 11]);
    let refused = refusals(&answers);
    assert_eq!(refused.len(), 2, "{answers:?}");
    assert!(
        refused[0].contains("taking over") && refused[0].contains("8 requests"),
        "{refused:?}"
    );
}

#[test]
fn a_controller_whose_answers_are_not_asked_for_says_that_it_is_full() {
    let config = Config {
        operations: 1,
        outputs: 16,
        ..config()
    };
    let mut bare = Bare::new(config);
    let mut handed_in = 0;
    while !bare.controller.is_full() {
        bare.hand_in(AGENT, stuck(0));
        handed_in += 1;
        assert!(handed_in < 100, "it is never full");
    }
    bare.run();
    assert!(!bare.controller.is_full());
    assert_eq!(refusals(&bare.answers).len(), handed_in - 1);
}
