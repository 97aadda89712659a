//! `tprof completions` and `tprof man`, from the same definitions as the help.

use crate::cli::{Cli, CompletionsArgs, ManArgs, Shell, report_kind_names};
use crate::errors::{Failure, said};
use crate::export::formats;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints the script.
pub fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_values(), "tprof", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the page, or writes one per command.
pub fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    match args.output {
        None => io::stdout().write_all(&page(visible())?)?,
        Some(directory) => {
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
    std::fs::create_dir_all(directory)?;
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
    let whole = Cli::command();
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
            .mut_arg("activities", |arg| arg.value_parser(["cpu", "gpu", "mem", "comm", "nvtx"]))
            .mut_arg("export", |arg| arg.value_parser(formats()))
    };
    visible()
        .mut_subcommand("run", recording)
        .mut_subcommand("env", recording)
        .mut_subcommand("export", |command| {
            command.mut_arg("to", |arg| arg.value_parser(formats()))
        })
        .mut_subcommand("report", |command| {
            let kinds = report_kind_names().join(" or ");
            command.mut_arg("words", |arg| arg.help(format!("{kinds}, then a run; or a run alone")))
        })
}
