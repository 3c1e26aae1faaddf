//! The page of all verdicts: what can become of a packet.

use std::fmt::Write as _;

use mind_common::verdict::{Kind, Verdict};
use pulldown_cmark::{Event, Parser};

use super::cell;

/// The page.
pub(super) fn render() -> String {
    let mut text = String::from(
        "# Verdicts\n\nWhat can become of a packet at a port of the switch or at a memory blade. Each packet has exactly \
         one verdict, and each port counts them: `mind-ctl ports` and `mind-ctl counters` show the counts, `mind-ctl \
         trace` shows verdicts packet by packet, and Prometheus has them in `mind_switch_packets_total` and \
         `mind_responder_packets_total`. This page is generated from the code's list.\n\n\
         | Verdict | Kind | Meaning |\n|---|---|---|\n",
    );
    for verdict in Verdict::ALL {
        let kind = match verdict.kind() {
            Kind::Refused(refusal) => format!("refused: {refusal:?}").to_lowercase(),
            kind => kind.name().to_owned(),
        };
        let meaning = cell(&plain(verdict.meaning()));
        let _ = writeln!(text, "| `{verdict}` | {kind} | {meaning} |");
    }
    text.push_str(
        "\n| Kind | What the network sees |\n|---|---|\n\
         | passed | the host's stack, or the bridge, gets the packet |\n\
         | forwarded | it goes on to a blade, or up to the TC program |\n\
         | answered | it goes back as the answer that was asked for |\n\
         | refused | it goes back as a refusal, an RDMA NAK of the kind that is named |\n\
         | consumed | it has done what it came for and ends |\n\
         | dropped | it ends because something is wrong with it, or with what it needs |\n",
    );
    text
}

/// A doc comment without its links, which lead to the code's own documentation.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    for event in Parser::new(markdown) {
        match event {
            Event::Text(part) => text.push_str(&part),
            Event::Code(code) => {
                let _ = write!(text, "`{code}`");
            }
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_a_row_that_says_something() {
        let text = render();
        for verdict in Verdict::ALL {
            let row = text
                .lines()
                .find(|line| line.starts_with(&format!("| `{verdict}` |")));
            let row = row.unwrap_or_else(|| panic!("{verdict} has no row"));
            let cells: Vec<_> = row.split('|').collect();
            assert!(cells[3].trim().ends_with('.'), "{cells:?}");
        }
    }

    #[test]
    fn links_of_doc_comments_become_text() {
        assert_eq!(
            plain(" Lose it ([`Place`](crate::losses::Place))."),
            "Lose it (`Place`)."
        );
        assert_eq!(plain(" One\n line."), "One line.");
    }
}
