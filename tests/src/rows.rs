//! The contents of a rank's file, read as it is.

use std::path::Path;
use tprof_trace::{TraceFile, TraceRow};

/// The file of a run's rank.
#[track_caller]
pub fn rank_file(run: &Path, rank: u32) -> TraceFile {
    TraceFile::open(&run.join(format!("rank-{rank}.tprof"))).unwrap()
}

/// All rows of a sort, none of them damaged.
#[track_caller]
pub fn rows<R: TraceRow>(file: &TraceFile) -> Vec<R> {
    let (rows, problems) = file.rows();
    assert!(problems.is_empty(), "{problems:?}");
    rows
}
