//! Writes runs in other formats.

use super::args::{self, ExportArgs, SliceArgs};
use super::{failure, report, shapes, site, tensorboard};
use crate::commands::steps_from::steps_from;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use tprof_export::output::{STDOUT, is_stdout};
use tprof_export::{ExportError, Options, Slice, Weight, Written, archive};
use tprof_facts::units::{count, parse_duration, parse_size};
use tprof_rank::clocks;
use tprof_trace::RunDir;
use tprof_ui::errors::{Failure, print_stderr, reason, remedy};

use crate::runs::failure::trace_failure;
use crate::runs::foreign::open_run_or_import;
use crate::runs::formats::{self, Format, FormatOption, Writer};
use crate::runs::scratch::Scratch;
use crate::runs::symbols::LateSymbolizer;

/// Executes `tprof export`: writes one run, or a directory of runs as a site.
pub fn command(args: ExportArgs) -> anyhow::Result<ExitCode> {
    match wanted(&args)?.writer {
        Writer::Site => site::export(&args),
        _ => run(args),
    }
}

/// Writes one run in another format, and prints the paths of the output.
pub fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
    let format = wanted(&args)?;
    let opened = open_run_or_import(&args.path)?;
    if opened.is_temporary() && args.output.is_none() {
        return Err(failure::nowhere(&args).into());
    }
    if !format.is_one_file() && args.output.as_deref().is_some_and(is_stdout) {
        write_archive(format, &args, opened.path())?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&made(format, &args, opened.path())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the paths of an export to stdout, then its notes to stderr.
pub fn print(written: &Written) -> std::io::Result<()> {
    let paths = || {
        let mut stdout = std::io::stdout().lock();
        for path in &written.paths {
            writeln!(stdout, "{}", path.display())?;
        }
        stdout.flush()
    };
    let printed = paths();
    print_notes(written);
    printed
}

/// Returns the requested format. Fails if the format doesn't exist or doesn't support one of the
/// options.
pub fn wanted(args: &ExportArgs) -> Result<&'static Format, Failure> {
    let Some(format) = formats::find(&args.to) else {
        return Err(failure::unknown_format(&args.to, &args.path));
    };
    let slice = &args.slice;
    let times = slice.from_time.is_some() || slice.to_time.is_some();
    let times = times || slice.steps.is_some() || slice.cycle.is_some();
    let asked = [
        (args.weight.is_some(), FormatOption::Weight),
        (args.against.is_some(), FormatOption::Against),
        (args.max_size.is_some(), FormatOption::MaxSize),
        (args.json, FormatOption::Json),
        (times, FormatOption::Times),
        (args.compact.is_some(), FormatOption::Compact),
    ];
    for (is_asked, option) in asked {
        if is_asked && !format.takes.contains(&option) {
            return Err(failure::not_taken(format, option, &args.path));
        }
    }
    Ok(format)
}

/// Writes a format that has several files to stdout, as one tar archive.
fn write_archive(format: &Format, args: &ExportArgs, path: &Path) -> anyhow::Result<()> {
    let scratch = Scratch::new("export").map_err(|error| {
        Failure::new(format!("cannot write {} to stdout", format.name))
            .cause(format!("no temporary directory could be created: {}", reason(&error)))
            .hint(remedy(&error, "set TMPDIR to a writable directory, or -o DIR"))
    })?;
    let output = scratch.path().join(format.name);
    let args = ExportArgs { output: Some(output.clone()), ..args.clone() };
    let mut written = made(format, &args, path)?;
    // The notes contain paths in the temporary directory. It is cut off, because the user unpacks
    // the archive elsewhere.
    let within = format!("{}/", scratch.path().display());
    written.notes.iter_mut().for_each(|note| *note = note.replace(&within, ""));
    print_notes(&written);
    archive::write(&output, format.name, std::io::stdout().lock()).map_err(|source| {
        if source.kind() == ErrorKind::BrokenPipe {
            return anyhow::Error::from(source);
        }
        let error = ExportError::Write { path: STDOUT.into(), source };
        failure::failure(&args.path, &error).into()
    })
}

/// Writes the run at `path` in a format, and prints notes to stderr.
pub fn write(format: &Format, args: &ExportArgs, path: &Path) -> anyhow::Result<Written> {
    let written = made(format, args, path)?;
    print_notes(&written);
    Ok(written)
}

fn made(format: &Format, args: &ExportArgs, path: &Path) -> anyhow::Result<Written> {
    let opened_against = args.against.as_deref().map(open_run_or_import).transpose()?;
    let against = opened_against
        .as_ref()
        .map(|run| RunDir::open(run.path()).map_err(|error| trace_failure(run.path(), &error)));
    let against = against.transpose()?;
    let late = LateSymbolizer::default();
    let options = Options {
        output: args.output.clone(),
        output_is_file: args.output_is_file,
        force: args.force,
        against: against.as_ref(),
        slice: slice(&args.slice)?,
        max_bytes: size(args)?,
        weight: args.weight.map(|weight| match weight {
            args::Weight::Bytes => Weight::Bytes,
            args::Weight::Count => Weight::Count,
            args::Weight::Cpu => Weight::Cpu,
            args::Weight::Wait => Weight::Wait,
            args::Weight::Stalls => Weight::Stalls,
        }),
        json: args.json,
        files_of_ranks: args.compact,
        tables: None,
        run_name: None,
        symbols: Some(&late),
    };
    let mut run = RunDir::open(path).map_err(|error| trace_failure(&args.path, &error))?;
    let is_of_one_rank = args.slice.rank.as_deref().is_some_and(|rank| rank.parse::<u32>().is_ok());
    let clocks = match format.is_on_one_axis() && !is_of_one_rank {
        true => clocks::notes(&clocks::align(&mut run)),
        false => Vec::new(),
    };
    for problem in run.problems() {
        print_stderr(&format!("note: {}\n", problem.what));
    }
    let mut written = match format.writer {
        Writer::Library(export) => {
            export(&run, &options).map_err(|error| match error {
                // If the reader of stdout stops early, that is not an error of the export.
                ExportError::Write { source, .. } if source.kind() == ErrorKind::BrokenPipe => {
                    anyhow::Error::from(source)
                }
                error => failure::failure(&args.path, &error).into(),
            })?
        }
        Writer::ReportPage => report::export(&run, args, &options)?,
        Writer::TensorBoard => tensorboard::export(&run, args, &options)?,
        Writer::Shapes => shapes::export(&run, args, &options)?,
        Writer::Site => return Err(failure::not_of_a_run(format, path).into()),
    };
    for note in late.notes() {
        print_stderr(&format!("note: {note}\n"));
    }
    written.notes.extend(clocks);
    Ok(written)
}

/// Prints the number of events that were left out, and the other notes, to stderr.
fn print_notes(written: &Written) {
    if written.left_out > 0 {
        let all = count(written.events + written.left_out);
        print_stderr(&format!("note: {} of {all} events were left out\n", count(written.left_out)));
    }
    for note in written.all_notes() {
        print_stderr(&format!("note: {note}\n"));
    }
}

/// Returns the slice of a run that the options select.
pub fn slice(args: &SliceArgs) -> Result<Slice, Failure> {
    let time = |option: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => match parse_duration(text) {
            Some(time) => Ok(Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))),
            None => Err(refused(option, text, "the value is not a time", "1.5s")),
        },
    };
    let numbers = |option: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => {
            text.parse().map(Some).map_err(|why: String| refused(option, text, &why, "0"))
        }
    };
    Ok(Slice {
        from_ns: time("from-time", &args.from_time)?,
        to_ns: time("to-time", &args.to_time)?,
        steps: numbers("steps", &args.steps)?,
        steps_from: steps_from(args.steps_from.as_deref())?,
        cycle: args.cycle,
        ranks: numbers("rank", &args.rank)?,
        allows_empty_chrome_trace: args.allows_empty_chrome_trace,
    })
}

fn size(args: &ExportArgs) -> Result<Option<u64>, Failure> {
    let Some(text) = args.max_size.as_deref() else { return Ok(None) };
    match parse_size(text) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(refused("max-size", text, "the value is not a size", "100M")),
    }
}

fn refused(option: &str, text: &str, why: &str, right: &str) -> Failure {
    Failure::new(format!("bad value `{text}` for --{option}"))
        .cause(why)
        .hint(format!("--{option}={right}"))
}
