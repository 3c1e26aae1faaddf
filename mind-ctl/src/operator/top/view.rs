//! Draws rates: a line of what there is, then compute blades, ports and the busiest regions, as many as have room.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Row, Table},
};

use super::rates::{Blade, Port, Rates, Region, Sizes};

/// From this width on there is room for more columns.
const WIDE: u16 = 120;
/// Cells of the bar that shows how full a cache is.
const BAR: u16 = 10;
/// A part of 1 from which a cache is shown as full.
const FULL: f64 = 0.95;

/// What is drawn.
pub(super) struct View<'a> {
    pub(super) rates: &'a Rates,
    /// Seconds from one look to the next and whether it is paused; none where no keys can be pressed.
    pub(super) keys: Option<(f64, bool)>,
}

impl<'a> View<'a> {
    /// Without keys.
    pub(super) const fn of(rates: &'a Rates) -> Self {
        Self { rates, keys: None }
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let rates = self.rates;
        let footer = u16::from(self.keys.is_some());
        let sizes = u16::from(rates.sizes.is_some());
        // A line for what there is, one for sizes of regions, and for each table an empty one and its header.
        let room = area.height.saturating_sub(1 + sizes + 3 * 2 + footer);
        let needs = [
            rates.blades.len(),
            rates.ports.len(),
            rates.regions.len().max(1),
        ];
        let [blades, ports, regions] = share(room, needs);
        let lines = |count: u16| Constraint::Length(count);
        let [summary, splitting, _, top, _, middle, _, bottom, _, keys] = Layout::vertical([
            lines(1),
            lines(sizes),
            lines(1),
            lines(1 + blades),
            lines(1),
            lines(1 + ports),
            lines(1),
            lines(1 + regions),
            Constraint::Fill(1),
            lines(footer),
        ])
        .areas(area);
        frame.render_widget(self.summary(), summary);
        if let Some(sizes) = &rates.sizes {
            frame.render_widget(sizes_line(sizes), splitting);
        }
        self.draw_blades(frame, top);
        self.draw_ports(frame, middle);
        self.draw_regions(frame, bottom);
        if let Some((seconds, is_paused)) = self.keys {
            frame.render_widget(footer_line(seconds, is_paused), keys);
        }
    }

    fn summary(&self) -> Line<'static> {
        let rates = self.rates;
        let Rates {
            ready,
            slots,
            memory,
            ..
        } = rates;
        let style = match ready.used == ready.of {
            true => Style::new().fg(Color::Green),
            false => Style::new().fg(Color::Red),
        };
        Line::from(vec![
            Span::styled(format!("{} of {} blades", ready.used, ready.of), style),
            Span::raw(format!(
                "  memory {} of {}  slots {} of {}  {}, {}",
                size(memory.used << 12),
                size(memory.of << 12),
                slots.used,
                slots.of,
                counted(rates.processes.into(), "process", "processes"),
                counted(rates.domains as u64, "domain", "domains"),
            )),
        ])
    }

    fn draw_blades(&self, frame: &mut Frame<'_>, area: Rect) {
        let is_wide = area.width >= WIDE;
        let names = self
            .rates
            .blades
            .iter()
            .find(|blade| !blade.transitions.is_empty());
        let names: Vec<_> = names
            .into_iter()
            .flat_map(|blade| blade.transitions.iter().map(|(name, _)| name.clone()))
            .collect();
        let mut columns = Columns::default();
        columns.add(
            title("BLADE", area, self.rates.blades.len()),
            Constraint::Length(10),
        );
        if is_wide {
            columns.add(String::new(), Constraint::Length(BAR));
        }
        columns.number("FULL", 4);
        columns.number("HITS", 4);
        columns.number("FLT/s", 5);
        for name in &names {
            columns.number(name, 5);
        }
        if is_wide {
            for name in ["EVICT/s", "WRITE/s", "INVAL/s", "AGAIN/s"] {
                columns.number(name, 7);
            }
        }
        columns.number("P50", 5);
        columns.number("P99", 5);
        let rows = self
            .rates
            .blades
            .iter()
            .map(|blade| blade_row(blade, is_wide));
        frame.render_widget(columns.table(rows), area);
    }

    fn draw_ports(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut columns = Columns::default();
        columns.add(
            title("PORT", area, self.rates.ports.len()),
            Constraint::Length(11),
        );
        columns.add("BLADE".to_owned(), Constraint::Length(8));
        columns.number("PACKETS/s", 9);
        columns.number("REFUSED/s", 9);
        columns.number("DROPPED/s", 9);
        columns.add("  WHY".to_owned(), Constraint::Fill(1));
        frame.render_widget(columns.table(self.rates.ports.iter().map(port_row)), area);
    }

    fn draw_regions(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut columns = Columns::default();
        columns.add("REGION".to_owned(), Constraint::Length(14));
        columns.number("SIZE", 5);
        columns.add(" STATE".to_owned(), Constraint::Length(21));
        columns.number("GRANT/s", 7);
        columns.number("INVAL/s", 7);
        columns.number("FALSE/s", 7);
        columns.add(" BLADES".to_owned(), Constraint::Fill(1));
        frame.render_widget(
            columns.table(self.rates.regions.iter().map(region_row)),
            area,
        );
    }
}

/// A table's columns.
#[derive(Default)]
struct Columns {
    header: Vec<Cell<'static>>,
    widths: Vec<Constraint>,
}

impl Columns {
    fn add(&mut self, title: String, width: Constraint) {
        self.header.push(Cell::new(title));
        self.widths.push(width);
    }

    /// A column of numbers, set to the right.
    fn number(&mut self, title: &str, width: u16) {
        self.header
            .push(Cell::new(Line::from(title.to_owned()).right_aligned()));
        self.widths.push(Constraint::Length(width));
    }

    fn table(self, rows: impl Iterator<Item = Row<'static>>) -> Table<'static> {
        let style = Style::new().add_modifier(Modifier::BOLD);
        Table::new(rows, self.widths).header(Row::new(self.header).style(style))
    }
}

/// A table's first title, with how many of its rows have room, unless all have.
fn title(name: &str, area: Rect, rows: usize) -> String {
    let shown = usize::from(area.height.saturating_sub(1));
    match shown < rows {
        true => format!("{name} {shown}/{rows}"),
        false => name.to_owned(),
    }
}

/// Shares lines out among lists: none gets more than it needs, and what one leaves, others get.
fn share(lines: u16, needs: [usize; 3]) -> [u16; 3] {
    let mut shares = [0; 3];
    for _ in 0..lines {
        let wanting = (0..shares.len()).filter(|&at| usize::from(shares[at]) < needs[at]);
        match wanting.min_by_key(|&at| shares[at]) {
            Some(at) => shares[at] += 1,
            None => break,
        }
    }
    shares
}

fn number(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn blade_row(blade: &Blade, is_wide: bool) -> Row<'static> {
    let mut cells = vec![Cell::new(blade.name.clone())];
    let Some(pages) = blade.pages else {
        let style = Style::new().fg(Color::Red);
        cells.push(Cell::new(Span::styled("gone", style)));
        return Row::new(cells);
    };
    let use_of_all = pages.share();
    if is_wide {
        let style = match use_of_all >= FULL {
            true => Style::new().fg(Color::Yellow),
            false => Style::new().fg(Color::Green),
        };
        cells.push(Cell::new(Span::styled(bar(use_of_all), style)));
    }
    cells.push(number(percent(use_of_all)));
    cells.push(number(blade.hit_rate.map_or("-".to_owned(), percent)));
    cells.push(number(rate(blade.faults)));
    cells.extend(
        blade
            .transitions
            .iter()
            .map(|(_, count)| number(rate(*count))),
    );
    if is_wide {
        for count in [
            blade.evictions,
            blade.write_backs,
            blade.invalidations,
            blade.timeouts,
        ] {
            cells.push(number(rate(count)));
        }
    }
    cells.push(number(blade.p50_ns.map_or("-".to_owned(), time)));
    cells.push(number(blade.p99_ns.map_or("-".to_owned(), time)));
    Row::new(cells)
}

fn port_row(port: &Port) -> Row<'static> {
    let style = match port.dropped > 0.0 {
        true => Style::new().fg(Color::Red),
        false => Style::new(),
    };
    let reasons = port
        .reasons
        .iter()
        .map(|(name, count)| format!("{name} {}", rate(*count)));
    let reasons: Vec<_> = reasons.collect();
    Row::new(vec![
        Cell::new(port.name.clone()),
        Cell::new(port.blade.clone()),
        number(rate(port.packets)),
        number(rate(port.refused)),
        number(rate(port.dropped)).style(style),
        Cell::new(format!("  {}", reasons.join(", "))),
    ])
}

fn region_row(region: &Region) -> Row<'static> {
    Row::new(vec![
        Cell::new(format!("{:#x}", region.va)),
        number(size(region.length)),
        Cell::new(format!(" {}", region.state)),
        number(rate(region.accesses)),
        number(rate(region.invalidations)),
        number(rate(region.false_invalidations)),
        Cell::new(format!(" {}", region.blades.join(" "))),
    ])
}

fn footer_line(seconds: f64, is_paused: bool) -> Line<'static> {
    let style = Style::new().fg(Color::Cyan);
    let keys = [
        ("q", "quit"),
        ("p", if is_paused { "go on" } else { "pause" }),
        ("s", "order of regions"),
        ("+ -", "faster, slower"),
    ];
    let mut spans: Vec<_> = keys
        .into_iter()
        .flat_map(|(key, what)| [Span::styled(key, style), Span::raw(format!(" {what}   "))])
        .collect();
    spans.push(Span::raw(match is_paused {
        true => "paused".to_owned(),
        false => format!("every {seconds} s"),
    }));
    Line::from(spans)
}

fn sizes_line(sizes: &Sizes) -> Line<'static> {
    Line::raw(format!(
        "regions: {} split, t {}; {} splits/s, {} merges/s, {} false invalidations/s",
        sizes.split,
        sizes.threshold,
        rate(sizes.splits),
        rate(sizes.merges),
        rate(sizes.false_invalidations),
    ))
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn bar(part: f64) -> String {
    let full = (part.clamp(0.0, 1.0) * f64::from(BAR)).round() as u16;
    (0..BAR)
        .map(|at| if at < full { '█' } else { '░' })
        .collect()
}

fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

/// At most five characters, and a dot for nothing.
fn rate(count: f64) -> String {
    if count <= 0.0 {
        "·".to_owned()
    } else if count < 10.0 {
        format!("{count:.1}")
    } else {
        scaled(count, &["", "k", "M", "G"], 1000.0)
    }
}

/// A time in at most five characters.
fn time(nanos: u64) -> String {
    scaled(nanos as f64, &["ns", "us", "ms", "s"], 1000.0)
}

/// A number of bytes in at most five characters, rounded.
fn size(bytes: u64) -> String {
    scaled(bytes as f64, &["", "K", "M", "G", "T", "P"], 1024.0)
}

/// In the first unit of which there are less than a thousand, with a decimal if it is less than ten of one that is not
/// the first.
fn scaled(mut number: f64, units: &[&str], step: f64) -> String {
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let is_whole = unit == 0 || number >= 9.95 || number.fract() == 0.0;
    match is_whole {
        true => format!("{number:.0}{}", units[unit]),
        false => format!("{number:.1}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::top::{rates::Part, screen};

    fn rates(blades: usize) -> Rates {
        let transitions = ["I->S", "I->M", "S->S", "S->M", "M->S", "M->M", "M"];
        let blade = |number: usize| Blade {
            name: format!("c{number}"),
            pages: Some(Part { used: 244, of: 256 }),
            faults: 12_345.0,
            hit_rate: Some(0.124),
            transitions: transitions.map(|name| (name.to_owned(), 1_764.0)).into(),
            p50_ns: Some(23_400),
            p99_ns: Some(1_210_000),
            evictions: 1.0,
            write_backs: 2_000.0,
            invalidations: 0.0,
            timeouts: 0.0,
        };
        let port = |number: usize| Port {
            name: format!("c{number}"),
            blade: format!("c{number}"),
            packets: 98_765.0,
            refused: 12.0,
            dropped: 3.0,
            reasons: vec![("busy".to_owned(), 12.0), ("no_fan_out".to_owned(), 3.0)],
        };
        Rates {
            seconds: 1.0,
            ready: Part {
                used: blades as u64,
                of: blades as u64,
            },
            slots: Part {
                used: 130,
                of: 262_144,
            },
            sizes: Some(Sizes {
                split: 12,
                splits: 3.0,
                merges: 0.0,
                false_invalidations: 120.0,
                threshold: 5,
            }),
            memory: Part {
                used: 2_048,
                of: 32_768,
            },
            domains: 1,
            processes: 3,
            blades: (0..blades).map(blade).collect(),
            ports: (0..blades).map(port).collect(),
            regions: vec![Region {
                va: 0x1000_0000_4000,
                length: 16 << 10,
                state: "modified-to-shared".to_owned(),
                blades: vec!["c0".to_owned(), "c1".to_owned()],
                accesses: 5.0,
                invalidations: 1_200.0,
                false_invalidations: 0.0,
            }],
        }
    }

    #[test]
    fn a_screen_of_80_columns() {
        let text = screen(&rates(2), 80, 24).unwrap();
        let expected = "\
2 of 2 blades  memory 8M of 128M  slots 130 of 262144  3 processes, 1 domain
regions: 12 split, t 5; 3.0 splits/s, · merges/s, 120 false invalidations/s

BLADE      FULL HITS FLT/s  I->S  I->M  S->S  S->M  M->S  M->M     M   P50   P99
c0          95%  12%   12k  1.8k  1.8k  1.8k  1.8k  1.8k  1.8k  1.8k  23us 1.2ms
c1          95%  12%   12k  1.8k  1.8k  1.8k  1.8k  1.8k  1.8k  1.8k  23us 1.2ms

PORT        BLADE    PACKETS/s REFUSED/s DROPPED/s   WHY
c0          c0             99k        12       3.0   busy 12, no_fan_out 3.0
c1          c1             99k        12       3.0   busy 12, no_fan_out 3.0

REGION          SIZE  STATE                GRANT/s INVAL/s FALSE/s  BLADES
0x100000004000   16K  modified-to-shared       5.0    1.2k       ·  c0 c1";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_wide_screen_has_more_columns() {
        let text = screen(&rates(1), 140, 24).unwrap();
        let c0 = text.lines().find(|line| line.starts_with("c0")).unwrap();
        assert!(c0.contains("██████████"), "{text}");
        assert!(text.contains("WRITE/s"), "{text}");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let text = screen(&rates(32), 80, 25).unwrap();
        assert_eq!(text.lines().count(), 25);
        assert!(
            text.contains("BLADE 8/32") && text.contains("PORT 8/32"),
            "{text}"
        );
        assert!(text.contains("0x100000004000"), "{text}");
    }

    #[test]
    fn lines_go_to_those_who_need_them() {
        assert_eq!(share(17, [2, 4, 100]), [2, 4, 11]);
        assert_eq!(share(17, [32, 64, 1]), [8, 8, 1]);
        assert_eq!(share(0, [1, 1, 1]), [0; 3]);
        assert_eq!(share(100, [1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn numbers_have_at_most_five_characters() {
        for (count, text) in [
            (0.0, "·"),
            (0.04, "0.0"),
            (9.99, "10.0"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12k"),
            (1.234e6, "1.2M"),
        ] {
            assert_eq!(rate(count), text);
        }
        for (nanos, text) in [
            (999, "999ns"),
            (1_000, "1us"),
            (23_456, "23us"),
            (2_500_000_000, "2.5s"),
        ] {
            assert_eq!(time(nanos), text);
        }
        assert_eq!(size(16 << 10), "16K");
        assert_eq!(size(3 << 29), "1.5G");
    }
}
