//! Handles options that exist but were typed in the wrong place: before the command, or after a
//! command that doesn't have them.

use crate::cli;
use clap::{Arg, Command};
use std::ffi::OsString;
use tprof_ui::errors::Failure;

/// Returns the error for an option that neither `tprof` itself nor the command in `words` has, but
/// another command has. `words` is the command line, beginning with the program.
pub fn misplaced(option: &str, words: &[OsString]) -> Option<Failure> {
    let command = cli::command();
    let known = || command.get_subcommands().filter(|one| !one.is_hide_set());
    let owners: Vec<&Command> = known().filter(|one| find(one, option).is_some()).collect();
    let first = owners.first()?;
    let failure = Failure::new(format!("unexpected `{option}`"));
    let words: Vec<String> =
        words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let behind = words.first().and_then(|word| known().find(|one| one.get_name() == word));
    if let Some(other) = behind {
        // A one-letter option means something else in each command, so the hint for it would
        // mislead.
        return option.starts_with("--").then(|| {
            failure
                .cause(format!(
                    "`tprof {}` has no such option: {} it",
                    other.get_name(),
                    has(&owners)
                ))
                .hint(with_option(first, option))
        });
    }
    let failure = failure.cause("an option comes after the command that it belongs to");
    let at = command_at(&words, option, &owners);
    Some(match at {
        Some((at, owner)) if words.iter().all(|word| is_plain(word)) => {
            let (before, after) = (words[..at].join(" "), words[at + 1..].join(" "));
            let line = format!("tprof {} {before} {after}", owner.get_name());
            failure.hint(line.trim_end())
        }
        Some((_, owner)) => failure.hint(with_option(owner, option)),
        None => failure
            .cause(format!("an option comes after its command, and {} it", has(&owners)))
            .hint(with_option(first, option)),
    })
}

/// Finds the command among the words after the option, and its position. A word that is the
/// option's value does not count.
fn command_at<'c>(
    words: &[String],
    option: &str,
    owners: &[&'c Command],
) -> Option<(usize, &'c Command)> {
    let typed = words.iter().position(|word| is_typed(word, option))?;
    let mut behind = words.iter().enumerate().skip(typed + 1).take_while(|(_, word)| *word != "--");
    behind.find_map(|(at, word)| {
        let owner = owners.iter().find(|one| one.get_name() == word)?;
        let is_value = at == typed + 1 && words[typed] == option && takes_value(owner, option);
        (!is_value).then_some((at, *owner))
    })
}

/// Whether a word is this option: by itself, or with its value (`-oX`, `--output=X`).
fn is_typed(word: &str, option: &str) -> bool {
    let Some(rest) = word.strip_prefix(option) else { return false };
    rest.is_empty() || !option.starts_with("--") || rest.starts_with('=')
}

/// Finds a command's option by its name as typed.
fn find<'c>(command: &'c Command, option: &str) -> Option<&'c Arg> {
    let is_it = |arg: &&Arg| match option.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().unwrap_or_default().contains(&long),
        None => arg
            .get_short()
            .is_some_and(|short| option.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4]))),
    };
    // clap adds the help option to the arguments only when it parses a command line.
    command.get_arguments().find(is_it)
}

fn takes_value(command: &Command, option: &str) -> bool {
    find(command, option).is_some_and(|arg| arg.get_action().takes_values())
}

/// Returns text such as "`tprof run` has" or "`tprof run`, `tprof env` and `tprof attach` have".
fn has(owners: &[&Command]) -> String {
    let names: Vec<String> =
        owners.iter().map(|one| format!("`tprof {}`", one.get_name())).collect();
    match names.split_last() {
        Some((last, [])) => format!("{last} has"),
        Some((last, rest)) => format!("{} and {last} have", rest.join(", ")),
        None => String::new(),
    }
}

/// Returns a command line with the command, the option, and the name of the option's value.
fn with_option(command: &Command, option: &str) -> String {
    let value = find(command, option).filter(|arg| arg.get_action().takes_values());
    let value = value.and_then(|arg| arg.get_value_names()?.first().cloned());
    let value = value.map(|name| format!(" {name}")).unwrap_or_default();
    let more = if command.get_name() == "run" { " -- COMMAND" } else { "" };
    format!("tprof {} {option}{value}{more}", command.get_name())
}

/// Whether a shell leaves the word as it is, without quotes.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(option: &str, words: &str) -> Option<(String, String)> {
        let words: Vec<OsString> =
            std::iter::once("tprof").chain(words.split(' ')).map(OsString::from).collect();
        let failure = misplaced(option, &words)?;
        Some((failure.cause.unwrap(), failure.hint.unwrap()))
    }

    fn hint(option: &str, words: &str) -> String {
        answer(option, words).unwrap().1
    }

    #[test]
    fn the_hint_moves_an_option_behind_its_command() {
        let line = "tprof run -o X -- ./job";
        assert_eq!(hint("-o", "-o X run -- ./job"), line);
        assert_eq!(hint("-o", "-oX run ./job"), "tprof run -oX ./job");
        assert_eq!(
            hint("--mem", "--mem exact -o X run -- ./job"),
            "tprof run --mem exact -o X -- ./job"
        );
        assert_eq!(hint("--json", "--json report r1"), "tprof report --json r1");
        // Here the option's value is also the name of a command.
        assert_eq!(hint("-o", "-o run run -- ./job"), "tprof run -o run -- ./job");
    }

    #[test]
    fn words_that_a_shell_would_change_are_not_repeated() {
        let words = ["tprof", "-o", "a b", "run", "--", "x"].map(OsString::from);
        let failure = misplaced("-o", &words).unwrap();
        assert_eq!(failure.hint.as_deref(), Some("tprof run -o DIR -- COMMAND"));
    }

    #[test]
    fn without_a_command_the_commands_with_the_option_are_named() {
        let (cause, hint) = answer("--mem", "--mem exact ./job").unwrap();
        assert!(cause.contains("`tprof run`") && cause.ends_with("have it"), "{cause}");
        assert!(hint.starts_with("tprof run --mem "), "{hint}");
    }

    #[test]
    fn an_option_of_another_command_names_that_command() {
        let (cause, hint) = answer("--markdown", "ls --markdown").unwrap();
        assert!(cause.starts_with("`tprof ls` has no such option: "), "{cause}");
        assert!(hint.starts_with("tprof report --markdown"), "{hint}");
        assert_eq!(answer("-o", "ls -o x"), None);
        assert_eq!(answer("--no-such-thing", "--no-such-thing run x"), None);
    }
}
