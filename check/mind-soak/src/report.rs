//! The result of a soak: what was done, what was counted, what is wrong.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, presets::NOTHING};
use indicatif::HumanCount;
use mind_api::program::BladeReport;

use crate::{
    counters::Counts,
    inject::Sent,
    job::Done,
    kernel_objects::KernelObjects,
    machine::{self, Memory, Sample, mebibytes},
    progress::clock,
    verdicts::{self, Cause},
};

/// The machine at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its memory.
    pub memory: Memory,
    /// The kernel's eBPF programs and maps.
    pub objects: KernelObjects,
}

impl Machine {
    /// What is there that was not `before`, in words.
    pub fn leaks(&self, before: &Self) -> Vec<String> {
        let mut leaks: Vec<_> = machine::left(&before.memory, &self.memory)
            .iter()
            .map(ToString::to_string)
            .collect();
        if !self.objects.are_back(&before.objects) {
            leaks.push(format!(
                "eBPF programs and maps are left: {} and {}, before {} and {}",
                self.objects.programs,
                self.objects.maps,
                before.objects.programs,
                before.objects.maps
            ));
        }
        leaks
    }
}

/// What the load was, and what was counted meanwhile.
#[derive(Clone, Debug)]
pub struct Load {
    /// How long it took.
    pub time: Duration,
    /// What the workers did, by blade.
    pub done: Vec<(String, Done)>,
    /// The errors that they found.
    pub wrong: Vec<String>,
    /// What the agents counted.
    pub agents: Vec<(String, BladeReport)>,
    /// Packets by verdict.
    pub counts: Counts,
    /// Frames that were injected.
    pub sent: Sent,
    /// The memory meanwhile, in even intervals.
    pub samples: Vec<Sample>,
}

/// All that is known of a soak that ran to its end.
#[derive(Clone, Debug)]
pub struct Report {
    /// The load.
    pub load: Load,
    /// How often each verdict must come up.
    pub least: u64,
    /// Before the testbed was there.
    pub before: Machine,
    /// After it was gone.
    pub after: Machine,
    /// What the kernel complained of.
    pub complaints: Vec<String>,
    /// What is left of the testbed.
    pub debris: Vec<String>,
}

impl Report {
    /// All that is wrong, the most informative first.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.load.wrong.clone();
        let kernel = |line: &String| format!("the kernel complains: {line}");
        faults.extend(self.complaints.iter().map(kernel));
        for (blade, report) in &self.load.agents {
            for (what, count) in [
                ("pages whose last writes are lost", report.lost),
                ("datagrams that could not be parsed", report.malformed),
                ("requests given up", report.expired),
            ] {
                if count > 0 {
                    faults.push(format!("the agent of {blade} counted {what}: {count}"));
                }
            }
        }
        for taken in verdicts::judge(|verdict| self.load.counts.of(verdict), self.least) {
            if !taken.enough {
                faults.push(format!(
                    "{} came up {} times; expected at least {}",
                    taken.verdict,
                    HumanCount(taken.count),
                    HumanCount(self.least)
                ));
            }
        }
        let drift = machine::drift(&self.load.samples);
        faults.extend(drift.iter().map(ToString::to_string));
        faults.extend(self.after.leaks(&self.before));
        faults.extend(self.debris.iter().map(|what| format!("left: {what}")));
        faults
    }

    /// Tables and a last line.
    pub fn render(&self) -> String {
        let faults = self.faults();
        let mut text = format!(
            "{}\n\n{}\n\n{}\n\n{}\n\n",
            self.verdicts(),
            self.work(),
            self.agents(),
            self.memory()
        );
        if let (Some(first), Some(last)) = (self.load.samples.first(), self.load.samples.last()) {
            text.push_str(&format!(
                "own pages of the daemons: {} when the load began, {} when it ended\n",
                mebibytes(first.daemons),
                mebibytes(last.daemons)
            ));
        }
        text.push_str(&format!(
            "injected: {} frames, {} more found no room\n",
            HumanCount(self.load.sent.frames - self.load.sent.dropped),
            HumanCount(self.load.sent.dropped)
        ));
        for fault in &faults {
            text.push_str(&format!("FAULT: {fault}\n"));
        }
        let operations: u64 = crate::workers::total(&self.load.done).values().sum();
        text.push_str(&format!(
            "soak: {} after {} with {} operations and {} packets: {} errors, {} kernel complaints, {}\n",
            if faults.is_empty() { "passed" } else { "FAILED" },
            clock(self.load.time),
            HumanCount(operations),
            HumanCount(self.load.counts.sum()),
            self.load.wrong.len(),
            self.complaints.len(),
            if self.after.leaks(&self.before).is_empty() && self.debris.is_empty() {
                "nothing leaked"
            } else {
                "something is left"
            }
        ));
        text
    }

    fn verdicts(&self) -> Table {
        let mut table = table(["VERDICT", "PACKETS", "TAKEN BY", ""]);
        for taken in verdicts::judge(|verdict| self.load.counts.of(verdict), self.least) {
            let (cause, remark) = match taken.cause {
                Cause::Load => ("load", ""),
                Cause::Injected => ("injection", ""),
                Cause::Nothing(reason) => ("-", reason),
            };
            let remark = if taken.enough { remark } else { "TOO RARE" };
            table.add_row([
                Cell::new(taken.verdict.name()),
                number(taken.count),
                Cell::new(cause),
                Cell::new(remark),
            ]);
        }
        table
    }

    fn work(&self) -> Table {
        let total = crate::workers::total(&self.load.done);
        let mut header = vec!["BLADE".to_owned()];
        header.extend(total.keys().map(|work| work.to_uppercase()));
        let mut table = table(header);
        let all = ("all".to_owned(), total.clone());
        for (blade, done) in self.load.done.iter().chain([&all]) {
            let mut row = vec![Cell::new(blade)];
            let count = |work| number(done.get(work).copied().unwrap_or_default());
            row.extend(total.keys().map(count));
            table.add_row(row);
        }
        table
    }

    fn agents(&self) -> Table {
        let mut table = table([
            "AGENT",
            "FAULTS",
            "REQUESTS",
            "TIMEOUTS",
            "BUSY",
            "EVICTIONS",
            "WRITE-BACKS",
            "INVALIDATIONS",
            "IGNORED",
            "UNSENT",
            "LOST",
            "MALFORMED",
            "EXPIRED",
        ]);
        for (blade, report) in &self.load.agents {
            let mut row = vec![Cell::new(blade)];
            row.extend(
                [
                    report.faults,
                    report.requests,
                    report.timeouts,
                    report.busy,
                    report.evictions,
                    report.write_backs,
                    report.invalidations,
                    report.ignored,
                    report.unsent,
                    report.lost,
                    report.malformed,
                    report.expired,
                ]
                .map(number),
            );
            table.add_row(row);
        }
        table
    }

    fn memory(&self) -> Table {
        let mut table = table([
            "MACHINE",
            "FREE",
            "AVAILABLE",
            "PAGE CACHE",
            "SLAB",
            "UNRECLAIMABLE",
            "KEPT BY KERNEL",
            "PROGRAMS",
            "MAPS",
        ]);
        let samples = &self.load.samples;
        let row = |when: &str, memory: &Memory, objects: Option<&KernelObjects>| {
            let mut row = vec![when.to_owned()];
            row.extend(
                [
                    memory.free,
                    memory.available,
                    memory.cache,
                    memory.slab,
                    memory.unreclaimable,
                    memory.kept(),
                ]
                .map(mebibytes),
            );
            if let Some(objects) = objects {
                row.extend([objects.programs.to_string(), objects.maps.to_string()]);
            }
            row
        };
        table.add_row(row(
            "before",
            &self.before.memory,
            Some(&self.before.objects),
        ));
        if let (Some(first), Some(last)) = (samples.first(), samples.last()) {
            table.add_row(row("load begins", &first.memory, None));
            table.add_row(row("load ends", &last.memory, None));
        }
        table.add_row(row("after", &self.after.memory, Some(&self.after.objects)));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn table<T: Into<Cell>>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    let header: Vec<Cell> = header.into_iter().map(Into::into).collect();
    table.set_header(header);
    table
}

fn number(count: u64) -> Cell {
    Cell::new(HumanCount(count)).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mind_api::operator::{PortStatus, Status};
    use mind_common::verdict::Verdict;

    fn report(each: u64) -> Report {
        let packets = Verdict::ALL.map(|verdict| (verdict.name().to_owned(), each));
        let status = Status {
            ports: vec![PortStatus {
                interface: "c0".to_owned(),
                packets: packets.into(),
                ..PortStatus::default()
            }],
            ..Status::default()
        };
        let machine = Machine {
            memory: Memory::default(),
            objects: KernelObjects {
                programs: 3,
                maps: 4,
            },
        };
        Report {
            load: Load {
                time: Duration::from_secs(61),
                done: vec![("c0".to_owned(), [("lanes".to_owned(), 12_345)].into())],
                wrong: Vec::new(),
                agents: vec![("c0".to_owned(), BladeReport::default())],
                counts: Counts::new(&status, []).unwrap(),
                sent: Sent::default(),
                samples: vec![Sample::default(); 3],
            },
            least: 100,
            before: machine,
            after: machine,
            complaints: Vec::new(),
            debris: Vec::new(),
        }
    }

    #[test]
    fn a_clean_run_passes() {
        let report = report(100);
        assert_eq!(report.faults(), [""; 0]);
        let text = report.render();
        assert!(text.contains("12,345"), "{text}");
        assert!(
            text.ends_with("0 errors, 0 kernel complaints, nothing leaked\n"),
            "{text}"
        );
    }

    #[test]
    fn whatever_is_wrong_is_a_fault() {
        let few = report(99).faults();
        let taken = Verdict::ALL
            .into_iter()
            .filter(|verdict| !matches!(verdicts::of(*verdict), Cause::Nothing(_)));
        assert_eq!(few.len(), taken.count());
        assert!(
            few[0].contains("99 times; expected at least 100"),
            "{}",
            few[0]
        );

        let spoil: [fn(&mut Report); 6] = [
            |report| report.load.wrong.push("c1: lanes: at 0x1: …".to_owned()),
            |report| report.complaints.push("BUG".to_owned()),
            |report| report.load.agents[0].1.lost = 1,
            |report| report.debris.push("a namespace".to_owned()),
            |report| report.after.objects.maps += 1,
            |report| {
                let memory = &mut report.after.memory;
                (memory.total, memory.unreclaimable) = (1 << 30, 1 << 30);
            },
        ];
        for spoil in spoil {
            let mut report = report(100);
            spoil(&mut report);
            assert!(!report.faults().is_empty());
            assert!(report.render().contains("soak: FAILED"));
        }
    }
}
