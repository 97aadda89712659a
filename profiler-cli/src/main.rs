//! The `tprof` command: parses the command line, and executes the command.

mod cli;
mod commands;
mod compile;
mod kineto;
mod launch;
mod runs;
mod settings;
mod terminal;

use cli::{Cli, Command, usage};
use commands::{
    archive, attach, catalogue, compare, completions, ctl, diff, doctor, env, export, import,
    limited, ls, open, report, rm, run, serve, sql, standstill,
};
use launch::{fallback, system};
use std::ffi::OsString;
use std::process::ExitCode;
use tprof_ui::errors;

fn main() -> ExitCode {
    system::run_on_large_stack(answer)
}

fn answer() -> ExitCode {
    let cli = match cli::parse_from(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return misuse(&error, &std::env::args_os().collect::<Vec<_>>()),
    };
    // Rust's exit status for a panic is 101, which could be the job's. So panics are caught, and
    // tprof exits with its own status.
    let outcome = std::panic::catch_unwind(|| act(cli));
    match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(error)) if errors::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => ExitCode::from(errors::show(&error)),
        Err(_) => ExitCode::from(errors::FAILED),
    }
}

fn act(cli: Cli) -> anyhow::Result<ExitCode> {
    if matches!(
        cli.command,
        Command::Report(_)
            | Command::Ls(_)
            | Command::Diff(_)
            | Command::Compare(_)
            | Command::Export(_)
            | Command::Import(_)
    ) {
        system::keep_freed_memory();
    }
    match cli.command {
        Command::Run(args) => run::run(args),
        Command::Env(args) => env::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Ctl(args) => ctl::run(args),
        Command::Report(words) if words.schema => report::print_schema(),
        Command::Report(words) => report::run(words.resolve()?),
        Command::Ls(args) => ls::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Export(args) => export::command(args),
        Command::Import(args) => import::run(args),
        Command::Open(args) => open::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Sql(args) => sql::run(&args),
        Command::Archive(args) => archive::run(&args),
        Command::Top(args) => serve::top(&args),
        Command::Where(args) => standstill::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::RunKernel => doctor::kernel::run(),
        Command::Completions(args) => {
            completions::completions(args, &cli::with_opposites_shown(cli::command()))
        }
        Command::Man(args) => completions::man(args, &cli::command()),
        Command::Catalogue => catalogue::run(),
        Command::Limited(args) => {
            limited::limit(&args)?;
            act_on(std::iter::once("tprof".into()).chain(args.words).collect())
        }
        Command::Wait(args) => Ok(run::end_as(fallback::wait(&args))),
        Command::Collect { session } => env::collect(&session),
        Command::GpuMetrics { interval_ns } => {
            tprof_collect::gpu_metrics::sampler::run(interval_ns)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Other(words) if words.first().is_some_and(|word| word == "help") => {
            usage::help(&words[1..])?;
            Ok(ExitCode::SUCCESS)
        }
        // The short form of `tprof report KIND`.
        Command::Other(words) if words.first().is_some_and(|word| report::is_kind(word)) => {
            act_on(["tprof", "report"].map(OsString::from).into_iter().chain(words).collect())
        }
        Command::Other(words) => Err(usage::unknown_command(&words).into()),
    }
}

/// Executes the command that these words are.
fn act_on(words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    match cli::parse_from(&words) {
        Ok(cli) => act(cli),
        Err(error) => Ok(misuse(&error, &words)),
    }
}

/// Sets the exit status that `sql` and `archive` have for a wrong command line.
fn of_command(failure: errors::Failure) -> errors::Failure {
    match std::env::args_os().nth(1).is_some_and(|word| word == "sql" || word == "archive") {
        true => failure.code(sql::MISUSE),
        false => failure,
    }
}

fn misuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    match usage::failure(error, words) {
        Some(failure) => ExitCode::from(errors::show(&of_command(failure).into())),
        None => {
            // Help that was requested goes to stdout. Help that is printed because the command is
            // missing goes to stderr.
            let asked = !error.use_stderr();
            let _ = error.print();
            if asked { ExitCode::SUCCESS } else { ExitCode::from(errors::FAILED) }
        }
    }
}
