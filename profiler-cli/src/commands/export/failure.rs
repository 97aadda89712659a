//! Why an export failed, in three lines.

use std::io::ErrorKind;
use std::path::Path;

use tprof_export::ExportError;
use tprof_export::output::is_stdout;
use tprof_facts::units::{bytes, duration, exact_size};

use super::args::ExportArgs;
use crate::runs::directory::no_directory;
use crate::runs::failure::{no_rank, trace_failure};
use crate::runs::formats::{self, Format, Takes};
use crate::terminal::errors::{Failure, nearest, said};

/// Steps that are named one by one.
const MOST_STEPS: usize = 8;

pub fn unknown_format(format: &str, path: &Path) -> Failure {
    let near = nearest(format, formats::names()).unwrap_or("chrome");
    let names: Vec<_> = formats::names().collect();
    Failure::new(format!("unknown export format `{format}`"))
        .cause(format!("the formats are {}", names.join(", ")))
        .hint(format!("tprof export {} --to {near}", path.display()))
}

/// A format was asked for something that it cannot honour.
pub fn not_taken(format: &Format, option: Takes, path: &Path) -> Failure {
    let (name, run) = (format.name, path.display());
    let takers = formats::that_take(option).join(", ");
    let no = |option: &str, why: &str, hint: String| {
        Failure::new(format!("{option} is not for {name}")).cause(why).hint(hint)
    };
    let part = match format.takes.contains(&Takes::Times) {
        true => "--steps, --from-time and --to-time, --rank",
        false => "--rank",
    };
    match option {
        Takes::Weight => {
            let why = match name {
                "flame" => "the page holds every measure, to choose from in it",
                "speedscope" | "pprof" => {
                    "the file holds every measure, to choose from in its viewer"
                }
                _ => "only collapsed stacks have one number each",
            };
            no("--weight", why, format!("leave it out, or --to {takers}"))
        }
        Takes::Against => {
            no("--against", "it shows one run", format!("--to {takers}, or tprof diff OTHER {run}"))
        }
        Takes::Json => no(
            "--json",
            "it has one form",
            format!("leave it out; --to {takers} --json writes trees, --to json tables"),
        ),
        Takes::MaxSize => no(
            "--max-size",
            "a part of it would look like the whole",
            format!("{part}; or --to {takers}"),
        ),
        Takes::Times => no(
            "a part of the time",
            "it shows a whole run",
            format!("leave out --steps, --from-time and --to-time; --to {takers} take them"),
        ),
    }
}

pub fn failure(run: &Path, error: &ExportError) -> Failure {
    let shown = run.display();
    match error {
        ExportError::Trace(error) => trace_failure(run, error),
        ExportError::NoRank { rank, there } => {
            no_rank(run, u32::try_from(*rank).unwrap_or(u32::MAX), there)
        }
        ExportError::NoStep { step, there } => no_step(run, *step, there),
        ExportError::Backwards { from_ns, to_ns } => Failure::new("the slice is empty")
            .cause(format!("it begins at {} and ends at {}", duration(*from_ns), duration(*to_ns)))
            .hint("--from-time before --to-time"),
        ExportError::OutsideRun { first_ns, last_ns } => {
            Failure::new("the slice lies outside the run")
                .cause(format!("it lasts from {} to {}", duration(*first_ns), duration(*last_ns)))
                .hint("times between these; they count from the run's beginning")
        }
        ExportError::EmptySlice => Failure::new("the slice is empty")
            .cause("nothing was recorded in it that this format holds")
            .hint("a longer stretch, or none"),
        ExportError::TooSmall { max_bytes, least_bytes } => {
            Failure::new(format!("--max-size {} is too small", bytes(*max_bytes)))
                .cause("not even the names of the tracks would fit")
                // Rounded up: what is shown rounded may be less than what is needed.
                .hint(format!("--max-size {}", exact_size(least_bytes.next_multiple_of(1024))))
        }
        ExportError::NoMaxSize { format } => {
            Failure::new(format!("--max-size is not for {format}"))
                .cause("a part of it would look like the whole")
                .hint("--steps, --from-time and --to-time, --rank")
        }
        ExportError::Nothing { format, wants } => {
            Failure::new(format!("there is nothing for {format} in `{shown}`"))
                .cause(format!("it shows {wants}, and none were recorded"))
                .hint("tprof run records them; tprof doctor says what it can see here")
        }
        ExportError::NoFile => Failure::new(format!("nothing to export in `{shown}`"))
            .cause("the run holds no trace file")
            .hint(format!("tprof report {shown} says what happened")),
        ExportError::Exists { path } => Failure::new(format!("`{}` exists", path.display()))
            .cause("an export replaces nothing unless told to")
            .hint("--force, or another -o"),
        ExportError::NotADirectory { path, files } => {
            let to = match is_stdout(path) {
                true => "to stdout".to_owned(),
                false => format!("`{}`", path.display()),
            };
            Failure::new(format!("cannot write {to}"))
                .cause(format!("{files} files cannot be written to one name"))
                .hint("give a directory to -o, or one rank to --rank")
        }
        ExportError::NotToStdout { format } => {
            Failure::new(format!("cannot write {format} to stdout"))
                .cause("it is a directory of several files")
                .hint("-o DIR, or --to json")
        }
        ExportError::NoDirectory { path, directory } => no_directory(path, directory),
        ExportError::Write { path, source } if is_stdout(path) => {
            Failure::new("cannot write the export").cause(said(source)).hint("-o FILE")
        }
        ExportError::Write { path, source } => {
            Failure::new(format!("cannot write `{}`", path.display())).cause(said(source)).hint(
                match source.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                        "make room there, -o on another disk, or a part of the run: --rank, --steps"
                    }
                    _ => "-o at a directory that exists and can be written",
                },
            )
        }
    }
}

fn no_step(run: &Path, step: u64, there: &[u64]) -> Failure {
    let path = run.display();
    let failure = Failure::new(format!("there is no step {step} in `{path}`"));
    let (Some(first), Some(last)) = (there.first(), there.last()) else {
        return failure
            .cause("the trace names no steps: no `ProfilerStep#N` and no mark of a step")
            .hint("--from-time and --to-time");
    };
    let steps = match there.len() {
        0..=MOST_STEPS => there.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        count => format!("{first} to {last}, {count} in all"),
    };
    failure.cause(format!("its steps are {steps}")).hint(format!("--steps {first}"))
}

/// A trace that was imported for this export alone has no directory to write to.
pub fn nowhere(args: &ExportArgs) -> Failure {
    let path = args.path.display();
    Failure::new(format!("cannot export `{path}` without -o"))
        .cause("it is no run, in whose directory the result could go")
        .hint(format!("tprof export {path} --to {} -o .", args.to))
}
