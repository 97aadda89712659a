//! Errors for runs that cannot be read.

use std::ffi::OsStr;
use std::path::Path;

use tprof_analyze::AnalyzeError;
use tprof_document::OptionMatches;
use tprof_facts::units::duration;
use tprof_trace::TraceError;
use tprof_ui::errors::{Failure, nearest};
use tprof_ui::newest::runs_in;

use crate::terminal::quote;

/// Largest number of names that an error lists.
const MOST_NAMES: usize = 8;

/// Returns the error for a table that a report doesn't have.
pub fn no_table(table: &str, kind: &str, tables: &[&str]) -> Failure {
    Failure::new(format!("the {kind} report has no table `{table}`"))
        .cause(format!("the tables are {}", tables.join(", ")))
        .hint(format!("--table {}", nearest(table, tables.iter().copied()).unwrap_or(tables[0])))
}

/// Returns the error for a report that cannot be made.
pub fn analyze_failure(path: &Path, error: &AnalyzeError) -> Failure {
    match error {
        AnalyzeError::Trace(error) => trace_failure(path, error),
        AnalyzeError::NoRank { rank, available, .. } => no_rank(path, *rank, available),
        AnalyzeError::NoCycle { cycle, available } => no_cycle(*cycle, available),
        AnalyzeError::Nothing(named) => nothing_named(named),
    }
}

/// Returns the error for an option that names something that the run doesn't have.
fn nothing_named(named: &OptionMatches) -> Failure {
    let OptionMatches { option, what, text, matching, .. } = named;
    let bare = text.rsplit_once(':').map_or(text.as_str(), |(bare, _)| bare);
    if *matching > 0 {
        let last = matching - 1;
        return Failure::new(format!("{option} `{text}` is beyond the last match"))
            .cause(format!("{matching} {what} match `{bare}`, numbered from 0"))
            .hint(format!("{option} {bare}:{last}"));
    }
    let failure = Failure::new(match text.as_str() {
        "" => format!("{option} leaves nothing"),
        text => format!("{option} `{text}` matches nothing"),
    });
    let mut names: Vec<(&str, u64)> =
        named.names.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let Some((first, _)) = names.first() else {
        return failure.cause(format!("the run has no {what}")).hint(format!("leave out {option}"));
    };
    let right = nearest(bare, names.iter().map(|(name, _)| *name)).unwrap_or(first);
    let shown = names.iter().take(MOST_NAMES).map(|(name, count)| format!("{name} ({count})"));
    let mut list = shown.collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMES {
        list += &format!(" and {} more", names.len() - MOST_NAMES);
    }
    let failure = failure.cause(format!("the {what} are {list}"));
    if text.is_empty() {
        return failure.hint(format!("leave out {option}"));
    }
    failure.hint(format!("{option} {}", quote::word(OsStr::new(right))))
}

/// Returns the error for an option that none of the requested kinds of reports supports.
pub fn not_taken(option: &str, asked: &[String], takers: &[&str]) -> Failure {
    let value = match option {
        "--lines" | "--mine" | "--stalls" => "",
        "--sort" => " total",
        _ => " TEXT",
    };
    Failure::new(format!("{option} does not apply to {}", asked.join(" and ")))
        .cause(format!("{option} is for {}", listed(takers)))
        .hint(format!("tprof report {} RUN {option}{value}", takers[0]))
}

/// Joins words to a list such as `a, b and c`.
fn listed(words: &[&str]) -> String {
    match words {
        [head @ .., last] if !head.is_empty() => format!("{} and {last}", head.join(", ")),
        _ => words.concat(),
    }
}

/// Returns the error for a cycle that the run doesn't have.
pub fn no_cycle(cycle: u32, available: &[String]) -> Failure {
    let failure = Failure::new(format!("the run has no cycle {cycle}"));
    match available {
        [] => failure
            .cause("cycles are those of --schedule, --capture-range and `tprof ctl start --steps`")
            .hint("leave out --cycle"),
        [first, ..] => failure
            .cause(format!("there are {}", available.join(", ")))
            .hint(format!("--{}", first.split([':', '(']).next().unwrap_or(first).trim_end())),
    }
}

/// Returns the error for a part of the run's time that ends before it begins.
pub fn reversed_times(from_ns: u64, to_ns: u64) -> Failure {
    let (from, to) = (duration(from_ns), duration(to_ns));
    Failure::new("the slice is empty")
        .cause(format!("the slice begins at {from} and ends at {to}"))
        .hint("a --from-time before --to-time")
}

/// Returns the error for a rank that the run doesn't have.
pub fn no_rank(path: &Path, rank: u32, available: &[u32]) -> Failure {
    let failure = Failure::new(format!("`{}` has no rank {rank}", path.display()));
    match (available.first(), available.last()) {
        (Some(first), Some(last)) if first == last => {
            failure.cause(format!("the run has only rank {first}")).hint(format!("--rank {first}"))
        }
        (Some(first), Some(last)) => failure
            .cause(format!("the run has {} ranks, {first} to {last}", available.len()))
            .hint(format!("--rank {last}")),
        _ => failure.cause("the run has no file of a rank").hint("leave out --rank"),
    }
}

/// The inputs that commands can read.
const READABLE: &str = "a run directory, one of its .tprof files, or, plain or compressed by gzip or \
     zstd, a trace (JSON), a memory snapshot (pickle) or a log of TORCH_TRACE";

/// Returns the error for a run or a file that cannot be read.
pub fn trace_failure(path: &Path, error: &TraceError) -> Failure {
    let cannot = |path: &Path| Failure::new(format!("cannot read `{}`", path.display()));
    let whole = match path.is_dir() {
        true => "record it again: no other file of this run can be read",
        false => "tprof report with the run directory reads the other files",
    };
    match error {
        TraceError::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            cannot(path)
                .cause(format!("no such file or directory{}", runs_beside(path)))
                .hint("tprof ls, for the runs here; tprof report --help, for the kinds of reports")
        }
        TraceError::Io { path, what: "open" | "read", source } => {
            let usual = match source.kind() {
                std::io::ErrorKind::PermissionDenied => "read it as the user who recorded it",
                _ => "tprof report DIR, with the directory of a run",
            };
            cannot(path).because(source, usual)
        }
        TraceError::Io { path, what, source } => {
            Failure::new(format!("cannot {what} `{}`", path.display()))
                .because(source, "-o with a writable directory")
        }
        TraceError::Empty { path } => cannot(path)
            .cause("the file is empty: recording ended before the first write")
            .hint(whole),
        TraceError::CutOff { path } => {
            cannot(path).cause("the file ends inside its header").hint(whole)
        }
        TraceError::NotTprof { path } => packed(path).unwrap_or_else(|| {
            cannot(path).cause("tprof does not know the file's format").hint(READABLE)
        }),
        TraceError::Newer { path, written, needed, oldest, newest } => cannot(path)
            .cause(format!(
                "the file has format {written} and needs a reader of {needed}; this tprof reads {}",
                range(*oldest, *newest)
            ))
            .hint("install the tprof that recorded it, or a newer one"),
        TraceError::Older { path, written, oldest, newest } => cannot(path)
            .cause(format!(
                "the file has format {written}; this tprof reads {}",
                range(*oldest, *newest)
            ))
            .hint("read it with the tprof that recorded it"),
        TraceError::Features { path, bits, newest } => cannot(path)
            .cause(format!(
                "the file needs features {bits:#x}, which this tprof (format {newest}) lacks"
            ))
            .hint("install the tprof that recorded it, or a newer one"),
        TraceError::NoRun { path, why } => {
            Failure::new(format!("`{}` is not a tprof run", path.display()))
                .cause(why.clone())
                .hint("tprof run -o DIR -- COMMAND; tprof report DIR")
        }
        #[allow(unreachable_patterns, reason = "the enum may grow")]
        other => cannot(path).cause(other.to_string()),
    }
}

/// Lists the runs in the directory in which a path was expected, newest first.
fn runs_beside(path: &Path) -> String {
    const MOST: usize = 5;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let there = runs_in(folder.unwrap_or(Path::new("."))).unwrap_or_default();
    let mut names: Vec<String> =
        (there.iter().take(MOST)).map(|run| run.dir.path().display().to_string()).collect();
    if there.len() > MOST {
        names.push(format!("{} more", there.len() - MOST));
    }
    match names.is_empty() {
        true => String::new(),
        false => format!("; the runs there are {}", names.join(", ")),
    }
}

/// Returns the error for an archive file that must be unpacked first; `None` if `path` isn't one.
pub fn packed(path: &Path) -> Option<Failure> {
    let format = tprof_import::packed_as(path)?;
    let failure = Failure::new(format!("cannot read `{}`", path.display()));
    Some(
        failure
            .cause(format!("it is a {format}"))
            .hint("unpack it, and name the trace that is in it"),
    )
}

fn range(oldest: u16, newest: u16) -> String {
    if oldest == newest { format!("only {oldest}") } else { format!("{oldest} to {newest}") }
}
