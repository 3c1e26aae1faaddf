//! A worker: the process that faults, or that exchanges packets, and times it. It carries out the
//! tasks on stdin, one at a time, and ends with stdin.

use std::{
    io::{self, BufReader},
    net::Ipv4Addr,
};

use anyhow::{Context as _, Result};
use mind_workers::lines;

use crate::{
    fault::{Handler, Local, Requester},
    system::{
        placement,
        program::Program,
        task::{Answer, Serve},
    },
};

/// A worker's command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where it runs.
    #[arg(long)]
    cpu: usize,
    #[command(subcommand)]
    role: Role,
}

#[derive(clap::Subcommand)]
enum Role {
    /// A program on a compute blade.
    Program,
    /// Faults that are resolved without a request.
    Userfault {
        /// By what.
        #[arg(long, value_enum)]
        handler: Handler,
        /// Where they are resolved.
        #[arg(long)]
        engine: usize,
    },
    /// Requests to a bare network.
    Network {
        /// From.
        #[arg(long)]
        own: Ipv4Addr,
        /// To.
        #[arg(long)]
        server: Ipv4Addr,
    },
}

/// Runs a worker to its end.
pub(crate) fn main(args: &Args) -> Result<()> {
    placement::pin(args.cpu)?;
    let mut role: Box<dyn Serve> = match &args.role {
        Role::Program => Box::new(Program::attach()?),
        Role::Userfault { handler, engine } => Box::new(Local::new(*handler, *engine)?),
        Role::Network { own, server } => Box::new(Requester::bind(*own, *server)?),
    };
    tell(&Answer::Ready)?;
    // No other thread reads stdin meanwhile: a worker that measures may fork.
    let mut input = BufReader::new(io::stdin());
    while let Some(task) = lines::receive(&mut input).context("cannot read what to do")? {
        tell(&role.serve(&task)?)?;
    }
    Ok(())
}

fn tell(answer: &Answer) -> Result<()> {
    lines::send(io::stdout().lock(), answer).context("cannot answer the bench")
}
