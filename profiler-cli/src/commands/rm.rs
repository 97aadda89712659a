//! `tprof rm`: deletes the files of runs that tprof wrote, and no other files.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tprof_facts::units::{bytes, count};
use tprof_ui::errors::{Failure, nearest, print_stderr, reason};
use tprof_ui::newest::{FoundRun, runs_in};

use crate::runs::contents::RunContents;
use crate::terminal::quote;

/// Largest number of a directory's other files that are listed.
const MOST_OTHERS: usize = 4;

/// Arguments of `tprof rm`.
#[derive(Args, Debug)]
#[command(
    after_help = "Only files that tprof wrote are deleted; a directory with other files stays.\n\n\
                  Example:\n  tprof rm --yes tprof-train-*"
)]
pub struct RmArgs {
    /// Directories of the runs to delete
    #[arg(value_name = "RUN", required = true, value_hint = clap::ValueHint::DirPath)]
    pub runs: Vec<PathBuf>,
    /// Delete without asking
    #[arg(short, long)]
    pub yes: bool,
}

/// A run that can be deleted.
struct DeletableRun {
    path: PathBuf,
    contents: RunContents,
}

/// Deletes all of the runs. If one cannot be deleted, deletes none.
pub fn run(args: RmArgs) -> anyhow::Result<ExitCode> {
    let mut doomed: Vec<DeletableRun> = Vec::new();
    for path in &args.runs {
        let one = judged(path)?;
        // A run that is named twice is deleted once.
        if !doomed.iter().any(|other| other.path.canonicalize().ok() == path.canonicalize().ok()) {
            doomed.push(one);
        }
    }
    if !args.yes && !is_agreed(&doomed)? {
        print_stderr("nothing was deleted\n");
        return Ok(ExitCode::SUCCESS);
    }
    for one in doomed {
        delete(&one)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that a path is a run that has ended and consists of tprof's files.
fn judged(path: &Path) -> Result<DeletableRun, Failure> {
    let shown = path.display();
    if path.is_file() {
        return Err(Failure::new(format!("`{shown}` is not a run directory"))
            .cause("the path is a file")
            .hint("tprof rm with the run directory that contains the file"));
    }
    // A trailing slash is removed: with it, the check for a link would follow the link.
    let bare: PathBuf = path.components().collect();
    if bare.is_symlink() {
        let target = std::fs::read_link(&bare).unwrap_or_default();
        return Err(Failure::new(format!("`{shown}` is not a run directory"))
            .cause(format!("the path is a symbolic link to `{}`", target.display()))
            .hint("tprof rm with the directory itself"));
    }
    let read = || RunContents::of(path).map_err(|(at, error)| unreadable(path, &at, &error));
    if path.is_dir() {
        read()?;
    }
    let Some(run) = FoundRun::at(path) else { return Err(no_run(path)) };
    let contents = read()?;
    let in_progress = Failure::new(format!("the run in `{shown}` is in progress"));
    if run.is_live() {
        return Err(in_progress
            .cause("its collector is still writing")
            .hint("wait for the end of its job"));
    }
    if let Some(file) = &contents.unread {
        return Err(Failure::new(format!("the run in `{shown}` may be in progress"))
            .cause(format!("`{}` is new, and this tprof cannot read it", file.display()))
            .hint("the tprof that recorded it, or wait for two minutes"));
    }
    Ok(DeletableRun { path: path.to_owned(), contents })
}

/// Returns the error for a run of which a part cannot be read, so that it isn't known whether all
/// of it is tprof's.
fn unreadable(run: &Path, at: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot delete `{}`", run.display()))
        .cause(format!("`{}` cannot be read: {}", at.display(), reason(error)))
        .hint("delete it as the user who recorded it")
}

fn no_run(path: &Path) -> Failure {
    let failure = Failure::new(format!("`{}` is not a run", path.display()));
    let failure = match path.exists() {
        true => failure.cause("the directory holds no tprof files"),
        false => failure.cause("the directory does not exist"),
    };
    let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let runs = runs_in(beside.unwrap_or(Path::new("."))).unwrap_or_default();
    let names: Vec<String> =
        runs.iter().map(|run| run.dir.path().to_string_lossy().into_owned()).collect();
    match nearest(&path.to_string_lossy(), names.iter().map(String::as_str)) {
        Some(right) => failure.hint(format!("tprof rm {}", quote::word(right.as_ref()))),
        None => failure.hint("tprof ls"),
    }
}

/// Asks the user on the terminal whether to delete the runs.
fn is_agreed(doomed: &[DeletableRun]) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new("nothing was deleted")
            .cause("stdin is not a terminal, so tprof cannot ask for confirmation")
            .hint("tprof rm --yes RUN"));
    }
    let size = doomed.iter().map(|one| one.contents.bytes()).sum();
    let names: Vec<String> = doomed.iter().map(|one| one.path.display().to_string()).collect();
    let what = match names.as_slice() {
        [one] => one.clone(),
        many => format!("{} runs ({})", count(many.len() as u64), many.join(", ")),
    };
    print_stderr(&format!("delete {what}, {}? [y/N] ", bytes(size)));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn delete(run: &DeletableRun) -> Result<(), Failure> {
    let shown = run.path.display();
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot delete all of `{shown}`"))
            .because(&error, "delete it as the user who recorded it")
    };
    for (file, _) in &run.contents.files {
        std::fs::remove_file(file).map_err(failed)?;
    }
    for directory in &run.contents.directories {
        std::fs::remove_dir(directory).map_err(failed)?;
    }
    let size = bytes(run.contents.bytes());
    let mut text = format!("deleted {shown}, {size}");
    if run.contents.others.is_empty() {
        // If the run is the working directory or a mount point, the empty directory stays.
        if let Err(error) = std::fs::remove_dir(&run.path) {
            text += &format!("; the empty directory stays: {}", reason(&error));
        }
    } else {
        let names = run.contents.others.iter().filter_map(|path| path.file_name());
        let mut names: Vec<String> =
            names.take(MOST_OTHERS).map(|name| name.to_string_lossy().into_owned()).collect();
        if run.contents.others.len() > MOST_OTHERS {
            names.push(format!("{} more", run.contents.others.len() - MOST_OTHERS));
        }
        text += &format!(
            "; the directory stays, with files that are not tprof's: {}",
            names.join(", ")
        );
    }
    let _ = writeln!(std::io::stderr(), "{text}");
    Ok(())
}
