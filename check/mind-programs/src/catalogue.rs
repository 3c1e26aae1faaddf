//! The programs. Each is a shell script in `programs/`, whose first lines say what it does; it defines `prepare`, which
//! makes the program's input in the current folder, and `run`, which prints the program's answer: the same at each run.
//! `$RUN` stands before the program that is to have its memory elsewhere, and `$SCALE` says how much it has to do.

/// A program, or several that work together.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name, by which it is chosen.
    pub name: &'static str,
    /// The script.
    pub script: &'static str,
    /// `$SCALE` where there is time: as much as takes a minute or less on a blade that has no more than a quarter.
    pub scale: u32,
}

macro_rules! programs {
    ($($name:literal at $scale:literal,)*) => {
        /// All of them.
        pub const ALL: &[Program] = &[
            $(Program {
                name: $name,
                script: include_str!(concat!("../programs/", $name, ".sh")),
                scale: $scale,
            },)*
        ];
    };
}

programs! {
    "redis" at 3,
    "memcached" at 6,
    "sqlite" at 10,
    "python" at 8,
    "numpy" at 3,
    "sklearn" at 1,
    "sort" at 8,
    "xz" at 2,
    "gcc" at 6,
    "cpp" at 1,
    "stress" at 8,
    "memtester" at 1,
}

impl Program {
    /// What it does: the comment that its script begins with, in one line.
    pub fn about(&self) -> String {
        let lines = self.script.lines();
        let comment: Vec<_> = lines.map_while(|line| line.strip_prefix("# ")).collect();
        comment.join(" ")
    }

    /// The program of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|program| program.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_it_does_and_has_both_functions() {
        for program in ALL {
            let about = program.about();
            assert!(about.ends_with('.'), "{}: {about}", program.name);
            for function in ["\nprepare() {\n", "\nrun() {\n", "$RUN"] {
                assert!(program.script.contains(function), "{}", program.name);
            }
        }
    }

    #[test]
    fn names_are_one_programs() {
        for program in ALL {
            let found = Program::named(program.name).map(|found| found.script);
            assert_eq!(found, Some(program.script));
        }
        assert!(Program::named("no such").is_none());
    }
}
