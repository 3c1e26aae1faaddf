//! Checks documents: every relative link leads to a file or heading that there is, and every file that a document or a
//! drawing names exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A document, by its path from the root of the checkout.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where it is, or will be.
    pub path: PathBuf,
    /// Its Markdown; `None` for a page that is generated and not at hand, whose headings are not known.
    pub text: Option<String>,
}

/// Something wrong in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// In which document.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// All files of a checkout, by their paths from its root.
#[derive(Debug, Default)]
pub struct Checkout {
    files: BTreeSet<PathBuf>,
}

/// Endings by which the name of a file is known where it stands without a folder.
const ENDINGS: [&str; 9] = [
    ".rs", ".md", ".toml", ".c", ".h", ".svg", ".yml", ".json", ".lua",
];

/// Files that are named and come with no checkout: of a host, of a user, of other projects.
const ELSEWHERE: [&str; 1] = ["host.json"];

impl Checkout {
    /// The files below `root`, without those that are built and those of version control.
    ///
    /// # Errors
    ///
    /// When a folder cannot be read.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeSet::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = folder
                .read_dir()
                .with_context(|| format!("cannot read the folder {}", folder.display()))?;
            for entry in entries {
                let entry = entry?;
                let (path, name) = (entry.path(), entry.file_name());
                if folder == root && (name == "target" || name == ".git") {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.strip_prefix(root)?.to_owned());
                }
            }
        }
        Ok(Self { files })
    }

    /// The files below `folder` with that extension, in order.
    pub fn below<'a>(
        &'a self,
        folder: &'a Path,
        extension: &'a str,
    ) -> impl Iterator<Item = PathBuf> + 'a {
        let is_asked_for = move |file: &&PathBuf| {
            file.starts_with(folder) && file.extension() == Some(extension.as_ref())
        };
        self.files.iter().filter(is_asked_for).cloned()
    }

    /// Whether there is a file, or a folder with files.
    fn has(&self, path: &Path) -> bool {
        self.files.contains(path) || self.files.iter().any(|file| file.starts_with(path))
    }

    fn has_name(&self, name: &str) -> bool {
        self.files
            .iter()
            .any(|file| file.file_name().is_some_and(|own| own == name))
    }

    /// Whether some file or folder at the root begins like that.
    fn has_top(&self, name: &str) -> bool {
        self.files.iter().any(|file| {
            let first = file.components().next();
            first == Some(Component::Normal(name.as_ref()))
        })
    }

    /// What is wrong with a word that may name a file: `None` if it names none, or one that there is.
    fn misses(&self, word: &str) -> Option<String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_known = word.len() > 3 && ENDINGS.iter().any(|ending| word.ends_with(ending));
        if !word.chars().all(is_plain) || word.starts_with(['/', '.']) || ELSEWHERE.contains(&word)
        {
            return None;
        }
        match word.split_once('/') {
            None if is_known && !self.has_name(word) => {
                Some(format!("there is no file called {word} in the checkout"))
            }
            None => None,
            Some(("target", _)) => None,
            Some((top, _)) if !is_known && !self.has_top(top) => None,
            Some(_) if self.has(Path::new(word.trim_end_matches('/'))) => None,
            Some(_) => Some(format!("there is no {word} in the checkout")),
        }
    }
}

/// What is wrong in `documents`. Those below `book` are pages of the book, whose links must stay in it.
pub fn check(documents: &[Document], book: &Path, checkout: &Checkout) -> Vec<Complaint> {
    let read: BTreeMap<&Path, Option<Read>> = documents
        .iter()
        .map(|document| (&*document.path, document.text.as_deref().map(Read::of)))
        .collect();
    let mut complaints = Vec::new();
    for (path, document) in &read {
        let Some(document) = document else { continue };
        let mut complain = |what| {
            complaints.push(Complaint {
                path: path.to_path_buf(),
                what,
            });
        };
        for link in &document.links {
            if let Some(what) = broken(link, path, &read, book, checkout) {
                complain(what);
            }
        }
        for word in &document.words {
            if let Some(what) = checkout.misses(word) {
                complain(what);
            }
        }
    }
    complaints
}

/// What is wrong with files that a drawing names in its text.
pub fn check_drawing(path: &Path, svg: &str, checkout: &Checkout) -> Vec<Complaint> {
    let texts = svg.split('>').filter_map(|part| part.split_once('<'));
    let words = texts.flat_map(|(text, _)| text.split_whitespace());
    words
        .filter_map(|word| checkout.misses(word.trim_matches([',', ';', ':', '(', ')'])))
        .map(|what| Complaint {
            path: path.to_owned(),
            what,
        })
        .collect()
}

/// What is wrong with a link of the document at `from`.
fn broken(
    link: &str,
    from: &Path,
    documents: &BTreeMap<&Path, Option<Read>>,
    book: &Path,
    checkout: &Checkout,
) -> Option<String> {
    if ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
    {
        return None;
    }
    let (file, anchor) = link
        .split_once('#')
        .map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() {
        from.to_owned()
    } else {
        let folder = from.parent().unwrap_or(Path::new(""));
        match normal(&folder.join(file)) {
            Some(target) => target,
            None => return Some(format!("the link {link} leads out of the checkout")),
        }
    };
    let is_known = documents.contains_key(&*target) || checkout.has(&target);
    if !is_known {
        return Some(format!(
            "the link {link} leads nowhere: there is no {}",
            target.display()
        ));
    }
    if from.starts_with(book) && !target.starts_with(book) {
        return Some(format!(
            "the link {link} leads out of the book, which is read without the checkout: name the file instead"
        ));
    }
    let anchor = anchor?;
    match documents.get(&*target) {
        Some(Some(document)) if !document.anchors.contains(anchor) => Some(format!(
            "the link {link} leads to no heading: {} has {:?}",
            target.display(),
            document.anchors
        )),
        Some(Some(_)) => None,
        Some(None) => Some(format!(
            "the link {link} leads to a heading of a page that is generated: link to the page"
        )),
        None => Some(format!(
            "the link {link} has an anchor, and leads to no document"
        )),
    }
}

/// The path without `.` and `..`; `None` if it leaves the folder that it begins in.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

/// What a document has that can be checked.
#[derive(Debug, Default)]
struct Read {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    /// Code in the text, word by word.
    words: Vec<String>,
}

impl Read {
    fn of(markdown: &str) -> Self {
        let mut read = Self::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    read.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let text = heading.take().unwrap_or_default();
                    read.add_anchor(&text);
                }
                Event::Text(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    read.words
                        .extend(code.split_whitespace().map(str::to_owned));
                }
                _ => {}
            }
        }
        read
    }

    fn add_anchor(&mut self, heading: &str) {
        let id = id(heading);
        if self.anchors.insert(id.clone()) {
            return;
        }
        let numbered = (1..).map(|number| format!("{id}-{number}"));
        for id in numbered {
            if self.anchors.insert(id) {
                return;
            }
        }
    }
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn id(heading: &str) -> String {
    let kept = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(kept)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a page of the book that says `text`, beside another with a heading and a generated one.
    fn said(text: &str) -> Vec<String> {
        said_of("book/page.md", text)
    }

    fn said_of(path: &str, text: &str) -> Vec<String> {
        let document = |path: &str, text: Option<&str>| Document {
            path: path.into(),
            text: text.map(str::to_owned),
        };
        let documents = [
            document(path, Some(text)),
            document(
                "book/deep/other.md",
                Some("# Other\n\n## `a_b`: two words\n"),
            ),
            document("book/generated.md", None),
        ];
        let complaints = check(&documents, Path::new("book"), &checkout());
        complaints.iter().map(ToString::to_string).collect()
    }

    fn checkout() -> Checkout {
        let files = [
            "book/deep/other.md",
            "book/a.svg",
            "host/tool/src/lib.rs",
            "README.md",
        ];
        Checkout {
            files: files.map(PathBuf::from).into(),
        }
    }

    #[test]
    fn links_that_lead_somewhere_are_not_mentioned() {
        let text = "# Page\n[a](deep/other.md), [b](deep/other.md#a_b-two-words), [c](#page), [d](generated.md), \
                    [e](https://example.org/none), ![f](a.svg), [g](./deep/../a.svg), [h][r]\n\n[r]: deep/other.md\n";
        assert_eq!(said(text), Vec::<String>::new());
    }

    #[test]
    fn a_broken_link_is_named_with_its_document() {
        let [complaint] = &said("[a](deep/missing.md)")[..] else {
            panic!("one link is broken");
        };
        assert!(complaint.starts_with("book/page.md: the link deep/missing.md leads nowhere"));
    }

    #[test]
    fn every_kind_of_broken_link_is_found() {
        for (text, expected) in [
            ("[a](deep/other.md#nothing)", "leads to no heading"),
            ("[a](#nothing)", "leads to no heading"),
            ("![a](b.svg)", "leads nowhere"),
            ("[a](../../etc)", "leads out of the checkout"),
            ("[a](/etc)", "leads out of the checkout"),
            ("[a](../README.md)", "leads out of the book"),
            ("[a](generated.md#x)", "a page that is generated"),
            ("| a |\n|---|\n| [a](none.md) |\n", "leads nowhere"),
        ] {
            let said = said(text);
            assert!(
                said.len() == 1 && said[0].contains(expected),
                "{text}: {said:?}"
            );
        }
    }

    #[test]
    fn a_document_beside_the_book_may_link_to_the_checkout() {
        let text = "[a](host/tool/src/lib.rs) [b](host/tool) [c](book/page.md)";
        let said = said_of("README.md", text);
        assert_eq!(
            said,
            ["README.md: the link book/page.md leads nowhere: there is no book/page.md"]
        );
    }

    #[test]
    fn a_file_that_is_named_must_exist() {
        let fine = "`host/tool/src/lib.rs`, `host/`, `lib.rs`, `/run/x.rs`, `I->S`, `a/b`, `target/x.rs`, `.rs`";
        assert_eq!(said(fine), Vec::<String>::new());
        for wrong in [
            "host/tool/src/none.rs",
            "src/lib.rs",
            "none.rs",
            "host/none",
        ] {
            let said = said(&format!("See `{wrong}`."));
            assert!(
                said.len() == 1 && said[0].contains(wrong),
                "{wrong}: {said:?}"
            );
        }
    }

    #[test]
    fn a_file_that_a_drawing_names_must_exist() {
        let svg = "<svg><style>a{b:c}</style><text x='1'>host/tool/src/lib.rs</text><text>host/none.rs, a</text></svg>";
        let complaints = check_drawing(Path::new("a.svg"), svg, &checkout());
        let [complaint] = &complaints[..] else {
            panic!("{complaints:?}");
        };
        assert_eq!(complaint.what, "there is no host/none.rs in the checkout");
    }

    #[test]
    fn headings_of_one_text_have_numbers() {
        let read = Read::of("# A\n## B c\n## B c\n## B c\n");
        let expected = ["a", "b-c", "b-c-1", "b-c-2"].map(str::to_owned);
        assert_eq!(read.anchors, expected.into());
    }
}
