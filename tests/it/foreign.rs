//! Reports of generated traces of old PyTorch versions and other accelerators have the known
//! figures.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::foreign::{Foreign, accelerator, cropped, first_kineto, gloo, own_all_reduces};
use tprof_tests::{Scratch, tprof};

const STEPS: u64 = 5;
const MS: u64 = 1_000_000;

/// Imports a trace, and returns the run.
fn run_of(scratch: &Scratch, made: &Foreign) -> PathBuf {
    let (trace, run) = (scratch.join("trace.json"), scratch.join("run"));
    made.write(&trace);
    tprof(["import"]).arg(&trace).arg("-o").arg(&run).run_in(scratch.path()).expect_code(0);
    run
}

fn report(run: &Path, kind: &str, more: &[&str]) -> Value {
    let job = more.iter().fold(tprof(["report", kind, "--json"]).arg(run), |job, arg| job.arg(arg));
    let outcome = job.run_in(run.parent().unwrap()).expect_code(0);
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Rows of a table of a report.
fn rows(report: &Value, table: &str) -> Vec<Value> {
    report["tables"][table].as_array().unwrap_or_else(|| panic!("no table {table}")).clone()
}

fn row<'v>(rows: &'v [Value], key: &str, value: &str) -> &'v Value {
    rows.iter().find(|row| row[key] == value).unwrap_or_else(|| panic!("{value}: {rows:#?}"))
}

#[test]
fn a_trace_of_pytorch_1_8_nests_and_has_steps_memory_and_launches() {
    let scratch = Scratch::new();
    let run = run_of(&scratch, &first_kineto(STEPS));
    let summary = report(&run, "summary", &[]);
    assert_eq!(summary["completeness"]["complete"], true, "{}", summary["completeness"]);
    let operators = rows(&report(&run, "operators", &[]), "operators");
    let own: u64 = operators.iter().map(|row| row["own_ns"].as_u64().unwrap()).sum();
    assert_eq!(own, STEPS * 24 * MS, "{operators:#?}");
    let linear = row(&operators, "operator", "aten::linear");
    assert_eq!((&linear["own_ns"], &linear["kernels"]), (&(STEPS * 10 * MS).into(), &0.into()));
    let addmm = row(&operators, "operator", "aten::addmm");
    assert_eq!(addmm["device_ns"], STEPS * 25 * MS);
    assert_eq!(addmm["kernels"], STEPS);
    let steps = rows(&report(&run, "steps", &[]), "steps");
    assert_eq!(steps.len() as u64, STEPS);
    let pool = &rows(&report(&run, "device-memory", &[]), "pools")[0];
    assert_eq!(pool["peak_bytes"], 1536_u64 << 20);
    assert_eq!(pool["last_bytes"], 0);
    let findings = report(&run, "findings", &[]);
    let found = rows(&findings, "findings");
    row(&found, "rule", "DataLoadBound");
}

#[test]
fn an_arrow_of_an_old_trace_is_exported_once() {
    let scratch = Scratch::new();
    let run = run_of(&scratch, &first_kineto(STEPS));
    let out = scratch.join("out");
    let job = tprof(["export", "--to", "chrome"]).arg(&run).arg("-o").arg(&out);
    job.run_in(scratch.path()).expect_code(0);
    let trace = crate::export::chrome(&out.join("rank-0.trace.json.gz"));
    let events = trace["traceEvents"].as_array().unwrap();
    for phase in ["s", "f"] {
        let arrows = events.iter().filter(|event| event["ph"] == phase);
        assert_eq!(arrows.count() as u64, STEPS * 2, "{phase}");
    }
    assert!(events.iter().all(|event| event["pid"] != "python"));
}

#[test]
fn any_accelerator_is_a_device() {
    for (categories, names) in [
        (["mtia_runtime", "mtia_ccp_events", "mtia_ccp_events"], ["fc_kernel", "dma_in"]),
        (["xpu_runtime", "kernel", "gpu_memcpy"], ["gemm", "Memcpy HtoD (Host -> Device)"]),
        (["privateuse1_runtime", "kernel", "gpu_memcpy"], ["gemm", "Memcpy HtoD"]),
    ] {
        let scratch = Scratch::new();
        let run = run_of(&scratch, &accelerator(STEPS, categories, names));
        let what = categories[0];
        let summary = report(&run, "summary", &[]);
        assert_eq!(summary["completeness"]["complete"], true, "{what}");
        // The window is the steps, which follow each other.
        let window = STEPS * 100 * MS;
        let breakdown = &rows(&report(&run, "breakdown", &[]), "breakdown")[0];
        let [busy, copies] = [STEPS * 40 * MS, STEPS * 10 * MS];
        let parts = ["window_ns", "compute_ns", "copies_ns", "idle_ns"].map(|key| &breakdown[key]);
        let expected = [window, busy, copies, window - busy - copies].map(Value::from);
        assert_eq!(parts, [&expected[0], &expected[1], &expected[2], &expected[3]], "{what}");
        let launches = rows(&report(&run, "launches", &[]), "launches");
        let launched: u64 = launches.iter().map(|row| row["work"].as_u64().unwrap()).sum();
        assert_eq!(launched, STEPS * 2, "{what}: {launches:#?}");
        assert!(!rows(&report(&run, "queue", &[]), "queue").is_empty(), "{what}");
        assert!(!rows(&report(&run, "idle", &[]), "idle").is_empty(), "{what}");
        // Read as HTA reads the trace, which leaves out the last step.
        let hta = &rows(&report(&run, "breakdown", &["--hta"]), "breakdown")[0];
        assert_eq!(hta["compute_ns"], (STEPS - 1) * 40 * MS, "{what}");
    }
}

#[test]
fn libraries_own_all_reduces_are_communication() {
    let scratch = Scratch::new();
    let run = run_of(&scratch, &own_all_reduces());
    let breakdown = &rows(&report(&run, "breakdown", &[]), "breakdown")[0];
    let parts = ["compute_ns", "exposed_ns", "idle_ns"].map(|key| breakdown[key].clone());
    assert_eq!(parts, [65 * MS, 35 * MS, 0].map(Value::from));
    let overlap = rows(&report(&run, "overlap", &[]), "by_kernel");
    assert_eq!(overlap.len(), 3, "{overlap:#?}");
    let comm = rows(&report(&run, "comm", &[]), "comm");
    let known = comm.iter().filter(|row| row["operation"] == "all_reduce");
    assert_eq!(known.map(|row| row["calls"].as_u64().unwrap()).sum::<u64>(), 2, "{comm:#?}");
}

#[test]
fn a_rank_late_to_gloo_is_named_and_concurrent_waits_count_once() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    let mut import = tprof(["import", "-o"]).arg(&run);
    for (rank, computes_us) in [(0, 20_000), (1, 60_000)] {
        let trace = scratch.join(format!("rank-{rank}.json"));
        gloo(STEPS, computes_us).write(&trace);
        import = import.arg(&trace);
    }
    import.run_in(scratch.path()).expect_code(0);
    let late = rows(&report(&run, "stragglers", &[]), "late_arrivals");
    let worst = row(&late, "rank", "rank 1");
    assert_eq!((&worst["last"], &worst["collectives"]), (&STEPS.into(), &(2 * STEPS).into()));
    assert_eq!(worst["delay_ns"], STEPS * 40 * MS);
    assert_eq!(row(&late, "rank", "rank 0")["waited_ns"], STEPS * 40 * MS);
    let comm = rows(&report(&run, "comm", &[]), "comm");
    let large = comm.iter().find(|row| row["bytes"] == 4 << 20).unwrap();
    assert_eq!((&large["operation"], &large["calls"]), (&"all_reduce Float".into(), &10.into()));
    assert_eq!((&large["min_ns"], &large["max_ns"]), (&(10 * MS).into(), &(50 * MS).into()));
    let findings = report(&run, "findings", &[]);
    let found = rows(&findings, "findings");
    assert_eq!(found[0]["rule"], "Stragglers", "{found:#?}");
    assert_eq!(found[0]["gain_ns"], STEPS * 40 * MS);
}

#[test]
fn parts_that_a_cropped_trace_lacks_are_reported_without_a_gain() {
    let scratch = Scratch::new();
    let run = run_of(&scratch, &cropped());
    let findings = report(&run, "findings", &[]);
    assert_eq!(rows(&findings, "findings"), [] as [Value; 0]);
    let notes = findings["notes"].to_string();
    assert!(notes.contains("not judged: the trace lacks earlier launches"), "{notes}");
}
