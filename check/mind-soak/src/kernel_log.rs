//! The kernel's log, from a moment on: every record of level warning or worse that the kernel itself writes.
//! `/dev/kmsg` gives one record a read; see Documentation/ABI/testing/dev-kmsg of the kernel.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
};

use anyhow::{Context as _, Result};

const PATH: &str = "/dev/kmsg";

/// The least urgent level that is a complaint: KERN_WARNING.
const WARNING: u64 = 4;
/// Levels to a facility; facility 0 is the kernel, and only the kernel can write as it.
const LEVELS: u64 = 8;
/// Longer than any record.
const RECORD: usize = 8192;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The facility that wrote it: 0 is the kernel.
    pub facility: u64,
    /// The level: 0 is an emergency, 7 for debugging.
    pub level: u64,
    /// Microseconds since the machine was started.
    pub micros: u64,
    /// The text.
    pub text: String,
}

impl Record {
    /// Parses a record as `/dev/kmsg` gives it: `priority,sequence,micros,flags;text`, then lines of properties.
    pub fn parse(bytes: &str) -> Option<Self> {
        let (header, rest) = bytes.split_once(';')?;
        let mut fields = header.split(',');
        let priority: u64 = fields.next()?.parse().ok()?;
        let micros = fields.nth(1)?.parse().ok()?;
        Some(Self {
            facility: priority / LEVELS,
            level: priority % LEVELS,
            micros,
            text: rest.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// Whether it is of the kernel, of level warning or worse.
    pub fn is_complaint(&self) -> bool {
        self.facility == 0 && self.level <= WARNING
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000;
        let (seconds, micros) = (self.micros / SECOND, self.micros % SECOND);
        write!(f, "[{seconds:5}.{micros:06}] {}", self.text)
    }
}

/// The log from a moment on.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
}

impl KernelLog {
    /// From now on.
    ///
    /// # Errors
    ///
    /// When the log cannot be read: that takes root, and `/dev/kmsg`.
    pub fn from_now() -> Result<Self> {
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(PATH)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file =
            open().with_context(|| format!("cannot read the kernel's log at {PATH} (as root?)"))?;
        Ok(Self { file })
    }

    /// The kernel's complaints since the last look, in words.
    ///
    /// # Errors
    ///
    /// When the log cannot be read any more.
    pub fn complaints(&mut self) -> Result<Vec<String>> {
        let mut complaints = Vec::new();
        let mut bytes = [0; RECORD];
        loop {
            match self.file.read(&mut bytes) {
                Ok(0) => return Ok(complaints),
                Ok(count) => {
                    let text = String::from_utf8_lossy(&bytes[..count]);
                    match Record::parse(&text) {
                        Some(record) if !record.is_complaint() => {}
                        Some(record) => complaints.push(record.to_string()),
                        None => complaints.push(format!("not understood: {}", text.trim_end())),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(complaints),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Old records made room for new ones; the next read goes on with the oldest there is.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    complaints.push("so much was logged that some of it was not seen".to_owned());
                }
                Err(error) => return Err(error).with_context(|| format!("cannot read {PATH}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_without_its_properties() {
        let text = "4,1234,98765432,-;WARNING: CPU: 1 PID: 7; at net/core\n SUBSYSTEM=net\n";
        let record = Record::parse(text).unwrap();
        assert_eq!((record.facility, record.level), (0, 4));
        assert!(record.is_complaint());
        assert_eq!(
            record.to_string(),
            "[   98.765432] WARNING: CPU: 1 PID: 7; at net/core"
        );
        assert_eq!(Record::parse("nonsense"), None);
        assert_eq!(Record::parse("4,1;text"), None);
    }

    #[test]
    fn information_and_what_programs_write_are_no_complaints() {
        let complains = |text| Record::parse(text).unwrap().is_complaint();
        assert!(!complains("6,1,2,-;br0: port 1(c0) entered disabled state"));
        assert!(!complains("5,1,2,-;a notice"));
        // 12 is facility 1 (user), level 4.
        assert!(!complains("12,1,2,-;a daemon warns"));
        assert!(complains("3,1,2,-;BUG: Bad page state"));
        assert!(complains("0,1,2,c;Kernel panic"));
    }
}
