//! What pages call ranks, processes, threads and runs.

use tprof_trace::model::{ProcessIndex, ThreadIndex};
use tprof_trace::{RankFile, RunDir, TraceFile};

/// What a run is called: its command, in short, or the name of its directory.
pub(crate) fn run_title(run: &RunDir) -> String {
    let command = run.infos().first().map(|info| info.command.join(" ")).unwrap_or_default();
    if !command.is_empty() {
        return command.chars().take(120).collect();
    }
    let whole = run.path().canonicalize();
    let path = whole.as_deref().unwrap_or(run.path());
    path.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// `rank 3`, or what else a file is.
pub(crate) fn rank_name(file: &RankFile) -> String {
    match (&file.label, file.rank) {
        (tprof_trace::RankLabel::Process(_), Some(rank)) => format!("rank {rank}"),
        (label, _) => label.to_string(),
    }
}

pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `python3 [1234]`; without the number if `bare`.
pub(crate) fn process_name(file: &TraceFile, process: ProcessIndex, bare: bool) -> String {
    let Some(row) = file.processes().iter().find(|row| row.process == process) else {
        return "unknown process".to_owned();
    };
    let command = file.name(row.command);
    let base = base_name(command.split(' ').next().unwrap_or_default());
    let base = if base.is_empty() { "process" } else { base };
    if bare { base.to_owned() } else { format!("{base} [{}]", row.pid) }
}

/// `pt_autograd_0 [1236]`; without the number if `bare`.
pub(crate) fn thread_name(file: &TraceFile, thread: ThreadIndex, bare: bool) -> String {
    let row = file.threads().iter().find(|row| row.thread == thread);
    let name = file.thread_name(thread).filter(|name| !name.is_empty()).unwrap_or("thread");
    match row {
        Some(row) if !bare && !name.contains(&row.tid.to_string()) => {
            format!("{name} [{}]", row.tid)
        }
        _ => name.to_owned(),
    }
}
