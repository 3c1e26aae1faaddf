//! What `mind run` tells the library that it has loaded into a program, by the program's environment.

use std::ffi::OsStr;

/// From how many bytes on a mapping or a block is memory of the window.
const MIN_ALLOC: &str = "MIND_RUN_MIN_ALLOC";
/// How many bytes of small blocks stay in the program's own memory.
const LOCAL_HEAP: &str = "MIND_RUN_LOCAL_HEAP";
/// Whether each process says at its end what it had where.
const REPORT: &str = "MIND_RUN_REPORT";

/// The choices, all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// From which size on a mapping or a block is memory of the window.
    pub min_alloc: u64,
    /// How much of its smaller blocks a process has in its own memory, before the others are in the window.
    pub local_heap: u64,
    /// Whether each process says at its end what it had where.
    pub report: bool,
}

impl Options {
    /// As variables of the environment.
    pub fn to_environment(self) -> [(&'static str, String); 3] {
        [
            (MIN_ALLOC, self.min_alloc.to_string()),
            (LOCAL_HEAP, self.local_heap.to_string()),
            (REPORT, u8::from(self.report).to_string()),
        ]
    }

    /// From the variables of an environment; `None` where one is missing or makes no sense, for then the program was not
    /// started by `mind run`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let number = |name: &str| {
            let text = variable(name)?;
            OsStr::to_str(&text)?.parse::<u64>().ok()
        };
        Some(Self {
            min_alloc: number(MIN_ALLOC)?,
            local_heap: number(LOCAL_HEAP)?,
            report: number(REPORT)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_says_what_was_chosen() {
        let options = Options {
            min_alloc: 1 << 40,
            local_heap: 0,
            report: true,
        };
        let environment = options.to_environment();
        let variable = |name: &str| {
            let mut variables = environment.iter();
            let (_, value) = variables.find(|(other, _)| *other == name)?;
            Some(value.into())
        };
        assert_eq!(Options::from_environment(variable), Some(options));
        assert_eq!(Options::from_environment(|_| None), None);
        assert_eq!(Options::from_environment(|_| Some("many".into())), None);
    }
}
