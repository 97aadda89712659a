//! Writes snapshots in Prometheus's text format: a gauge per known metric.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::figures::{Figure, LIMITED};
use crate::metric::GAUGE;
use crate::snapshot::{RankState, RunState, Snapshot};

/// One Prometheus metric: its help text, and its lines of labels and values.
#[derive(Default)]
struct Family {
    help: String,
    is_counter: bool,
    lines: Vec<String>,
}

/// Formats snapshots of runs, each with its id or name in the label `run`.
pub fn prometheus(runs: &[(&str, &Snapshot)]) -> String {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for (run, snapshot) in runs {
        of_run(run, snapshot, &mut families);
        of_ranks(run, snapshot, &mut families);
        of_figures(run, snapshot, &mut families);
    }
    let mut text = String::new();
    for (name, family) in families {
        let kind = if family.is_counter { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP {name} {}", escaped_help(&family.help));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for line in family.lines {
            let _ = writeln!(text, "{name}{line}");
        }
    }
    text
}

fn of_run(run: &str, snapshot: &Snapshot, families: &mut BTreeMap<String, Family>) {
    let labels = format!("{{run=\"{}\"}}", escaped(run));
    let mut add = |name: &str, is_counter, help: &str, value: f64| {
        let family = families.entry(format!("tprof_run_{name}")).or_default();
        (family.help, family.is_counter) = (help.to_owned(), is_counter);
        family.lines.push(format!("{labels} {}", number(value)));
    };
    let is_running = snapshot.state == RunState::Running;
    add("running", false, "whether the run goes on", f64::from(u8::from(is_running)));
    add("stalled_ranks", false, "ranks without a step for too long", snapshot.stalls.len() as f64);
    let totals = &snapshot.totals;
    let failed = snapshot.ranks.iter().filter_map(|rank| Some(rank.out_of_memory.as_ref()?.count));
    let all = [
        ("out_of_memory_total", true, "failed requests for device memory", failed.sum()),
        ("recorded_total", true, "events and CPU samples recorded", totals.recorded),
        ("lost_total", true, "events known to be lost", totals.lost),
        ("trace_bytes", false, "bytes of the trace files", totals.bytes),
        ("processes_total", true, "processes so far", totals.processes),
    ];
    for (name, is_counter, help, value) in all {
        add(name, is_counter, help, value as f64);
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    add("duration_seconds", false, "time since the run began", seconds(snapshot.time_ns));
    let help = "time that the job's threads waited for collectors";
    add("wait_seconds_total", true, help, seconds(totals.wait_ns));
    let help = "CPU time of the collectors";
    add("collector_cpu_seconds_total", true, help, seconds(totals.collector_cpu_ns));
}

fn of_ranks(run: &str, snapshot: &Snapshot, families: &mut BTreeMap<String, Family>) {
    for metric in &snapshot.metrics {
        let gauge = metric.key.strip_prefix(GAUGE);
        let (key, scale) = match (gauge, metric.unit.as_str()) {
            (Some(_), _) => ("gauge".to_owned(), 1.0),
            (None, "ns") => (metric.key.replace("_ns", "_seconds"), 1e-9),
            (None, "count") => (format!("{}_total", metric.key), 1.0),
            (None, _) => (metric.key.clone(), 1.0),
        };
        let known =
            metric.values.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?)));
        for (at, value) in known {
            let Some(labels) = snapshot.ranks.get(at).map(|rank| labels_of(run, rank)) else {
                continue;
            };
            let named = gauge.map(|name| format!(",name=\"{}\"", escaped(name)));
            let family = families.entry(format!("tprof_rank_{key}")).or_default();
            family.help = match gauge {
                Some(_) => "value that the program measures".to_owned(),
                None => metric.about.clone(),
            };
            family.is_counter = key.ends_with("_total");
            let value = number(value * scale);
            family.lines.push(format!("{{{labels}{}}} {value}", named.unwrap_or_default()));
        }
    }
}

/// Writes the figures of steps: sums of what the collector wrote so far, some seconds late.
fn of_figures(run: &str, snapshot: &Snapshot, families: &mut BTreeMap<String, Family>) {
    for (rank, figures) in snapshot.ranks.iter().zip(&snapshot.figures) {
        let labels = labels_of(run, rank);
        let mut add = |name: &str, help: &str, is_counter, more: &str, value: f64| {
            let family = families.entry(format!("tprof_rank_{name}")).or_default();
            (family.help, family.is_counter) = (help.to_owned(), is_counter);
            family.lines.push(format!("{{{labels}{more}}} {}", number(value)));
        };
        for figure in Figure::ALL {
            if let Some(value) = figures.value(figure) {
                add(figure.name(), figure.about(), figure.is_sum(), "", value);
            }
        }
        for (reason, seconds) in figures.limited() {
            let reason = format!(",reason=\"{reason}\"");
            add("gpu_clock_limited_seconds_total", LIMITED, true, &reason, seconds);
        }
    }
}

fn labels_of(run: &str, rank: &RankState) -> String {
    let number = rank.rank.map(|rank| rank.to_string()).unwrap_or_default();
    format!(
        "run=\"{}\",rank=\"{}\",file=\"{}\",host=\"{}\"",
        escaped(run),
        escaped(&number),
        escaped(&rank.file),
        escaped(&rank.host)
    )
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn escaped_help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use tprof_trace::model::HistoryRow;

    use super::*;
    use crate::figures::RankFigures;

    #[test]
    fn sums_of_steps_are_counters_and_reasons_are_labels() {
        let mut figures = RankFigures::default();
        figures.add(&[HistoryRow {
            duration_ns: 2_000_000_000,
            steps: 1,
            steps_ns: 2_000_000_000,
            devices: Some(1),
            busy_ns: Some(500_000_000),
            throttle_reasons: Some(1 << 6),
            ..HistoryRow::default()
        }]);
        let rank = RankState { rank: Some(3), file: "f".into(), ..RankState::default() };
        let snapshot =
            Snapshot { ranks: vec![rank], figures: vec![figures], ..Snapshot::default() };
        let text = prometheus(&[("r", &snapshot)]);
        let labels = "run=\"r\",rank=\"3\",file=\"f\",host=\"\"";
        for line in [
            format!("tprof_rank_gpu_busy_seconds_total{{{labels}}} 0.5"),
            format!("tprof_rank_gpu_step_time_seconds_total{{{labels}}} 2"),
            format!(
                "tprof_rank_gpu_clock_limited_seconds_total{{{labels},reason=\"heat, by hardware\"}} 2"
            ),
            format!(
                "tprof_rank_gpu_clock_limited_seconds_total{{{labels},reason=\"power cap\"}} 0"
            ),
            "# TYPE tprof_rank_gpu_busy_seconds_total counter".to_owned(),
            "# TYPE tprof_rank_step_median_seconds gauge".to_owned(),
        ] {
            assert!(text.lines().any(|of| of == line), "{line}: {text}");
        }
        assert!(!text.contains("gpu_energy"), "{text}");
        for (at, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, at);
            assert_eq!(figure.is_sum(), figure.name().ends_with("_total"), "{}", figure.name());
        }
    }
}
