//! What a user reads when a run cannot be read.

use std::path::Path;

use tprof_analyze::AnalyzeError;
use tprof_trace::TraceError;

use crate::errors::{Failure, nearest, said};

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
    }
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
