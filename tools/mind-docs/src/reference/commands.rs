//! A page for a program: its verbs, and what each takes.

use std::fmt::Write as _;

use mind_cli::reference::{Parameter, Verb};

use super::{cell, code, sentences};

/// The page.
pub(super) fn render(program: &Verb) -> String {
    let name = &program.name;
    let mut text = format!("# {name}\n\n{}\n", sentences(&program.about));
    let _ = writeln!(
        text,
        "\nThis page is generated from the command line's definition; `{name} --help` and `{name} man FOLDER` say the \
         same. `--help` is understood by every verb.\n"
    );
    body(&mut text, program);
    for verb in &program.verbs {
        add(&mut text, verb, name, 2);
    }
    text
}

/// A section for a verb of `above`, and sections for its own verbs.
fn add(text: &mut String, verb: &Verb, above: &str, level: usize) {
    let name = format!("{above} {}", verb.name);
    let _ = writeln!(
        text,
        "\n{} {name}\n\n{}\n",
        "#".repeat(level),
        sentences(&verb.about)
    );
    body(text, verb);
    for own in &verb.verbs {
        add(text, own, &name, level + 1);
    }
}

fn body(text: &mut String, verb: &Verb) {
    let _ = writeln!(text, "```text\n{}\n```", verb.usage);
    if verb.parameters.is_empty() {
        return;
    }
    text.push_str("\n| Option | Default | Meaning |\n|---|---|---|\n");
    for parameter in &verb.parameters {
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            written(parameter),
            default(parameter),
            meaning(parameter)
        );
    }
}

/// How it is written on the command line.
fn written(parameter: &Parameter) -> String {
    let Parameter {
        long, short, value, ..
    } = parameter;
    let value = value
        .as_deref()
        .map(|value| value.to_owned() + dots(parameter));
    let names: Vec<_> = short
        .map(|short| format!("-{short}"))
        .into_iter()
        .chain(long.as_ref().map(|long| format!("--{long}")))
        .collect();
    let words: Vec<_> = [names.join(", ")].into_iter().chain(value).collect();
    code(words.join(" ").trim())
}

const fn dots(parameter: &Parameter) -> &'static str {
    if parameter.is_list { "..." } else { "" }
}

/// Its default, or that there must be a value.
pub(super) fn default(parameter: &Parameter) -> String {
    match &parameter.default {
        Some(default) => code(default),
        None if parameter.is_required => "required".to_owned(),
        None => String::new(),
    }
}

/// What it means, what its values are, and which environment variable gives it.
pub(super) fn meaning(parameter: &Parameter) -> String {
    let mut text = cell(&sentences(&parameter.meaning));
    if !parameter.choices.is_empty() {
        let choices: Vec<_> = parameter.choices.iter().map(|name| code(name)).collect();
        let _ = write!(text, " One of {}.", choices.join(", "));
    }
    if let Some(variable) = &parameter.variable {
        let _ = write!(text, " Environment: `{variable}`.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_a_section_and_an_option_a_row() {
        let option = Parameter {
            long: Some("sort".to_owned()),
            short: Some('s'),
            value: Some("BY|NAME".to_owned()),
            meaning: "How | to sort".to_owned(),
            default: Some("size".to_owned()),
            choices: vec!["size".to_owned(), "age".to_owned()],
            variable: None,
            is_required: false,
            is_list: false,
        };
        let verb = Verb {
            name: "regions".to_owned(),
            about: "List regions".to_owned(),
            usage: "mind-ctl regions [OPTIONS]".to_owned(),
            parameters: vec![option],
            verbs: Vec::new(),
        };
        let program = Verb {
            name: "mind-ctl".to_owned(),
            about: "Controls a switch.".to_owned(),
            usage: "mind-ctl <COMMAND>".to_owned(),
            parameters: Vec::new(),
            verbs: vec![verb],
        };
        let text = render(&program);
        for line in [
            "# mind-ctl",
            "List regions.",
            "## mind-ctl regions",
            "| `-s, --sort BY\\|NAME` | `size` | How \\| to sort. One of `size`, `age`. |",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
