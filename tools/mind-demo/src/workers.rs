//! The demo's workers: processes in the blades' namespaces, all with parts of one job.

use std::io::{self, BufWriter};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mind_workers::member::{self, Output};
use mind_workers::{Failed, Heard, Member, lines};
use netns_setup::Testbed;

use crate::{
    graph::Graph,
    job::{self, Event, Job, LOADER},
};

/// A worker's event, with the ranks if it is done and sends them.
pub type Report = (Event, Vec<f64>);

/// An event that the demo waits for.
#[derive(Debug)]
pub enum Happening {
    /// A worker's report, or the end of its output.
    Heard(usize, Heard<Report>),
    /// The demo was interrupted.
    Interrupted,
}

/// All workers. They are killed with this value.
#[derive(Debug)]
pub struct Workers {
    blades: Vec<String>,
    members: Vec<Member>,
}

impl Workers {
    /// Starts a worker on each of `blades`, all with the same job but for their number, and lets
    /// them report to `to`.
    ///
    /// # Errors
    ///
    /// When a worker can't be started.
    pub fn start(
        testbed: &Testbed,
        blades: &[String],
        job: &Job,
        graph: &Graph,
        to: &Sender<Happening>,
    ) -> Result<Self> {
        let mut members = Vec::new();
        for (worker, blade) in blades.iter().enumerate() {
            let command =
                member::own_program("worker").context("cannot tell where this program lies")?;
            let to = to.clone();
            let mut member = Member::start(
                &format!("the worker on {blade}"),
                command,
                |command| testbed.spawn(blade, command),
                read,
                // The receiver is gone once the demo is over.
                move |heard| to.send(Happening::Heard(worker, heard)).is_ok(),
            )?;
            let job = Job {
                worker,
                ..job.clone()
            };
            member
                .write(|stdin| brief(BufWriter::with_capacity(1 << 16, stdin), &job, graph))
                .with_context(|| format!("cannot send the worker on {blade} its job"))?;
            members.push(member);
        }
        Ok(Self {
            blades: blades.to_vec(),
            members,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The error about a worker whose output has ended: how it ended, and the end of its stderr.
    pub fn silent(&mut self, worker: usize, error: Option<&io::Error>) -> Failed {
        self.members[worker].silent(error)
    }

    /// The error about workers that have not reported for `patience`: those that are not `done`.
    pub fn late(&self, done: impl Fn(usize) -> bool, patience: Duration) -> anyhow::Error {
        let blades = self.blades.iter().enumerate();
        let late = blades.filter(|(worker, _)| !done(*worker));
        let names: Vec<_> = late.map(|(_, blade)| blade.as_str()).collect();
        anyhow::anyhow!(
            "no worker has reported for {} s; unfinished: {}; --patience SECONDS waits longer",
            patience.as_secs_f64(),
            names.join(", ")
        )
    }

    /// Ends all workers, and waits until they have ended.
    ///
    /// # Errors
    ///
    /// [`Failed`] for one that does not, or not well.
    pub fn dismiss(self) -> Result<(), Failed> {
        member::dismiss(self.members)
    }
}

fn brief(mut to: impl io::Write, job: &Job, graph: &Graph) -> io::Result<()> {
    lines::send(&mut to, job)?;
    if job.worker == LOADER {
        graph.write_to(&mut to)?;
    }
    to.flush()
}

/// Reads a worker's next report.
fn read(from: &mut Output) -> io::Result<Option<Report>> {
    let Some(event) = lines::receive(from)? else {
        return Ok(None);
    };
    let ranks = match &event {
        Event::Done(done) => job::receive_ranks(from, done.ranks)?,
        _ => Vec::new(),
    };
    Ok(Some((event, ranks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc;

    #[test]
    fn events_and_ranks_arrive_in_order() {
        let (to, happenings) = mpsc::channel();
        let script = r#"echo '{"event":"attached"}'
            echo '{"event":"done","iterations":1,"delta":0,"accesses":1,"nanos":1,"digest":1,"ranks":1}'
            printf 12345678; cat"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let pass = move |heard| to.send(heard).is_ok();
        let member =
            Member::start("the worker on c7", command, Command::spawn, read, pass).unwrap();
        let first = happenings.recv().unwrap();
        assert!(
            matches!(&first, Heard::Said((Event::Attached, ranks)) if ranks.is_empty()),
            "{first:?}"
        );
        let second = happenings.recv().unwrap();
        assert!(
            matches!(&second, Heard::Said((Event::Done(_), ranks)) if ranks.len() == 1),
            "{second:?}"
        );
        let workers = Workers {
            blades: vec!["c7".to_owned()],
            members: vec![member],
        };
        assert_eq!(workers.len(), 1);
        let late = workers.late(|_| false, Duration::from_secs(3)).to_string();
        assert!(late.contains("unfinished: c7;"), "{late}");
        workers
            .dismiss()
            .expect("it leaves with the end of its stdin");
    }
}
