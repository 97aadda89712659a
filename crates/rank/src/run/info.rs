//! Collects the facts of a run: command, hosts, state, start and length.

use std::path::{Path, PathBuf};

use tprof_facts::Zero;
use tprof_trace::run::RunInfo;

use crate::base::object::object;
use crate::base::reading::Reading;

/// The facts of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The run directory or the single file that was opened.
    pub path: PathBuf,
    /// Command line; empty if tprof was attached to a running process.
    pub command: Vec<String>,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// `finished`, `running` or `cut off`.
    pub state: &'static str,
    /// The start of the run, nanoseconds since 1970.
    pub start_unix_ns: Reading<u64>,
    /// Time from the start of the run to the end of the last process, ns.
    pub wall_ns: Reading<u64>,
    /// Version of the tprof that recorded or imported the run.
    pub recorded_by: String,
    /// If the run was cut off after a signal asked a collector's launcher to end: the signal, and
    /// its time in ns since the run began.
    pub asked_to_end: Option<(i32, u64)>,
    /// The reason why a collector could not write its files from some time on: empty if the reason
    /// is unknown, `None` if that did not happen.
    pub unwritten: Option<String>,
    /// Paths of the other tools' traces that the run was imported from; empty if tprof recorded it.
    pub imported: Vec<String>,
}
object! { Run {
    path path, plain command, plain hosts, plain state, reading start_unix_ns, reading wall_ns,
    plain recorded_by, plain imported,
} }

/// Joins the facts that the collectors wrote. The length of a run that was cut off extends to its
/// last event.
pub fn run_of(
    path: &Path,
    infos: &[RunInfo],
    is_running: Option<fn(&RunInfo, &Path) -> bool>,
    last_ns: Option<u64>,
    zero: Zero,
) -> Run {
    let mut hosts: Vec<String> =
        infos.iter().map(|info| info.host.clone()).filter(|host| !host.is_empty()).collect();
    hosts.sort();
    hosts.dedup();
    let directory = match path.is_file() {
        true => path.parent().unwrap_or(path),
        false => path,
    };
    let ended =
        infos.iter().filter_map(|info| Some(zero.clock_of_info(info).since_start(info.end_ns?)));
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let lasts = |info: &RunInfo| is_running.is_some_and(|is_running| is_running(info, directory));
    Run {
        path: path.to_path_buf(),
        command: infos.first().map(|info| info.command.clone()).unwrap_or_default(),
        hosts,
        state: match finished {
            true => "finished",
            false if infos.iter().any(lasts) => "running",
            false => "cut off",
        },
        start_unix_ns: match zero.unix_ns {
            0 => Reading::missing("neither run.json nor a rank file has it"),
            unix_ns => Reading::Is(unix_ns),
        },
        wall_ns: match (ended.max().filter(|_| finished), last_ns) {
            (Some(end), _) | (None, Some(end)) => Reading::Is(end),
            (None, None) => Reading::missing("the run has no end and no rank file"),
        },
        recorded_by: infos.first().map(|info| info.tprof.clone()).unwrap_or_default(),
        asked_to_end: asked_to_end(infos, zero),
        unwritten: infos.iter().find_map(|info| info.unwritten.clone()),
        imported: infos.iter().flat_map(imported).collect(),
    }
}

/// Returns the first signal that asked a collector to end, among the collectors that were killed.
fn asked_to_end(infos: &[RunInfo], zero: Zero) -> Option<(i32, u64)> {
    let killed = infos.iter().filter(|info| !info.finished);
    let asked = killed.filter_map(|info| {
        let (signal, time_ns) = info.asked_to_end?;
        Some((signal, zero.clock_of_info(info).since_start(time_ns)))
    });
    asked.min_by_key(|(_, time_ns)| *time_ns)
}

/// Returns the paths of the traces that a run was imported from.
fn imported(info: &RunInfo) -> Vec<String> {
    let sources = info.options["imported"].as_array().into_iter().flatten();
    sources.filter_map(|source| source["path"].as_str().map(str::to_owned)).collect()
}
