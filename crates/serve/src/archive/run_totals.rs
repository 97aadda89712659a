//! Figures of runs for the list: the statements that compute them, and their results.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::list::ArchivedRun;
use super::queries::{Rows, RunRow};
use crate::failure::Failure;

/// Severities of findings, worst first.
const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "note"];

/// Statements for the figures of each run.
pub const STATEMENTS: [&str; 6] = [
    "SELECT run, command, commit, ranks, start_unix_ns, duration_ns, finished, recorded, lost FROM runs",
    "SELECT run, bool_and(whole) AS whole FROM ranks GROUP BY run",
    "SELECT run, max(idle_share) AS idle_share FROM rank_summary GROUP BY run",
    // The figures are those of the slowest rank, as in the list of a directory.
    "SELECT run, max(median_ns) AS median_ns, max(steps) AS steps FROM \
     (SELECT run, rank, instance, host, median(CAST(duration_ns AS DOUBLE)) AS median_ns, count(*) AS steps \
      FROM rank_steps GROUP BY run, rank, instance, host) GROUP BY run",
    "SELECT run, max(peak_bytes) AS peak_bytes FROM rank_memory GROUP BY run",
    "SELECT run, rule, subject, severity, what FROM findings ORDER BY run, finding",
];

#[derive(Debug, Default, Deserialize)]
struct RunsRow {
    command: Option<String>,
    commit: Option<String>,
    ranks: Option<u64>,
    start_unix_ns: Option<u64>,
    duration_ns: Option<u64>,
    finished: Option<bool>,
    recorded: Option<u64>,
    lost: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct RanksRow {
    whole: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct DevicesRow {
    idle_share: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct StepsRow {
    median_ns: Option<f64>,
    steps: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct MemoryRow {
    peak_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    rule: String,
    subject: Option<String>,
    severity: String,
    what: Option<String>,
}

/// For each statement, the keys of the figures that need its result. They are null if the statement
/// fails.
pub const KEYS: [&[&str]; 6] = [
    &["ranks", "wall_ns", "lost"],
    &[],
    &["gpu_busy"],
    &["step_ns", "steps"],
    &["peak_device_bytes"],
    &["findings"],
];

/// Results of all statements for one run.
#[derive(Debug, Default)]
pub struct RunTotals {
    run: RunsRow,
    ranks: RanksRow,
    devices: DevicesRow,
    steps: StepsRow,
    memory: MemoryRow,
    findings: Vec<Finding>,
}

/// Reads the results of all statements, by run.
pub fn read(rows: &Rows) -> Result<HashMap<String, RunTotals>, Failure> {
    let mut all = HashMap::new();
    (0..STATEMENTS.len()).try_for_each(|at| fill(&mut all, at, rows, at))?;
    Ok(all)
}

/// Adds the result of a statement, given its index.
pub fn fill(
    all: &mut HashMap<String, RunTotals>,
    statement: usize,
    rows: &Rows,
    at: usize,
) -> Result<(), Failure> {
    match statement {
        0 => take(all, rows.read::<RunRow<RunsRow>>(at)?, |sums, of| sums.run = of),
        1 => take(all, rows.read::<RunRow<RanksRow>>(at)?, |sums, of| sums.ranks = of),
        2 => take(all, rows.read::<RunRow<DevicesRow>>(at)?, |sums, of| sums.devices = of),
        3 => take(all, rows.read::<RunRow<StepsRow>>(at)?, |sums, of| sums.steps = of),
        4 => take(all, rows.read::<RunRow<MemoryRow>>(at)?, |sums, of| sums.memory = of),
        _ => take(all, rows.read::<RunRow<Finding>>(at)?, |sums, of| sums.findings.push(of)),
    }
    Ok(())
}

fn take<T>(
    all: &mut HashMap<String, RunTotals>,
    rows: Vec<RunRow<T>>,
    mut put: impl FnMut(&mut RunTotals, T),
) {
    for row in rows {
        put(all.entry(row.run).or_default(), row.figures);
    }
}

impl RunTotals {
    /// Returns the figures as in the list: unknown values are null, with the reason next to them.
    pub fn figures(&self, listed: &ArchivedRun) -> Value {
        let RunTotals { run, ranks, devices, steps, memory, findings } = self;
        let place = |of: &Finding| SEVERITIES.iter().position(|one| *one == of.severity);
        let worst = findings.iter().min_by_key(|of| place(of).unwrap_or(SEVERITIES.len()));
        let worst = worst.map(|of| {
            // Tables contain null instead of an empty text.
            let subject = of.subject.as_deref().unwrap_or_default();
            json!({ "severity": of.severity, "rule": of.rule, "place": subject, "what": of.what })
        });
        let (state, state_why) = match (listed.ended, run.finished) {
            (false, _) => (Some("cut off"), Some("it was archived while it was in progress")),
            (true, Some(true)) => (Some("finished"), None),
            (true, Some(false)) => (Some("cut off"), None),
            (true, None) => (None, Some("it was archived without a run.json")),
        };
        let has_gaps = state != Some("finished")
            || run.lost.is_some_and(|lost| lost > 0)
            || ranks.whole == Some(false)
            || !listed.notes.is_empty();
        let has_findings = listed.tables.contains_key("findings");
        json!({
            "command_text": run.command,
            "commit": run.commit,
            "ranks": run.ranks,
            "start_unix_ns": run.start_unix_ns.or(listed.start_unix_ns),
            "wall_ns": run.duration_ns,
            "wall_ns_why": run.duration_ns.is_none().then_some(
                "it was cut off, or went on when it was archived"),
            "state": state,
            "state_why": state_why,
            "recorded": run.recorded,
            "lost": run.lost,
            "lost_why": run.lost.is_none().then_some("it was archived without a run.json"),
            // Processes that were not recorded at all are in no table.
            "complete": has_gaps.then_some(false),
            "complete_why": (!has_gaps).then_some(
                "none is counted as lost; whether processes went unrecorded is in the run's own files"),
            "gpu_busy": devices.idle_share.map(|share| 1.0 - share),
            "gpu_busy_why": listed.missing("rank_summary", "device time"),
            "step_ns": steps.median_ns,
            "step_ns_why": listed.missing("rank_steps", "steps"),
            "steps": steps.steps,
            "steps_why": listed.missing("rank_steps", "steps"),
            "peak_device_bytes": memory.peak_bytes,
            "peak_device_bytes_why": listed.missing("rank_memory", "record of device memory"),
            "findings": has_findings.then_some(findings.len()),
            "findings_why": (!has_findings).then(|| listed.missing("findings", "findings")),
            "worst": worst,
        })
    }
}
