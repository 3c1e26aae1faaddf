//! Cycles of memory accesses, in the language of the diy tools ("A diy Seven tutorial", part
//! "Generating tests"): `PodWR Fre PodWR Fre` is the store-buffering test.
//!
//! An edge leads from an access to the next one. `PodWR` is program order from a store to a load of
//! another location, `PosWR` of the same; `MFencedWR` and `MFencesWR` are the same with `mfence`
//! between. `Rf` (reads from), `Fr` (from read: to a store that comes after what is read) and `Co`
//! (coherence order, formerly `Ws`) are communication, between threads (`Rfe`) or within one (`Rfi`).

use std::fmt;
use std::str::FromStr;

/// The most edges of a cycle.
pub const MOST_EDGES: usize = 64;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// It loads.
    Read,
    /// It stores.
    Write,
}

/// How two accesses to one location follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Communication {
    /// The load reads from the store.
    ReadsFrom,
    /// The load reads from before the store.
    FromRead,
    /// The stores are in this order.
    Coherence,
}

/// An edge of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// Communication through memory.
    Communication {
        /// Of which kind.
        kind: Communication,
        /// Whether between threads.
        external: bool,
    },
    /// Program order.
    Program {
        /// Whether `mfence` is between.
        fenced: bool,
        /// Whether both access the same location.
        same: bool,
        /// The earlier access.
        from: Direction,
        /// The later one.
        to: Direction,
    },
}

/// What is no edge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no edge of a cycle; expected Po or MFence with d or s and two of R and W (PodWR, MFencesRR), \
     or Rf, Fr, Co, Ws with e or i (Rfe)"
)]
pub struct NoEdge(String);

impl Edge {
    /// Communication between threads.
    pub const fn external(kind: Communication) -> Self {
        let external = true;
        Self::Communication { kind, external }
    }

    /// What it comes from.
    pub const fn from(self) -> Direction {
        match self {
            Self::Program { from, .. } => from,
            Self::Communication { kind, .. } => match kind {
                Communication::FromRead => Direction::Read,
                Communication::ReadsFrom | Communication::Coherence => Direction::Write,
            },
        }
    }

    /// What it leads to.
    pub const fn to(self) -> Direction {
        match self {
            Self::Program { to, .. } => to,
            Self::Communication { kind, .. } => match kind {
                Communication::ReadsFrom => Direction::Read,
                Communication::FromRead | Communication::Coherence => Direction::Write,
            },
        }
    }

    /// Whether it leads to another thread.
    pub const fn is_external(self) -> bool {
        matches!(self, Self::Communication { external: true, .. })
    }

    /// Whether it leads to another location.
    pub const fn changes_location(self) -> bool {
        matches!(self, Self::Program { same: false, .. })
    }

    /// What it is called in a test's name: `po`, `pos`, `mfence`, `mfences`, `rfi`, `fri`, `coi`.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Program { fenced, same, .. } => match (fenced, same) {
                (false, false) => "po",
                (false, true) => "pos",
                (true, false) => "mfence",
                (true, true) => "mfences",
            },
            Self::Communication { kind, external } => match (kind, external) {
                (Communication::ReadsFrom, false) => "rfi",
                (Communication::ReadsFrom, true) => "rfe",
                (Communication::FromRead, false) => "fri",
                (Communication::FromRead, true) => "fre",
                (Communication::Coherence, false) => "coi",
                (Communication::Coherence, true) => "coe",
            },
        }
    }
}

impl FromStr for Edge {
    type Err = NoEdge;

    fn from_str(text: &str) -> Result<Self, NoEdge> {
        let none = || NoEdge(text.to_owned());
        const COMMUNICATIONS: [(&str, Communication); 4] = [
            ("Rf", Communication::ReadsFrom),
            ("Fr", Communication::FromRead),
            ("Co", Communication::Coherence),
            ("Ws", Communication::Coherence),
        ];
        for (name, kind) in COMMUNICATIONS {
            match text.strip_prefix(name) {
                Some("e") => return Ok(Self::external(kind)),
                Some("i") => {
                    let external = false;
                    return Ok(Self::Communication { kind, external });
                }
                _ => (),
            }
        }
        // `Fenced` is the strongest fence that there is.
        let orders = [("Po", false), ("MFence", true), ("Fenced", true)];
        for (name, fenced) in orders {
            let Some(rest) = text.strip_prefix(name) else {
                continue;
            };
            let direction = |letter| match letter {
                'R' => Ok(Direction::Read),
                'W' => Ok(Direction::Write),
                _ => Err(none()),
            };
            let letters: Vec<char> = rest.chars().collect();
            return match letters.as_slice() {
                [place @ ('d' | 's'), from, to] => Ok(Self::Program {
                    fenced,
                    same: *place == 's',
                    from: direction(*from)?,
                    to: direction(*to)?,
                }),
                _ => Err(none()),
            };
        }
        Err(none())
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "R",
            Self::Write => "W",
        })
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Communication { kind, external } => {
                let kind = match kind {
                    Communication::ReadsFrom => "Rf",
                    Communication::FromRead => "Fr",
                    Communication::Coherence => "Co",
                };
                write!(f, "{kind}{}", if *external { 'e' } else { 'i' })
            }
            Self::Program {
                fenced,
                same,
                from,
                to,
            } => {
                let order = if *fenced { "MFence" } else { "Po" };
                write!(f, "{order}{}{from}{to}", if *same { 's' } else { 'd' })
            }
        }
    }
}

/// A cycle: its last edge leads to the access that the first one comes from, which is the first of
/// the first thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cycle(Vec<Edge>);

/// Why edges are no cycle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CycleError {
    /// A word that is no edge.
    #[error(transparent)]
    Edge(#[from] NoEdge),
    /// Too few or too many.
    #[error("{0} edges; expected 2 to {MOST_EDGES}")]
    Length(usize),
    /// One leads to a load, the next comes from a store, or the other way round.
    #[error("`{first}` cannot be followed by `{second}`: one leads to {}, the other comes from {}", first.to(), second.from())]
    Mismatch {
        /// The first edge.
        first: Edge,
        /// The edge after it.
        second: Edge,
    },
    /// No thread ends.
    #[error("no edge leads to another thread; expected at least one of Rfe, Fre, Coe")]
    NoThreads,
    /// The last access cannot be to the same location as the first.
    #[error("only one edge leads to another location (`{0}`); expected none, or two and more")]
    OneLocation(Edge),
}

impl Cycle {
    /// The cycle of these edges, turned so that it begins with a thread: with the first one, if
    /// the last edge leads to a thread, or else with the one that the first such edge leads to.
    ///
    /// # Errors
    ///
    /// If they are no cycle.
    pub fn new(mut edges: Vec<Edge>) -> Result<Self, CycleError> {
        if edges.len() < 2 || edges.len() > MOST_EDGES {
            return Err(CycleError::Length(edges.len()));
        }
        let next = edges.iter().skip(1).chain(edges.first());
        for (first, second) in edges.iter().copied().zip(next.copied()) {
            if first.to() != second.from() {
                return Err(CycleError::Mismatch { first, second });
            }
        }
        let changing: Vec<_> = edges.iter().filter(|of| of.changes_location()).collect();
        if let [only] = changing.as_slice() {
            return Err(CycleError::OneLocation(**only));
        }
        if !edges.last().copied().is_some_and(Edge::is_external) {
            let first = edges.iter().position(|edge| edge.is_external());
            edges.rotate_left(first.ok_or(CycleError::NoThreads)? + 1);
        }
        Ok(Self(edges))
    }

    /// Its edges.
    pub fn edges(&self) -> &[Edge] {
        &self.0
    }

    /// The edges of each thread, the one that leaves it last.
    pub fn threads(&self) -> impl Iterator<Item = &[Edge]> + Clone {
        self.0.split_inclusive(|edge| edge.is_external())
    }

    /// Whether all accesses are to one location.
    pub fn has_one_location(&self) -> bool {
        !self.0.iter().any(|edge| edge.changes_location())
    }

    /// The same cycle, beginning with the `thread`th of its threads.
    pub(crate) fn beginning_with(&self, thread: usize) -> Self {
        let before = self.threads().take(thread).map(<[Edge]>::len).sum();
        let mut edges = self.0.clone();
        edges.rotate_left(before);
        Self(edges)
    }
}

impl FromStr for Cycle {
    type Err = CycleError;

    fn from_str(text: &str) -> Result<Self, CycleError> {
        let edges = text.split_whitespace().map(str::parse);
        Self::new(edges.collect::<Result<_, NoEdge>>()?)
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, edge) in self.0.iter().enumerate() {
            let space = if number > 0 { " " } else { "" };
            write!(f, "{space}{edge}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_is_read_as_it_is_written() {
        let mut names: Vec<String> = ["Rfe", "Rfi", "Fre", "Fri", "Coe", "Coi"]
            .map(str::to_owned)
            .to_vec();
        for order in ["Po", "MFence"] {
            for place in ["d", "s"] {
                for ends in ["RR", "RW", "WR", "WW"] {
                    names.push(format!("{order}{place}{ends}"));
                }
            }
        }
        for name in names {
            let edge: Edge = name.parse().unwrap();
            assert_eq!(edge.to_string(), name);
        }
        for (old, new) in [("Wse", "Coe"), ("Wsi", "Coi"), ("FenceddWR", "MFencedWR")] {
            assert_eq!(old.parse::<Edge>().unwrap().to_string(), new);
        }
        for wrong in [
            "", "Po", "PodW", "PodWX", "PoxWR", "PodWRR", "Rf", "rfe", "Rfee", "DpdR", "Pod**",
        ] {
            let error = wrong.parse::<Edge>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
    }

    #[test]
    fn a_cycle_begins_with_a_thread() {
        for (given, turned) in [
            ("PodWR Fre PodWR Fre", "PodWR Fre PodWR Fre"),
            ("Fre Rfi PodRR Fre PodWR", "Rfi PodRR Fre PodWR Fre"),
            ("PodRR Fre Rfe PodRR Fre Rfe", "PodRR Fre Rfe PodRR Fre Rfe"),
            ("PosRW Wse Rfe", "PosRW Coe Rfe"),
        ] {
            assert_eq!(given.parse::<Cycle>().unwrap().to_string(), turned);
        }
        let iriw: Cycle = "Rfe PodRR Fre Rfe PodRR Fre".parse().unwrap();
        assert_eq!(
            iriw.threads().map(<[Edge]>::len).collect::<Vec<_>>(),
            [1, 2, 1, 2]
        );
    }

    #[test]
    fn what_is_no_cycle_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "0 edges"),
            ("Rfe", "1 edges"),
            ("PodWR Fre PodWR Rfe", "`PodWR` cannot be followed by `Rfe`"),
            ("PodWW PodWW", "no edge leads to another thread"),
            (
                "PodWW Coe",
                "only one edge leads to another location (`PodWW`)",
            ),
            ("PodWR Fre Pod", "`Pod` is no edge"),
        ] {
            let error = text.parse::<Cycle>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let long = "PodWW Coe ".repeat(40);
        assert_eq!(long.parse::<Cycle>(), Err(CycleError::Length(80)));
    }
}
