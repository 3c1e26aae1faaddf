//! A capture of what goes over a blade's wire, by tshark, into a file.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
};

use anyhow::{Context as _, Result, ensure};
use netns_setup::Plan;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Bed, companion, patience};

/// The port of a datagram that ends a capture: "discard" (RFC 863).
const LAST: u16 = 9;

/// A running capture of everything at a blade's `eth0`.
#[derive(Debug)]
pub struct Capture<'a> {
    bed: &'a Bed,
    blade: String,
    tshark: Child,
    /// The UDP destination port of each packet in the file, a line each.
    ports: Receiver<String>,
}

impl<'a> Capture<'a> {
    /// Begins to write to `file`; returns when no later packet is missed.
    ///
    /// # Errors
    ///
    /// When tshark is not there, or does not begin.
    pub fn start(bed: &'a Bed, blade: &str, file: &Path) -> Result<Self> {
        let mut command = Command::new(companion::find("tshark")?);
        command
            // Without a user's settings.
            .env("WIRESHARK_CONFIG_DIR", "/nonexistent")
            .args(["-n", "-i", "eth0", "-F", "pcap", "-w"])
            .arg(file)
            // A line for each packet that it has written.
            .args(["-P", "-l", "-T", "fields", "-e", "udp.dstport"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tshark = bed.testbed().spawn(blade, &mut command)?;
        let said = lines(tshark.stderr.take().context("no pipe from tshark")?);
        let ports = lines(tshark.stdout.take().context("no pipe from tshark")?);
        let capture = Self {
            bed,
            blade: blade.to_owned(),
            tshark,
            ports,
        };
        await_line(&said, |line| line.contains("-- File: ")).context("tshark does not begin")?;
        Ok(capture)
    }

    /// Ends it, when the file has every packet so far.
    ///
    /// # Errors
    ///
    /// When tshark fails before that.
    pub fn end(mut self) -> Result<()> {
        self.bed.testbed().within(&self.blade, || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.send_to(b"last", (Plan::switch_address(), LAST))?;
            anyhow::Ok(())
        })?;
        await_line(&self.ports, |line| line == LAST.to_string())
            .context("tshark does not see the last packet")?;
        let process = Pid::from_raw(self.tshark.id().cast_signed()).context("no process")?;
        kill_process(process, Signal::INT)?;
        let status = self.tshark.wait()?;
        ensure!(status.success(), "tshark ends with {status}");
        Ok(())
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // When a test failed half way.
        let _ = self.tshark.kill();
        let _ = self.tshark.wait();
    }
}

/// The lines that a program writes.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        // Reads to the end in any case: a full pipe would stop the program.
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// Waits for a line that is as it should be.
fn await_line(lines: &Receiver<String>, is_it: impl Fn(&str) -> bool) -> Result<()> {
    let mut last = String::new();
    loop {
        let line = lines.recv_timeout(patience());
        let line = line.with_context(|| format!("its last line is `{last}`"))?;
        if is_it(&line) {
            return Ok(());
        }
        last = line;
    }
}
