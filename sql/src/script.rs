//! Executes the statements of a command line, a file or stdin, one after another.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tprof_ui::args::SqlArgs;
use tprof_ui::errors::Failure;

use crate::engine::Engine;
use crate::interrupt::Interrupts;
use crate::output::Destination;
use crate::query_failure::QueryFailure;
use crate::statements::Source;
use crate::status::QUERY;

/// How long to wait for threads when the program ends.
const LAST: Duration = Duration::from_millis(500);
/// Number of attempts to remove a directory in which a thread may still write.
const ATTEMPTS: u32 = 50;

/// Executes all statements. The first failure ends the script.
pub fn run(
    runtime: &Runtime,
    engine: &Arc<Engine>,
    interrupts: &Interrupts,
    statements: Vec<Source>,
    args: &SqlArgs,
) -> Result<ExitCode, QueryFailure> {
    let (destination, mut output) = Destination::open(args.format, args.output.as_deref())?;
    let of_work = Arc::clone(engine);
    let ended = runtime.block_on(async {
        let mut interrupts = interrupts.subscribe();
        let mut work = tokio::spawn(async move {
            for statement in &statements {
                of_work.execute(statement, &mut output).await?;
                output.print_note();
            }
            Ok::<(), QueryFailure>(())
        });
        tokio::select! {
            done = &mut work => done.map_err(|error| engine_died(&error.to_string())).and_then(|done| done.map(|()| None)),
            status = interrupts.status() => {
                work.abort();
                engine.interrupt().await;
                Ok(Some(status))
            }
        }
    });
    let status = match ended {
        Ok(Some(status)) => Ok(ExitCode::from(status)),
        Ok(None) => destination.keep().map(|()| ExitCode::SUCCESS),
        Err(failed) => Err(failed),
    };
    engine.session.problems.print();
    status
}

/// Returns a failure for an error of the engine itself.
pub fn engine_died(why: &str) -> QueryFailure {
    Failure::new("the query engine failed")
        .cause(why.to_owned())
        .hint("another query")
        .code(QUERY)
        .into()
}

/// Ends all threads and removes the spilled files.
pub fn shut_down(runtime: Runtime, spill: TempDir) {
    runtime.shutdown_timeout(LAST);
    let path = spill.keep();
    // The removal may fail at first, because a thread that could not be stopped may write one more
    // file.
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}
