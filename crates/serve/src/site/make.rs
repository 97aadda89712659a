//! Builds a site: first the figures for the list, then each part. The directory appears only when
//! it is complete.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use tprof_export::output::{OutputDir, is_stdout};
use tprof_export::{ExportError, archive};

use super::file::Files;
use super::parts::{Part, Parts, parts};
use crate::answers;
use crate::app::{App, Catalogue};
use crate::failure::Failure;
use crate::http::{Guard, Token};
use crate::options::SiteOptions;
use crate::runs::{RegisteredRun, Registry};
use crate::shutdown_signals::ShutdownSignals;
use crate::work::{JobQueue, Priority, Tprof};
use tprof_present::static_shell;

/// Number of child processes at once.
const AT_ONCE: usize = 2;
/// Name of the format.
const NAME: &str = "site";
/// Largest number of damaged runs to name.
const MOST_NAMED: usize = 20;

/// Writes the pages over a directory of runs, and prints where they are.
pub fn site(options: &SiteOptions) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(AT_ONCE)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot make the site", error))?;
    runtime.block_on(async {
        let mut ends =
            ShutdownSignals::new().map_err(|error| Failure::new("cannot take signals", error))?;
        tokio::select! {
            made = write(options) => made,
            () = ends.wait() => Err(Failure::new("the site is not written", "a signal ended it")
                .hint("the same command again")),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn write(options: &SiteOptions) -> Result<(), Failure> {
    let registry = Registry::of(std::slice::from_ref(&options.path), "tprof export DIR --to site")?;
    let (runs, left_out) = registry.list();
    if runs.is_empty() {
        let shown = options.path.display();
        return Err(Failure::new(
            format!("`{shown}` contains no run"),
            "no directory in it is one",
        )
        .hint("tprof export DIR --to site, with the directory that contains the runs"));
    }
    let output = options.output.clone().unwrap_or_else(|| options.path.join(NAME));
    if is_stdout(&output) {
        let failed = |error: io::Error| Failure::new("cannot write the site", error);
        let folder = tempfile::Builder::new().prefix("tprof-site-").tempdir().map_err(failed)?;
        fill(options, registry, &runs, folder.path()).await?;
        let written = archive::write(folder.path(), NAME, io::stdout().lock());
        // A reader that stops early is not a failure.
        let is_failure = |error: &io::Error| error.kind() != io::ErrorKind::BrokenPipe;
        return written
            .or_else(|error| if is_failure(&error) { Err(failed(error)) } else { Ok(()) });
    }
    check(&output, options.force, &registry, &runs)?;
    let directory = OutputDir::create(&output).map_err(refused)?;
    fill(options, registry, &runs, directory.unfinished()).await?;
    let path = directory.keep().map_err(refused)?;
    if left_out > 0 {
        eprintln!("note: {left_out} more directories were left out");
    }
    writeln!(io::stdout(), "{}", path.display())
        .map_err(|error| Failure::new("cannot print the path", error))
}

/// Refuses an existing directory unless `force` is set. Always refuses a directory that contains
/// the runs.
fn check(
    output: &Path,
    force: bool,
    registry: &Registry,
    runs: &[RegisteredRun],
) -> Result<(), Failure> {
    OutputDir::check(output, force, NAME).map_err(refused)?;
    let Ok(there) = output.canonicalize() else { return Ok(()) };
    let sources = || runs.iter().map(|run| &run.entry.path).chain(registry.roots());
    match sources().any(|source| source.starts_with(&there)) {
        false => Ok(()),
        true => Err(Failure::new(
            format!("`{}` is not replaced", output.display()),
            "the runs themselves are in it",
        )
        .hint("another -o")),
    }
}

fn refused(error: ExportError) -> Failure {
    match error {
        ExportError::Exists { path } => Failure::new(
            format!("`{}` exists", path.display()),
            "tprof export replaces files only with --force",
        )
        .hint("--force, or another -o"),
        ExportError::Write { path, source } => {
            Failure::new(format!("cannot write `{}`", path.display()), source)
                .hint("-o in a writable directory that exists")
        }
        error => Failure::new("cannot write the site", error).hint("another -o"),
    }
}

/// Writes all files of the site into a directory.
async fn fill(
    options: &SiteOptions,
    registry: Registry,
    runs: &[RegisteredRun],
    directory: &Path,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new("cannot make the site", error);
    let tprof = Tprof::new(options.tprof.clone(), options.limits);
    let catalogue = Catalogue::of(&tprof).await?;
    let parts = parts(&catalogue, runs);
    let nonce = Token::random().map_err(failed)?;
    let about = json!({ "tprof": catalogue.tprof, "pairs": parts.pairs });
    let shell = static_shell(nonce.text(), &about.to_string());
    std::fs::write(directory.join("index.html"), shell).map_err(failed)?;
    // [`App`] needs a guard, but no client sends requests here. Its settings don't change any
    // answer.
    let guard = Guard {
        token: nonce,
        hosts: Vec::new(),
        port: 0,
        is_encrypted: false,
        is_control: false,
        is_archive: false,
    };
    let app =
        App::new(registry, JobQueue::new(tprof, AT_ONCE), Arc::new(guard), Arc::new(catalogue));
    let shown = Progress::of(runs.len() + parts.all.len());
    // The list shows the figures of all runs.
    let figures = async |run: &RegisteredRun| {
        if run.entry.refused.is_none() {
            app.summaries.make(&app.jobs, run, Priority::Interactive).await;
        }
        shown.step();
        Ok(())
    };
    two_at_once(runs, figures).await?;
    let router = answers::router().with_state(Arc::clone(&app));
    let files = Files { router, directory: PathBuf::from(directory) };
    let missing = Cell::new(0);
    let each = async |part: &Part| {
        if !files.write(part).await? {
            missing.set(missing.get() + 1);
        }
        shown.step();
        Ok(())
    };
    two_at_once(&parts.all, each).await?;
    shown.end();
    note(runs, &parts, missing.get());
    Ok(())
}

/// Processes two items at a time until one fails.
async fn two_at_once<'a, T>(
    all: &'a [T],
    each: impl AsyncFn(&'a T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let next = Cell::new(0);
    let worker = async || {
        while let Some(one) = all.get(next.replace(next.get() + 1)) {
            each(one).await?;
        }
        Ok(())
    };
    tokio::try_join!(worker(), worker()).map(|_| ())
}

/// Prints notes for the reader of the site.
fn note(runs: &[RegisteredRun], parts: &Parts, missing: usize) {
    let damaged = || runs.iter().filter(|run| run.entry.state == "damaged");
    for run in damaged().take(MOST_NAMED) {
        let why = run.entry.why.as_deref().unwrap_or("its files cannot be read");
        eprintln!("note: {} is damaged: {}", run.entry.path.display(), why.replace('\n', " "));
    }
    if let more @ 1.. = damaged().count().saturating_sub(MOST_NAMED) {
        eprintln!("note: {more} more runs are damaged");
    }
    if missing > 0 {
        eprintln!("note: {missing} documents could not be made; their views have the reasons");
    }
    if parts.pairs_left_out > 0 {
        eprintln!("note: {} comparisons of older runs were left out", parts.pairs_left_out);
    }
}

/// Progress line on a terminal.
struct Progress {
    all: usize,
    done: Cell<usize>,
    is_shown: bool,
}

impl Progress {
    fn of(all: usize) -> Progress {
        Progress { all, done: Cell::new(0), is_shown: io::stderr().is_terminal() }
    }

    fn step(&self) {
        self.done.set(self.done.get() + 1);
        if self.is_shown {
            eprint!("\r\x1b[Ksite: {} of {} parts", self.done.get(), self.all);
        }
    }

    fn end(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}
