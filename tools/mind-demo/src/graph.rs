//! A directed graph as the job wants it: compressed rows of incoming edges, and how it travels to
//! the worker that loads it. Where graphs come from is in [`edges`](crate::edges) and
//! [`debian`](crate::debian).

use std::io::{self, Read, Write};

/// A graph of which edges lead where, without parallel edges and loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    offsets: Vec<u64>,
    sources: Vec<u32>,
    degrees: Vec<u32>,
}

/// A graph, the names of its vertices, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its origin, for messages.
    pub origin: String,
    /// Name by vertex.
    pub names: Vec<String>,
    /// The graph.
    pub graph: Graph,
}

impl Graph {
    /// The graph of `vertices` vertices with these edges, each from the first to the second. One that
    /// is there twice counts once, and one from a vertex to itself not at all.
    ///
    /// # Panics
    ///
    /// When an edge names a vertex that is not there.
    pub fn new(vertices: usize, mut edges: Vec<(u32, u32)>) -> Self {
        edges.retain(|(from, to)| from != to);
        // Sources in ascending order within a row, so that a row walks through memory one way.
        edges.sort_unstable_by_key(|(from, to)| (*to, *from));
        edges.dedup();
        let mut degrees = vec![0; vertices];
        let mut offsets = vec![0; vertices + 1];
        for (from, to) in &edges {
            degrees[*from as usize] += 1;
            offsets[*to as usize + 1] += 1;
        }
        let mut end = 0;
        for offset in &mut offsets {
            end += *offset;
            *offset = end;
        }
        Self {
            offsets,
            sources: edges.into_iter().map(|(from, _)| from).collect(),
            degrees,
        }
    }

    /// How many vertices there are.
    pub fn vertices(&self) -> usize {
        self.degrees.len()
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.sources.len()
    }

    /// Where in [`sources`](Self::sources) the edges into each vertex begin; one more at the end.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Where the edges come from.
    pub fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// How many edges leave each vertex.
    pub fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// Writes it for [`read_from`](Self::read_from), little-endian and without sizes.
    ///
    /// # Errors
    ///
    /// Those of `to`.
    pub fn write_to(&self, mut to: impl Write) -> io::Result<()> {
        for offset in &self.offsets {
            to.write_all(&offset.to_le_bytes())?;
        }
        for value in self.sources.iter().chain(&self.degrees) {
            to.write_all(&value.to_le_bytes())?;
        }
        to.flush()
    }

    /// Reads what [`write_to`](Self::write_to) wrote of a graph of that size.
    ///
    /// # Errors
    ///
    /// Those of `from`; `UnexpectedEof` when it ends before the graph does.
    pub fn read_from(mut from: impl Read, vertices: usize, edges: usize) -> io::Result<Self> {
        let offsets = (0..=vertices)
            .map(|_| read(&mut from).map(u64::from_le_bytes))
            .collect::<io::Result<_>>()?;
        let mut halves = |count| {
            (0..count)
                .map(|_| read(&mut from).map(u32::from_le_bytes))
                .collect::<io::Result<_>>()
        };
        Ok(Self {
            offsets,
            sources: halves(edges)?,
            degrees: halves(vertices)?,
        })
    }
}

fn read<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_hold_incoming_edges_once_and_no_loops() {
        let graph = Graph::new(4, vec![(2, 1), (0, 1), (2, 1), (1, 1), (1, 3)]);
        assert_eq!(graph.offsets(), [0, 0, 2, 2, 3]);
        assert_eq!(graph.sources(), [0, 2, 1]);
        assert_eq!(graph.degrees(), [1, 1, 1, 0]);
        assert_eq!((graph.vertices(), graph.edges()), (4, 3));
    }

    #[test]
    fn a_graph_that_is_cut_off_is_an_error() {
        let graph = Graph::new(3, vec![(0, 1), (1, 2)]);
        let mut bytes = Vec::new();
        graph.write_to(&mut bytes).unwrap();
        bytes.pop();
        let error = Graph::read_from(bytes.as_slice(), 3, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn a_graph_arrives_as_it_was_sent(
            edges in prop::collection::vec((0u32..50, 0u32..50), 0..200),
        ) {
            let graph = Graph::new(50, edges);
            let mut bytes = Vec::new();
            graph.write_to(&mut bytes).unwrap();
            let read = Graph::read_from(bytes.as_slice(), 50, graph.edges()).unwrap();
            prop_assert_eq!(read, graph);
        }
    }
}
