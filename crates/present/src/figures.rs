//! Takes the figures of a run from its reports: the slowest rank stands for a run.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Keys of the document that [`figures`] reads. A reader may skip the values of all other keys.
pub const FIGURE_KEYS: [&str; 32] = [
    "reports",
    "summary",
    "steps",
    "breakdown",
    "history",
    "tables",
    "run",
    "wall_ns",
    "completeness",
    "lost",
    "recorded",
    "complete",
    "ranks",
    "host_memory",
    "host_memory_missing",
    "peak_bytes",
    "peak_bytes_missing",
    "at_least",
    "timeline",
    "resident_peak_bytes",
    "resident_peak_bytes_missing",
    "findings",
    "severity",
    "rule",
    "place",
    "what",
    "step_times",
    "step_times_missing",
    "median_ns",
    "breakdown_missing",
    "idle_share",
    "timeline_missing",
];
/// Severities of findings, the worst first.
const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "note"];

/// Returns the figures of a run, from its reports `summary`, `steps`, `breakdown` and `history`, as
/// `tprof report summary,steps,breakdown,history --json` prints them. Of a run that has only its
/// history left, the steps are those of the history.
pub fn figures(all: &Value) -> Value {
    let summary = &all["reports"]["summary"];
    let ranks = summary["ranks"].as_array().map_or(&[][..], Vec::as_slice);
    let of_ranks =
        |part: &str, key: &str| ranks.iter().filter_map(|rank| rank[part][key].as_u64()).max();
    let recorded = rows(all, "steps", "step_times");
    let steps = if recorded.is_empty() { rows(all, "history", "history") } else { recorded };
    // The history has a row for a rank without steps, too, which counts none.
    let counted = steps.iter().filter_map(|row| row["steps"].as_u64()).filter(|steps| *steps > 0);
    let counted = counted.max();
    let no_steps = &all["reports"]["steps"]["tables"]["step_times_missing"];
    let no_steps = if counted.is_none() { no_steps } else { &Value::Null };
    let breakdown = rows(all, "breakdown", "breakdown");
    let idle = most(breakdown, "idle_share");
    let findings = summary["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let severity = |finding: &Value| {
        SEVERITIES.iter().position(|one| finding["severity"] == *one).unwrap_or(SEVERITIES.len())
    };
    let worst = findings.iter().min_by_key(|finding| severity(finding));
    let worst = worst.map(|one| {
        json!({ "severity": one["severity"], "rule": one["rule"], "place": one["place"], "what": one["what"] })
    });
    let completeness = &summary["completeness"];
    json!({
        "wall_ns": summary["run"]["wall_ns"],
        "lost": completeness["lost"],
        "recorded": completeness["recorded"],
        "complete": completeness["complete"],
        "peak_bytes": of_ranks("host_memory", "peak_bytes"),
        "peak_bytes_why": why(ranks, "host_memory", "peak_bytes"),
        "peak_bytes_uncertain": ranks.iter().find_map(|rank| rank["host_memory"]["at_least"].as_str()),
        "peak_rss_bytes": of_ranks("timeline", "resident_peak_bytes"),
        "peak_rss_bytes_why": why(ranks, "timeline", "resident_peak_bytes"),
        "gpu_busy": idle.map(|share| 1.0 - share),
        "gpu_busy_why": all["reports"]["breakdown"]["tables"]["breakdown_missing"],
        "step_ns": most(steps, "median_ns"),
        "step_ns_why": no_steps,
        "steps": counted,
        "steps_why": no_steps,
        "findings": findings.len(),
        "worst": worst,
    })
}

fn rows<'a>(all: &'a Value, kind: &str, table: &str) -> &'a [Value] {
    all["reports"][kind]["tables"][table].as_array().map_or(&[], Vec::as_slice)
}

fn most(rows: &[Value], key: &str) -> Option<f64> {
    rows.iter().filter_map(|row| row[key].as_f64()).max_by(f64::total_cmp)
}

fn why<'a>(ranks: &'a [Value], part: &str, key: &str) -> Option<&'a str> {
    let key = format!("{key}_missing");
    let why = |rank: &'a Value| {
        rank[format!("{part}_missing")].as_str().or_else(|| rank[part][&key].as_str())
    };
    ranks.iter().find_map(why)
}

/// Returns the row of a run as a list of runs has it, from the same reports as [`figures`].
pub fn run_row(all: &Value) -> Value {
    let summary = &all["reports"]["summary"];
    let run = &summary["run"];
    let ranks = summary["ranks"].as_array().into_iter().flatten();
    let ranks: BTreeSet<u64> = ranks.filter_map(|rank| rank["rank"].as_u64()).collect();
    let hosts: Vec<&str> =
        run["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut row = figures(all);
    row["id"] = 1.into();
    row["summary"] = "ready".into();
    row["ranks"] = ranks.len().into();
    row["processes"] = summary["process_count"].clone();
    row["host"] = hosts.join(", ").into();
    let name = run["path"].as_str().and_then(|path| path.rsplit('/').find(|part| !part.is_empty()));
    row["name"] = name.unwrap_or("run").into();
    for key in ["path", "command", "state", "start_unix_ns"] {
        row[key] = run[key].clone();
    }
    row
}
