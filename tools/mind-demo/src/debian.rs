//! The dependency graph of Debian's packages, from stanzas as in the archive's `Packages` files
//! (deb-control(5), Debian policy, chapter 7). Where the stanzas come from is in [`apt`](crate::apt).
//!
//! * An edge leads from a package to each that it depends on, pre-depends on or recommends.
//! * Of alternatives (`a | b`), each gets an edge, since each may be what is installed.
//! * A name that no package has stands for all packages that provide it; a name that no package
//!   provides is left out. A package that has the name itself stands for it alone.
//! * Versions, architectures and build profiles are not looked at. Of several stanzas for one
//!   package the first counts.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead};

use crate::graph::{Graph, Named};

/// Why stanzas are no graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They cannot be read.
    #[error("cannot read {origin}")]
    Io {
        /// Where they come from.
        origin: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// One has no name.
    #[error("{origin}, line {line}: the stanza that ends here has no field `Package`")]
    Nameless {
        /// Where they come from.
        origin: String,
        /// Its last line, from 1.
        line: usize,
    },
    /// There are none.
    #[error(
        "{origin} have no packages; `apt-get update` fetches them, or give a graph of your own with --graph FILE"
    )]
    Empty {
        /// Where they should come from.
        origin: String,
    },
}

/// The fields of a stanza that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stanza {
    name: String,
    /// `Depends`, `Pre-Depends` and `Recommends`.
    needs: Vec<String>,
    provides: String,
}

/// Where the text of a folded line goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Need,
    Provides,
    Other,
}

/// Reads stanzas and makes the graph. Packages are numbered by the order of their names.
///
/// # Errors
///
/// See [`Error`]; `origin` is what they call the source of the stanzas.
pub fn read(from: impl BufRead, origin: &str) -> Result<Named, Error> {
    let packages = stanzas(from, origin)?;
    if packages.is_empty() {
        return Err(Error::Empty {
            origin: origin.to_owned(),
        });
    }
    Ok(resolve(&packages, origin))
}

/// The stanzas by package.
fn stanzas(mut from: impl BufRead, origin: &str) -> Result<BTreeMap<String, Stanza>, Error> {
    let mut packages = BTreeMap::new();
    let mut stanza = Stanza::default();
    let (mut begun, mut field) = (false, Field::Other);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let count = from
            .read_until(b'\n', &mut bytes)
            .map_err(|source| Error::Io {
                origin: origin.to_owned(),
                source,
            })?;
        // Only descriptions may hold what is not ASCII, and names of maintainers.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        if text.is_empty() {
            if begun {
                let stanza = std::mem::take(&mut stanza);
                if stanza.name.is_empty() {
                    return Err(Error::Nameless {
                        origin: origin.to_owned(),
                        line: line - 1,
                    });
                }
                packages.entry(stanza.name.clone()).or_insert(stanza);
            }
            (begun, field) = (false, Field::Other);
            if count == 0 {
                return Ok(packages);
            }
            continue;
        }
        begun = true;
        if text.starts_with([' ', '\t']) {
            match field {
                Field::Need => {
                    if let Some(need) = stanza.needs.last_mut() {
                        need.push_str(text);
                    }
                }
                Field::Provides => stanza.provides.push_str(text),
                Field::Other => {}
            }
            continue;
        }
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        field = match name {
            "Package" => {
                stanza.name = value.trim().to_owned();
                Field::Other
            }
            "Depends" | "Pre-Depends" | "Recommends" => {
                stanza.needs.push(value.to_owned());
                Field::Need
            }
            "Provides" => {
                value.clone_into(&mut stanza.provides);
                Field::Provides
            }
            _ => Field::Other,
        };
    }
    Ok(packages)
}

/// The names in a relation: all alternatives of all its groups, without what restricts them.
fn names(relation: &str) -> impl Iterator<Item = &str> {
    relation.split([',', '|']).filter_map(|one| {
        let name = one.trim().split([' ', '\t', '(', '[', '<', ':']).next()?;
        (!name.is_empty()).then_some(name)
    })
}

fn resolve(packages: &BTreeMap<String, Stanza>, origin: &str) -> Named {
    let numbers: HashMap<&str, u32> = packages.keys().map(String::as_str).zip(0..).collect();
    let mut providers: HashMap<&str, Vec<u32>> = HashMap::new();
    for (stanza, number) in packages.values().zip(0..) {
        for name in names(&stanza.provides) {
            providers.entry(name).or_default().push(number);
        }
    }
    let mut edges = Vec::new();
    for (stanza, number) in packages.values().zip(0..) {
        for name in stanza.needs.iter().flat_map(|needs| names(needs)) {
            match numbers.get(name) {
                Some(needed) => edges.push((number, *needed)),
                None => {
                    let providers = providers.get(name).into_iter().flatten();
                    edges.extend(providers.map(|provider| (number, *provider)));
                }
            }
        }
    }
    Named {
        origin: origin.to_owned(),
        names: packages.keys().cloned().collect(),
        graph: Graph::new(packages.len(), edges),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Named, String> {
        read(text.as_bytes(), "the lists").map_err(|error| error.to_string())
    }

    /// The edges by name.
    fn edges(named: &Named) -> Vec<(&str, &str)> {
        let name = |number: usize| named.names[number].as_str();
        let offsets = named.graph.offsets();
        let mut edges = Vec::new();
        for to in 0..named.graph.vertices() {
            for source in &named.graph.sources()[offsets[to] as usize..offsets[to + 1] as usize] {
                edges.push((name(*source as usize), name(to)));
            }
        }
        edges.sort_unstable();
        edges
    }

    #[test]
    fn dependencies_lose_versions_architectures_and_profiles() {
        let relation = "libc6 (>= 2.34), python3:any (<< 3.13) | python3-minimal,  \
                        gcc [amd64 arm64] <!nocheck>, a(=1),";
        let expected = ["libc6", "python3", "python3-minimal", "gcc", "a"];
        assert!(names(relation).eq(expected));
        assert_eq!(names("").count(), 0);
    }

    #[test]
    fn all_three_relations_and_all_alternatives_are_edges() {
        let named = parse(
            "Package: app\nDepends: lib (>= 1) | other, lib\nPre-Depends: dpkg\n\
             Recommends: doc\nSuggests: nothing\nConflicts: lib\n\n\
             Package: dpkg\n\nPackage: lib\n\nPackage: nothing\n\nPackage: doc\nDepends: doc\n\n\
             Package: other",
        )
        .unwrap();
        assert_eq!(
            named.names,
            ["app", "doc", "dpkg", "lib", "nothing", "other"]
        );
        let expected = [
            ("app", "doc"),
            ("app", "dpkg"),
            ("app", "lib"),
            ("app", "other"),
        ];
        assert_eq!(edges(&named), expected);
    }

    #[test]
    fn a_virtual_package_stands_for_all_that_provide_it() {
        let named = parse(
            "Package: app\nDepends: mta, awk, ghost\n\nPackage: exim\nProvides: mta (= 1), x\n\n\
             Package: postfix\nProvides: mta\n\nPackage: awk\n\nPackage: gawk\nProvides: awk\n",
        )
        .unwrap();
        let expected = [("app", "awk"), ("app", "exim"), ("app", "postfix")];
        assert_eq!(edges(&named), expected);
    }

    #[test]
    fn folded_fields_go_on_and_descriptions_are_skipped() {
        let named = parse(
            "Package: a\nDescription: ä\n Depends: c\n .\nDepends: b,\n c\nTag: x,\n b\n\n\n\n\
             Package: b\nProvides: y,\n z\n\nPackage: c\nDepends: z\n",
        )
        .unwrap();
        assert_eq!(edges(&named), [("a", "b"), ("a", "c"), ("c", "b")]);
    }

    #[test]
    fn the_first_of_several_stanzas_of_a_package_counts() {
        let named =
            parse("Package: a\nDepends: b\n\nPackage: b\n\nPackage: c\n\nPackage: a\nDepends: c\n")
                .unwrap();
        assert_eq!(edges(&named), [("a", "b")]);
    }

    #[test]
    fn a_stanza_without_a_name_is_an_error_with_its_line() {
        let error = parse("Package: a\n\nDepends: b\nVersion: 1\n\nPackage: c\n").unwrap_err();
        assert_eq!(
            error,
            "the lists, line 4: the stanza that ends here has no field `Package`"
        );
    }

    #[test]
    fn no_packages_at_all_is_an_error_with_a_way_out() {
        let error = parse("").unwrap_err();
        assert!(
            error.contains("`apt-get update`") && error.contains("--graph FILE"),
            "{error}"
        );
    }
}
