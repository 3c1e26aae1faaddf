//! What a worker is told to do, and its answers. The process ends with its stdin, whatever its threads
//! wait for: so it leaves when it is told to, and when whoever started it is gone. (A parent death
//! signal would come with the *thread* that started it, which lives only to enter a namespace.)

use std::io::{self, BufRead, BufReader, Read};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

use serde::{Serialize, de::DeserializeOwned};

use crate::lines;

/// The exit code of a worker that was left alone with something to do.
pub const ORPHANED: i32 = 3;

/// Whether a worker has nothing to do, so that it may be told to leave.
#[derive(Clone, Debug, Default)]
pub struct Idle(Arc<AtomicBool>);

impl Idle {
    /// Says whether it has nothing to do.
    pub fn set(&self, idle: bool) {
        self.0.store(idle, Ordering::SeqCst);
    }

    /// Ends the process, stdin having ended.
    fn leave(&self) -> ! {
        if self.0.load(Ordering::SeqCst) {
            process::exit(0);
        }
        eprintln!("stdin has ended: whoever started this process is gone");
        process::exit(ORPHANED);
    }
}

/// Ends the process when `input`, which is its stdin, ends: with 0 if it is idle then, else with
/// [`ORPHANED`]. What else is in `input` is passed over.
///
/// # Errors
///
/// When the thread that watches cannot be started.
pub fn watch(mut input: impl Read + Send + 'static, idle: &Idle) -> io::Result<()> {
    let idle = idle.clone();
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            let mut rest = [0; 64];
            while input.read(&mut rest).is_ok_and(|count| count > 0) {}
            idle.leave();
        })?;
    Ok(())
}

/// Orders on stdin, a line of JSON each, to be answered on stdout.
#[derive(Debug)]
pub struct Orders<O> {
    told: Receiver<io::Result<O>>,
    idle: Idle,
}

impl<O: DeserializeOwned + Send + 'static> Orders<O> {
    /// Listens to stdin. From now on the process ends with it: with 0 if every order was answered,
    /// else with [`ORPHANED`].
    ///
    /// # Errors
    ///
    /// When the thread that listens cannot be started.
    pub fn listen() -> io::Result<Self> {
        let (sender, told) = mpsc::channel();
        let idle = Idle::default();
        idle.set(true);
        let own = idle.clone();
        std::thread::Builder::new()
            .name("stdin".into())
            .spawn(move || {
                let mut from = BufReader::new(io::stdin());
                while let Some(order) = next(&mut from, &own) {
                    let is_last = order.is_err();
                    if sender.send(order).is_err() || is_last {
                        return;
                    }
                }
                own.leave();
            })?;
        Ok(Self { told, idle })
    }

    /// Waits for the next order.
    ///
    /// # Errors
    ///
    /// When what comes is none.
    pub fn next(&self) -> io::Result<O> {
        self.told
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Answers an order, or says that the worker is ready for one.
    ///
    /// # Errors
    ///
    /// When nobody listens.
    pub fn answer(&self, answer: &impl Serialize) -> io::Result<()> {
        // Before it is said, since the answer to it may be the end of stdin.
        self.idle.set(true);
        lines::send(io::stdout().lock(), answer)
    }
}

fn next<O: DeserializeOwned>(from: &mut impl BufRead, idle: &Idle) -> Option<io::Result<O>> {
    let order = lines::receive(from).transpose();
    if order.is_some() {
        idle.set(false);
    }
    order
}
