//! Adds an opposite to every switch that a variable or a file can set: `--redact` and `--no-redact`.
//! The last one on the command line wins. Other switches need none, because leaving them out
//! switches them off.
//!
//! Opposites are derived from the definitions of switches, so that a new setting gets one
//! automatically. Help lists them in one line below the options of a command, instead of one line
//! each.

use crate::settings::BOOL;
use clap::builder::ArgPredicate;
use clap::{Arg, ArgAction, Command, Id};
use textwrap::{Options, WordSeparator, WordSplitter};

/// Width of the help text in columns.
const WIDTH: usize = 80;

/// Adds the opposites of switches to a command and its subcommands.
pub fn with_opposites(command: Command) -> Command {
    let command = command.mut_subcommands(with_opposites);
    // A switch may be repeated.
    let command = command.mut_args(|arg| match arg.get_action() {
        ArgAction::SetTrue => {
            let id = arg.get_id().clone();
            arg.overrides_with(id)
        }
        _ => arg,
    });
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
                switch.overrides_with(id).default_value_if(
                    opposite,
                    ArgPredicate::Equals("true".into()),
                    "false",
                )
            });
    }
    let line =
        folded(&format!("Opposites of switches, the last one given wins: {}", names.join(" ")));
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

/// Whether a variable or a file can set this switch.
fn is_switch(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == BOOL))
}

/// Returns `no-redact` for `redact`.
fn opposite(name: &str) -> String {
    format!("no-{name}")
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
    use clap::error::ErrorKind;
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
    fn a_switch_that_only_the_command_line_sets_has_no_opposite() {
        for words in [
            &["run", "--no-dry-run", "true"][..],
            &["open", "r1", "--browser"],
            &["ls", "--findings"],
            &["report", "--no-json"],
            &["export", "r1", "--to", "chrome", "--no-force"],
        ] {
            let words = [&["tprof"], words].concat();
            let error = parse_from(words.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{words:?}");
        }
    }

    #[test]
    fn a_switch_may_be_repeated() {
        for words in [&["report", "--lines", "--lines"][..], &["ls", "--json", "--json"]] {
            parse_from([&["tprof"], words].concat()).unwrap();
        }
    }

    #[test]
    fn the_switches_of_attach_override_variables_too() {
        let words = ["tprof", "attach", "1", "--no-redact", "--force", "-q", "--no-quiet"];
        let Cli { command: Command::Attach(args) } = parse_from(words).unwrap() else {
            panic!("not `attach`")
        };
        let text = |text: &str| Some(OsString::from(text));
        assert_eq!(
            [args.redact, args.force, args.quiet],
            [text("false"), text("true"), text("false")]
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
    fn every_opposite_is_named_in_help() {
        let mut seen = 0;
        for mut sub in command().get_subcommands().cloned().collect::<Vec<_>>() {
            let help = sub.render_help().to_string();
            for arg in sub.get_arguments().filter(|arg| super::is_switch(arg)) {
                let opposite = super::opposite(arg.get_long().unwrap());
                assert!(help.contains(&format!("--{opposite}")), "{}: {help}", sub.get_name());
                seen += 1;
            }
            let lines = help.lines().skip_while(|line| !line.starts_with("Opposites of switches"));
            for line in lines.take(3) {
                assert!(line.chars().count() <= 80, "wrapped: {line}");
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
