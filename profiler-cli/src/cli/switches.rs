//! Adds an opposite to every switch: `--redact` and `--no-redact`, `--no-browser` and `--browser`.
//! The last one on the command line wins.
//!
//! Opposites are derived from the definitions of switches, so that a new switch gets one
//! automatically. Help lists them in one line below the options of a command, instead of one line
//! each.

use clap::builder::ArgPredicate;
use clap::{Arg, ArgAction, Command, Id};
use textwrap::{Options, WordSeparator, WordSplitter};

/// Name that help shows for a switch's optional value (`--redact=false`).
const BOOL: &str = "BOOL";
/// Width of the help text in columns.
const WIDTH: usize = 80;

/// Adds the opposites of switches to a command and its subcommands.
pub fn with_opposites(command: Command) -> Command {
    let command = command.mut_subcommands(with_opposites);
    let switches: Vec<Arg> =
        command.get_arguments().filter(|arg| is_switch(arg)).cloned().collect();
    if switches.is_empty() {
        return command;
    }
    let mut names = Vec::new();
    let mut command = command;
    for switch in switches {
        let Some(opposite) = switch.get_long().map(opposite) else { continue };
        let id = switch.get_id().clone();
        names.push(format!("--{opposite}"));
        command = command
            .arg(
                Arg::new(opposite.clone())
                    .long(opposite.clone())
                    .action(ArgAction::SetTrue)
                    .overrides_with_all([id.clone(), Id::from(opposite.clone())])
                    .hide(true),
            )
            .mut_arg(id.clone(), |switch| {
                let has_value = takes_value(&switch);
                let switch = switch.overrides_with(id.clone());
                match has_value {
                    true => switch.default_value_if(
                        opposite,
                        ArgPredicate::Equals("true".into()),
                        "false",
                    ),
                    false => switch,
                }
            });
    }
    let line = folded(&format!(
        "Every switch has an opposite, and the last one given wins: {}",
        names.join(" ")
    ));
    let after = command.get_after_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
    command.after_help(line + &after)
}

/// Makes the opposites in a command visible, for completions.
pub fn shown(command: Command) -> Command {
    let command = command.mut_subcommands(shown);
    let names: Vec<String> = command
        .get_arguments()
        .filter(|arg| is_switch(arg))
        .filter_map(|arg| Some(opposite(arg.get_long()?)))
        .collect();
    command.mut_args(|arg| match names.iter().any(|name| arg.get_id() == name) {
        true => arg.hide(false),
        false => arg,
    })
}

fn is_switch(arg: &Arg) -> bool {
    !arg.is_hide_set() && (matches!(arg.get_action(), ArgAction::SetTrue) || takes_value(arg))
}

/// Whether a switch also accepts `true` or `false` as its value.
fn takes_value(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == BOOL))
}

/// Returns `no-redact` for `redact`, and `browser` for `no-browser`.
fn opposite(name: &str) -> String {
    name.strip_prefix("no-").map_or_else(|| format!("no-{name}"), str::to_owned)
}

/// Wraps text to the width of the help.
fn folded(text: &str) -> String {
    let options = Options::new(WIDTH)
        .subsequent_indent("  ")
        .word_splitter(WordSplitter::NoHyphenation)
        .word_separator(WordSeparator::AsciiSpace);
    textwrap::fill(text, options)
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command, command, parse_from};
    use crate::settings::RunOptions;
    use std::ffi::OsString;

    fn options(words: &[&str]) -> RunOptions {
        let words = [&["tprof", "run"], words, &["true"]].concat();
        match parse_from(words).unwrap() {
            Cli { command: Command::Run(args) } => args.options,
            _ => panic!("not `run`"),
        }
    }

    /// Returns the value of `redact` in these options.
    fn given(options: RunOptions) -> Option<OsString> {
        options.given().find(|(setting, _)| setting.name == "redact").map(|(_, text)| text)
    }

    #[test]
    fn the_last_of_a_switch_and_its_opposite_counts() {
        let redact = |words: &[&str]| given(options(words));
        assert_eq!(redact(&[]), None);
        assert_eq!(redact(&["--redact"]), Some("true".into()));
        assert_eq!(redact(&["--no-redact"]), Some("false".into()));
        assert_eq!(redact(&["--redact", "--no-redact"]), Some("false".into()));
        assert_eq!(redact(&["--no-redact", "--redact"]), Some("true".into()));
        assert_eq!(redact(&["--redact=true", "--no-redact"]), Some("false".into()));
        assert_eq!(redact(&["--no-redact", "--no-redact"]), Some("false".into()));
        assert_eq!(redact(&["--redact=false", "--redact"]), Some("true".into()));
    }

    #[test]
    fn a_switch_without_value_has_an_opposite_too() {
        let browser = |words: &[&str]| {
            let words = [&["tprof", "open", "r1"], words].concat();
            match parse_from(words).unwrap() {
                Cli { command: Command::Open(args) } => !args.no_browser,
                _ => panic!("not `open`"),
            }
        };
        assert_eq!(
            [browser(&[]), browser(&["--no-browser"]), browser(&["--no-browser", "--browser"])],
            [true, false, true]
        );
    }

    #[test]
    fn switches_behind_the_jobs_command_are_left_to_the_job() {
        let words = ["tprof", "run", "--", "job", "--no-redact"];
        let Cli { command: Command::Run(args) } = parse_from(words).unwrap() else {
            panic!("not `run`")
        };
        assert_eq!(given(args.options), None);
        assert_eq!(args.command, ["job", "--no-redact"].map(OsString::from));
    }

    #[test]
    fn every_switch_of_every_command_is_named_with_its_opposite_in_help() {
        let mut seen = 0;
        for mut sub in command().get_subcommands().cloned().collect::<Vec<_>>() {
            let help = sub.render_help().to_string();
            let lines = help.lines().skip_while(|line| !line.starts_with("Each switch has"));
            for line in lines.take(3) {
                assert!(line.chars().count() <= 80, "wrapped: {line}");
            }
            for arg in sub.get_arguments().filter(|arg| super::is_switch(arg)) {
                let opposite = super::opposite(arg.get_long().unwrap());
                assert!(help.contains(&format!("--{opposite}")), "{}: {help}", sub.get_name());
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }
}
