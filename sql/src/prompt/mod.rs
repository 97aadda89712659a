//! The prompt: statements of several lines until `;`, and commands that begin with a backslash.

mod commands;
mod helper;
mod history;
mod pager;

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tokio::runtime::Runtime;
use tprof_ui::args::{ResultFormat as Format, SqlArgs};
use tprof_ui::errors::{Failure, print_stderr};

use crate::engine::Engine;
use crate::interrupt::{CTRL_C, Interrupts, Next};
use crate::output::{Destination, Output, Sink, terminal_width};
use crate::query_failure::QueryFailure;
use crate::script::engine_died;
use crate::session::Session;
use crate::statements::{self, Source};
use crate::status::QUERY;
use commands::Command;
use helper::Helper;

/// Text before a statement.
const PROMPT: &str = "tprof> ";

/// Settings that can be changed at the prompt.
struct Settings {
    format: Format,
    is_timed: bool,
}

/// Reads and executes statements and commands until the user leaves.
pub fn run(
    runtime: &Runtime,
    engine: &Arc<Engine>,
    interrupts: &Interrupts,
    args: &SqlArgs,
) -> Result<ExitCode, QueryFailure> {
    let failed = |error: ReadlineError| {
        Failure::new("cannot read from the terminal").cause(error.to_string()).code(QUERY)
    };
    if let Some(file) = &args.output {
        // A prompt whose results go to a file would show nothing.
        return Err(Failure::new(format!("--output {} needs a query", file.display()))
            .cause("results of the prompt go to the terminal")
            .hint("tprof sql RUN \"SELECT …\" -o FILE")
            .code(crate::status::MISUSE)
            .into());
    }
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(history::MOST)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(failed)?
        .build();
    let mut editor: Editor<Helper, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Helper::new(
        Arc::clone(&engine.session),
        engine.functions(),
        engine.dialect(),
    )));
    let file = history::file();
    if let Some(file) = &file {
        // This fails when the prompt is used for the first time, because there is no history.
        let _ = editor.load_history(file);
    }
    let tables = engine.session.tables.names().len();
    print_stderr(&format!("{tables} tables; \\d lists them, \\? the commands, \\q leaves\n"));
    let mut settings = Settings { format: args.format, is_timed: false };
    loop {
        let text = match editor.readline(PROMPT) {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(failed(error).into()),
        };
        if text.trim().is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(text.trim_end());
        if let Some(file) = &file {
            // Errors are ignored, because the prompt is useful without a history, too.
            let _ = history::make(file)
                .and_then(|()| editor.append_history(file).map_err(std::io::Error::other));
        }
        let ended = match text.trim_start().strip_prefix('\\') {
            Some(command) => match commands::parse(command) {
                Ok(Command::Quit) => return Ok(ExitCode::SUCCESS),
                Ok(Command::Functions(part)) if engine.remote.is_some() => {
                    query(&functions(&part), (runtime, interrupts), engine, &settings)
                }
                Ok(command) => obey(command, &engine.session, &mut settings),
                Err(failure) => Err(failure.into()),
            },
            None => query(&text, (runtime, interrupts), engine, &settings),
        };
        match ended {
            Err(QueryFailure::Ended(status)) => return Ok(ExitCode::from(status)),
            Err(failed) => {
                failed.show();
            }
            Ok(()) => {}
        }
        engine.session.problems.print();
    }
}

/// Returns the query that lists the functions of a server.
fn functions(part: &str) -> String {
    match part.replace('\'', "") {
        part if part.is_empty() => "SHOW FUNCTIONS".to_owned(),
        part => format!("SHOW FUNCTIONS LIKE '*{part}*'"),
    }
}

fn obey(command: Command, session: &Session, settings: &mut Settings) -> Result<(), QueryFailure> {
    match command {
        Command::Timing => {
            settings.is_timed = !settings.is_timed;
            print_stderr(if settings.is_timed { "timing is on\n" } else { "timing is off\n" });
            Ok(())
        }
        Command::Format(format) => {
            settings.format = format;
            Ok(())
        }
        other => {
            let batch = commands::answer(&other, session)?;
            let (sink, bytes) = Sink::memory();
            let mut output = Output::new(Format::Table, sink, terminal_width(), false);
            output.begin(&batch.schema())?;
            output.write(&batch)?;
            output.end()?;
            pager::show(&bytes.lock().unwrap_or_else(PoisonError::into_inner));
            Ok(())
        }
    }
}

/// Executes the statements of an input, until one is ended by Ctrl-C.
fn query(
    text: &str,
    on: (&Runtime, &Interrupts),
    engine: &Arc<Engine>,
    settings: &Settings,
) -> Result<(), QueryFailure> {
    let (runtime, interrupts) = on;
    let statements = statements::parse(text, engine.dialect())?;
    // One subscription covers all statements of the input, so Ctrl-C between two of them also skips
    // the rest.
    let mut signals = interrupts.subscribe();
    for statement in statements {
        let begun = Instant::now();
        if !one(statement, (runtime, &mut signals), engine, settings.format)? {
            break;
        }
        if settings.is_timed {
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            print_stderr(&format!("time: {}\n", tprof_facts::units::duration(ns)));
        }
    }
    Ok(())
}

/// Executes a statement. Returns whether the next one may follow, which is false after Ctrl-C.
fn one(
    statement: Source,
    (runtime, signals): (&Runtime, &mut Next),
    engine: &Arc<Engine>,
    format: Format,
) -> Result<bool, QueryFailure> {
    // A table goes to memory first, because it is shown when it is complete. Rows of other formats
    // are shown as they arrive.
    let (mut output, bytes) = match format {
        Format::Table => {
            let (sink, bytes) = Sink::memory();
            (Output::new(format, sink, terminal_width(), false), Some(bytes))
        }
        _ => (Destination::open(format, None)?.1, None),
    };
    let of_work = Arc::clone(engine);
    let ended = runtime.block_on(async {
        let mut work = tokio::spawn(async move {
            let done = of_work.execute(&statement, &mut output).await;
            (done, output)
        });
        tokio::select! {
            done = &mut work => Ok(done),
            status = signals.status() => {
                work.abort();
                engine.interrupt().await;
                Err(status)
            }
        }
    });
    let ended = match ended {
        Ok(ended) => ended,
        Err(CTRL_C) => {
            print_stderr("interrupted\n");
            return Ok(false);
        }
        Err(status) => return Err(QueryFailure::Ended(status)),
    };
    let (done, mut output) = ended.map_err(|error| engine_died(&error.to_string()))?;
    done?;
    if let Some(bytes) = bytes {
        pager::show(&bytes.lock().unwrap_or_else(PoisonError::into_inner));
        if output.has_result() {
            let rows = u64::try_from(output.rows()).unwrap_or(u64::MAX);
            print_stderr(&format!("{}\n", tprof_facts::units::counted(rows, "row", "rows")));
        }
    }
    stdout().flush()?;
    output.print_note();
    Ok(true)
}
