//! Graphs from lists of edges: two names a line, separated by white space; `#` begins a comment.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::graph::{Graph, Named};

/// Why a list of edges is no graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the list of edges {file}")]
    Io {
        /// Its name.
        file: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A line is no edge.
    #[error(
        "{file}, line {line}: {found} where an edge should be; expected two names, separated by \
         white space, or a comment after `#`"
    )]
    NoEdge {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is there.
        found: String,
    },
    /// There are none.
    #[error("{file} has no edges; expected lines of two names, separated by white space")]
    Empty {
        /// The file.
        file: String,
    },
    /// Vertices are numbered with 32 bits.
    #[error("{file}, line {line}: more than {} vertices", u32::MAX)]
    TooMany {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
    },
}

/// Reads the list of edges at `path`.
///
/// # Errors
///
/// See [`Error`].
pub fn open(path: &Path) -> Result<Named, Error> {
    let file = path.display().to_string();
    let from = File::open(path).map_err(|source| Error::Io {
        file: file.clone(),
        source,
    })?;
    read(BufReader::new(from), &file)
}

/// Reads a list of edges. Vertices are numbered in the order in which they are named.
///
/// # Errors
///
/// See [`Error`]; `file` is what they call the list.
pub fn read(mut from: impl BufRead, file: &str) -> Result<Named, Error> {
    let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
    let mut names = Vec::new();
    let mut edges = Vec::new();
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let count = from.read_line(&mut text).map_err(|source| Error::Io {
            file: file.to_owned(),
            source,
        })?;
        if count == 0 {
            break;
        }
        let before = text.split('#').next().unwrap_or_default();
        let words: Vec<_> = before.split_whitespace().take(3).collect();
        let [from, to] = match words[..] {
            [] => continue,
            [from, to] => [from, to],
            ref other => {
                let found = match other.len() {
                    1 => format!("one name, `{}`,", other[0]),
                    _ => "more than two names".to_owned(),
                };
                return Err(Error::NoEdge {
                    file: file.to_owned(),
                    line,
                    found,
                });
            }
        };
        let mut number = |name: &str| {
            if let Some(number) = numbers.get(name) {
                return Ok(*number);
            }
            let number = u32::try_from(names.len()).map_err(|_| Error::TooMany {
                file: file.to_owned(),
                line,
            })?;
            numbers.insert(name.into(), number);
            names.push(name.to_owned());
            Ok(number)
        };
        edges.push((number(from)?, number(to)?));
    }
    if edges.is_empty() {
        return Err(Error::Empty {
            file: file.to_owned(),
        });
    }
    let graph = Graph::new(names.len(), edges);
    Ok(Named {
        origin: file.to_owned(),
        names,
        graph,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Named, String> {
        read(text.as_bytes(), "web.txt").map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_numbered_as_they_come() {
        let named = parse("# a comment\nb a\n\n  a\tc # another\nb a\n").unwrap();
        assert_eq!(named.names, ["b", "a", "c"]);
        assert_eq!(named.graph, Graph::new(3, vec![(0, 1), (1, 2)]));
        assert_eq!(named.origin, "web.txt");
    }

    #[test]
    fn a_loop_names_a_vertex_and_is_no_edge() {
        let named = parse("1 1").unwrap();
        assert_eq!((named.graph.vertices(), named.graph.edges()), (1, 0));
    }

    #[test]
    fn an_error_names_file_line_and_what_was_expected() {
        let error = parse("1 2\n# fine\n3\n").unwrap_err();
        assert_eq!(
            error,
            "web.txt, line 3: one name, `3`, where an edge should be; expected two names, \
             separated by white space, or a comment after `#`"
        );
        let error = parse("1 2 0.5\n").unwrap_err();
        assert!(
            error.starts_with("web.txt, line 1: more than two names where"),
            "{error}"
        );
    }

    #[test]
    fn a_list_without_edges_is_an_error() {
        for text in ["", "\n\n", "# only\n# comments\n"] {
            assert!(parse(text).unwrap_err().starts_with("web.txt has no edges"));
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = open(Path::new("/no/such/list")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the list of edges /no/such/list"
        );
        let error = read(&b"\xff\xfe 1\n"[..], "binary").unwrap_err();
        assert_eq!(error.to_string(), "cannot read the list of edges binary");
    }
}
