//! Reports mistakes on the command line in three lines, like every other error.

use super::misplaced::misplaced;
pub use super::unknown_command::unknown_command;
use crate::cli;
use crate::settings::table::SETTINGS;
use crate::settings::{Setting, listed};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use tprof_ui::errors::{Failure, nearest};

/// Handles `tprof help`: prints the same text as `tprof --help`.
pub fn help(words: &[OsString]) -> Result<(), Failure> {
    let mut command = cli::command();
    command.build();
    for word in words {
        let known = word.to_str().and_then(|word| command.find_subcommand(word).cloned());
        command = known.ok_or_else(|| unknown_command(std::slice::from_ref(word)))?;
    }
    // If stdout is closed, that is not an error.
    let _ = command.print_help();
    Ok(())
}

/// Converts an error of the parser to a failure; `None` for requests of help or the version, which
/// are not errors. `words` is the command line, beginning with the program.
pub fn failure(error: &clap::Error, words: &[OsString]) -> Option<Failure> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(list)) => list.first().cloned(),
        Some(ContextValue::StyledStr(text)) => Some(text.to_string()),
        _ => None,
    };
    // clap writes `--top <N>` for an option called `--top`.
    let bare = |text: String| match text.split_once(" <") {
        Some((name, _)) if name.starts_with('-') => name.to_owned(),
        _ => text.trim_end_matches("...").to_owned(),
    };
    let argument = text(ContextKind::InvalidArg).map(bare).unwrap_or_default();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let usage = text(ContextKind::Usage).map(|usage| usage.replace("Usage: ", ""));
    let usage = usage.as_deref().map(str::trim).filter(|usage| !usage.is_empty());
    let usage = usage.unwrap_or("tprof --help").to_owned();
    let failure = match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return None,
        ErrorKind::UnknownArgument => {
            let failure = Failure::new(format!("unexpected `{argument}`"));
            // If the option precedes the command, the parser's suggestion is useless: it may be an
            // option of any command.
            let is_first = words.get(1).is_some_and(|word| word.to_string_lossy().starts_with('-'));
            let right = text(ContextKind::SuggestedArg).filter(|_| !is_first);
            match right {
                Some(right) => failure.cause("there is no such option").hint(right),
                None if argument.starts_with('-') => misplaced(&argument, words)
                    .unwrap_or_else(|| failure.cause("there is no such option").hint(usage)),
                None => failure.cause("the command takes no such argument").hint(usage),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            let failure = Failure::new(format!("`{argument}` has no value"));
            let is_it = |of: &&&Setting| argument.strip_prefix("--") == Some(of.name);
            let values = SETTINGS.iter().find(is_it).map_or_else(Vec::new, |of| of.values());
            match values.first() {
                Some(first) => failure
                    .cause(format!("the values are {}", listed(&values)))
                    .hint(format!("{argument}={first}")),
                // As clap writes it: `--top <N>`.
                None => failure
                    .cause("the option needs a value")
                    .hint(text(ContextKind::InvalidArg).unwrap_or(argument)),
            }
        }
        ErrorKind::InvalidValue => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(list)) => list.clone(),
                _ => Vec::new(),
            };
            let values = || known.iter().map(String::as_str);
            let right = nearest(&value, values()).or(values().next());
            let hint = match right {
                Some(right) if argument.starts_with('-') => format!("{argument} {right}"),
                right => right.map_or(usage, str::to_owned),
            };
            Failure::new(format!("bad value `{value}` for {argument}"))
                .cause(format!("the values are {}", known.join(", ")))
                .hint(hint)
        }
        // The parser validates only addresses and numbers; tprof checks all other values.
        ErrorKind::ValueValidation if wants_address(error) => {
            Failure::new(format!("bad value `{value}` for {argument}"))
                .cause("the value is an IP address")
                .hint(format!("{argument} 127.0.0.1"))
        }
        ErrorKind::ValueValidation => Failure::new(format!("bad value `{value}` for {argument}"))
            .cause(number_wanted(error))
            .hint(format!("{argument} {}", usual_value(&argument))),
        ErrorKind::MissingRequiredArgument => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(list)) => {
                    list.iter().cloned().map(bare).collect::<Vec<_>>().join(" and ")
                }
                _ => argument,
            };
            Failure::new(format!("missing {missing}")).cause("the command needs it").hint(usage)
        }
        ErrorKind::TooFewValues => {
            let number = |kind| match error.get(kind) {
                Some(ContextValue::Number(number)) => *number,
                _ => 0,
            };
            let (least, given) =
                (number(ContextKind::MinValues), number(ContextKind::ActualNumValues));
            Failure::new("too few arguments")
                .cause(format!("the command needs at least {least}, and {given} was given"))
                .hint(usage)
        }
        ErrorKind::MissingSubcommand => {
            Failure::new("no subcommand given").cause(subcommands(error)).hint(usage)
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let right = match error.get(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(list)) => {
                    nearest(&word, list.iter().map(String::as_str))
                }
                _ => None,
            };
            Failure::new(format!("unknown subcommand `{word}`"))
                .cause(words_of(&usage))
                .hint(right.map_or(usage, str::to_owned))
        }
        ErrorKind::ArgumentConflict => {
            let other = text(ContextKind::PriorArg).unwrap_or_default();
            let same = other == argument || other.is_empty();
            let why = if same {
                "the option is given twice".to_owned()
            } else {
                format!("{argument} and {other} exclude each other")
            };
            Failure::new(format!("`{argument}` cannot be used here")).cause(why).hint(usage)
        }
        ErrorKind::TooManyValues if usage.starts_with("tprof report") => two_runs(&value),
        ErrorKind::TooManyValues => Failure::new(format!("unexpected `{value}`"))
            .cause("the command takes no further argument")
            .hint(usage),
        ErrorKind::InvalidUtf8 => Failure::new("an argument is not UTF-8 text")
            .cause("only paths may contain other bytes")
            .hint(usage),
        _ => {
            let whole = error.to_string();
            let first = whole.lines().next().unwrap_or_default();
            Failure::new(first.trim_start_matches("error: ")).hint(usage)
        }
    };
    Some(failure)
}

/// Returns the error for a second run in the words of a report.
pub fn two_runs(run: &str) -> Failure {
    Failure::new(format!("unexpected `{run}`"))
        .cause("a report is of one run; `tprof diff A B` compares two")
        .hint("tprof report KIND RUN")
}

/// Whether an option takes an IP address.
fn wants_address(error: &clap::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<std::net::AddrParseError>())
}

/// Returns a sentence about the number that an option needs.
fn number_wanted(error: &clap::Error) -> String {
    let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match why.split_once(" is not in ").and_then(|(_, range)| range.split_once("..=")) {
        Some((least, most)) => format!("the value is a whole number from {least} to {most}"),
        None => "the value is a whole number".to_owned(),
    }
}

/// Returns a plausible value of an option: its default, or 0.
fn usual_value(argument: &str) -> String {
    let command = cli::command();
    let name = argument.trim_start_matches('-');
    let mut options = command.get_subcommands().flat_map(|one| one.get_arguments());
    let option = options.find(|one| one.get_long() == Some(name));
    let default = option.and_then(|one| one.get_default_values().first().cloned());
    default.map_or_else(|| "0".to_owned(), |value| value.to_string_lossy().into_owned())
}

/// Returns a sentence about the subcommands of the command in a usage line.
fn words_of(usage: &str) -> String {
    let command = cli::command();
    let name = usage.split(' ').nth(1).unwrap_or_default();
    let words = command.find_subcommand(name).map(|command| {
        let words: Vec<&str> = command.get_subcommands().map(|word| word.get_name()).collect();
        words.join(", ")
    });
    match words.filter(|words| !words.is_empty()) {
        Some(words) => format!("the subcommands of `tprof {name}` are {words}"),
        None => "the command has no such subcommand".to_owned(),
    }
}

fn subcommands(error: &clap::Error) -> String {
    match error.get(ContextKind::ValidSubcommand) {
        Some(ContextValue::Strings(list)) => format!("the subcommands are {}", list.join(", ")),
        _ => "the command needs a subcommand".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_suggested_that_the_option_could_have() {
        let failure =
            |words: [&str; 5]| failure(&cli::parse_from(words).unwrap_err(), &[]).unwrap();
        let rank = failure(["tprof", "report", "r1", "--rank", "x"]);
        assert_eq!(rank.hint.as_deref(), Some("--rank 0"));
        let top = failure(["tprof", "report", "r1", "--top", "x"]);
        assert_eq!(top.hint.as_deref(), Some("--top 10"));
        let port = failure(["tprof", "open", "r1", "--port", "70000"]);
        assert_eq!(port.cause.as_deref(), Some("the value is a whole number from 0 to 65535"));
    }

    #[test]
    fn errors_for_unknown_words_list_the_known_ones() {
        let words = words_of("tprof ctl <COMMAND>");
        assert_eq!(
            words,
            "the subcommands of `tprof ctl` are start, stop, mark, step, dump, snapshot, status"
        );
        assert_eq!(words_of("tprof nothing"), "the command has no such subcommand");
    }
}
