//! What pages call runs.

use tprof_trace::RunDir;

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
