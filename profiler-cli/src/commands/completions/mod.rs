//! `tprof completions` and `tprof man`, from the same definitions as the help.

mod report_words;

use crate::cli::{self, CompletionsArgs, ManArgs, Shell, with_opposites_shown};
use crate::commands::export::formats;
use crate::terminal::errors::{Failure, said};
use clap::Command;
use clap::builder::PossibleValuesParser;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints the script.
pub fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    io::stdout().write_all(script(args.shell).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The script for a shell.
fn script(shell: Shell) -> String {
    let of_clap = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(of_clap, &mut with_values(), "tprof", &mut script);
    report_words::with_kinds(&String::from_utf8_lossy(&script), shell)
}

/// Prints the page, or writes one per command.
pub fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    match args.output {
        None => io::stdout().write_all(&page(visible())?)?,
        Some(directory) => {
            crate::runs::directory::make(&directory)?;
            write_pages(&directory).map_err(|e| {
                Failure::new(format!("cannot write man pages into `{}`", directory.display()))
                    .cause(said(&e))
                    .hint("-o with a directory that can be written to")
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_pages(directory: &Path) -> io::Result<()> {
    let command = visible();
    for one in command.get_subcommands().cloned() {
        let name = format!("tprof-{}", one.get_name());
        let one = one.name(name.clone()).bin_name(name.replacen('-', " ", 1));
        std::fs::write(directory.join(format!("{name}.1")), page(one)?)?;
    }
    std::fs::write(directory.join("tprof.1"), page(command)?)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let title = command.get_name().to_uppercase();
    clap_mangen::Man::new(command)
        .title(title)
        .section("1")
        .source(concat!("tprof ", env!("CARGO_PKG_VERSION")))
        .manual("tprof manual")
        .render(&mut text)?;
    Ok(text)
}

/// The commands without those for tprof's own use.
fn visible() -> Command {
    let whole = cli::command();
    let hidden = |one: &Command| one.is_hide_set();
    let kept: Vec<_> = whole.get_subcommands().filter(|one| !hidden(one)).cloned().collect();
    let mut command = Command::new("tprof")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        command = command.after_help(after.clone());
    }
    command.subcommands(kept)
}

/// With the values that options take, which the parser leaves to the resolver.
fn with_values() -> Command {
    let formats = || PossibleValuesParser::new(formats::names());
    let recording = |command: Command| {
        command
            .mut_arg("mem", |arg| arg.value_parser(["exact", "sampled", "off"]))
            .mut_arg("stacks", |arg| arg.value_parser(["auto", "fp", "dwarf", "python", "off"]))
            .mut_arg("on_full", |arg| arg.value_parser(["wait", "drop"]))
            .mut_arg("activities", |arg| {
                arg.value_parser(["cpu", "gpu", "cuda", "mem", "comm", "nvtx"])
            })
            .mut_arg("export", |arg| arg.value_parser(formats()))
    };
    with_opposites_shown(visible())
        .mut_subcommand("run", recording)
        .mut_subcommand("env", recording)
        .mut_subcommand("export", |command| {
            command.mut_arg("to", |arg| arg.value_parser(formats()))
        })
}
