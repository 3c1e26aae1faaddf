//! The workers, one on each blade of the load: started, stopped and read together.

use anyhow::{Context as _, Result, bail};
use mind_e2e::{Bed, Program};

use crate::{
    job::{self, Done, Event, GO, STOP},
    layout::BLADES,
    worker::LEAVE,
};

/// This program.
pub const NAME: &str = "mind-soak";

/// A worker and its reports.
struct Member {
    blade: String,
    program: Program,
    operations: u64,
    done: Option<Done>,
    verified: bool,
}

/// All workers. Dropping this kills them.
pub struct Workers {
    members: Vec<Member>,
    /// The errors that they found.
    pub wrong: Vec<String>,
}

impl Workers {
    /// Starts them, with so many times the threads of each kind of work, and waits until all have their memory.
    ///
    /// # Errors
    ///
    /// When one of them does not start.
    pub fn start(bed: &Bed, threads: usize) -> Result<Self> {
        let mut members = Vec::new();
        for number in 0..BLADES {
            let blade = format!("c{number}");
            let arguments = format!("worker --number {number} --threads {threads}");
            let program = Program::run(bed, &blade, NAME, &arguments)?;
            members.push(Member {
                blade,
                program,
                operations: 0,
                done: None,
                verified: false,
            });
        }
        for member in &mut members {
            member.program.expect("ready")?;
        }
        Ok(Self {
            members,
            wrong: Vec::new(),
        })
    }

    /// Sends a line to each of them.
    fn send(&mut self, line: &str) -> Result<()> {
        let mut members = self.members.iter_mut();
        members.try_for_each(|member| member.program.send(line))
    }

    /// Starts the load.
    ///
    /// # Errors
    ///
    /// When one of them has ended.
    pub fn go(&mut self) -> Result<()> {
        self.send(GO)
    }

    /// Reads their reports; returns their operations so far.
    ///
    /// # Errors
    ///
    /// When one of them has ended.
    pub fn listen(&mut self) -> Result<u64> {
        for member in &mut self.members {
            while let Some(line) = member.program.try_line()? {
                member.heard(&line, &mut self.wrong)?;
            }
        }
        Ok(self.members.iter().map(|member| member.operations).sum())
    }

    /// Stops them; returns what each did, by the blade's name.
    ///
    /// # Errors
    ///
    /// When one of them does not stop.
    pub fn stop(&mut self) -> Result<Vec<(String, Done)>> {
        self.send(STOP)?;
        for member in &mut self.members {
            while member.done.is_none() {
                member.hear(&mut self.wrong)?;
            }
        }
        let members = self.members.iter();
        let done = members.map(|member| (member.blade.clone(), member.done.clone()));
        Ok(done
            .map(|(blade, done)| (blade, done.unwrap_or_default()))
            .collect())
    }

    /// Lets each check all memory, which must be as all of them have left it.
    ///
    /// # Errors
    ///
    /// When one of them ends instead.
    pub fn verify(&mut self, total: &Done) -> Result<()> {
        let total = serde_json::to_string(total).context("cannot write what all workers did")?;
        self.send(&total)?;
        for member in &mut self.members {
            while !member.verified {
                member.hear(&mut self.wrong)?;
            }
        }
        Ok(())
    }

    /// Ends them.
    ///
    /// # Errors
    ///
    /// When one of them does not, or not well.
    pub fn dismiss(mut self) -> Result<Vec<String>> {
        self.send(LEAVE)?;
        for mut member in self.members {
            member.program.succeed()?;
        }
        Ok(self.wrong)
    }
}

impl Member {
    fn hear(&mut self, wrong: &mut Vec<String>) -> Result<()> {
        let line = self.program.line()?;
        self.heard(&line, wrong)
    }

    fn heard(&mut self, line: &str, wrong: &mut Vec<String>) -> Result<()> {
        match serde_json::from_str(line) {
            Ok(Event::Progress { operations }) => self.operations = operations,
            Ok(Event::Wrong { what }) => {
                let what = format!("{}: {what}", self.blade);
                eprintln!("soak: ERROR: {what}");
                wrong.push(what);
            }
            Ok(Event::Stopped { done }) => self.done = Some(done),
            Ok(Event::Verified) => self.verified = true,
            Err(_) => bail!("the worker on {} says `{line}`", self.blade),
        }
        Ok(())
    }
}

/// What all of them did together.
pub fn total(done: &[(String, Done)]) -> Done {
    job::total(done.iter().map(|(_, done)| done))
}
