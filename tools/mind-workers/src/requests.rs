//! A worker's requests and its answers. The process ends with its stdin, whatever its threads wait for: when the tool
//! closes it, and when the tool is gone. (A parent death signal would come with the *thread* that started it, which
//! lives only to enter a namespace.)

use std::io::{self, BufRead, BufReader, Read};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

use serde::{Serialize, de::DeserializeOwned};

use crate::lines;

/// The exit code of a worker whose stdin ended before it was idle.
pub const STDIN_ENDED: i32 = 3;

/// Whether a worker is idle, so that the end of its stdin is expected.
#[derive(Clone, Debug, Default)]
pub struct Idle(Arc<AtomicBool>);

impl Idle {
    /// Sets whether it is idle.
    pub fn set(&self, idle: bool) {
        self.0.store(idle, Ordering::SeqCst);
    }

    /// Ends the process, stdin having ended.
    fn leave(&self) -> ! {
        if self.0.load(Ordering::SeqCst) {
            process::exit(0);
        }
        eprintln!("stdin has ended: the process that started this one is gone");
        process::exit(STDIN_ENDED);
    }
}

/// Ends the process when `input`, which is its stdin, ends: with 0 if it is idle then, else with
/// [`STDIN_ENDED`]. Other content of `input` is ignored.
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

/// Requests on stdin, a line of JSON each, to be answered on stdout.
#[derive(Debug)]
pub struct Requests<O> {
    told: Receiver<io::Result<O>>,
    idle: Idle,
}

impl<O: DeserializeOwned + Send + 'static> Requests<O> {
    /// Reads stdin. From now on the process ends with it: with 0 if every request was answered,
    /// else with [`STDIN_ENDED`].
    ///
    /// # Errors
    ///
    /// When the thread that reads cannot be started.
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

    /// Waits for the next request.
    ///
    /// # Errors
    ///
    /// When a line is not a request.
    pub fn next(&self) -> io::Result<O> {
        self.told
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Answers a request, or reports that the worker is ready for one.
    ///
    /// # Errors
    ///
    /// When stdout is closed.
    pub fn answer(&self, answer: &impl Serialize) -> io::Result<()> {
        // Before the answer is sent, since the tool may close stdin after it.
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
