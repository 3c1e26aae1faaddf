//! A drawing of the workspace's crates, each above all crates that it uses, made from their manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};

/// The drawing, from the root of the checkout.
pub const FILE: &str = "docs/src/drawings/layers.svg";

/// A crate: its folder, and which crates of the workspace it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    folder: String,
    uses: BTreeSet<String>,
}

impl Crate {
    /// Its name, which is that of its folder without what is above.
    fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }

    /// The kind of thing that it is, as a class of the drawing and for people.
    fn group(&self) -> usize {
        let top = self.folder.split_once('/').map(|(top, _)| top);
        let name = self.name();
        GROUPS
            .iter()
            .position(|group| match group.folder {
                Some(folder) => top == Some(folder),
                None => top.is_none() && group.names.contains(&name),
            })
            .unwrap_or(OTHERS)
    }
}

struct Group {
    class: &'static str,
    title: &'static str,
    /// The folder that its crates are in; `None`: at the root, by name.
    folder: Option<&'static str>,
    names: &'static [&'static str],
}

const GROUPS: [Group; 4] = [
    Group {
        class: "core",
        title: "the protocol: functions, eBPF programs, machines",
        folder: None,
        names: &["mind-common", "mind-ebpf", "mind-machines"],
    },
    Group {
        class: "host",
        title: "host/ and the controller: daemons and libraries",
        folder: Some("host"),
        names: &[],
    },
    Group {
        class: "check",
        title: "check/: what proves or breaks it",
        folder: Some("check"),
        names: &[],
    },
    Group {
        class: "tool",
        title: "tools/, testbed and tasks",
        folder: Some("tools"),
        names: &[],
    },
];
/// The group of the controller, which lies at the root.
const HOST: usize = 1;
/// The group of what else lies at the root.
const OTHERS: usize = 3;

/// Crates of the workspace at `root`, without dependencies of tests and build scripts.
///
/// # Errors
///
/// When a manifest cannot be read.
pub fn read(root: &Path) -> Result<Vec<Crate>> {
    let manifest = |folder: &str| -> Result<toml::Table> {
        let file = root.join(folder).join("Cargo.toml");
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is no manifest", file.display()))
    };
    let workspace = manifest("")?;
    let members = workspace
        .get("workspace")
        .and_then(|table| table.get("members"))
        .and_then(toml::Value::as_array)
        .context("the workspace has no members")?;
    let folders: Vec<_> = members
        .iter()
        .filter_map(toml::Value::as_str)
        .map(str::to_owned)
        .collect();
    let name = |folder: &str| folder.rsplit('/').next().unwrap_or(folder).to_owned();
    let names: BTreeSet<_> = folders.iter().map(|folder| name(folder)).collect();
    folders
        .into_iter()
        .map(|folder| {
            let manifest = manifest(&folder)?;
            let uses = manifest
                .get("dependencies")
                .and_then(toml::Value::as_table)
                .map(|table| table.keys().filter(|key| names.contains(*key)).cloned())
                .into_iter()
                .flatten()
                .collect();
            Ok(Crate { folder, uses })
        })
        .collect()
}

/// How many crates lie below each, one above the other.
fn levels(crates: &[Crate]) -> BTreeMap<&str, usize> {
    let mut levels: BTreeMap<&str, usize> = crates.iter().map(|own| (own.name(), 0)).collect();
    // As many rounds as the longest chain can have.
    for _ in crates {
        for own in crates {
            let below = own.uses.iter().filter_map(|name| levels.get(&**name));
            let level = below.max().map_or(0, |level| level + 1);
            levels.insert(own.name(), level);
        }
    }
    levels
}

const WIDTH: usize = 880;
const PER_LINE: usize = 5;
/// Width of a box, and from one box to the next.
const BOX: usize = 160;
const STEP: usize = 170;
/// Height of a box's name, and of a line of small text.
const NAME: usize = 24;
const SMALL: usize = 12;
/// Room below a line of boxes.
const BELOW: usize = 10;
const LEFT: usize = 18;
/// Room above the first line, for the legend.
const TOP: usize = 66;
/// Room between two levels, besides that between lines.
const GAP: usize = 14;
/// Letters of a line of small text in a box.
const LETTERS: usize = 27;
/// Letters of a name that is written in full size.
const NAME_LETTERS: usize = 22;

/// The drawing.
pub fn render(crates: &[Crate]) -> String {
    let levels = levels(crates);
    let highest = levels.values().copied().max().unwrap_or(0);
    let mut body = String::new();
    legend(&mut body);
    let mut y = TOP;
    for level in (0..=highest).rev() {
        let mut row: Vec<_> = crates
            .iter()
            .filter(|own| levels[own.name()] == level)
            .collect();
        row.sort_by_key(|own| (group_of(own), own.folder.clone()));
        for line in row.chunks(PER_LINE) {
            let x = (WIDTH - line.len() * STEP + STEP - BOX) / 2;
            let lines = line.iter().map(|own| wrapped(&own.uses).len()).max();
            let height = NAME + SMALL * lines.unwrap_or(0) + 4;
            for (place, own) in line.iter().enumerate() {
                draw(&mut body, own, (x.max(LEFT) + place * STEP, y), height);
            }
            y += height + BELOW;
        }
        if level > 0 {
            let _ = writeln!(
                body,
                "<path d=\"M{LEFT} {0} L{1} {0}\" class=\"line\"/>",
                y + 1,
                WIDTH - LEFT
            );
            y += GAP;
        }
    }
    let height = y + 8;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>The crates and what they use</title>\n\
         <desc>Generated from the manifests; each crate stands above all that it uses.</desc>\n{STYLE}\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" class=\"paper\"/>\n{body}</svg>\n",
        WIDTH - 1,
        height - 1
    )
}

fn group_of(own: &Crate) -> usize {
    if own.name() == "mind-ctl" {
        HOST
    } else {
        own.group()
    }
}

fn legend(body: &mut String) {
    for (place, group) in GROUPS.iter().enumerate() {
        let (x, y) = (LEFT + place % 2 * 430, 14 + place / 2 * 20);
        let _ = writeln!(
            body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"3\" class=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" class=\"quiet\" font-size=\"12\">{}</text>",
            group.class,
            x + 20,
            y + 11,
            group.title
        );
    }
}

fn draw(body: &mut String, own: &Crate, (x, y): (usize, usize), height: usize) {
    let size = if own.folder.len() > NAME_LETTERS {
        "10.5"
    } else {
        "12"
    };
    let class = GROUPS[group_of(own)].class;
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\" class=\"{class}\"/>\n\
         <text x=\"{}\" y=\"{}\" class=\"head\" font-size=\"{size}\">{}</text>",
        BOX,
        height,
        x + 8,
        y + 17,
        own.folder
    );
    for (line, text) in wrapped(&own.uses).iter().enumerate() {
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" class=\"quiet\" font-size=\"9.5\">{text}</text>",
            x + 8,
            y + 31 + line * SMALL
        );
    }
}

/// What a crate uses, in lines that fit into its box; `mind-` is left out.
fn wrapped(uses: &BTreeSet<String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for name in uses {
        let name = name.strip_prefix("mind-").unwrap_or(name);
        match lines.last_mut() {
            Some(line) if line.len() + 2 + name.len() <= LETTERS => {
                line.push_str(", ");
                line.push_str(name);
            }
            Some(line) => {
                line.push(',');
                lines.push(name.to_owned());
            }
            None => lines.push(format!("uses {name}")),
        }
    }
    lines
}

const STYLE: &str = r#"<style>
  svg { font-family: "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
  .paper { fill: #fbfbf9; stroke: #d5d5cf; }
  .head { fill: #1d2530; font-weight: 600; }
  .quiet { fill: #4d5661; }
  .line { stroke: #d5d5cf; stroke-dasharray: 2 4; }
  .core { fill: #fdeede; stroke: #c98a4b; }
  .host { fill: #e4eefb; stroke: #5b86bd; }
  .check { fill: #e5f3e6; stroke: #64a06a; }
  .tool { fill: #efe9f8; stroke: #8f79bb; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1d2127; stroke: #3a4049; }
    .head { fill: #e6e8eb; }
    .quiet { fill: #b4bbc5; }
    .line { stroke: #444b55; }
    .core { fill: #47341f; stroke: #dba468; }
    .host { fill: #22344c; stroke: #7aa5dd; }
    .check { fill: #21402a; stroke: #7dbb84; }
    .tool { fill: #352c4a; stroke: #a994d6; }
  }
</style>"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Vec<Crate> {
        let own = |folder: &str, uses: &[&str]| Crate {
            folder: folder.to_owned(),
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
        };
        vec![
            own("host/mind-blade", &["mind-common", "mind-machines"]),
            own("mind-common", &[]),
            own("mind-machines", &["mind-common"]),
        ]
    }

    #[test]
    fn a_crate_stands_above_all_that_it_uses() {
        let crates = crates();
        let levels = levels(&crates);
        assert_eq!(levels["mind-common"], 0);
        assert_eq!(levels["mind-machines"], 1);
        assert_eq!(levels["mind-blade"], 2);
    }

    #[test]
    fn the_drawing_names_each_crate_and_what_it_uses() {
        let svg = render(&crates());
        for text in [
            ">host/mind-blade<",
            ">mind-common<",
            ">uses common, machines<",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_long_list_is_folded() {
        let uses = [
            "mind-api",
            "mind-cli",
            "mind-client",
            "mind-common",
            "mind-machines",
        ];
        let uses = uses.map(str::to_owned).into();
        assert_eq!(
            wrapped(&uses),
            ["uses api, cli, client,", "common, machines"]
        );
    }
}
