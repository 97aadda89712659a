//! Tests of `--compile` and `report compile`, with logs that PyTorch wrote. A job copies a log as
//! if PyTorch in the job had written it.

use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use tprof_tests::{Job, Scratch, assert_refused, document, tprof, traced};
use tprof_trace::RunDir;

const COMPILE: &[&str] = &["--compile", "--mem", "off"];
const WHAT: &str = "the log of torch.compile (--compile)";

fn stored(version: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/trace/tests/compile");
    PathBuf::from(format!("{folder}/torch-{version}.log.zst"))
}

/// Unpacks a stored log.
fn plain(version: &str, scratch: &Scratch) -> PathBuf {
    let mut text = Vec::new();
    tprof_trace::compile_log::text(&stored(version)).unwrap().read_to_end(&mut text).unwrap();
    let path = scratch.join(format!("{version}.txt"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns a job that writes a log into the directory TORCH_TRACE, and prints the variable.
fn writer(log: &Path) -> Job {
    let script = r#"echo "$TORCH_TRACE"; mkdir -p "$TORCH_TRACE"
        sed "s/^\(V[0-9]* [0-9:.]*\) [0-9]*/\1 $$/" "$LOG" >"$TORCH_TRACE/dedicated_log_torch_trace_x.log""#;
    Job::sh(script).env("LOG", log)
}

fn rows(report: &Value, table: &str, key: &str) -> Vec<Value> {
    let rows = report["tables"][table].as_array().unwrap();
    rows.iter().map(|row| row[key].clone()).collect()
}

fn assert_has_the_logged_compilations(report: &Value) {
    assert_eq!(rows(report, "graph_breaks", "line"), [14, 16], "{report:#}");
    assert_eq!(rows(report, "graph_breaks", "count"), [1, 1]);
    let again = rows(report, "recompiles", "function");
    assert_eq!(again, ["recompiles", "recompiles", "recompiles", "forward"]);
    let guard = rows(report, "recompiles", "reason");
    assert!(guard[0].as_str().unwrap().contains("size mismatch at index 0"), "{guard:?}");
    let frames = rows(report, "frames", "total_ns");
    assert!(frames.len() >= 9 && frames.iter().all(Value::is_u64), "{frames:?}");
}

/// Returns the reasons why logs are missing.
fn reasons(run: &Path) -> Vec<String> {
    let blind = RunDir::open(run).unwrap().infos()[0].completeness.blind.clone();
    blind.into_iter().filter(|blind| blind.what == WHAT).map(|blind| blind.why).collect()
}

#[test]
fn the_log_that_a_job_writes_is_in_the_run() {
    let scratch = Scratch::new();
    let traced = traced(&writer(&plain("2.8", &scratch)), COMPILE, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let home = PathBuf::from(traced.outcome.stdout.trim());
    assert!(home.starts_with(traced.run.canonicalize().unwrap()), "{home:?}");
    assert_has_the_logged_compilations(&document("compile", &traced.run));
    assert_eq!(reasons(&traced.run), Vec::<String>::new());
    let gone = tprof(["rm", "--yes"]).arg(&traced.run).run_in(scratch.path());
    assert_eq!((gone.code, traced.run.exists()), (Some(0), false), "{gone:?}");
}

#[test]
fn a_run_that_replaces_another_removes_its_logs() {
    let scratch = Scratch::new();
    let run = traced(&writer(&plain("2.8", &scratch)), COMPILE, &scratch).run;
    let again = [COMPILE, &["--force", "-o", run.to_str().unwrap()]].concat();
    let job = tprof(["run"]).args(again).args(["--", "true"]);
    job.run_in(scratch.cwd()).expect_code(0);
    assert!(reasons(&run)[0].contains("nothing was compiled"), "{:?}", reasons(&run));
    assert!(RunDir::open(&run).unwrap().compile_logs().is_empty());
}

#[test]
fn a_job_keeps_its_own_torch_trace_and_the_run_has_a_copy() {
    let scratch = Scratch::new();
    let own = scratch.join("own");
    std::fs::create_dir(&own).unwrap();
    let log = plain("2.8", &scratch);
    // Another job writes into the directory at the same time: its process 1 does not belong to the
    // run.
    let text = std::fs::read_to_string(&log).unwrap();
    let first = text.lines().next().unwrap();
    let pid = first.split(' ').nth(2).unwrap();
    let other = own.join("dedicated_log_torch_trace_other.log");
    std::fs::write(&other, text.replace(&format!(" {pid} torch/"), " 1 torch/")).unwrap();
    let traced = traced(&writer(&log).env("TORCH_TRACE", &own), COMPILE, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    assert_eq!(traced.outcome.stdout.trim(), own.to_str().unwrap());
    let report = document("compile", &traced.run);
    assert_has_the_logged_compilations(&report);
    assert_eq!(rows(&report, "compile_ranks", "logs"), [1]);
    let why = "1 log in TORCH_TRACE, `";
    let left_out = reasons(&traced.run);
    assert!(left_out.len() == 1 && left_out[0].starts_with(why), "{left_out:?}");
    assert!(own.join("dedicated_log_torch_trace_x.log").is_file() && other.is_file());
}

#[test]
fn a_job_that_compiles_nothing_has_no_logs_and_a_reason() {
    let scratch = Scratch::new();
    let traced = traced(&Job::new("true"), COMPILE, &scratch);
    let why = "no process wrote one: nothing was compiled, or by a PyTorch before TORCH_TRACE (2.4 has it)";
    assert_eq!(reasons(&traced.run), [why], "{:?}", traced.outcome);
    assert!(!traced.run.join("compile").exists());
    let report = tprof(["report", "compile"]).arg(&traced.run).run_in(scratch.path());
    let words: Vec<&str> = report.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("tprof run --compile"), "{report:?}");
}

#[test]
fn tprof_sets_inductor_provenance_unless_the_job_does() {
    let scratch = Scratch::new();
    let job = Job::sh("echo \"<$INDUCTOR_PROVENANCE>\"");
    let seen = |job: &Job, options: &[&str]| traced(job, options, &Scratch::new()).outcome.stdout;
    assert_eq!(seen(&job, COMPILE), "<1>\n");
    assert_eq!(seen(&job.clone().env("INDUCTOR_PROVENANCE", "0"), COMPILE), "<0>\n");
    assert_eq!(seen(&job, &["--mem", "off"]), job.run_in(scratch.cwd()).stdout);
}

#[test]
fn options_that_exclude_the_log_are_one_clear_error() {
    let scratch = Scratch::new();
    let redacted = tprof(["run", "--compile", "--redact", "--", "true"]).run_in(scratch.path());
    assert_refused(&redacted, &["`compile` and `redact` exclude each other", "lines of source"]);
    assert_refused(
        &tprof(["env", "--compile"]).run_in(scratch.path()),
        &["limits the length of the log"],
    );
    let missing = tprof(["run", "--compile", "-o", "r", "--", "./none"]).run_in(scratch.path());
    assert_eq!((missing.code, scratch.join("r").exists()), (Some(127), false), "{missing:?}");
}

#[test]
fn logs_are_reported_directly_and_after_an_import() {
    let scratch = Scratch::new();
    let logs = scratch.join("logs");
    std::fs::create_dir(&logs).unwrap();
    for (rank, version) in [(0, "2.15"), (1, "2.8")] {
        // PyTorch adds a random end to the name; files with and without one must be read.
        let end = if rank == 0 { "_a" } else { "" };
        let name = format!("dedicated_log_torch_trace_rank_{rank}{end}.log");
        std::fs::copy(plain(version, &scratch), logs.join(name)).unwrap();
    }
    let direct = document("compile", &logs);
    assert_eq!(rows(&direct, "graph_breaks", "ranks"), [2, 2]);
    let run = scratch.join("run");
    for force in [&[][..], &["--force"]] {
        let import = tprof(["import"]).args(force).arg("-o").arg(&run).arg(&logs);
        let import = import.run_in(scratch.path());
        assert_eq!(import.code, Some(0), "{import:?}");
        assert!(import.stderr.contains("9 compilations by torch.compile, rank 1"), "{import:?}");
    }
    let report = document("compile", &run);
    assert_eq!(rows(&report, "compile_ranks", "compilations"), [9, 9]);
    assert_eq!(rows(&report, "compile_ranks", "cache_hits")[1], 0);
    // The rules use the log, and name a line and a guard.
    let findings = document("findings", &run);
    let of = |rule: &str| -> Vec<Value> {
        let rows = findings["tables"]["findings"].as_array().unwrap();
        rows.iter().filter(|row| row["rule"] == rule).cloned().collect()
    };
    let breaks = of("GraphBreak");
    assert_eq!(breaks.len(), 2, "{findings:#}");
    assert!(
        breaks.iter().all(|row| row["gain_ns"].is_null() || row["gain_ns"]["missing"].is_string())
    );
    assert_eq!(breaks[0]["line"], 14);
    let again = of("Recompilation");
    assert!(again.iter().any(|row| row["try"].as_str().unwrap().contains("mark_dynamic")));
    assert_eq!(of("CacheMiss").len(), 1);
}

#[test]
fn a_cache_miss_is_found_only_if_inductor_compiles_the_graph() {
    let scratch = Scratch::new();
    let misses = |version: &str, hit: &str, miss: &str| {
        let text = std::fs::read_to_string(plain(version, &scratch)).unwrap();
        let logs = scratch.join(version);
        std::fs::create_dir(&logs).unwrap();
        let log = logs.join("dedicated_log_torch_trace_a.log");
        let text = if hit.is_empty() { text } else { text.replace(hit, miss) };
        std::fs::write(log, text).unwrap();
        let findings = document("findings", &logs);
        let rows = findings["tables"]["findings"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["rule"] == "CacheMiss").count()
    };
    // AOTAutograd's cache misses, but Inductor's cache has the graphs, so PyTorch traces the
    // functions again and compiles none. That isn't a finding.
    assert_eq!(misses("2.15", "aotautograd_cache_hit", "aotautograd_cache_miss"), 0);
    // This is the unchanged log of a first run, in which neither cache has an entry.
    assert_eq!(misses("2.8", "", ""), 1);
}
