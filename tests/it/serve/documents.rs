//! The API returns exactly what the commands print.

use std::path::Path;

use serde_json::{Value, json};
use tprof_tests::{Scratch, Served, tprof};

use super::runs;

fn printed(words: &[&str], runs: &[&Path], scratch: &Scratch) -> String {
    let outcome = tprof(words).args(runs).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{words:?}: {outcome:?}");
    outcome.stdout
}

#[test]
fn a_document_has_the_bytes_that_report_prints() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &[]);
    let about = served.json("/api/v1");
    let kinds: Vec<&str> = about["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|kind| kind["name"].as_str())
        .collect();
    assert!(kinds.len() > 20, "{about}");
    for name in ["recorded", "imported"] {
        let run = directory.join(name);
        let id = served.id_of(&run);
        for kind in &kinds {
            let answer = served.get(&format!("/api/v1/runs/{id}/report/{kind}")).expect(200);
            let own = printed(&["report", kind, "--json"], &[&run], &scratch);
            assert!(answer.text() == own, "{name} {kind} differs");
        }
        for (query, options) in [
            ("summary?top=1", &["summary", "--top=1"][..]),
            ("summary?rank=0", &["summary", "--rank=0"]),
            ("memory?rank=0&top=3", &["memory", "--rank=0", "--top=3"]),
            ("kernels?top=2", &["kernels", "--top=2"]),
            ("breakdown?steady=1", &["breakdown", "--steady"]),
            ("operators?operator=mm&sort=self", &["operators", "--operator=mm", "--sort=self"]),
            ("steps?steps_from=profiler", &["steps", "--steps-from=profiler"]),
        ] {
            let answer = served.get(&format!("/api/v1/runs/{id}/report/{query}"));
            let job = tprof(["report"]).args(options).arg("--json").arg(&run);
            let own = job.run_in(scratch.path());
            match own.code {
                Some(0) => assert!(answer.expect(200).text() == own.stdout, "{query} differs"),
                _ => {
                    let failure = answer.expect_failure(422);
                    let error = failure["error"].as_str().unwrap();
                    assert!(own.stderr.contains(error), "{query}: {failure} {own:?}");
                }
            }
        }
    }
    let (a, b) = (directory.join("recorded"), directory.join("imported"));
    let path = format!("/api/v1/diff?a={}&b={}", served.id_of(&a), served.id_of(&b));
    let answer = served.get(&path).expect(200);
    assert!(answer.text() == printed(&["diff", "--json"], &[&a, &b], &scratch), "diff differs");
}

#[test]
fn all_routes_of_the_description_answer() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &["--control"]);
    let id = served.id_of(&directory.join("recorded"));
    let about = served.json("/api/v1");
    let paths = served.json("/api/v1/openapi.json")["paths"].clone();
    let mut described = 0;
    for (path, operations) in paths.as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            described += 1;
            let route = format!("{} {path}", method.to_uppercase());
            let listed = about["routes"].as_array().unwrap();
            assert!(
                listed.iter().any(|one| *one == route.as_str()),
                "{route} is not in {listed:?}"
            );
            if method != "get" || path.ends_with("events") {
                continue;
            }
            let asked = path
                .replace("{id}", &id.to_string())
                .replace("{kind}", "summary")
                .replace("{page}", "flame")
                .replace("{format}", "folded");
            assert!(!asked.contains('{'), "{asked}");
            let query = match path.rsplit('/').next().unwrap() {
                "heat" => "?metric=step_ns",
                "history" => "?run=1",
                _ if path.contains("/diff") => "?a=1&b=2",
                _ => "",
            };
            let answer = served.get(&format!("{asked}{query}"));
            if path.ends_with("where") {
                assert_eq!(answer.status, 422, "{route}: {}", answer.text());
                assert!(answer.text().contains("has ended"), "{route}: {}", answer.text());
                continue;
            }
            assert_eq!(answer.status, 200, "{route}: {}", answer.text());
        }
    }
    assert_eq!(Some(described), about["routes"].as_array().map(Vec::len));
    for format in about["formats"].as_array().unwrap() {
        let name = format["name"].as_str().unwrap();
        for run in ["recorded", "imported"] {
            let id = served.id_of(&directory.join(run));
            let answer = served.get(&format!("/api/v1/runs/{id}/export/{name}"));
            match answer.status {
                200 => {
                    let disposition = answer.header("content-disposition").unwrap();
                    assert!(
                        disposition.starts_with("attachment; filename=\"run-"),
                        "{disposition}"
                    );
                }
                // The run has no data for this format.
                _ => assert_ne!(answer.expect_failure(422)["why"], "", "{name}"),
            }
        }
    }
}

#[test]
fn routes_of_the_first_dashboard_have_a_value_or_a_reason() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &[]);
    let of = |route: &str, name: &str| {
        let id = served.id_of(&directory.join(name));
        served.json(&format!("/api/profiler/{route}?run={id}"))
    };
    for (route, key) in [
        ("memory", "timeline"),
        ("timeline", "gpu_active_us"),
        ("kernels", "kernels"),
        ("hta", "gpu_idle_pct"),
        ("compile", "compile_time_ms"),
    ] {
        let nothing = of(route, "recorded");
        assert_eq!(nothing[key], Value::Null, "{route}: {nothing}");
        assert!(nothing["why"].as_str().is_some_and(|why| !why.is_empty()), "{route}: {nothing}");
        if route != "compile" {
            let measured = of(route, "imported");
            assert!(!measured[key].is_null() && measured["why"].is_null(), "{route}: {measured}");
        }
    }
    let flame = of("flame", "recorded");
    assert!(flame["flame"]["children"].as_array().is_some_and(|all| !all.is_empty()), "{flame}");
    let kernels = of("kernels", "imported");
    assert!(kernels["kernels"][0]["cuda_time_us"].as_f64() > Some(0.0), "{kernels}");
    assert!(
        served.json("/api/profiler/kernels")["run"].is_u64(),
        "without a number, the newest run is used"
    );
}

#[test]
fn tables_without_rows_of_a_compilation_log_are_empty_lists() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    std::fs::create_dir(&directory).unwrap();
    let line = "V1122 08:36:34.041000 7 a.py:1] ";
    let id = "\"frame_id\": 0, \"frame_compile_id\": 0";
    let log = format!(
        "{line}{{\"dynamo_start\": {{\"stack\": []}}, {id}}}\n\
         {line}{{\"compilation_metrics\": {{\"co_name\": \"f\", \"duration_us\": 2000}}, {id}}}\n"
    );
    let import = |name: &str, text: &str| {
        let path = scratch.join(format!("dedicated_log_torch_trace_{name}.log"));
        std::fs::write(&path, text).unwrap();
        let import = tprof(["import"]).arg(path).arg("-o").arg(directory.join(name));
        import.run_in(scratch.path()).expect_code(0);
    };
    import("whole", &log);
    import("cut", &format!("{log}tprof: bytes not kept: 77\n"));
    let served = Served::start(&directory, &[]);
    let of = |name: &str| {
        let id = served.id_of(&directory.join(name));
        served.json(&format!("/api/profiler/compile?run={id}"))
    };
    let whole = of("whole");
    assert_eq!(whole["compile_time_ms"], 2.0, "{whole}");
    for key in ["graph_breaks", "recompiles"] {
        assert_eq!((&whole[key], &whole[format!("{key}_why")]), (&json!([]), &Value::Null));
        // A truncated log may have lost some rows, so the table is unknown and not empty.
        let cut = of("cut");
        let why = cut[format!("{key}_why")].as_str().unwrap_or_default();
        assert!(cut[key].is_null() && why.contains("left out"), "{cut}");
    }
    assert!(whole["graphs"].is_null() && whole["graphs_why"].is_string(), "{whole}");
}
