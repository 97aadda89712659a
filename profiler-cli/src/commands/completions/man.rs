//! Generates the man pages.

use super::args::ManArgs;
use crate::runs::directory;
use clap::Command;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use tprof_ui::errors::Failure;

/// Prints the man page, or writes one page per command into a directory.
pub fn man(args: ManArgs, command: &Command) -> anyhow::Result<ExitCode> {
    match args.output {
        None => io::stdout().write_all(&page(visible(command))?)?,
        Some(directory) => {
            directory::make(&directory)?;
            write_pages(&directory, command).map_err(|e| {
                Failure::new(format!("cannot write man pages into `{}`", directory.display()))
                    .because(&e, "-o DIR, with a writable directory")
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_pages(directory: &Path, command: &Command) -> io::Result<()> {
    let command = visible(command);
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

/// Returns the command without the hidden subcommands.
pub fn visible(whole: &Command) -> Command {
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
