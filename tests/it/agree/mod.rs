//! Reports of one run agree, in text and in JSON: no kind of report denies something that another
//! counts. This is checked for real traces and for generated mixtures.

mod claims;
mod facts;
pub(crate) mod traces;

use facts::Facts;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{Outcome, Scratch, foreign, need_some};

/// Number of generated mixtures.
const MIXTURES: u64 = 40;

fn report(run: &Path, more: &[&str]) -> Outcome {
    let job = tprof_tests::tprof(["report", "all"]).arg(run).args(more);
    job.run_in(std::env::temp_dir()).expect_code(0)
}

/// Returns the contradictions between the reports of a trace.
fn disagreements(run: &Path) -> Vec<String> {
    let json: Value = serde_json::from_str(&report(run, &["--json"]).stdout).unwrap();
    let reports = &json["reports"];
    let facts = Facts::of(reports);
    let mut found = facts.disagreements();
    found.extend(claims::contradictions(reports, &facts));
    found.extend(claims::unlike_text(reports, &report(run, &["--top", "1000"]).stdout));
    found.into_iter().map(|what| format!("{}: {what}", run.display())).collect()
}

#[track_caller]
fn assert_agree(runs: impl IntoIterator<Item = PathBuf>) {
    let found: Vec<String> = runs.into_iter().flat_map(|run| disagreements(&run)).collect();
    assert!(found.is_empty(), "{} disagreements:\n{}", found.len(), found.join("\n"));
}

#[test]
fn reports_of_mixtures_agree() {
    let scratch = Scratch::new();
    let traces = scratch.join("traces");
    std::fs::create_dir(&traces).unwrap();
    assert_agree(traces::write_all(&traces, MIXTURES));
}

#[test]
fn reports_of_the_importers_corpus_agree() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/import/tests/corpus");
    let traces = ["kineto.json", "kineto.json.gz", "chrome.json", "chrome-open.json"];
    assert_agree(traces.map(|name| corpus.join(name)));
}

#[test]
fn reports_of_foreign_traces_agree() {
    let scratch = Scratch::new();
    let made = [
        foreign::first_kineto(3),
        foreign::accelerator(
            2,
            ["mtia_runtime", "mtia_ccp_events", "gpu_memcpy"],
            ["bmm_kernel", "Memcpy HtoD"],
        ),
        foreign::own_all_reduces(),
        foreign::cropped(),
    ];
    assert_agree(made.iter().zip(0..).map(|(trace, at)| {
        let path = scratch.join(format!("trace-{at}.json"));
        trace.write(&path);
        path
    }));
}

#[test]
fn reports_of_public_traces_agree() {
    let sets = need_some!(crate::hta::sets());
    assert_agree(sets.iter().map(|set| set.run.clone()));
}

#[test]
fn a_job_without_device_and_steps_is_bound_by_its_data() {
    let scratch = Scratch::new();
    let traces = scratch.join("traces");
    std::fs::create_dir(&traces).unwrap();
    let named = traces::write_all(&traces, 0).remove(0);
    let trace = scratch.write(
        "trace.json",
        r#"{"schemaVersion":1,"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__","pid":40,"tid":40,"ts":0,"dur":820,"args":{}},
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":40,"tid":40,"ts":820,"dur":180,"args":{}}
]}"#,
    );
    for (run, share) in [(named, 0.34), (trace, 0.82)] {
        let json = report(&run, &["--json"]).stdout;
        let json: Value = serde_json::from_str(&json).unwrap();
        let findings = facts::rows(&json["reports"]["findings"], "findings");
        let found = findings.iter().find(|row| row["rule"] == "DataLoadBound");
        let gain = found.and_then(|row| row["gain_share"].as_f64());
        assert!(
            gain.is_some_and(|gain| (gain - share).abs() < 1e-6),
            "{}: {findings:?}",
            run.display()
        );
    }
}
