//! What of a trace is asked of the controller: which calls allocate memory on memory blades, and for what.

use std::{fmt, path::PathBuf, sync::Arc};

use clap::ValueEnum;
use mind_api::message::Access;
use mind_common::addr::PAGE_SIZE;

use super::trace::{Call, Permission};

/// Calls that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Memory that the program reserves (`--`), such as stacks of threads and arenas of malloc.
    Reserved,
    /// Files that the program maps.
    Files,
}

/// A line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<PathBuf>,
    /// The line's number, from 1 on.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Memory to be mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes: whole pages, at least one.
    pub length: u64,
    /// What the program's domain may do with it.
    pub access: Access,
    /// Which line asks for it.
    pub at: Place,
}

/// A file's calls.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The file.
    pub file: Arc<PathBuf>,
    /// Its calls, line by line.
    pub calls: Vec<Call>,
    /// Whether they are the program's mapping at its start, and not calls that it made later.
    pub is_initial: bool,
}

impl Calls {
    /// What they ask for, `without` calls of some kinds; in order.
    ///
    /// What a program reserves when it runs is memory that it writes to later: its traces have no `mprotect`, so it is
    /// taken to be writable from the beginning. In the mapping at its start it is a hole between the segments of a
    /// library, and no memory. Programs that are executed are readable, since blades execute their own copies of pages.
    pub fn requests(&self, without: &[Kind]) -> impl Iterator<Item = Request> {
        let calls = (1..).zip(&self.calls);
        calls.filter_map(move |(line, call)| {
            let access = match call.permission() {
                Permission::Reserved if self.is_initial || without.contains(&Kind::Reserved) => {
                    return None;
                }
                Permission::Reserved | Permission::Write => Access::Write,
                Permission::Read | Permission::Execute => Access::Read,
            };
            if call.is_file() && without.contains(&Kind::Files) {
                return None;
            }
            Some(Request {
                // Longer ones than there is memory are refused by the controller.
                length: call
                    .length()
                    .checked_next_multiple_of(PAGE_SIZE as u64)
                    .unwrap_or(call.length()),
                access,
                at: Place {
                    file: Arc::clone(&self.file),
                    line,
                },
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(is_initial: bool, without: &[Kind]) -> Vec<(usize, u64, Access)> {
        let lines = [
            "mmap 4097 0 0 --",
            "mmap 4096 1 0 --",
            "mmap 1 1 400000 r-x",
            "mmap 4096 1 0 rw",
            "mmap 8192 0 0 r-",
            "brk 135168 rw",
        ];
        let calls = Calls {
            file: Arc::default(),
            calls: lines.map(|line| line.parse().unwrap()).to_vec(),
            is_initial,
        };
        let requests = calls.requests(without);
        requests
            .map(|request| (request.at.line, request.length, request.access))
            .collect()
    }

    #[test]
    fn what_a_running_program_reserves_it_writes_to() {
        assert_eq!(
            requests(false, &[]),
            [
                (1, 8192, Access::Write),
                (2, 4096, Access::Write),
                (3, 4096, Access::Read),
                (4, 4096, Access::Write),
                (5, 8192, Access::Read),
                (6, 135_168, Access::Write),
            ]
        );
    }

    #[test]
    fn holes_of_the_mapping_at_start_are_no_memory() {
        let lines: Vec<_> = requests(true, &[]).into_iter().map(|r| r.0).collect();
        assert_eq!(lines, [3, 4, 5, 6]);
    }

    #[test]
    fn kinds_can_be_left_out() {
        let lines = |without: &[Kind]| -> Vec<_> {
            let requests = requests(false, without).into_iter();
            requests.map(|request| request.0).collect()
        };
        assert_eq!(lines(&[Kind::Reserved]), [3, 4, 5, 6]);
        assert_eq!(lines(&[Kind::Files]), [1, 5, 6]);
        assert_eq!(lines(&[Kind::Files, Kind::Reserved]), [5, 6]);
    }
}
