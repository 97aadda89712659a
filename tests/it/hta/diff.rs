//! `tprof diff` of one step of one rank has the same figures as the class `TraceDiff` of HTA.

use super::reference::{near, number, sets};
use std::collections::BTreeMap;
use tprof_tests::{Refused, need_some, skip, tprof};

#[test]
fn names_are_counted_as_htas_trace_diff_counts_them() {
    let sets = need_some!(sets());
    let set = |name: &str| sets.iter().find(|set| set.name == name);
    let (Some(control), Some(test)) = (set("diff_control_a100"), set("diff_test_v100")) else {
        return skip(Refused::RealTraces);
    };
    let expected = control.result("../trace_diff/control_vs_test.compare.csv").unwrap();
    let job = tprof(["diff", "--json", "--steps-a", "1009", "--steps-b", "1009"]);
    let outcome = job.arg(&control.run).arg(&test.run).run_in(control.run.parent().unwrap());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let found: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    // HTA does not distinguish a kernel from an operator of the same name.
    let mut ours: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
    for table in ["kernels", "operators", "calls"] {
        for row in found["tables"][table].as_array().unwrap() {
            let sums = ours.entry(row["name"].as_str().unwrap()).or_default();
            for (sum, key) in sums.iter_mut().zip(["a_count", "a_ns", "b_count", "b_ns"]) {
                *sum += row[key].as_f64().unwrap();
            }
        }
    }
    assert_eq!(ours.len(), expected.len());
    for row in expected {
        let [a_count, a_ns, b_count, b_ns] = ours[row["name"].as_str()];
        let name = &row["name"];
        assert_eq!(a_count, number(&row, "Control_counts"), "{name}");
        assert_eq!(b_count, number(&row, "Test_counts"), "{name}");
        near(a_ns / 1e3, number(&row, "Control_total_duration"), 0.0, name);
        near(b_ns / 1e3, number(&row, "Test_total_duration"), 0.0, name);
    }
}
