//! Generates the completion scripts.

use super::args::{CompletionsArgs, Shell};
use super::man::visible;
use super::report_words;
use crate::runs::formats;
use crate::settings::table::SETTINGS;
use clap::Command;
use clap::builder::PossibleValuesParser;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints the completion script of a shell.
pub fn completions(args: CompletionsArgs, command: &Command) -> anyhow::Result<ExitCode> {
    io::stdout().write_all(script(args.shell, command).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the completion script of a shell.
pub fn script(shell: Shell, command: &Command) -> String {
    let of_clap = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(of_clap, &mut with_values(command), "tprof", &mut script);
    report_words::with_kinds(&String::from_utf8_lossy(&script), shell)
}

/// Adds the possible values of options to the completions. The options' definitions don't have
/// them, because the resolver of settings checks the values.
fn with_values(command: &Command) -> Command {
    let recording = |command: Command| {
        SETTINGS.into_iter().filter(|setting| !setting.values().is_empty()).fold(
            command,
            |command, setting| {
                let values = PossibleValuesParser::new(setting.values());
                command.mut_arg(setting.name, |arg| arg.value_parser(values))
            },
        )
    };
    visible(command)
        .mut_subcommand("run", recording)
        .mut_subcommand("env", recording)
        .mut_subcommand("export", |command| {
            command
                .mut_arg("to", |arg| arg.value_parser(PossibleValuesParser::new(formats::names())))
        })
}
