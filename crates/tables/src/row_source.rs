//! Identifies the run and the file that rows come from.

use std::path::Path;

use tprof_trace::{RankFile, RankLabel, Start, TraceFile};

/// The file of a run that rows come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowSource {
    /// Name of the run's directory.
    pub run: String,
    /// The rank; `None` for processes that belong to no rank.
    pub rank: Option<u32>,
    /// Number of the file among those of its rank. The first file has 0.
    pub instance: u32,
    /// Host of the rank; empty if an imported trace does not name it.
    pub host: String,
}

impl RowSource {
    /// Returns the source of a file's rows.
    pub fn of(run: &str, file: &RankFile, trace: &TraceFile) -> RowSource {
        let host = trace.header().host.clone();
        RowSource { run: run.to_owned(), rank: file.rank, instance: instance_of(file), host }
    }
}

/// Returns the number of the file among those of its rank, from its name.
pub(crate) fn instance_of(file: &RankFile) -> u32 {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    match RankLabel::of_name(&name) {
        Some(RankLabel::Rank(_, Start::Restart(number) | Start::Launch(number))) => number,
        _ => match &file.label {
            RankLabel::Launcher(_, number) => number.saturating_sub(1),
            RankLabel::Rank(_, Start::Restart(number) | Start::Launch(number)) => *number,
            _ => 0,
        },
    }
}

/// Returns the name of a run: the name of its directory, or of its file if it is a single file.
pub fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_file() { whole.file_stem() } else { whole.file_name() };
    name.unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}
