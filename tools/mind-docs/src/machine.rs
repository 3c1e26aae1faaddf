//! On what something was measured: processor, kernel, date.

use anyhow::{Context as _, Result};

/// A machine and the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many processors the kernel has.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Year, month and day, in UTC.
    pub date: String,
}

impl Machine {
    /// The one that this runs on, today.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub fn this() -> Result<Self> {
        let read = |path: &str| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
        };
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .context("the clock stands before 1970")?;
        Ok(Self {
            processor: model(&read("/proc/cpuinfo")?).to_owned(),
            processors: std::thread::available_parallelism()
                .context("cannot tell how many processors there are")?
                .get(),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            date: date(now.as_secs() / 86_400),
        })
    }
}

/// The processor's model in the text of `/proc/cpuinfo`.
fn model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or("unknown", |(_, model)| model.trim())
}

/// The date that is `days` after 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> String {
    // Days are counted from 0000-03-01, so that a leap day ends its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (31, "1970-02-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_722, "2023-12-31"),
            (19_723, "2024-01-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn the_processor_is_that_of_cpuinfo() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nflags\t\t: fpu\n";
        assert_eq!(model(text), "Some CPU @ 2.00GHz");
        assert_eq!(model(""), "unknown");
    }
}
