//! The page of what daemons can be told: a table for each.

use std::fmt::Write as _;

use mind_cli::reference::Verb;

use super::{
    cell,
    commands::{default, meaning},
    sentences,
};

/// The page.
pub(super) fn render(daemons: &[&Verb]) -> String {
    let mut text = String::from(
        "# Configuration\n\nWhat each daemon can be told, by its configuration file in `/etc/mind` or by its command line. A key is \
         the long form of an option of the command line, without the dashes. [How that is done](../operations/services.md) \
         is a chapter of its own. This page is generated from the command line's definition.\n",
    );
    for daemon in daemons {
        let usage = &daemon.usage;
        let about = sentences(&daemon.about);
        let name = usage.split(" [").next().unwrap_or(usage);
        let name = name.split(" --").next().unwrap_or(name);
        let _ = write!(
            text,
            "\n## {name}\n\n{about}\n\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n"
        );
        for parameter in &daemon.parameters {
            let Some(key) = &parameter.long else { continue };
            let value = cell(parameter.value.as_deref().unwrap_or("true or false"));
            let list = if parameter.is_list {
                ", one or more"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "| `{key}` | {value}{list} | {} | {} |",
                default(parameter),
                meaning(parameter)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use mind_cli::reference::Parameter;

    use super::*;

    #[test]
    fn a_key_is_a_long_option() {
        let option = |long: Option<&str>, value: Option<&str>| Parameter {
            long: long.map(str::to_owned),
            short: None,
            value: value.map(str::to_owned),
            meaning: "Meaning.".to_owned(),
            default: None,
            choices: Vec::new(),
            variable: None,
            is_required: value.is_some(),
            is_list: false,
        };
        let daemon = Verb {
            name: "memory".to_owned(),
            about: "Offer memory.".to_owned(),
            usage: "mind-blade memory [OPTIONS] --size <SIZE>".to_owned(),
            parameters: vec![
                option(Some("size"), Some("SIZE")),
                option(Some("fresh"), None),
                option(None, Some("FILE")),
            ],
            verbs: Vec::new(),
        };
        let text = render(&[&daemon]);
        let rows: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(
            rows,
            [
                "| `size` | SIZE | required | Meaning. |",
                "| `fresh` | true or false |  | Meaning. |"
            ]
        );
        assert!(text.contains("\n## mind-blade memory\n"), "{text}");
    }
}
