//! Handles a first word that is not a command.

use crate::cli;
use crate::commands::report::report_kinds;
use crate::launch;
use crate::terminal::quote;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use tprof_ui::errors::{Failure, nearest};
use tprof_ui::newest::FoundRun;

/// Command names that users know from other profilers and shells, and the tprof command line for
/// each.
const HABITS: [(&[&str], &str); 10] = [
    (
        &["record", "stat", "profile", "trace", "exec", "start", "launch", "mem", "python"],
        "tprof run -- COMMAND",
    ),
    (&["view", "show", "script", "annotate", "stats", "analyze"], "tprof report RUN"),
    (&["convert", "save"], "tprof export RUN --to FORMAT"),
    (&["flame", "flamegraph"], "tprof open RUN --as flame"),
    (&["timeline"], "tprof open RUN --as timeline"),
    (&["htop", "watch", "live"], "tprof top RUN, for a run in progress"),
    (&["status"], "tprof ctl status RUN, for a run in progress"),
    (&["dashboard", "ui", "server"], "tprof serve DIR"),
    (&["list", "runs"], "tprof ls"),
    (&["delete", "remove", "clean"], "tprof rm RUN"),
];

/// Returns the error for an unknown command.
pub fn unknown_command(words: &[OsString]) -> Failure {
    let word = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let command = cli::command();
    let known: Vec<_> = command.get_subcommands().filter(|one| !one.is_hide_set()).collect();
    let names = || known.iter().map(|one| one.get_name());
    let failure = Failure::new(format!("unknown command `{word}`"));
    let kinds = || report_kinds().map(|(kind, _)| kind);
    if FoundRun::at(Path::new(&*word)).is_some() {
        return failure
            .cause("this is a run")
            .hint(format!("tprof report {}", quote::word(OsStr::new(&*word))));
    }
    let habit = HABITS.iter().find(|(words, _)| words.contains(&word.as_ref()));
    if let Some((_, hint)) = habit {
        failure.cause("tprof has no such command").hint(*hint)
    } else if let Some(right) = nearest(&word, names().chain(kinds())) {
        let run = if kinds().any(|kind| kind == right) { " RUN" } else { "" };
        failure.cause("tprof has no such command").hint(format!("tprof {right}{run}"))
    } else if launch::find(OsStr::new(&*word)).is_ok() {
        failure
            .cause("the first word must be a tprof command")
            .hint(format!("tprof run -- {word}, to record it"))
    } else {
        let names: Vec<_> = names().collect();
        failure.cause(format!("the commands are {}", names.join(", "))).hint("tprof --help")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(word: &str) -> String {
        unknown_command(&[word.into()]).hint.unwrap()
    }

    #[test]
    fn names_from_other_tools_lead_to_the_commands_of_tprof() {
        assert_eq!(hint("record"), "tprof run -- COMMAND");
        assert_eq!(hint("stat"), "tprof run -- COMMAND");
        assert!(hint("status").starts_with("tprof ctl status RUN"));
        assert!(hint("live").starts_with("tprof top RUN"));
        assert_eq!(hint("dashboard"), "tprof serve DIR");
        assert_eq!(hint("list"), "tprof ls");
        assert_eq!(hint("delete"), "tprof rm RUN");
        assert_eq!(hint("flame"), "tprof open RUN --as flame");
    }

    #[test]
    fn no_command_of_tprof_is_a_name_from_another_tool() {
        let command = cli::command();
        for name in command.get_subcommands().map(|one| one.get_name()) {
            assert!(!HABITS.iter().any(|(words, _)| words.contains(&name)), "{name}");
        }
        // `tprof KIND RUN` is the report.
        for (kind, _) in report_kinds() {
            assert!(!HABITS.iter().any(|(words, _)| words.contains(&kind)), "{kind}");
            assert!(command.find_subcommand(kind).is_none(), "{kind}");
        }
    }

    #[test]
    fn typos_programs_and_unknown_words_have_different_hints() {
        assert_eq!(hint("reprot"), "tprof report");
        assert_eq!(hint("fnidings"), "tprof findings RUN");
        assert_eq!(hint("sh"), "tprof run -- sh, to record it");
        assert_eq!(hint("zzyzx"), "tprof --help");
    }
}
