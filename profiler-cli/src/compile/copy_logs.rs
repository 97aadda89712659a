//! Copies logs into the run from the directory that the job itself set in `TORCH_TRACE`.

use super::find_logs::logs_in;
use super::log_bounds::MOST_BYTES;
use super::outcome::{LogsOutcome, RecordedLog};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tprof_trace::compile_log::{self, KEPT_ENDING};

/// The clock of a file system may lag behind the system's by this much, so logs that seem this much
/// older than the run are copied too.
const CLOCK_STEP: Duration = Duration::from_secs(2);

/// Copies logs that were written since the run began. Other jobs may write into the same directory,
/// so copies of their logs are removed once the run's processes are known
/// ([`LogsOutcome::remove_foreign_logs`]).
pub fn copy(own: &Path, home: &Path, began: SystemTime, outcome: &mut LogsOutcome) {
    for log in logs_in(own) {
        let changed = log.metadata().and_then(|about| about.modified());
        if changed.is_ok_and(|changed| changed + CLOCK_STEP < began) {
            continue;
        }
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let to = home.join(format!("{name}{KEPT_ENDING}"));
        let kept =
            tprof_trace::open_plain(&log).and_then(|file| compile_log::keep(file, &to, MOST_BYTES));
        let recorded = kept.map(|not_kept| RecordedLog {
            bytes: log.metadata().map_or(0, |about| about.len()),
            not_kept,
            had_no_room: false,
            copy: Some((to, compile_log::process_of(&log))),
        });
        outcome.add(&log, recorded);
    }
    outcome.own = Some(own.to_owned());
}
