//! Compares recorded matrix multiplications of cuBLAS and cuBLASLt with the log of those that the
//! stand-ins made (a simulation).

use serde_json::Value;
use std::collections::BTreeMap;
use tprof_tests::{Scratch, document, gemms, need_some, traced, what_ran};

const GPU: &[&str] = &["--activities", "gpu", "--cuda-graphs", "node"];

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("no {key} in {line}"))
}

/// Shape, operations and types, in words.
type Facts = ([u64; 4], String, [String; 3], String);

fn type_name(number: &Value) -> String {
    let name = match number.as_u64().unwrap() {
        0 => "Float",
        1 => "Double",
        2 => "Half",
        5 => "ComplexDouble",
        14 => "BFloat16",
        28 => "Float8_e4m3fn",
        other => panic!("type {other}"),
    };
    name.to_owned()
}

/// Returns the calls in the log, and the time of their kernels.
fn logged(log: &[Value]) -> BTreeMap<Facts, (u64, u64)> {
    let length = |kernel: &Value| -> u64 {
        let is_it = |line: &&Value| line["what"] == "kernel" && line["correlation"] == *kernel;
        log.iter().find(is_it).map_or(0, |line| number(line, "end") - number(line, "start"))
    };
    let mut found: BTreeMap<Facts, (u64, u64)> = BTreeMap::new();
    for line in log.iter().filter(|line| line["what"] == "gemm") {
        let operations =
            [0, 1].map(|at| ["N", "T", "C"][line["operations"][at].as_u64().unwrap() as usize]);
        let compute = if line["compute"] == 68 { "32F" } else { "" };
        let facts = (
            ["m", "n", "k", "batch"].map(|key| number(line, key)),
            operations.concat(),
            [0, 1, 2].map(|at| type_name(&line["types"][at])),
            compute.to_owned(),
        );
        let row = found.entry(facts).or_default();
        row.0 += 1;
        row.1 += line["kernels"].as_array().unwrap().iter().map(length).sum::<u64>();
    }
    found
}

fn reported(rows: &[Value]) -> BTreeMap<Facts, (u64, u64)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let facts = |row: &Value| {
        (
            ["m", "n", "k", "batch"].map(|key| number(row, key)),
            text(row, "transposed"),
            ["type_a", "type_b", "type_c"].map(|key| text(row, key)),
            text(row, "compute"),
        )
    };
    let sums = |row: &Value| (number(row, "calls"), row["busy_ns"].as_u64().unwrap_or(0));
    rows.iter().map(|row| (facts(row), sums(row))).collect()
}

#[test]
fn every_multiplication_has_its_shape_its_types_and_its_kernels() {
    for major in [12, 13] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(gemms(major, &["6"], &scratch));
        let run = traced(&job, GPU, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let report = document("gemms", &run.run);
        let rows = report["tables"]["gemms"].as_array().unwrap();
        let wanted = logged(&what_ran(&log));
        assert_eq!(wanted.len(), 9);
        assert_eq!(reported(rows), wanted, "CUDA {major}");
        for row in rows {
            let real = if row["type_a"] == "ComplexDouble" { 8 } else { 2 };
            let size: u64 = ["m", "n", "k", "batch"].iter().map(|key| number(row, key)).product();
            assert_eq!(number(row, "flops_per_call"), real * size);
            assert_eq!(number(row, "flops"), 6 * real * size);
            let rate = (6 * real * size) as f64 / number(row, "busy_ns") as f64 * 1e9;
            assert!((row["flops_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{row}");
        }
        let split = rows.iter().find(|row| row["k"] == 8192).unwrap();
        assert_eq!((number(split, "work"), &split["function"]), (12, &"cublasGemmEx".into()));
    }
}

#[test]
fn calls_without_a_kernel_have_no_rate_and_failed_calls_no_row() {
    let scratch = Scratch::new();
    let (job, _) = need_some!(gemms(12, &["2", "graph"], &scratch));
    let run = traced(&job, GPU, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("gemms", &run.run);
    let rows = report["tables"]["gemms"].as_array().unwrap();
    let captured = rows.iter().find(|row| row["m"] == 77).unwrap();
    assert_eq!((number(captured, "calls"), number(captured, "calls_with_kernels")), (1, 0));
    assert_eq!(number(captured, "flops"), 2 * 77 * 77 * 77);
    for key in ["busy_ns", "flops_per_s", "kernel"] {
        assert!(captured[key].is_null(), "{captured}");
    }
    // Products that the graph replayed belong to no call, and a note counts them.
    let notes = report["notes"].as_array().unwrap();
    let noted = notes.iter().filter(|note| note.as_str().unwrap().starts_with("2 kernels were"));
    assert_eq!(noted.count(), 1, "{notes:?}");

    let scratch = Scratch::new();
    let (job, _) = need_some!(gemms(13, &["1", "wrong"], &scratch));
    let run = traced(&job, GPU, &scratch);
    assert!(run.outcome.stdout.contains("2 calls failed"), "{:?}", run.outcome);
    let report = document("gemms", &run.run);
    assert_eq!(report["tables"]["gemms"].as_array().unwrap().len(), 9);
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with("2 calls")), "{notes:?}");
}

#[test]
fn groups_have_the_sum_of_their_operations() {
    for major in [12, 13] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(gemms(major, &["3", "groups"], &scratch));
        let run = traced(&job, GPU, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let log = what_ran(&log);
        // By function: calls, operations, multiplications, GPU time.
        let mut wanted: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
        for line in log.iter().filter(|line| line["what"] == "groups") {
            let sum = wanted.entry(line["name"].as_str().unwrap()).or_default();
            sum[0] += 1;
            for group in line["groups"].as_array().unwrap() {
                let [m, n, k, size] = [0, 1, 2, 3].map(|at| group[at].as_u64().unwrap());
                sum[1] += 2 * m * n * k * size;
                sum[2] += size;
            }
            let kernel = &line["kernels"][0];
            let ran =
                log.iter().find(|ran| ran["what"] == "kernel" && ran["correlation"] == *kernel);
            sum[3] += ran.map_or(0, |ran| number(ran, "end") - number(ran, "start"));
        }
        let report = document("gemms", &run.run);
        let mut got: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
        let mut several = 0;
        for row in report["tables"]["gemms"].as_array().unwrap() {
            let function = row["function"].as_str().unwrap();
            if !function.contains("Grouped") {
                continue;
            }
            let sum = got.entry(function).or_default();
            sum[0] += number(row, "calls");
            sum[1] += number(row, "flops");
            sum[2] += number(row, "calls") * number(row, "batch");
            sum[3] += number(row, "busy_ns");
            // Groups of one size have that size; groups of several sizes have none.
            assert_eq!(row["groups"].is_null(), row["m"].is_number(), "{row}");
            several += u64::from(row["m"].is_null());
            if function == "cublasGemmGroupedBatchedEx" {
                assert_eq!(["m", "n", "k", "batch"].map(|key| number(row, key)), [40, 50, 60, 5]);
            }
        }
        assert_eq!(wanted.len(), 3);
        assert_eq!(got, wanted, "CUDA {major}");
        // The function whose sizes change each time has a row for each set of sizes.
        assert_eq!(several, 1 + 3, "{report}");
    }
}
