//! The report page is the page of `tprof serve` with the reports of a run inside.

use std::path::Path;

use serde_json::Value;
use tprof_tests::{Scratch, gpu_run, page_contents, tprof};

/// Number of rows that a table of the page has at least if it is cut.
const MOST_ROWS: usize = 100;

fn page(run: &Path, scratch: &Scratch) -> Value {
    let page = scratch.join("report.html");
    let job = tprof(["export", "--to", "report", "-o"]).arg(&page).arg(run);
    job.run_in(scratch.cwd()).expect_code(0);
    page_contents(&page)
}

fn printed(run: &Path, scratch: &Scratch) -> Value {
    let job = tprof(["report", "all", "--json"]).arg(run);
    serde_json::from_str(&job.run_in(scratch.cwd()).expect_code(0).stdout).unwrap()
}

/// Checks that a table inside is the beginning of the printed table, and says how much is missing.
/// A curve has some of the rows.
fn assert_begins(inside: &Value, printed: &Value, kind: &str, key: &str) {
    let of = |document: &Value| document["tables"][key].as_array().unwrap().clone();
    let (some, all) = (of(inside), of(printed));
    let how = &inside["shown"][key];
    assert_eq!(how["left_out"], all.len() - some.len(), "{kind}.{key}");
    match how["view"].as_str() {
        Some("curve") => {
            let mut rest = all.iter();
            assert!(some.iter().all(|row| rest.any(|other| other == row)), "{kind}.{key}");
        }
        view => {
            assert_eq!(some, all[..some.len()], "{kind}.{key}");
            let is_cut = some.len() < all.len();
            assert!(!is_cut || some.len() >= MOST_ROWS || view == Some("groups"), "{kind}.{key}");
        }
    }
    for part in ["title", "about", "view", "columns"] {
        assert_eq!(how[part], printed["shown"][key][part], "{kind}.{key}");
    }
}

#[test]
fn the_page_has_what_report_prints() {
    let scratch = Scratch::new();
    let run = gpu_run("gpt").expect("the run is part of the sources");
    let (contents, printed) = (page(&run, &scratch), printed(&run, &scratch));
    let data = contents["data"].as_object().unwrap();
    let reports = printed["reports"].as_object().unwrap();
    assert_eq!(data["index"]["kinds"].as_array().unwrap().len(), reports.len());
    let mut tables = 0;
    for (kind, printed) in reports {
        let inside = &data[&format!("runs/1/report/{kind}")];
        let (of, other) = (&inside["completeness"], &printed["completeness"]);
        assert_eq!(
            (of["verdict"].as_str(), &of["gaps"]),
            (other["verdict"].as_str(), &other["gaps"])
        );
        let Some(all) = inside["tables"].as_object() else {
            assert_eq!(inside["overhead"], printed["overhead"], "{kind}");
            continue;
        };
        // The page also has lines of source, which `--lines` prints, and notes on them. It lacks notes
        // on tables that only JSON has.
        let [known, notes] = [printed, inside].map(|of| of["notes"].as_array().unwrap());
        assert!(
            kind == "cpu" || notes.iter().all(|note| known.contains(note)),
            "{kind}: {notes:?}"
        );
        let is_printed = |key: &&String| printed["tables"][key.as_str()].is_array();
        for key in all.iter().filter(|(_, rows)| rows.is_array()).map(|(key, _)| key) {
            if is_printed(&key) {
                assert_begins(inside, printed, kind, key);
                tables += 1;
            }
        }
        for (key, how) in printed["shown"].as_object().unwrap() {
            // Like the tables of view `data`, this one is made only for JSON and CSV.
            let is_data = how["view"] == "data" || key == "python_modules";
            assert!(is_data || all.contains_key(key), "{kind}.{key} is missing");
        }
    }
    assert!(tables > 50, "{tables}");
    let row = &data["runs/1"];
    assert_eq!(row["wall_ns"], reports["summary"]["run"]["wall_ns"]);
    assert_eq!(row["command"], reports["summary"]["run"]["command"]);
}

#[test]
fn the_page_names_no_directory_and_stays_small() {
    let scratch = Scratch::new();
    let run = gpu_run("gpt").expect("the run is part of the sources");
    let contents = page(&run, &scratch);
    let name = run.file_name().unwrap().to_str().unwrap();
    assert_eq!(contents["data"]["runs/1"]["path"], name);
    assert_eq!(contents["data"]["runs/1/report/steps"]["run"]["path"], name);
    let size = std::fs::metadata(scratch.join("report.html")).unwrap().len();
    assert!(size < 4 << 20, "{size} bytes");
}
