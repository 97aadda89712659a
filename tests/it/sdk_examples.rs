//! Runs the crate's examples, which repeat the READMEs of torsh-profiler and axonml-profile. The
//! reports must have exactly the examples' spans, operations and memory.

use serde_json::Value;
use tprof_tests::{EXACT, Job, Scratch, Traced, document, memory_report, traced};

/// Returns the runs, FLOPs, allocations and allocated bytes of a span.
fn figures(report: &Value, name: &str) -> [Option<u64>; 4] {
    let rows = report["tables"]["spans"].as_array().unwrap();
    let mut found = rows.iter().filter(|row| row["name"] == name);
    let row = found.next().unwrap_or_else(|| panic!("no span {name} in {rows:?}"));
    assert!(found.next().is_none(), "each name has one row: {rows:?}");
    ["runs", "flops", "allocations", "allocated_bytes"].map(|key| row[key].as_u64())
}

fn row<'d>(report: &'d Value, table: &str, key: &str, name: &str) -> &'d Value {
    let rows = report["tables"][table].as_array().unwrap();
    rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

fn training(scratch: &Scratch, options: &[&str]) -> Traced {
    let run = traced(&Job::new(env!("CARGO_BIN_EXE_sdk-training")), options, scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    run
}

#[test]
fn the_training_loop_has_its_steps_spans_operations_and_memory() {
    for options in [EXACT, &["--mem", "sampled"]] {
        let scratch = Scratch::new();
        let run = training(&scratch, options);
        let spans = document("spans", &run.run);
        let (operations, batch) = (2 * 32 * 256, 32 * 256 * 4);
        let times = |each: u64| Some(20 * each);
        let none = Some(0);
        assert_eq!(
            figures(&spans, "data_loading"),
            [Some(20), None, times(1), times(batch)],
            "{options:?}"
        );
        assert_eq!(
            figures(&spans, "forward"),
            [Some(20), times(operations), times(1), times(32 * 4)]
        );
        assert_eq!(figures(&spans, "loss"), [Some(20), None, none, none]);
        assert_eq!(figures(&spans, "backward"), [Some(20), times(operations), none, none]);
        let tensors = 1000 * 4096 + 1000 * 24;
        assert_eq!(figures(&spans, "tensors"), [Some(1), None, Some(1001), Some(tensors)]);
        for name in ["data_preprocessing", "critical_section"] {
            assert_eq!(figures(&spans, name)[0], Some(1));
        }
        let forward = row(&spans, "spans", "name", "forward");
        let rate = forward["flops_per_s"].as_f64().unwrap();
        let seconds = forward["total_ns"].as_f64().unwrap() / 1e9;
        assert!((rate * seconds / (20.0 * operations as f64) - 1.0).abs() < 1e-6, "{forward}");

        let steps = document("steps", &run.run);
        let numbers = steps["tables"]["steps"].as_array().unwrap().iter();
        let numbers: Vec<_> = numbers.map(|row| row["step"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..19).collect::<Vec<_>>(), "the last step has no end");
        let counters = document("counters", &run.run);
        let loss = row(&counters, "counters", "counter", "loss");
        assert_eq!((loss["samples"].as_u64(), loss["max"].as_f64()), (Some(20), Some(1.0)));
        let samples = row(&counters, "counters", "counter", "samples");
        assert_eq!(samples["max"].as_f64(), Some(20.0 * 32.0));
    }
}

#[test]
fn the_block_that_is_never_freed_is_live_at_the_end_with_its_stack() {
    let scratch = Scratch::new();
    let run = training(&scratch, EXACT);
    let memory = memory_report(&run.run).0;
    let sites = memory["ranks"][0]["host_memory"]["sites"].as_array().unwrap().clone();
    let planted = sites.iter().filter(|site| site["stack"].to_string().contains("::tensors"));
    let mut sums = [0; 3];
    for site in planted {
        for (sum, key) in sums.iter_mut().zip(["bytes", "allocations", "live_bytes"]) {
            *sum += site[key].as_u64().unwrap();
        }
    }
    assert_eq!(sums, [1000 * 4096 + 1000 * 24, 1001, 4096]);
}

#[test]
fn operations_have_their_categories_times_and_memory() {
    let scratch = Scratch::new();
    let job = Job::new(env!("CARGO_BIN_EXE_sdk-operations"));
    let alone = job.clone().run_in(scratch.cwd()).expect_code(0);
    assert!(alone.stdout.ends_with("depth 3, recorded: false\n"), "{alone:?}");
    let run = traced(&job, EXACT, &scratch);
    assert_eq!(run.outcome.stdout, alone.stdout.replace("false", "true"));
    let spans = document("spans", &run.run);
    let bytes = 64 * 64 * 4;
    assert_eq!(
        figures(&spans, "matmul"),
        [Some(10), Some(10 * 2 * 64 * 64 * 64), Some(10), Some(10 * bytes)]
    );
    assert_eq!(figures(&spans, "load"), [Some(1), None, Some(1), Some(bytes)]);
    for (name, runs) in [("transfer", 1), ("write", 1), ("sum", 1), ("visit", 4)] {
        assert_eq!(figures(&spans, name)[0], Some(runs), "{name}");
    }
    let spans_of = |name: &str| row(&spans, "spans", "name", name);
    assert_eq!(spans_of("matmul")["category"], "compute");
    assert_eq!(spans_of("load")["category"], "data_load");
    let transfer = spans_of("transfer")["total_ns"].as_f64().unwrap();
    assert!(
        (transfer - 2e6).abs() < 10e3,
        "a span of 2 ms that was measured elsewhere: {transfer}"
    );
    // If a span lies within another span of its name, its time counts once.
    let visit = spans_of("visit");
    let (total, own) = (visit["total_ns"].as_f64().unwrap(), visit["self_ns"].as_f64().unwrap());
    assert!(own <= total && own > 0.0, "{visit}");
    let counters = document("counters", &run.run);
    let pool = row(&counters, "byte_counters", "counter", "device 0 pool_bytes");
    assert_eq!(pool["max"].as_f64(), Some(3.0 * bytes as f64));
}
