//! The history of a page, in the right order and columns, without other pages.

use mind_common::id::BladeId;
use mind_machines::controller::books::memory::GRANULE;

use super::*;
use crate::{
    plan::{Area, MILLISECOND, Op, Place, Program, blade, calm},
    run,
};

const PAGE: Va = Va(WINDOW_BASE);

/// The first blade writes a page, the second reads it; both use another page, too.
fn plan() -> Plan {
    let place = |area| Place {
        area,
        page: 0,
        word: 1,
    };
    let program = |number, ops: [Op; 3]| Program {
        blade: blade(number),
        domain: 0,
        ops: ops.to_vec(),
    };
    let area = Area {
        domain: 0,
        order: 0,
        is_writable: true,
        is_mapped: true,
        is_named: false,
    };
    let [first, second] = [1, 2].map(|at| Op::Until(at * MILLISECOND));
    Plan {
        blades: 2,
        areas: vec![area, area],
        programs: vec![
            program(0, [first, Op::Store(place(0)), Op::Store(place(1))]),
            program(1, [second, Op::Load(place(1)), Op::Load(place(0))]),
        ],
        ..calm(MILLISECOND)
    }
}

#[test]
fn it_is_what_happened_to_the_page_and_where() {
    let plan = plan();
    let outcome = run(&plan, true);
    assert_eq!(outcome.failure, None);
    let mut history = History {
        plan: &plan,
        page: PAGE,
        own: HashSet::new(),
        names: BTreeMap::new(),
    };
    let sent = outcome.records.iter().filter_map(|record| {
        let (at, text) = history.of(&record.what)?;
        Some(match at {
            At::Host(node) => format!("{node} {text}"),
            At::Switch => format!("s {text}"),
            At::Controller => format!("k {text}"),
        })
    });
    let mut sent: Vec<_> = sent.collect();
    sent.retain(|line| !line.starts_with('k'));
    let value = outcome.records.iter().find_map(|record| match record.what {
        What::Stored(_, place, value) if place.page == PAGE => Some(value),
        _ => None,
    });
    let (value, first) = (value.unwrap(), "[0, 0, 0, 0]");
    let then = format!("[0, {value}, 0, 0]");
    let asked = "INVALIDATE 16K slot 1 e2 for c1 to Shared, forward";
    let forward = format!("FORWARD 16K slot 1 e2 for c1 v1 {then}");
    let number = |start: &str| {
        let line = sent.iter().find(|line| line.starts_with(start));
        let number = line.and_then(|line| line[start.len()..].split(' ').next());
        number.unwrap().to_owned()
    };
    let [acquire, read] = ["c0 → #", "c1 → #"].map(number);
    // The other page was asked for and written back in between.
    let write = acquire.parse::<u32>().unwrap() + 3;
    let expected = [
        "c0 t0 faults to write".to_owned(),
        format!("c0 → #{acquire} ACQUIRE"),
        format!("s c0: #{acquire} ACQUIRE: fetch"),
        "s 16K: Free {} e0 ⇒ Modified {0} e1".to_owned(),
        format!("s → m0: #{acquire} READ"),
        format!("m0 #{acquire} READ"),
        format!("m0 → #{acquire} PAGE v0 {first}"),
        format!("s m0: #{acquire} PAGE v0 {first}: delivered"),
        format!("s → c0: #{acquire} PAGE v0 {first}"),
        format!("c0 #{acquire} PAGE v0 {first}"),
        "c0 installs to write".to_owned(),
        format!("c0 t0 stores [1] = {value}"),
        "c1 t1 faults to read".to_owned(),
        format!("c1 → #{read} READ"),
        format!("s c1: #{read} READ: invalidate"),
        "s 16K: Modified {0} e1 ⇒ ModifiedToShared {0} e2 for c1".to_owned(),
        format!("s → c0: #{read} {asked}"),
        format!("c0 #{read} {asked}"),
        "c0 protects".to_owned(),
        format!("c0 → #{write} WRITE v1 {then}"),
    ];
    for (line, expected) in sent.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    let last = [
        format!("s → c1: #{read} {forward}"),
        format!("c1 #{read} {forward}"),
        "c1 installs to read".to_owned(),
        format!("c1 t1 loads [1] = {value}"),
    ];
    assert_eq!(sent[sent.len() - last.len()..], last);
}

#[test]
fn a_table_has_a_column_for_each_node_and_a_row_for_each_moment() {
    let plan = plan();
    let records = run(&plan, true).records;
    let table = table(&plan, PAGE, &records);
    let header: Vec<_> = table.header().unwrap().cell_iter().collect();
    let names: Vec<_> = header.iter().map(|cell| cell.content()).collect();
    assert_eq!(names, ["µs", "c0", "c1", "switch", "m0", "controller"]);
    let times = table.column_cells_iter(0);
    let times: Vec<_> = times.flatten().map(|cell| cell.content()).collect();
    let mut apart = times.clone();
    apart.dedup();
    assert_eq!(times, apart);
    assert!(times.len() > 15, "{table}");
}

#[test]
fn threads_that_wait_without_end_wait_for_the_page_that_they_faulted_on() {
    let plan = plan();
    let records = run(&plan, true).records;
    assert_eq!(page(&Failure::Stuck(vec![1]), &records), Some(PAGE));
    let other = Va(PAGE.0 + GRANULE);
    assert_eq!(page(&Failure::Stuck(vec![0]), &records), Some(other));
    let older = Failure::Older(BladeId::from_low_bits(0), PAGE);
    assert_eq!(page(&older, &[]), Some(PAGE));
    assert_eq!(page(&Failure::Stuck(vec![1]), &[]), None);
}
