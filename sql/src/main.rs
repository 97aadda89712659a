//! `tprof-sql`: the program that `tprof sql` and `tprof archive` execute in place of themselves. It
//! is separate so that neither tprof's size nor its build includes the query engine.

mod allowed;
mod archive;
mod archiving;
mod args;
mod command_line;
mod engine;
mod execute;
mod functions;
mod interrupt;
mod limits;
mod memory;
mod output;
mod problems;
mod prompt;
mod query_failure;
mod remote;
mod script;
mod server_text;
mod session;
mod statements;
mod status;
mod tables;

use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tprof_ui::args::SqlArgs;
use tprof_ui::errors::{Failure, print_stderr, reason};

use args::{ArchiveCli, Cli};
use command_line::Sources;
use engine::Engine;
use interrupt::Interrupts;
use limits::Limits;
use query_failure::QueryFailure;
use remote::Remote;
use session::{Session, spill_directory};
use statements::Dialect;
use status::{MISUSE, QUERY};

fn main() -> ExitCode {
    memory::keep_freed();
    let mut words = std::env::args_os();
    let ended = match words.next().zip(words.next()) {
        // A run with this name can be written as `./archive`.
        Some((program, first)) if first == "archive" => {
            let words = std::iter::once(program).chain(words);
            archiving::run(&ArchiveCli::parse_from(words).args)
        }
        _ => act(&Cli::parse().args),
    };
    ended.unwrap_or_else(|failed| ExitCode::from(failed.show()))
}

fn act(args: &SqlArgs) -> Result<ExitCode, QueryFailure> {
    if args.views {
        let texts: Vec<&str> = tprof_tables::VIEWS.iter().map(|view| view.text).collect();
        stdout().write_all(texts.join("\n").as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let words = command_line::classify(&args.words, args.file.is_some())?;
    let remote = Remote::of(args)?;
    let limits = Limits::of(args)?;
    let named = Sources::of(&words.paths)?.only(&args.run)?;
    let text = match (&words.query, &args.file) {
        (Some(query), _) => Some(query.clone()),
        (None, Some(file)) => Some(read(file)?),
        (None, None) if stdin().is_terminal() => None,
        (None, None) => Some(read(Path::new("-"))?),
    };
    let dialect = if remote.is_some() { Dialect::Server } else { Dialect::Own };
    let statements = text.as_deref().map(|text| statements::parse(text, dialect)).transpose()?;
    if remote.is_some() {
        // If one statement is refused, nothing is sent.
        statements.iter().flatten().try_for_each(remote::check)?;
    }
    let needs_run = statements.as_ref().is_none_or(|all| all.iter().any(execute::needs_run));
    let sources = match words.paths.is_empty() && needs_run {
        true => Sources::here()?,
        false => named,
    };
    for path in &sources.again {
        print_stderr(&format!("note: {} is named twice, and counts once\n", path.display()));
    }
    if remote.is_some() {
        Remote::check_sources(&sources)?;
    }
    let spill = spill_directory()?;
    let interrupts = Interrupts::watch(spill.path().to_owned())?;
    let session = Arc::new(Session::new(&sources, limits, spill.path().to_owned())?);
    let engine = Arc::new(Engine { session, remote });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(limits.threads)
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new("cannot start threads")
                .cause(reason(&error))
                .hint("--threads 1")
                .code(QUERY)
        })?;
    let ended = match statements {
        Some(statements) => script::run(&runtime, &engine, &interrupts, statements, args),
        None => prompt::run(&runtime, &engine, &interrupts, args),
    };
    runtime.block_on(engine.leave());
    drop(engine);
    script::shut_down(runtime, spill);
    ended
}

/// Reads the text of a file, or of stdin.
fn read(path: &Path) -> Result<String, Failure> {
    let text = match path == Path::new("-") {
        true => {
            let mut text = String::new();
            stdin().read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::read_to_string(path),
    };
    text.map_err(|error| {
        Failure::new(format!("cannot read `{}`", path.display()))
            .cause(reason(&error))
            .hint("tprof sql RUN -f FILE.sql")
            .code(MISUSE)
    })
}
