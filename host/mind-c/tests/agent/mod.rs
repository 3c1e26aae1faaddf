//! A blade's agent that answers as it is told: programs attach to it and call it, and it resolves no fault.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use anyhow::{Context as _, Result, bail};
use mind_api::{
    Failure,
    program::{Call, FromBlade, Mapping, ToBlade},
};
use mind_connection::packets::Listener;
use mind_userfault::Backing;
use tempfile::TempDir;

/// The number of the domain that every program gets.
pub const DOMAIN: u32 = 7;
/// The blade's number.
pub const BLADE: u8 = 3;

/// What it answers a call with.
pub type Answer = fn(&Call) -> Result<Option<Mapping>, Failure>;

/// An agent for one program.
pub struct Agent {
    folder: TempDir,
    thread: JoinHandle<Result<Vec<ToBlade>>>,
}

impl Agent {
    /// Waits for a program, lets it in, answers its calls until it leaves or is gone.
    pub fn start(answer: Answer) -> Result<Self> {
        Self::ending(answer, |_| false)
    }

    /// The same, and instead of an answer to a call that `is_last` it ends.
    pub fn ending(answer: Answer, is_last: fn(&Call) -> bool) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for a socket")?;
        let listener = Listener::bind(&socket_in(&folder)).context("no socket")?;
        let thread = std::thread::spawn(move || serve(&listener, answer, is_last));
        Ok(Self { folder, thread })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.folder)
    }

    /// What the program said, but for the first two messages' descriptors.
    pub fn heard(self) -> Result<Vec<ToBlade>> {
        match self.thread.join() {
            Ok(heard) => heard,
            Err(_) => bail!("the agent panicked"),
        }
    }
}

fn socket_in(folder: &TempDir) -> PathBuf {
    Path::join(folder.path(), "socket")
}

fn serve(listener: &Listener, answer: Answer, is_last: fn(&Call) -> bool) -> Result<Vec<ToBlade>> {
    let packets = listener.accept()?;
    let mut heard = Vec::new();
    // Held, as an agent does: without any holder the program's accesses would read zeros.
    let mut userfault: Option<OwnedFd> = None;
    let memory = Backing::new("mind-c-test")?;
    while let Some((message, fd)) = packets.receive::<ToBlade>()? {
        match &message {
            ToBlade::Attach { .. } => {
                let memory_message = FromBlade::Memory {
                    domain: DOMAIN,
                    blade: BLADE,
                };
                packets.send(&memory_message, Some(memory.as_fd()))?;
            }
            ToBlade::Userfault => {
                userfault = fd;
                packets.send(&FromBlade::Attached, None)?;
            }
            ToBlade::Call { call, .. } if is_last(call) => break,
            ToBlade::Call { id, call } => {
                let result = answer(call);
                packets.send(&FromBlade::Answer { id: *id, result }, None)?;
            }
            ToBlade::Detach => {
                heard.push(message);
                break;
            }
            ToBlade::Report => bail!("a program asks for a report"),
        }
        heard.push(message);
    }
    drop(userfault);
    Ok(heard)
}
