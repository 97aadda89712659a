//! Compares reports that start from host threads with HTA's results: steps, operators, annotations,
//! sequences, counters, stragglers, and the critical path.

use super::reference::{Set, near, number, rows, sets, us};
use serde_json::Value;
use std::collections::HashMap;
use tprof_tests::{Refused, need_some, tprof};

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or("")
}

fn set_named(name: &str) -> Result<&'static Set, Refused> {
    sets().map(|sets| sets.iter().find(|set| set.name == name).expect("a set of this name"))
}

#[test]
fn steps_equal_htas() {
    for set in need_some!(sets()) {
        let expected: Vec<u64> =
            serde_json::from_value(set.json("profiler_steps.json").unwrap()).unwrap();
        let tables = set.report("steps", None);
        let mut found: Vec<u64> =
            rows(&tables, "steps").map(|(_, row)| row["step"].as_u64().unwrap()).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, expected, "{}", set.name);
    }
}

/// tprof's inferred steps leave out the last step, whose end was not recorded, or include the step
/// before the first boundary. So each step is compared with the nearest of the profiler's.
#[test]
fn inferred_steps_are_as_long_as_the_profilers_steps() {
    for (name, within) in
        [("large_v100", 0.002), ("diff_control_a100", 0.002), ("graphs_a100", 0.006)]
    {
        let set = need_some!(set_named(name));
        let of_source = |source: &str| -> Vec<(f64, f64)> {
            let job = tprof(["report", "steps", "--json", "--steps-from", source]).arg(&set.run);
            let outcome = job.run_in(set.run.parent().unwrap()).expect_code(0);
            let tables = serde_json::from_str::<Value>(&outcome.stdout).unwrap()["tables"].take();
            let times = rows(&tables, "steps")
                .map(|(_, row)| (us(row, "start_ns"), us(row, "duration_ns")));
            times.collect()
        };
        let (named, inferred) = (of_source("profiler"), of_source("inferred"));
        assert_eq!(inferred.len() + 1, named.len(), "{name}");
        for (start_us, took_us) in inferred {
            let apart = |step: &&(f64, f64)| (step.0 - start_us).abs();
            let nearest = named.iter().min_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap();
            assert!((took_us / nearest.1 - 1.0).abs() < within, "{name}: {took_us} {nearest:?}");
        }
    }
}

/// HTA's table of a rank also contains the rows of the ranks before it, so the test adds the ranks
/// up in the same order.
#[test]
fn delays_of_operators_launches_are_those_that_hta_reports() {
    for set in need_some!(sets()) {
        let mut ranks = set.by_rank("aten_op_kernels_and_delay");
        ranks.sort();
        let tables = set.report("operators", None);
        // The number of runs, and the sums of microseconds to the call and to the kernel.
        let mut found: HashMap<(&str, &str), [f64; 3]> = HashMap::new();
        for (rank, expected) in &ranks {
            let of_rank = rows(&tables, "kernel_sequences_by_rank").filter(|row| row.0 == rank);
            for (_, row) in of_rank {
                let sums = found.entry((text(row, "operator"), text(row, "kernels"))).or_default();
                let runs = row["runs"].as_f64().unwrap();
                sums[0] += runs;
                sums[1] += runs * us(row, "to_call_ns");
                sums[2] += runs * us(row, "to_kernel_ns");
            }
            assert_eq!(found.len(), expected.len(), "{}, rank {rank}", set.name);
            for row in expected {
                let key = (row["aten_op_name"].as_str(), row["kernel_sequence"].as_str());
                let what = format!("{}, rank {rank}, {}", set.name, key.0);
                let [runs, to_call, to_kernel] = found[&key];
                assert_eq!(runs, number(row, "occurrence_count"), "{what}");
                // HTA prints three decimals; tprof has whole nanoseconds.
                near(to_call / runs, number(row, "avg_aten_op_launch_delay"), 0.0015, &what);
                near(to_kernel / runs, number(row, "avg_runtime_delay"), 0.0015, &what);
            }
        }
    }
}

#[test]
fn annotations_on_devices_equal_htas() {
    for set in need_some!(sets()) {
        let Some(expected) = set.result("gpu_user_annotation_breakdown.csv") else { continue };
        let tables = set.report("annotations", None);
        let found: HashMap<&str, &Value> =
            rows(&tables, "device_annotations").map(|(_, row)| (text(row, "range"), row)).collect();
        assert_eq!(found.len(), expected.len(), "{}", set.name);
        for row in &expected {
            let ours = found[row["name"].as_str()];
            for (theirs, key) in [
                ("sum (us)", "sum_ns"),
                ("max (us)", "max_ns"),
                ("min (us)", "min_ns"),
                ("mean (us)", "mean_ns"),
                ("stddev", "deviation_ns"),
            ] {
                let what = format!("{}, {}, {theirs}", set.name, row["name"]);
                // HTA truncates this mean to whole microseconds.
                let rounded = if theirs == "mean (us)" { 1.0 } else { 0.0 };
                near(us(ours, key), number(row, theirs), rounded, &what);
            }
        }
        let mut kernels: HashMap<String, (u64, f64)> = HashMap::new();
        for row in set.result("gpu_kernels_with_user_annotations.csv").unwrap() {
            let sum = kernels.entry(row["s_user_annotation"].clone()).or_default();
            sum.0 += 1;
            sum.1 += number(&row, "dur");
        }
        kernels.remove("");
        for (name, (count, time)) in kernels {
            let ours = found[name.as_str()];
            assert_eq!(ours["kernels"].as_u64(), Some(count), "{}, {name}", set.name);
            near(us(ours, "kernel_ns"), time, 0.0, &format!("{}, {name}", set.name));
        }
    }
}

#[test]
fn sequences_equal_htas() {
    for set in need_some!(sets()) {
        let Some(expected) = set.result("frequent_cuda_kernel_sequences.csv") else { continue };
        // HTA's results are of linear layers, and of addmm in the set without linear layers.
        let operator = if set.name == "dlrm_8rank_v100" { "aten::addmm" } else { "aten::linear" };
        let tables = set.report_with("sequences", &["--operator", operator]);
        let first = rows(&tables, "sequences_by_rank").map(|row| row.0).min();
        let found: HashMap<String, &Value> = rows(&tables, "sequences_by_rank")
            .filter(|(rank, _)| Some(*rank) == first)
            .map(|(_, row)| {
                let kernels = text(row, "kernels").replace(" | ", "|");
                (format!("{}|{kernels}", text(row, "operator")), row)
            })
            .collect();
        assert_eq!(found.len(), expected.len(), "{}", set.name);
        for row in expected {
            let ours = found[&row["pattern"]];
            let what = format!("{}, {}", set.name, row["pattern"]);
            assert_eq!(ours["runs"].as_f64(), Some(number(&row, "count")), "{what}");
            near(us(ours, "device_ns"), number(&row, "GPU kernel duration (us)"), 0.0, &what);
            near(us(ours, "host_ns"), number(&row, "CPU op duration (us)"), 0.0, &what);
        }
    }
}

#[test]
fn hardware_counters_equal_htas_one_by_one() {
    let set = need_some!(set_named("cupti_counters"));
    let expected = set.result("cupti_counter_data_with_operators.0.csv").unwrap();
    let tables = set.report("counters", None);
    let found: HashMap<(u64, &str), &Value> = rows(&tables, "counter_ranges")
        .map(|(_, row)| ((row["start_ns"].as_u64().unwrap() / 1000, text(row, "counter")), row))
        .collect();
    let first = found.keys().map(|key| key.0).min().unwrap();
    let their_first = expected.iter().map(|row| number(row, "ts") as u64).min().unwrap();
    let mut compared = 0;
    for row in &expected {
        let at = number(row, "ts") as u64 - their_first + first;
        for (counter, value) in row.iter().filter(|(key, _)| key.starts_with("smsp__")) {
            let ours = found[&(at, counter.as_str())];
            assert_eq!(ours["value"].as_f64(), value.parse().ok(), "{counter} at {at}");
            assert_eq!(text(ours, "outermost_operator"), row["top_level_op"]);
            assert_eq!(text(ours, "innermost_operator"), row["bottom_level_op"]);
            assert_eq!(text(ours, "range"), row["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 77 * 9);
}

#[test]
fn stragglers_equal_htas() {
    for set in need_some!(sets()) {
        let Some(expected) = set.json("potential_stragglers.json") else { continue };
        let expected: Vec<u64> = serde_json::from_value(expected).unwrap();
        let tables = set.report("stragglers", None);
        let found: Vec<u64> =
            rows(&tables, "potential_stragglers").map(|(rank, _)| rank.parse().unwrap()).collect();
        assert_eq!(found, expected, "{}", set.name);
    }
}

/// Sets, the range within which HTA looked for the path, and the path's length in microseconds.
const PATHS: [(&str, Option<&str>, f64); 15] = [
    ("alexnet_cp", Some("measure:1"), 35_834.0),
    ("alexnet_cp", None, 43_355_655.0),
    ("simple_add_cp", Some("measure:1"), 241_724.0),
    ("simple_add_cp", None, 41_435_234.0),
    ("event_sync_cp", None, 2_401.0),
    ("event_sync_multi_cp", None, 1_178.0),
    ("triton", None, 1_386.0),
    ("amd_mi250", None, 7_448.0),
    ("dlrm_8rank_v100", None, 4_744.0),
    ("sampled_2rank_of_128", None, 267_581.0),
    ("nccl_a100", None, 101_646.0),
    ("graphs_a100", None, 216_284.0),
    ("diff_control_a100", None, 59_158.0),
    ("diff_test_v100", None, 118_122.0),
    ("large_v100", None, 238_893.0),
];

/// Keys of a path's parts, and HTA's names for them.
const PARTS: [(&[&str], &str); 5] = [
    (&["host_ns"], "cpu_bound"),
    (&["compute_ns", "copy_ns"], "gpu_compute_bound"),
    (&["communication_ns"], "gpu_communication_bound"),
    (&["kernel_gap_ns"], "gpu_kernel_kernel_overhead"),
    (&["launch_ns"], "gpu_kernel_launch_overhead"),
];

#[test]
fn critical_paths_equal_htas() {
    for (name, within, length) in PATHS {
        let set = need_some!(set_named(name));
        let arguments: Vec<&str> = within.map_or_else(Vec::new, |within| vec!["--within", within]);
        let tables = set.report_with("critical-path", &arguments);
        let (_, path) = rows(&tables, "critical_path").next().unwrap();
        near(us(path, "length_ns"), length, 0.0, name);
        // HTA's parts and graph are stored only for some of the paths.
        let whole = set.json("critical_path_whole_trace.json");
        let is_kept = within.is_some() || !name.ends_with("_cp") || name == "event_sync_cp";
        let kept =
            |of: &str| is_kept.then(|| set.json(&format!("critical_path.rank{of}.json"))).flatten();
        for (keys, theirs) in PARTS {
            let expected = match (&whole, kept("n_nodes")) {
                (_, Some(_)) => kept(&format!("summary.rank{theirs}"))
                    .map_or(0.0, |share| share.as_f64().unwrap()),
                (Some(whole), None) if name == "event_sync_multi_cp" => {
                    whole["summary"][theirs].as_f64().unwrap_or(0.0)
                }
                _ => continue,
            };
            let ours: f64 = keys.iter().map(|key| us(path, key)).sum();
            near(ours / length * 100.0, expected, 0.0, &format!("{name}, {theirs}"));
        }
        let (_, graph) = rows(&tables, "critical_path_graph").next().unwrap();
        for (key, theirs) in [("nodes", "n_nodes"), ("edges", "n_edges")] {
            let expected = kept(theirs).or_else(|| {
                (name == "event_sync_multi_cp").then(|| whole.as_ref().unwrap()[theirs].clone())
            });
            if let Some(expected) = expected {
                assert_eq!(graph[key], expected, "{name}, {key}");
            }
        }
    }
}
