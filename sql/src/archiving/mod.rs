//! `tprof archive`: adds runs to an archive, and lists and checks archives.

mod check;
mod identity;
mod list_json;
mod write;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use tprof_facts::units;
use tprof_ui::args::{ArchiveArgs, ResultFormat as Format};
use tprof_ui::errors::{print_stderr, show};

use crate::archive::commit::{self, Commit, Commits};
use crate::archive::failure::FAILED;
use crate::archive::location::Location;
use crate::archive::runtime;
use crate::interrupt::Interrupts;
use crate::output::Destination;
use crate::query_failure::QueryFailure;
use crate::script::shut_down;
use crate::session::spill_directory;
use check::Finding;
use write::{Archiver, Done};

/// Executes the command line.
pub fn run(args: &ArchiveArgs) -> Result<ExitCode, QueryFailure> {
    let temporary = spill_directory()?;
    let interrupts = Interrupts::watch(temporary.path().to_owned())?;
    let runtime = runtime()?;
    let (args, path) = (args.clone(), temporary.path().to_owned());
    let ended = runtime.block_on(async {
        let mut interrupts = interrupts.subscribe();
        let work = tokio::spawn(async move { act(&args, &path).await });
        tokio::select! {
            done = work => done.unwrap_or_else(|error| Err(crate::script::engine_died(&error.to_string()))),
            status = interrupts.status() => Err(QueryFailure::Ended(status)),
        }
    });
    shut_down(runtime, temporary);
    ended
}

async fn act(args: &ArchiveArgs, temporary: &Path) -> Result<ExitCode, QueryFailure> {
    match (args.list.as_deref(), args.check.as_deref()) {
        (Some(word), _) if args.ids => return print_ids(word).await,
        (Some(word), _) if args.json => return print_json(word).await,
        (Some(word), _) => return look(word, false).await,
        (None, Some(word)) => return look(word, true).await,
        (None, None) => {}
    }
    let raw = write::raw_tables(&args.raw)?;
    let place = Location::parse(args.to.as_deref().unwrap_or_default())?;
    place.create()?;
    let store = place.store()?;
    let temporary = temporary.to_owned();
    let archiver = Archiver { place, store, raw, unfinished: args.unfinished, temporary };
    let mut code = 0;
    for run in &args.runs {
        match archiver.archive(run).await {
            Ok(done) => println(&line(run, &done))?,
            // The failure of one run does not affect the others.
            Err(failure) => code = show(&failure.into()),
        }
    }
    Ok(ExitCode::from(code))
}

fn line(run: &Path, done: &Done) -> String {
    let run = run.display();
    match done {
        Done::Archived(commit) => {
            let Commit { run: id, objects, notes, .. } = commit;
            for note in notes {
                print_stderr(&format!("note: {run}: {note}\n"));
            }
            let count = units::counted(objects.len() as u64, "object", "objects");
            format!("{run}: archived as {id}, {count}, {}", units::bytes(commit.bytes()))
        }
        Done::Before(commit) => format!("{run}: is in the archive as {}", commit.run),
    }
}

/// Prints a line to stdout.
fn println(line: &str) -> Result<(), QueryFailure> {
    use std::io::Write;
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

async fn print_ids(word: &OsStr) -> Result<ExitCode, QueryFailure> {
    let place = Location::parse(word)?;
    commit::ids(&place, &place.store()?).await?.iter().try_for_each(|id| println(id))?;
    Ok(ExitCode::SUCCESS)
}

async fn print_json(word: &OsStr) -> Result<ExitCode, QueryFailure> {
    let place = Location::parse(word)?;
    let commits = Commits::read(&place, &place.store()?).await?;
    println(&list_json::document(&place, &commits).to_string())?;
    Ok(ExitCode::SUCCESS)
}

async fn look(word: &OsStr, is_check: bool) -> Result<ExitCode, QueryFailure> {
    let place = Location::parse(word)?;
    let store = place.store()?;
    let commits = Commits::read(&place, &store).await?;
    for problem in &commits.problems {
        print_stderr(&format!("not read: {problem}\n"));
    }
    if commits.runs.is_empty() {
        print_stderr(&format!("note: {} has no run\n", place.shown()));
    }
    let (batch, is_damaged) = match is_check {
        false => (check::list(&commits)?, false),
        true => {
            let found = check::check(&place, &store, &commits).await?;
            let is_damaged = found.iter().any(Finding::is_damage) || !commits.problems.is_empty();
            let objects: usize = commits.runs.iter().map(|run| run.objects.len()).sum();
            let of = |n: usize, one, many| units::counted(n as u64, one, many);
            print_stderr(&format!(
                "{}, {}, {}\n",
                of(commits.runs.len(), "run", "runs"),
                of(objects, "object", "objects"),
                of(found.len(), "problem", "problems"),
            ));
            (check::findings(&found)?, is_damaged)
        }
    };
    if batch.num_rows() > 0 {
        let (destination, mut output) = Destination::open(Format::Table, None)?;
        output.begin(&batch.schema())?;
        output.write(&batch)?;
        output.end()?;
        destination.keep()?;
    }
    Ok(ExitCode::from(if is_damaged { FAILED } else { 0 }))
}
