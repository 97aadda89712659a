//! Errors for exports that fail.

use std::io::ErrorKind;
use std::path::Path;

use tprof_export::ExportError;
use tprof_export::output::is_stdout;
use tprof_facts::units::{bytes, duration, exact_size};
use tprof_ui::errors::{Failure, nearest, reason, remedy};

use super::args::ExportArgs;
use crate::runs::directory::no_directory;
use crate::runs::failure::{no_cycle, no_rank, reversed_times, trace_failure};
use crate::runs::formats::{self, Format, FormatOption};

/// Largest number of steps that an error lists.
const MOST_STEPS: usize = 8;

pub fn unknown_format(format: &str, path: &Path) -> Failure {
    let near = nearest(format, formats::names()).unwrap_or("chrome");
    let names: Vec<_> = formats::names().collect();
    Failure::new(format!("unknown export format `{format}`"))
        .cause(format!("the formats are {}", names.join(", ")))
        .hint(format!("tprof export {} --to {near}", path.display()))
}

/// Returns the error for an option that a format does not support.
pub fn not_taken(format: &Format, option: FormatOption, path: &Path) -> Failure {
    let (name, run) = (format.name, path.display());
    let takers = formats::names_with(option).join(", ");
    let no = |option: &str, why: String, hint: String| {
        Failure::new(format!("{option} does not apply to {name}")).cause(why).hint(hint)
    };
    let part = match format.takes.contains(&FormatOption::Times) {
        true => "--steps, --cycle, --from-time and --to-time, --rank",
        false => "--rank",
    };
    match option {
        FormatOption::Weight => {
            let why = match name {
                "flame" => "the page contains all units and a menu to switch them",
                "speedscope" | "pprof" => "the file contains all units; the viewer switches them",
                _ => "only collapsed stacks have one unit",
            };
            no("--weight", why.to_owned(), format!("no --weight, or --to {takers}"))
        }
        FormatOption::Against => no(
            "--against",
            format!("{name} shows one run"),
            format!("--to {takers}, or tprof diff OTHER {run}"),
        ),
        FormatOption::Json => no(
            "--json",
            format!("{name} has only one form"),
            format!("no --json; --to {takers} --json writes call trees, --to json tables"),
        ),
        FormatOption::MaxSize => no(
            "--max-size",
            "a shortened file would look complete".to_owned(),
            format!("{part}; or --to {takers}"),
        ),
        FormatOption::Compact => no(
            "--compact",
            "only parquet has files of ranks".to_owned(),
            format!("tprof export {run} --to parquet --compact"),
        ),
        FormatOption::Times => no(
            "a part of the run",
            format!("{name} always covers the whole run"),
            format!("no --steps, --cycle, --from-time or --to-time; or --to {takers}"),
        ),
    }
}

pub fn failure(run: &Path, error: &ExportError) -> Failure {
    let shown = run.display();
    match error {
        ExportError::Trace(error) => trace_failure(run, error),
        ExportError::NoRank { rank, available } => {
            no_rank(run, u32::try_from(*rank).unwrap_or(u32::MAX), available)
        }
        ExportError::NoStep { step, available } => no_step(run, *step, available),
        ExportError::NoCycle { cycle, available } => no_cycle(*cycle, available),
        ExportError::Backwards { from_ns, to_ns } => reversed_times(*from_ns, *to_ns),
        ExportError::OutsideRun { first_ns, last_ns } => {
            Failure::new("the slice is outside the run")
                .cause(format!(
                    "the run lasts from {} to {}",
                    duration(*first_ns),
                    duration(*last_ns)
                ))
                .hint("times in this range; they count from the start of the run")
        }
        ExportError::EmptySlice => Failure::new("the slice is empty")
            .cause("the slice has no events of the kinds that this format exports")
            .hint("a longer slice, or no slice"),
        ExportError::TooSmall { max_bytes, least_bytes } => {
            Failure::new(format!("--max-size {} is too small", bytes(*max_bytes)))
                .cause("the names of the tracks need more space")
                // The size is rounded up, because a smaller size would fail again.
                .hint(format!("--max-size {}", exact_size(least_bytes.next_multiple_of(1024))))
        }
        ExportError::NoMaxSize { format } => {
            Failure::new(format!("--max-size does not apply to {format}"))
                .cause("a shortened file would look complete")
                .hint("--steps, --from-time and --to-time, --rank")
        }
        ExportError::Nothing { format, wants } => {
            Failure::new(format!("`{shown}` contains nothing to export as {format}"))
                .cause(format!("{format} exports {wants}, and the run recorded none"))
                .hint("tprof run records them; tprof doctor checks this machine")
        }
        ExportError::NoFile => Failure::new(format!("`{shown}` contains nothing to export"))
            .cause("the run has no rank file")
            .hint(format!("tprof report {shown}")),
        ExportError::Exists { path } => Failure::new(format!("`{}` exists", path.display()))
            .cause("tprof export replaces files only with --force")
            .hint("--force, or another -o"),
        ExportError::NotADirectory { path, files } => {
            Failure::new(format!("cannot write `{}`", path.display()))
                .cause(format!("the export has {files} files, not one"))
                .hint("-o with a directory, or --rank with one rank")
        }
        ExportError::NotToStdout { format } => {
            Failure::new(format!("cannot write {format} to stdout"))
                .cause(format!("{format} has several files"))
                .hint("-o DIR")
        }
        ExportError::NoDirectory { path, directory } => no_directory(path, directory),
        ExportError::Write { path, source } if is_stdout(path) => {
            Failure::new("cannot write the export").because(source, "-o FILE")
        }
        ExportError::Write { path, source } => {
            let hint = match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    "free space on the disk, -o on another disk, or fewer events: --rank, --steps"
                        .to_owned()
                }
                _ => remedy(source, "-o in a writable directory"),
            };
            Failure::new(format!("cannot write `{}`", path.display()))
                .cause(reason(source))
                .hint(hint)
        }
    }
}

fn no_step(run: &Path, step: u64, available: &[u64]) -> Failure {
    let path = run.display();
    let failure = Failure::new(format!("`{path}` has no step {step}"));
    let (Some(first), Some(last)) = (available.first(), available.last()) else {
        return failure
            .cause(
                "the trace has no steps (no mark, no NVTX range `step N`, no `ProfilerStep#N`, no \
                 range of an optimizer or data loader)",
            )
            .hint("--from-time and --to-time");
    };
    let steps = match available.len() {
        0..=MOST_STEPS => available.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        count => format!("{first} to {last} ({count} steps)"),
    };
    failure.cause(format!("the steps of the run are {steps}")).hint(format!("--steps {first}"))
}

/// Returns the error for a format that needs a directory of runs, although one run was given.
pub fn not_of_a_run(format: &Format, run: &Path) -> Failure {
    let name = format.name;
    Failure::new(format!("cannot export one run to {name}"))
        .cause(format!("{name} covers a directory of runs"))
        .hint(format!("tprof export {} --to {name}", run.display()))
}

/// Returns the error for an export of a foreign trace without `-o`. The trace's temporary run is
/// deleted, so the output can't be written there.
pub fn nowhere(args: &ExportArgs) -> Failure {
    let path = args.path.display();
    Failure::new(format!("cannot export `{path}` without -o"))
        .cause("a trace file has no run directory to write into")
        .hint(format!("tprof export {path} --to {} -o PATH", args.to))
}
