//! What a user reads when a run cannot be read.

use std::ffi::OsStr;
use std::path::Path;

use tprof_analyze::AnalyzeError;
use tprof_analyze::document::Named;
use tprof_trace::TraceError;

use crate::terminal::errors::{Failure, nearest, said};
use crate::terminal::quote;

/// Names that an error lists.
const MOST_NAMES: usize = 8;

/// A table that a report does not have.
pub fn no_table(table: &str, kind: &str, tables: &[&str]) -> Failure {
    Failure::new(format!("there is no table `{table}` in the {kind} report"))
        .cause(format!("its tables are {}", tables.join(", ")))
        .hint(format!("--table {}", nearest(table, tables.iter().copied()).unwrap_or(tables[0])))
}

/// Why there is no report.
pub fn analyze_failure(path: &Path, error: &AnalyzeError) -> Failure {
    match error {
        AnalyzeError::Trace(error) => trace_failure(path, error),
        AnalyzeError::NoRank { rank, there, .. } => no_rank(path, *rank, there),
        AnalyzeError::Nothing(named) => nothing_named(named),
    }
}

/// An option names something that a run has not.
fn nothing_named(named: &Named) -> Failure {
    let Named { option, what, text, matching, .. } = named;
    let bare = text.rsplit_once(':').map_or(text.as_str(), |(bare, _)| bare);
    if *matching > 0 {
        let last = matching - 1;
        return Failure::new(format!("{option} `{text}` is past the last"))
            .cause(format!("{matching} {what} have `{bare}` in their names, numbered from 0"))
            .hint(format!("{option} {bare}:{last}"));
    }
    let failure = Failure::new(format!("{option} `{text}` chooses nothing"));
    let mut there: Vec<(&str, u64)> =
        named.there.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    there.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let Some((first, _)) = there.first() else {
        return failure.cause(format!("the run has no {what}")).hint(format!("leave out {option}"));
    };
    let right = nearest(bare, there.iter().map(|(name, _)| *name)).unwrap_or(first);
    let shown = there.iter().take(MOST_NAMES).map(|(name, count)| format!("{name} ({count})"));
    let mut list = shown.collect::<Vec<_>>().join(", ");
    if there.len() > MOST_NAMES {
        list += &format!(" and {} more", there.len() - MOST_NAMES);
    }
    failure
        .cause(format!("the {what} are {list}"))
        .hint(format!("{option} {}", quote::word(OsStr::new(right))))
}

/// An option was given that no kind that was asked for honours.
pub fn not_taken(option: &str, asked: &[String], takers: &[&str]) -> Failure {
    Failure::new(format!("{option} is not for {}", asked.join(" and ")))
        .cause(format!("it chooses a part of {}", takers.join(" and ")))
        .hint(format!("tprof report {} RUN {option} TEXT", takers[0]))
}

/// A rank that a run does not have.
pub fn no_rank(path: &Path, rank: u32, there: &[u32]) -> Failure {
    let failure = Failure::new(format!("there is no rank {rank} in `{}`", path.display()));
    match (there.first(), there.last()) {
        (Some(first), Some(last)) if first == last => {
            failure.cause(format!("it has rank {first} alone")).hint(format!("--rank {first}"))
        }
        (Some(first), Some(last)) => failure
            .cause(format!("it has {} ranks, {first} to {last}", there.len()))
            .hint(format!("--rank {last}")),
        _ => failure.cause("no file in it belongs to a rank").hint("leave out --rank"),
    }
}

/// Why a run or a file cannot be read.
pub fn trace_failure(path: &Path, error: &TraceError) -> Failure {
    let cannot = |path: &Path| Failure::new(format!("cannot read `{}`", path.display()));
    let whole = "the other files of the run may be whole: tprof report on its directory";
    match error {
        TraceError::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            cannot(path)
                .cause("there is no such file or directory")
                .hint("tprof run -o DIR -- COMMAND makes a run; then tprof report DIR")
        }
        TraceError::Io { path, source, .. } => {
            cannot(path).cause(said(source)).hint("read it as the user who recorded it")
        }
        TraceError::Empty { path } => {
            cannot(path).cause("it is empty: recording ended before its first write").hint(whole)
        }
        TraceError::CutOff { path } => {
            cannot(path).cause("it was cut off within its header, so nothing in it can be read").hint(whole)
        }
        TraceError::NotTprof { path } => cannot(path)
            .cause("it is not a tprof file: it does not begin with tprof's mark")
            .hint("give a run directory or one of its .tprof files"),
        TraceError::Newer { path, written, needed, oldest, newest } => cannot(path)
            .cause(format!(
                "written by format {written}, which needs a reader of {needed}; this tprof reads {}",
                range(*oldest, *newest)
            ))
            .hint("install the tprof that recorded it, or a newer one"),
        TraceError::Older { path, written, oldest, newest } => cannot(path)
            .cause(format!("written by format {written}; this tprof reads {}", range(*oldest, *newest)))
            .hint("read it with the tprof that recorded it"),
        TraceError::Features { path, bits, newest } => cannot(path)
            .cause(format!("it needs features {bits:#x}, unknown to this tprof (format {newest})"))
            .hint("install the tprof that recorded it, or a newer one"),
        TraceError::NoRun { path, why } => Failure::new(format!("`{}` is not a tprof run", path.display()))
            .cause(why.clone())
            .hint("tprof run -o DIR -- COMMAND makes a run; then tprof report DIR"),
        #[allow(unreachable_patterns, reason = "the enum may grow")]
        other => cannot(path).cause(other.to_string()),
    }
}

fn range(oldest: u16, newest: u16) -> String {
    if oldest == newest { format!("{oldest} alone") } else { format!("{oldest} to {newest}") }
}
