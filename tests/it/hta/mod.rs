//! `tprof report --hta` has the figures of Holistic Trace Analysis 0.5.0 on public traces: equal
//! counts, and times within a thousandth.

mod diff;
mod host;
mod reference;

pub use reference::sets;
use reference::{Rows, near, number, rows, us};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use tprof_tests::need_some;

#[test]
fn the_breakdown_equals_htas() {
    for set in need_some!(sets()) {
        let Some(expected) = set.result("temporal_breakdown.csv") else { continue };
        let tables = set.report("breakdown", None);
        let found: HashMap<&str, &Value> = rows(&tables, "breakdown").collect();
        assert_eq!(found.len(), expected.len(), "{}", set.name);
        for row in expected {
            let ours = found[row["rank"].as_str()];
            let sum = |keys: &[&str]| keys.iter().map(|key| us(ours, key)).sum::<f64>();
            let parts = [
                ("idle_time(us)", sum(&["idle_ns"])),
                ("compute_time(us)", sum(&["compute_ns", "overlapped_ns"])),
                ("non_compute_time(us)", sum(&["exposed_ns", "copies_ns", "other_ns"])),
                ("kernel_time(us)", sum(&["window_ns"])),
            ];
            for (key, part) in parts {
                near(part, number(&row, key), 0.0, &format!("{}, {key}", set.name));
            }
        }
    }
}

#[test]
fn idle_time_equals_htas() {
    for set in need_some!(sets()) {
        let Some(expected) = set.result("idle_time_breakdown.0.csv") else { continue };
        let tables = set.report("idle", None);
        let streams: HashMap<(&str, String), &Value> = rows(&tables, "idle")
            .map(|(rank, row)| ((rank, row["stream"].to_string()), row))
            .collect();
        for row in expected {
            let ours = streams[&(row["rank"].as_str(), row["stream"].clone())];
            let cause = &row["idle_category"];
            let what = format!("{}, stream {}, {cause}", set.name, row["stream"]);
            near(us(ours, &format!("{cause}_ns")), number(&row, "idle_time"), 0.0, &what);
        }
        let gaps: HashMap<(&str, String, String), &Value> = rows(&tables, "gap_lengths")
            .map(|(rank, row)| {
                let cause = row["cause"].as_str().unwrap().replace(' ', "_");
                ((rank, row["stream"].to_string(), cause), row)
            })
            .collect();
        for row in set.result("idle_time_breakdown.1.csv").unwrap() {
            let cause = row["idle_category"].clone();
            let what = format!("{}, stream {}, {cause}", set.name, row["stream"]);
            let key = (row["rank"].as_str(), row["stream"].clone(), cause);
            let Some(ours) = gaps.get(&key) else {
                assert_eq!(number(&row, "count"), 0.0, "{what}");
                continue;
            };
            assert_eq!(ours["gaps"].as_f64(), Some(number(&row, "count")), "{what}");
            for (theirs, key) in [
                ("mean", "mean_ns"),
                ("std", "deviation_ns"),
                ("min", "min_ns"),
                ("25%", "lower_quartile_ns"),
                ("50%", "median_ns"),
                ("75%", "upper_quartile_ns"),
                ("max", "max_ns"),
            ] {
                // HTA prints two decimals.
                near(us(ours, key), number(&row, theirs), 0.0051, &format!("{what}, {theirs}"));
            }
        }
    }
}

#[test]
fn overlap_equals_htas() {
    for set in need_some!(sets()) {
        let Some(expected) = set.result("comm_comp_overlap.csv") else { continue };
        let tables = set.report("overlap", None);
        let found: HashMap<&str, &Value> = rows(&tables, "overlap").collect();
        for row in expected {
            let ours = found.get(row["rank"].as_str()).map(|row| &row["hidden_share"]);
            let ours = ours.and_then(Value::as_f64);
            let expected = &row["comp_comm_overlap_pctg"];
            assert_eq!(ours.is_none(), expected.is_empty(), "{}", set.name);
            // HTA prints two decimals.
            near(
                ours.unwrap_or(0.0) * 100.0,
                number(&row, "comp_comm_overlap_pctg"),
                0.0051,
                &set.name,
            );
        }
    }
}

#[test]
fn kernels_equal_htas_by_kind_and_by_name() {
    let classes =
        [("COMPUTATION", "compute"), ("COMMUNICATION", "communication"), ("MEMORY", "memory")];
    for set in need_some!(sets()) {
        let Some(expected) = set.result("gpu_kernel_breakdown.0.csv") else { continue };
        let tables = set.report("kernels", None);
        let kinds: HashMap<&str, &Value> =
            rows(&tables, "kinds").map(|(_, row)| (row["kind"].as_str().unwrap(), row)).collect();
        for row in expected {
            let kind = row["kernel_type"].replace(" overlapping ", " + ");
            let kind = classes.iter().fold(kind, |kind, (theirs, ours)| kind.replace(theirs, ours));
            let ours = kinds.get(kind.as_str()).map_or(0.0, |row| us(row, "total_ns"));
            near(ours, number(&row, "sum"), 0.0, &format!("{}, {kind}", set.name));
        }
        let names: HashMap<(&str, &str, &str), &Value> = rows(&tables, "by_rank")
            .map(|(rank, row)| {
                ((rank, row["class"].as_str().unwrap(), row["name"].as_str().unwrap()), row)
            })
            .filter(|(key, _)| key.1 != "other")
            .collect();
        let expected = set.result("gpu_kernel_breakdown_full.1.csv").unwrap();
        assert_eq!(names.len(), expected.len(), "{}", set.name);
        for row in expected {
            let class = classes.iter().find(|class| class.0 == row["kernel_type"]).unwrap().1;
            let ours = names[&(row["rank"].as_str(), class, row["name"].as_str())];
            for (theirs, key) in [
                ("sum (us)", "total_ns"),
                ("max (us)", "max_ns"),
                ("min (us)", "min_ns"),
                ("mean (us)", "mean_ns"),
                ("stddev", "deviation_ns"),
            ] {
                let what = format!("{}, {}, {theirs}", set.name, row["name"]);
                near(us(ours, key), number(&row, theirs), 1e-6, &what);
            }
        }
    }
}

#[test]
fn launches_equal_htas_one_by_one() {
    for set in need_some!(sets()) {
        for (rank, expected) in set.by_rank("cuda_kernel_launch_stats") {
            let tables = set.report("launches", Some(&rank));
            let whole = |value: f64| value.round() as i64;
            let mut ours: Vec<[i64; 4]> = rows(&tables, "each")
                .map(|(_, row)| {
                    let times = ["call_ns", "work_ns", "delay_ns"].map(|key| whole(us(row, key)));
                    [row["correlation"].as_i64().unwrap(), times[0], times[1], times[2]]
                })
                .collect();
            let keys = ["correlation", "cpu_duration", "gpu_duration", "launch_delay"];
            let mut theirs: Vec<[i64; 4]> =
                expected.iter().map(|row| keys.map(|key| whole(number(row, key)))).collect();
            ours.sort_unstable();
            theirs.sort_unstable();
            assert_eq!(ours.len(), theirs.len(), "{}, rank {rank}", set.name);
            assert!(ours == theirs, "{}, rank {rank}", set.name);
        }
    }
}

/// Values after each moment, by name. If several changes have the same moment, this has the last
/// value, because HTA leaves the order of the others to an unstable sort. Times count from the
/// first change.
type Series = BTreeMap<String, BTreeMap<i64, f64>>;

fn theirs(rows: &Rows, name: &str, value: &str) -> Series {
    let mut series = Series::new();
    let first = rows.iter().map(|row| number(row, "ts") as i64).min().unwrap_or(0);
    for row in rows {
        let at = number(row, "ts") as i64 - first;
        series.entry(row[name].clone()).or_default().insert(at, number(row, value));
    }
    series
}

fn ours(tables: &Value, name: &str, value: &str) -> Series {
    let at = |row: &Value| us(row, "time_ns").round() as i64;
    let first = rows(tables, "series").map(|(_, row)| at(row)).min().unwrap_or(0);
    let mut series = Series::new();
    for (_, row) in rows(tables, "series") {
        let name = row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
        series.entry(name).or_default().insert(at(row) - first, row[value].as_f64().unwrap());
    }
    series
}

fn assert_same(ours: &Series, theirs: &Series, what: &str) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{what}");
    for (name, theirs) in theirs {
        let ours = &ours[name];
        assert_eq!(ours.len(), theirs.len(), "{what}, {name}");
        let most = theirs.values().fold(0.0_f64, |most, value| most.max(*value));
        for ((at, ours), (when, theirs)) in ours.iter().zip(theirs) {
            assert_eq!(at, when, "{what}, {name}");
            assert!((ours - theirs).abs() <= most * 1e-9, "{what}, {name}, {at}: {ours} {theirs}");
        }
    }
}

#[test]
fn queues_equal_htas_at_every_moment() {
    for set in need_some!(sets()) {
        for (rank, expected) in set.by_rank("queue_length_time_series") {
            let tables = set.report("queue", Some(&rank));
            let what = format!("{}, rank {rank}", set.name);
            assert_same(
                &ours(&tables, "stream", "length"),
                &theirs(&expected, "stream", "queue_length"),
                &what,
            );
            assert_eq!(rows(&tables, "series").count(), expected.len(), "{what}");
        }
        let Some(expected) = set.result("queue_length_summary.csv") else { continue };
        let tables = set.report("queue", None);
        let streams: HashMap<(&str, String), &Value> = rows(&tables, "queue")
            .map(|(rank, row)| ((rank, row["stream"].to_string()), row))
            .collect();
        for row in expected.iter().filter(|row| row.contains_key("stream")) {
            let ours = streams[&(row["rank"].as_str(), row["stream"].clone())];
            let what = format!("{}, stream {}", set.name, row["stream"]);
            assert_eq!(ours["points"].as_f64(), Some(number(row, "count")), "{what}");
            let keys = [("min", "points_min"), ("50%", "median_length"), ("max", "max_length")];
            for (theirs, key) in keys {
                near(ours[key].as_f64().unwrap(), number(row, theirs), 0.0, &what);
            }
            // Several changes at one moment may be in any order. This affects at most 1 of 30
            // points.
            let mean = ours["points_mean"].as_f64().unwrap();
            near(mean, number(row, "mean"), 1.0 / 30.0, &what);
        }
    }
}

#[test]
fn copy_rates_equal_htas_at_every_moment() {
    for set in need_some!(sets()) {
        for (rank, expected) in set.by_rank("memory_bw_time_series") {
            let tables = set.report("bandwidth", Some(&rank));
            let what = format!("{}, rank {rank}", set.name);
            assert_same(
                &ours(&tables, "kind", "rate_gb_s"),
                &theirs(&expected, "name", "memory_bw_gbps"),
                &what,
            );
            assert_eq!(rows(&tables, "series").count(), expected.len(), "{what}");
        }
    }
}
