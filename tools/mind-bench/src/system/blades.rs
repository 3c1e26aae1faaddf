//! The system that is measured: a testbed with its daemons, each engine on its processor, and a
//! worker on each compute blade.

use anyhow::{Context as _, Result, bail};
use mind_api::program::{BladeReport, FromBlade, ToBlade};
use mind_cli::{Interrupt, Interrupted};
use mind_connection::packets::Packets;
use netns_setup::{Kind, Options, Testbed, paths, testbed::Guard};

use super::{
    placement::{self, Placement},
    task::{Answer, Task},
    worker::Worker,
};
use crate::daemons;

/// Bytes of a compute blade's page cache: enough for a batch of transitions, and few compared with
/// what the eviction's threads access.
pub(crate) const CACHE: u64 = 4 << 20;

/// What a bench wants of its testbed.
pub(crate) struct Setup<'a> {
    /// Where threads run.
    pub(crate) placement: &'a Placement,
    /// Compute blades.
    pub(crate) compute: u8,
    /// Bytes that the memory blade offers.
    pub(crate) memory: u64,
    /// Whether the controller copies invalidations for several blades, instead of the switch.
    pub(crate) controller_copies: bool,
    /// Milliseconds after each of which regions are split and merged; 0 for never, none for the usual.
    pub(crate) epoch: Option<u32>,
}

/// A running system.
pub(crate) struct Blades {
    // Before the testbed, whose sockets they use.
    workers: Vec<Worker>,
    names: Vec<String>,
    testbed: Guard,
}

impl Blades {
    /// Brings it up.
    pub(crate) fn up(setup: &Setup<'_>, interrupt: &Interrupt) -> Result<Self> {
        interrupt.check()?;
        let options = Options {
            compute: setup.compute,
            memory: 1,
            memory_size: setup.memory,
            cache: CACHE,
            services: Some(daemons::folder()?),
            controller_copies: setup.controller_copies,
            epoch: setup.epoch,
            bound: true,
            ..Options::default()
        };
        let testbed = Testbed::guarded(&options).context("cannot bring the testbed up")?;
        let names = testbed.plan().of_kind(Kind::Compute);
        let mut blades = Self {
            workers: Vec::new(),
            names: names.map(|blade| blade.name.clone()).collect(),
            testbed,
        };
        match blades.staff(setup.placement, interrupt) {
            Ok(()) => Ok(blades),
            Err(error) => Err(blades.explained(error)),
        }
    }

    fn staff(&mut self, placement: &Placement, interrupt: &Interrupt) -> Result<()> {
        for (number, name) in self.names.iter().enumerate() {
            let services = &self.testbed.state().services;
            let agent = services.iter().find(|service| service.name == *name);
            let agent = agent.with_context(|| format!("{name} has no agent"))?;
            placement::pin_engine(agent.process.pid, placement.engine(number))
                .with_context(|| format!("cannot place the engine of {name}"))?;
            let args = [
                format!("--cpu={}", placement.program(number)),
                "program".to_owned(),
            ];
            let worker = format!("the worker on {name}");
            let worker = Worker::start(&worker, args, interrupt, |command| {
                Ok(self.testbed.spawn(name, command)?)
            })?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// The worker on compute blade `number`.
    pub(crate) fn worker(&mut self, number: usize) -> &mut Worker {
        &mut self.workers[number]
    }

    /// The name of compute blade `number`.
    pub(crate) fn name(&self, number: usize) -> &str {
        &self.names[number]
    }

    /// Allocates memory for all workers, by the first; returns its address.
    pub(crate) fn map(&mut self, length: u64) -> Result<u64> {
        let worker = self.worker(0);
        match worker.ask(&Task::Map { length })? {
            Answer::Mapped { first } => Ok(first),
            other => Err(worker.unexpected(&other)),
        }
    }

    /// Frees what [`map`](Self::map) allocated.
    pub(crate) fn unmap(&mut self) -> Result<()> {
        let worker = self.worker(0);
        match worker.ask(&Task::Unmap)? {
            Answer::Unmapped => Ok(()),
            other => Err(worker.unexpected(&other)),
        }
    }

    /// The counters of compute blade `number`'s agent.
    pub(crate) fn report(&self, number: usize) -> Result<BladeReport> {
        let name = self.name(number);
        let packets = Packets::connect(&paths::blade_socket(name))
            .with_context(|| format!("cannot reach the agent of {name}"))?;
        packets.send(&ToBlade::Report, None)?;
        match packets.receive::<FromBlade>()? {
            Some((FromBlade::Report(report), _)) => Ok(*report),
            other => bail!("the agent of {name} answers with {other:?}"),
        }
    }

    /// The error, with warnings and errors of the daemons' logs, which go with the testbed.
    pub(crate) fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        if error.is::<Interrupted>() {
            return error;
        }
        let services = self.testbed.state().services.iter();
        daemons::explained(&error, services.map(|service| service.name.as_str()))
    }
}
