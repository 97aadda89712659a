//! Reads the rows of a rank's file with tprof's own reader of the format.

use std::path::Path;
use tprof_trace::{TraceFile, TraceRow};

/// Opens the file of a rank of a run.
#[track_caller]
pub fn rank_file(run: &Path, rank: u32) -> TraceFile {
    TraceFile::open(&run.join(format!("rank-{rank}.tprof"))).unwrap()
}

/// Returns all rows of a type, none of which may be damaged.
#[track_caller]
pub fn rows<R: TraceRow>(file: &TraceFile) -> Vec<R> {
    let (rows, problems) = file.rows();
    assert!(problems.is_empty(), "{problems:?}");
    rows
}
