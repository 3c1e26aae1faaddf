//! What was counted, beside what was published: for machines, and as a table.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// All traces. The keys are part of the command's interface.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Memory blades.
    pub blades: u8,
    /// Bytes of each.
    pub blade_bytes: u64,
    /// Each trace.
    pub traces: Vec<Row>,
}

/// One trace.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Program and run.
    pub trace: String,
    /// Map requests.
    pub allocations: u64,
    /// Calls that are no map requests.
    pub left_out: u64,
    /// Bytes asked for, in whole pages.
    pub bytes: u64,
    /// As the controller does it.
    pub mind: Tables,
    /// As page tables do it, by size of a page.
    pub pages: [Pages; 3],
    /// What was published; `None` for other programs.
    pub published: Option<Published>,
}

/// Entries of the switch's tables.
#[derive(Debug, Serialize)]
pub struct Tables {
    /// Where addresses are kept.
    pub translation: u64,
    /// What the program may do with them.
    pub protection: u64,
    /// Both.
    pub entries: u64,
    /// Jain's index of the bytes that are allocated on each blade; `None` if there are none.
    pub fairness: Option<f64>,
}

/// Entries of a page table.
#[derive(Debug, Serialize)]
pub struct Pages {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// One for each page; `None` if the blades have not so many pages.
    pub entries: Option<u64>,
    /// Jain's index of the bytes of pages on each blade; `None` if there are none.
    pub fairness: Option<f64>,
}

/// What was published of a program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Entries for translation and protection, about; `None` where no number was published.
    pub entries: Option<u64>,
    /// The least and the most of Jain's index, of all traces.
    pub fairness: (f64, f64),
}

impl Published {
    /// Of the program in a folder of that name. Source: MIND (SOSP 2021), figure 7 (centre and right), with eight memory
    /// blades.
    pub fn of(program: &str) -> Option<Self> {
        let entries = match program {
            "tensorflow" => Some(550),
            "graphchi" => Some(100),
            "memcached" => None,
            _ => return None,
        };
        Some(Self {
            entries,
            fairness: (0.9985, 1.0),
        })
    }
}

/// The name of a size of pages.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}

fn fairness(index: Option<f64>) -> String {
    index.map_or_else(|| "-".to_owned(), |index| format!("{index:.4}"))
}

fn entries(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

impl Report {
    /// As text.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let mut header = vec![
            "trace".to_owned(),
            "allocations".to_owned(),
            "MiB".to_owned(),
            "translation\n+ protection".to_owned(),
            "entries".to_owned(),
            "fair".to_owned(),
            "published\nentries".to_owned(),
            "published\nfair".to_owned(),
        ];
        for pages in self.traces.first().map_or(&[][..], |row| &row.pages) {
            header.extend([
                format!("{}\npages", size(pages.page_bytes)),
                "fair".to_owned(),
            ]);
        }
        table.set_header(header);
        for row in &self.traces {
            table.add_row(row.cells());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{} memory blades of {}; entries of the switch's tables, and of page tables instead\n{table}",
            self.blades,
            size(self.blade_bytes),
        )
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let Tables {
            translation,
            protection,
            ..
        } = self.mind;
        let published = self.published;
        let mut cells = vec![
            self.trace.clone(),
            self.allocations.to_string(),
            (self.bytes >> 20).to_string(),
            format!("{translation} + {protection}"),
            self.mind.entries.to_string(),
            fairness(self.mind.fairness),
            published
                .and_then(|published| published.entries)
                .map_or_else(|| "-".to_owned(), |entries| format!("~{entries}")),
            published.map_or_else(
                || "-".to_owned(),
                |published| format!("{:.4}-{:.1}", published.fairness.0, published.fairness.1),
            ),
        ];
        for pages in &self.pages {
            cells.extend([entries(pages.entries), fairness(pages.fairness)]);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_have_the_same() {
        let pages = |page_bytes, entries: Option<u64>| Pages {
            page_bytes,
            entries,
            fairness: entries.map(|_| 0.5),
        };
        let report = Report {
            blades: 8,
            blade_bytes: 512 << 30,
            traces: vec![Row {
                trace: "graphchi/10".into(),
                allocations: 7,
                left_out: 2,
                bytes: 3 << 20,
                mind: Tables {
                    translation: 8,
                    protection: 12,
                    entries: 20,
                    fairness: Some(0.99851),
                },
                pages: [
                    pages(4 << 10, Some(768)),
                    pages(2 << 20, Some(2)),
                    pages(1 << 30, None),
                ],
                published: Published::of("graphchi"),
            }],
        };
        let text = report.text();
        for part in [
            "8 memory blades of 512 GiB",
            "2 MiB",
            "8 + 12",
            "0.9985 ",
            "~100",
            "0.9985-1.0",
            "768",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        let trace = &json["traces"][0];
        assert_eq!(trace["mind"]["entries"], 20);
        assert_eq!(trace["pages"][1]["entries"], 2);
        assert!(trace["pages"][2]["entries"].is_null());
        assert_eq!(trace["published"]["entries"], 100);
        assert_eq!(Published::of("other"), None);
    }
}
