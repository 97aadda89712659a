//! The views of SQL say what the reports say: on DuckDB, over an export of the same run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tprof_tables::VIEWS;
use tprof_tests::{DEFAULT, Job, Scratch, Synthetic, client_python, document, skip, tprof, traced};

/// Rows by their keys, their figures.
type Rows = BTreeMap<Vec<String>, Vec<f64>>;

/// A view's query, and the table of the report that has the same rows: its kind and key, the columns
/// that are keys and those that are figures, and whether a row without them is left out there.
struct Pair {
    query: &'static str,
    keys: usize,
    report: (&'static str, &'static str),
    columns: &'static [&'static str],
    leaves_out: fn(&Value) -> bool,
}

const PAIRS: &[Pair] = &[
    Pair {
        query: "SELECT rank, name, class, runs, total_ns, min_ns, max_ns, mean_ns FROM kernel_stats",
        keys: 3,
        report: ("kernels", "by_rank"),
        columns: &["rank", "name", "class", "count", "total_ns", "min_ns", "max_ns", "mean_ns"],
        leaves_out: |row| row["class"] == "memory",
    },
    Pair {
        query: "SELECT rank, device, window_ns, compute_ns, overlapped_ns, exposed_ns, copies_ns, idle_ns \
                FROM breakdown",
        keys: 2,
        report: ("breakdown", "breakdown"),
        columns: &[
            "rank",
            "device",
            "window_ns",
            "compute_ns",
            "overlapped_ns",
            "exposed_ns",
            "copies_ns",
            "idle_ns",
        ],
        leaves_out: |_| false,
    },
    Pair {
        query: "SELECT rank, device, communication_ns, hidden_ns, exposed_ns FROM comm_overlap",
        keys: 2,
        report: ("overlap", "overlap"),
        columns: &["rank", "device", "communication_ns", "hidden_ns", "exposed_ns"],
        leaves_out: |_| false,
    },
    Pair {
        query: "SELECT rank, device, stream, sum(length_ns), \
                sum(CASE WHEN cause = 'host wait' THEN length_ns ELSE 0 END), \
                sum(CASE WHEN cause = 'kernel wait' THEN length_ns ELSE 0 END), \
                sum(CASE WHEN cause = 'other' THEN length_ns ELSE 0 END), \
                sum(CASE WHEN cause = 'launch not seen' THEN length_ns ELSE 0 END) \
                FROM idle_gaps GROUP BY rank, device, stream",
        keys: 3,
        report: ("idle", "idle"),
        columns: &[
            "rank",
            "device",
            "stream",
            "idle_ns",
            "host_wait_ns",
            "kernel_wait_ns",
            "other_ns",
            "unknown_ns",
        ],
        leaves_out: |row| row["idle_ns"] == 0,
    },
    Pair {
        query: "SELECT rank, call, count(*), sum(work), sum(call_ns), max(call_ns), max(delay_ns) FROM \
                (SELECT rank, process, call, start_ns, correlation, count(*) AS work, \
                 max(call_ns) AS call_ns, min(delay_ns) AS delay_ns FROM launch_delays \
                 GROUP BY rank, process, call, start_ns, correlation) each \
                GROUP BY rank, call",
        keys: 2,
        report: ("launches", "launches"),
        columns: &["rank", "name", "calls", "work", "call_total_ns", "call_max_ns", "delay_max_ns"],
        leaves_out: |_| false,
    },
    Pair {
        query: "SELECT rank, collectives, last, waited_ns, delay_ns, floor(late_ns * 1.0 / collectives) \
                FROM stragglers",
        keys: 1,
        report: ("stragglers", "late_arrivals"),
        columns: &["rank", "collectives", "last", "waited_ns", "delay_ns", "mean_late_ns"],
        leaves_out: |_| false,
    },
    Pair {
        query: "SELECT rank, device, allocator, max(bytes) FROM memory_curve \
                GROUP BY rank, device, allocator",
        keys: 3,
        report: ("device-memory", "pools"),
        columns: &["rank", "device", "allocator", "peak_bytes"],
        leaves_out: |_| false,
    },
    Pair {
        query: "SELECT rank, steps, median_ns, mean_ns, min_ns, max_ns FROM step_times",
        keys: 1,
        report: ("steps", "step_times"),
        columns: &["rank", "steps", "median_ns", "mean_ns", "min_ns", "max_ns"],
        leaves_out: |_| false,
    },
    Pair {
        query: "SELECT function, sum(samples), sum(self_ns) FROM hot_functions GROUP BY function",
        keys: 1,
        report: ("cpu", "functions"),
        columns: &["function", "samples", "self_ns"],
        leaves_out: |row| row["self_ns"] == 0,
    },
    Pair {
        query: "SELECT operator, sum(runs), sum(flops), sum(device_ns) FROM roofline GROUP BY operator",
        keys: 1,
        report: ("flops", "operators"),
        columns: &["operator", "runs", "flops", "device_ns"],
        leaves_out: |_| false,
    },
];

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        // Reports print labels.
        Value::String(text) => text.strip_prefix("rank ").unwrap_or(text).to_owned(),
        other => other.to_string(),
    }
}

/// Rows by key; figures of rows with one key are added up, those that are known.
fn rows(rows: impl Iterator<Item = Vec<Value>>, keys: usize) -> Rows {
    let mut all = Rows::new();
    for row in rows {
        let key = row[..keys].iter().map(text).collect();
        let sums = all.entry(key).or_insert_with(|| vec![f64::NAN; row.len() - keys]);
        for (sum, figure) in sums.iter_mut().zip(row[keys..].iter().map(Value::as_f64)) {
            *sum = if sum.is_nan() {
                figure.unwrap_or(f64::NAN)
            } else {
                *sum + figure.unwrap_or(0.0)
            };
        }
    }
    all
}

fn reported(run: &Path, pair: &Pair) -> Rows {
    let document = document(pair.report.0, run);
    let table = document["tables"][pair.report.1].as_array().cloned().unwrap_or_default();
    let wanted = table.into_iter().filter(|row| !(pair.leaves_out)(row));
    let cells = wanted.map(|row| pair.columns.iter().map(|key| row[*key].clone()).collect());
    rows(cells, pair.keys)
}

/// What the views have of each pair, on DuckDB.
fn viewed(python: &Path, dataset: &Path, scratch: &Scratch) -> Vec<Rows> {
    let views = scratch.join("views.sql");
    fs::write(&views, VIEWS.iter().map(|view| view.text).collect::<String>()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("readers/views.py");
    let mut command = Command::new(python);
    command.arg(script).arg(dataset).arg(views).args(PAIRS.iter().map(|pair| pair.query));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Vec<Vec<Vec<Value>>> = serde_json::from_slice(&output.stdout).unwrap();
    all.into_iter().zip(PAIRS).map(|(of, pair)| rows(of.into_iter(), pair.keys)).collect()
}

/// Compares all pairs on a run; how many rows each had.
fn compared(run: &Path, what: &str, scratch: &Scratch) -> Option<Vec<usize>> {
    let python = match client_python() {
        Ok(python) => python,
        Err(why) => {
            skip(why);
            return None;
        }
    };
    let dataset = scratch.join(format!("{what}-parquet"));
    let export = tprof(["export", "--to", "parquet", "--compact", "-o"]).arg(&dataset).arg(run);
    export.run_in(scratch.cwd()).expect_code(0);
    let mut counts = Vec::new();
    for (pair, viewed) in PAIRS.iter().zip(viewed(&python, &dataset, scratch)) {
        let reported = reported(run, pair);
        let names: Vec<_> = reported.keys().collect();
        assert_eq!(viewed.keys().collect::<Vec<_>>(), names, "{what}: {}", pair.query);
        for (key, figures) in &reported {
            let near = |(a, b): (&f64, &f64)| {
                (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(1.0) + 0.5
            };
            let same = figures.iter().zip(&viewed[key]).all(near);
            assert!(same, "{what}: {}: {key:?}: {figures:?} and {:?}", pair.query, viewed[key]);
        }
        counts.push(reported.len());
    }
    Some(counts)
}

/// Public traces beside the checkout.
fn public_traces() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/kineto");
    let names = ["dlrm_8rank_v100", "graphs_a100", "nccl_a100", "alexnet_cp", "diff_test_v100"];
    names.iter().map(|name| beside.join(name)).filter(|path| path.is_dir()).collect()
}

#[test]
fn views_say_what_reports_say_of_public_traces() {
    let scratch = Scratch::new();
    for trace in public_traces() {
        let name = trace.file_name().unwrap().to_string_lossy().into_owned();
        let run = scratch.join(&name);
        tprof(["import"]).arg(&trace).arg("-o").arg(&run).run_in(scratch.cwd()).expect_code(0);
        let Some(counts) = compared(&run, &name, &scratch) else { return };
        assert!(counts[..5].iter().all(|rows| *rows > 0), "{name}: {counts:?}");
    }
}

#[test]
fn views_say_what_reports_say_of_several_ranks() {
    let scratch = Scratch::new();
    let traces = scratch.join("traces");
    fs::create_dir(&traces).unwrap();
    for rank in 0..3 {
        let mut file = fs::File::create(traces.join(format!("rank-{rank}.json"))).unwrap();
        Synthetic { rank, ranks: 3, steps: 5 }.write(&mut file).unwrap();
    }
    let run = scratch.join("run");
    tprof(["import"]).arg(&traces).arg("-o").arg(&run).run_in(scratch.cwd()).expect_code(0);
    let Some(counts) = compared(&run, "synthetic", &scratch) else { return };
    // All but functions, which nothing sampled.
    let empty: Vec<usize> = (0..PAIRS.len()).filter(|at| counts[*at] == 0).collect();
    assert_eq!(empty, [8], "{counts:?}");
}

#[test]
fn hot_functions_are_those_of_the_report() {
    let scratch = Scratch::new();
    let job = Job::new("python3").args(["-c", "sum(i * i for i in range(6_000_000))"]);
    let run = traced(&job, DEFAULT, &scratch).run;
    let Some(counts) = compared(&run, "functions", &scratch) else { return };
    assert!(counts[8] > 0, "{counts:?}");
}
