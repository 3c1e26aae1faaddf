//! What a daemon would run with: all its settings, and where each comes from.

use std::{fmt::Write as _, path::Path};

use clap::{Arg, ArgMatches, parser::ValueSource};

use super::{as_value, file::Setting};

/// It as a configuration file, from what the file at `path` says and the whole of `matches`.
pub(super) fn text(
    path: &Path,
    settings: &[Setting],
    keys: &[Arg],
    matches: &ArgMatches,
) -> String {
    let mut text = String::new();
    for arg in keys {
        let key = arg.get_long().unwrap_or_default();
        let id = arg.get_id().as_str();
        let Some(raw) = matches.get_raw(id) else {
            let _ = writeln!(text, "# {key} is not set");
            continue;
        };
        let texts: Vec<_> = raw
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let value = as_value(&texts, arg);
        let is_in_file = settings.iter().any(|setting| setting.key == key);
        let source = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => "command line".to_owned(),
            Some(ValueSource::EnvVariable) => "environment".to_owned(),
            _ if is_in_file => path.display().to_string(),
            _ => "default".to_owned(),
        };
        let _ = writeln!(text, "{key} = {value} # {source}");
    }
    text
}
