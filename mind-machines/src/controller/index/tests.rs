//! The index says what a search of all operations would say, whatever happens to them.

use std::collections::{BTreeMap, BTreeSet};

use mind_api::message::BladeKind;
use proptest::prelude::*;

use super::{
    super::{
        OperationId, Order, Session,
        books::{
            blades::{Incarnation, Port},
            domains::Process,
        },
        operation::{Asker, Claim, Operation, Task, Thing, Waits},
    },
    Condition, Errand, Index,
};

/// All operations and orders, searched from one end to the other.
#[derive(Default)]
struct Search {
    operations: BTreeMap<OperationId, Operation>,
    orders: BTreeMap<u64, Order>,
    now: u64,
    /// What is so of what operations wait for together.
    so: BTreeSet<Condition>,
}

impl Search {
    fn next(&self, latest: OperationId) -> Option<OperationId> {
        let after = self.operations.range(OperationId(latest.0 + 1)..);
        let rest = self.operations.range(..=latest);
        let mut ready = after
            .chain(rest)
            .filter(|(id, operation)| self.is_ready(**id, operation));
        ready.next().map(|(id, _)| *id)
    }

    fn is_ready(&self, id: OperationId, operation: &Operation) -> bool {
        let is_over = match &operation.waits {
            Waits::Nothing => true,
            Waits::Seen => false,
            Waits::Orders => !self.orders.values().any(|order| order.operation == id),
            Waits::Until(until) => self.now >= *until,
            Waits::Operations(others) => others
                .iter()
                .all(|other| !self.operations.contains_key(other)),
            Waits::Fences => self.so.contains(&Condition::Fenced),
            Waits::Zeroed => self.so.contains(&Condition::Zeroed),
            Waits::Blades(until) => self.now >= *until || self.so.contains(&Condition::Back),
        };
        is_over && (operation.is_admitted || self.may_begin(id, operation))
    }

    fn may_begin(&self, id: OperationId, operation: &Operation) -> bool {
        let mut earlier = self.operations.range(..id);
        earlier.all(|(_, other)| !conflict(&operation.claim, &other.claim))
    }

    fn deadline(&self) -> Option<u64> {
        let orders = self.orders.values().filter_map(|order| order.until);
        let operations = self.operations.values();
        let waits = operations.filter_map(|operation| match operation.waits {
            Waits::Until(until) | Waits::Blades(until) => Some(until),
            _ => None,
        });
        orders.chain(waits).filter(|until| *until > self.now).min()
    }

    fn find(&self, is_it: impl Fn(&Operation) -> bool) -> Vec<OperationId> {
        let its = self
            .operations
            .iter()
            .filter(|(_, operation)| is_it(operation));
        its.map(|(id, _)| *id).collect()
    }
}

fn conflict(one: &Claim, other: &Claim) -> bool {
    let ranges = one.range.zip(other.range);
    ranges.is_some_and(|((start, end), (from, to))| start < to && from < end)
        || one.thing.is_some() && one.thing == other.thing
}

/// What happens next. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Begin(Claim, u8, u8),
    Work(Then),
    Answer(usize),
    See(usize),
    Advance(u64),
    Toggle(Condition),
    Disconnect(u8),
}

/// What becomes of an operation that was worked on.
#[derive(Clone, Debug)]
enum Then {
    End,
    GoOn,
    /// It answers, and does the rest of its tasks.
    Reply,
    Act,
    Order(usize, u64),
    Until(u64),
    Operations(Vec<u64>),
    Fences,
    Zeroed,
    Blades(u64),
}

fn claim() -> impl Strategy<Value = Claim> {
    let range = (0..40u64, 0..12u64)
        .prop_map(|(start, length)| Claim::range(mind_common::addr::Va(start), length));
    let thing = prop_oneof![
        (0..3u32).prop_map(|port| Thing::Port(Port(port))),
        (0..2u32).prop_map(|domain| Thing::Area(domain, "a".to_owned())),
        (0..2u8, -1..1i32).prop_map(|(blade, pid)| Thing::Process(Process { blade, pid })),
    ];
    prop_oneof![
        4 => range,
        2 => thing.prop_map(Claim::thing),
        1 => Just(Claim::default()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let then = prop_oneof![
        6 => Just(Then::End),
        1 => Just(Then::GoOn),
        1 => Just(Then::Reply),
        2 => Just(Then::Act),
        2 => (0..4usize, 0..20u64).prop_map(|(count, until)| Then::Order(count, until)),
        1 => (0..10u64).prop_map(Then::Until),
        2 => prop::collection::vec(0..60u64, 0..4).prop_map(Then::Operations),
        1 => Just(Then::Fences),
        1 => Just(Then::Zeroed),
        1 => (0..10u64).prop_map(Then::Blades),
    ];
    let condition =
        prop::sample::select(vec![Condition::Fenced, Condition::Zeroed, Condition::Back]);
    prop_oneof![
        6 => (claim(), 0..6u8, 0..6u8).prop_map(|(claim, asker, errand)| Step::Begin(claim, asker, errand)),
        8 => then.prop_map(Step::Work),
        3 => any::<usize>().prop_map(Step::Answer),
        2 => any::<usize>().prop_map(Step::See),
        1 => (0..6u64).prop_map(Step::Advance),
        1 => condition.prop_map(Step::Toggle),
        1 => (0..2u8).prop_map(Step::Disconnect),
    ]
}

fn blade(number: u8) -> Incarnation {
    Incarnation {
        kind: BladeKind::Compute,
        number,
        incarnation: 1,
    }
}

const ERRANDS: [Errand; 3] = [
    Errand::Fence(Incarnation {
        kind: BladeKind::Compute,
        number: 0,
        incarnation: 1,
    }),
    Errand::End(Incarnation {
        kind: BladeKind::Compute,
        number: 0,
        incarnation: 1,
    }),
    Errand::Zero(0),
];

/// Both, and what has happened to them.
#[derive(Default)]
struct Both {
    search: Search,
    index: Index,
    latest: u64,
    begun: u64,
    ordered: u64,
}

impl Both {
    fn begin(&mut self, claim: Claim, asker: u8, errand: u8) {
        self.begun += 1;
        let id = OperationId(self.begun);
        let asker = match asker {
            0 | 1 => Some((Some(blade(asker)), 0)),
            2 | 3 => Some((None, asker - 2)),
            _ => None,
        };
        let asker = asker.map(|(by, session)| Asker {
            session: Session(session.into()),
            by,
            id: self.begun,
        });
        let task = match errand {
            0 => Some(Task::Fence(blade(0))),
            1 => Some(Task::EndProcesses(blade(0), Vec::new())),
            2 => Some(Task::Zero(0, None)),
            _ => None,
        };
        // At most one does it at a time.
        let task = task.filter(|_| {
            self.search
                .find(|other| does(other, ERRANDS[errand as usize]))
                .is_empty()
        });
        let operation = Operation::new(claim, asker, task.into_iter().collect());
        self.index.begin(id, &operation);
        self.search.operations.insert(id, operation);
    }

    fn work(&mut self, then: Then) {
        let Some(id) = self.search.next(OperationId(self.latest)) else {
            return;
        };
        self.latest = id.0;
        let Some(mut operation) = self.search.operations.remove(&id) else {
            return;
        };
        self.index.take(id);
        operation.is_admitted = true;
        let now = self.search.now;
        operation.waits = match then {
            Then::End => return self.index.end(id, &operation, &self.search.operations),
            Then::GoOn => Waits::Nothing,
            Then::Reply => {
                operation.asker = None;
                operation.tasks.pop();
                Waits::Nothing
            }
            Then::Act => Waits::Seen,
            Then::Order(count, until) => {
                for number in 0..count {
                    self.ordered += 1;
                    let order = Order {
                        operation: id,
                        to: blade(number as u8),
                        until: until
                            .checked_sub(10)
                            .filter(|after| *after > 0)
                            .map(|after| now + after),
                    };
                    self.index.ordered(self.ordered, &order);
                    self.search.orders.insert(self.ordered, order);
                }
                Waits::Orders
            }
            Then::Until(after) => Waits::Until(now + after),
            Then::Operations(others) => {
                // Those that began later wait for it at most by what they claim.
                let others = others
                    .into_iter()
                    .map(OperationId)
                    .filter(|other| *other != id);
                Waits::Operations(others.filter(|other| other.0 <= self.begun).collect())
            }
            Then::Fences => Waits::Fences,
            Then::Zeroed => Waits::Zeroed,
            Then::Blades(after) => Waits::Blades(now + after),
        };
        self.index.put(id, &operation);
        self.search.operations.insert(id, operation);
    }

    fn answer(&mut self, number: u64) {
        if let Some(order) = self.search.orders.remove(&number) {
            self.index.answered(number, &order);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Begin(claim, asker, errand) => self.begin(claim, asker, errand),
            Step::Work(then) => self.work(then),
            Step::Answer(which) => {
                let count = self.search.orders.len().max(1);
                if let Some(number) = self.search.orders.keys().copied().nth(which % count) {
                    self.answer(number);
                }
            }
            Step::See(which) => {
                let acting = self.search.find(|operation| operation.waits == Waits::Seen);
                if let Some(id) = acting.get(which % acting.len().max(1))
                    && let Some(operation) = self.search.operations.get_mut(id)
                {
                    operation.waits = Waits::Nothing;
                    self.index.seen(*id);
                }
            }
            Step::Advance(by) => {
                self.search.now += by;
            }
            Step::Toggle(condition) => {
                if !self.search.so.remove(&condition) {
                    self.search.so.insert(condition);
                }
            }
            Step::Disconnect(session) => {
                for id in self.index.of_session(Session(session.into())) {
                    if let Some(operation) = self.search.operations.get_mut(&id) {
                        operation.asker = None;
                        self.index.note(id, operation);
                    }
                }
            }
        }
        while let Some(number) = self.index.expire(self.search.now) {
            let order = &self.search.orders[&number];
            assert!(order.until.is_some_and(|until| until <= self.search.now));
            self.answer(number);
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let is_so = |condition| self.search.so.contains(&condition);
        let next = self.search.next(OperationId(self.latest));
        prop_assert_eq!(self.index.next(OperationId(self.latest), is_so), next);
        let mut anew = Index::of(&self.search.operations, &self.search.orders);
        prop_assert_eq!(anew.expire(self.search.now), None);
        prop_assert_eq!(anew.next(OperationId(self.latest), is_so), next);
        prop_assert_eq!(self.index.deadline(), self.search.deadline());
        let late = self.search.orders.values();
        prop_assert!(
            late.filter_map(|order| order.until)
                .all(|until| until > self.search.now)
        );
        let asked = self.search.find(|operation| operation.asker.is_some());
        prop_assert_eq!(self.index.asked(), asked.len());
        for id in 1..=self.begun {
            let by = (0..2).map(blade);
            for by in by {
                let is_its = |asker: &Asker| asker.by == Some(by) && asker.id == id;
                let its = self
                    .search
                    .find(|operation| operation.asker.as_ref().is_some_and(is_its));
                prop_assert_eq!(self.index.of_request(by, id), its.first().copied());
            }
        }
        for session in (0..2).map(Session) {
            let is_its = |asker: &Asker| asker.by.is_none() && asker.session == session;
            let its = self
                .search
                .find(|operation| operation.asker.as_ref().is_some_and(is_its));
            prop_assert_eq!(self.index.of_session(session), its);
        }
        for blade in 0..2 {
            let is_its = |thing: &Thing| matches!(thing, Thing::Process(of) if of.blade == blade);
            let its = self
                .search
                .find(|operation| operation.claim.thing.as_ref().is_some_and(is_its));
            prop_assert_eq!(
                self.index
                    .of_processes(blade)
                    .into_iter()
                    .collect::<Vec<_>>(),
                its
            );
        }
        for errand in ERRANDS {
            let its = self.search.find(|operation| does(operation, errand));
            prop_assert_eq!(self.index.of_errand(errand), its.first().copied());
        }
        for to in (0..4).map(blade) {
            let its = self
                .search
                .orders
                .iter()
                .filter(|(_, order)| order.to == to);
            let its: Vec<_> = its.map(|(number, _)| *number).collect();
            prop_assert_eq!(self.index.orders_to(to), its);
        }
        for (start, end) in [(0, 1), (7, 9), (0, 60), (5, 5)] {
            let over = |(from, to): (u64, u64)| start < end && from < end && start < to;
            let its = self
                .search
                .find(|operation| operation.claim.range.is_some_and(over));
            prop_assert_eq!(
                self.index
                    .claiming(start, end)
                    .into_iter()
                    .collect::<Vec<_>>(),
                its
            );
        }
        Ok(())
    }
}

fn does(operation: &Operation, errand: Errand) -> bool {
    Errand::of(&operation.tasks) == Some(errand)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_index_says_what_a_search_of_all_operations_says(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut both = Both::default();
        for step in steps {
            both.take(step);
            both.check()?;
        }
        // Nothing is remembered of operations that are over.
        let Both { search, mut index, .. } = both;
        for (number, order) in search.orders {
            index.answered(number, &order);
        }
        let mut operations = search.operations;
        while let Some((id, operation)) = operations.pop_last() {
            index.take(id);
            index.end(id, &operation, &operations);
        }
        prop_assert!(index.is_empty(), "{index:?}");
    }
}

#[test]
fn what_conflicts_waits_for_what_began_earlier_and_for_nothing_else() {
    let mut both = Both::default();
    let range = |start, end: u64| Claim::range(mind_common::addr::Va(start), end - start);
    for claim in [
        range(0, 8),
        range(8, 9),
        range(7, 9),
        Claim::default(),
        range(5, 5),
    ] {
        both.begin(claim, 9, 9);
    }
    let ready = |both: &Both| {
        let ids = (0..5).filter_map(|latest| both.index.next(OperationId(latest), |_| true));
        ids.map(|id| id.0).collect::<BTreeSet<_>>()
    };
    assert_eq!(ready(&both), [1, 2, 4, 5].into());
    both.work(Then::End);
    assert_eq!(ready(&both), [2, 4, 5].into());
    both.work(Then::End);
    assert_eq!(ready(&both), [3, 4, 5].into());
}
