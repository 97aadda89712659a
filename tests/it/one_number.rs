//! A wait has the same value in all reports of a run.

use std::path::Path;

use serde_json::Value;
use tprof_tests::{
    Job, Scratch, document, has_native_or_skip, page_contents, rank_file, skip, tprof, traced,
};
use tprof_trace::model::{Sample, ThreadState};

fn number(document: &Value, table: &str, key: &str, is: (&str, &str)) -> u64 {
    let rows = document["tables"][table].as_array().unwrap();
    let row = rows.iter().find(|row| row[is.0] == is.1);
    let row = row.unwrap_or_else(|| panic!("{table} has no {is:?}: {rows:#?}"));
    row[key].as_f64().unwrap().round() as u64
}

#[test]
fn the_wait_for_data_is_the_same_in_all_reports() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/planted.py");
    if !Path::new("/usr/bin/python3").exists() {
        return skip("there is no /usr/bin/python3");
    }
    let scratch = Scratch::new();
    let job = Job::new("/usr/bin/python3").arg("-B").arg(&script).arg("data");
    let run = traced(&job, &["--mem", "off"], &scratch).run;
    let host = document("host", &run);
    if !has_native_or_skip(&host) {
        return;
    }
    let of_host = number(&host, "parts", "wall_ns", ("part", "data"));
    assert!(of_host > 500_000_000, "40 waits of 30 ms: {of_host}");
    let findings = document("findings", &run);
    assert_eq!(number(&findings, "findings", "gain_ns", ("rule", "DataWait")), of_host);
    let cpu = document("cpu", &run);
    assert_eq!(number(&cpu, "data_loading", "time_ns", ("part", "data")), of_host);
    let diff = tprof(["diff", "--json"]).args([&run, &run]).run_in(scratch.path()).expect_code(0);
    let both: Value = serde_json::from_str(&diff.stdout).unwrap();
    assert_eq!(number(&both, "parts", "a_ns", ("part", "data")), of_host);
    let export = |to: &str| {
        let output = scratch.path().join(to);
        let job = tprof(["export", "--to", to, "-o"]).arg(&output).arg(&run);
        job.run_in(scratch.path()).expect_code(0);
        output
    };
    let table = std::fs::read_to_string(export("csv").join("host_times.csv")).unwrap();
    assert!(table.contains(&format!(",judged,,data,{of_host},")), "{table}");
    let page = &page_contents(&export("report"))["data"]["runs/1/report/host"];
    assert_eq!(number(page, "parts", "wall_ns", ("part", "data")), of_host);
}

#[test]
fn an_excerpt_of_a_run_has_the_driving_threads_time_in_it() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/planted.py");
    if !Path::new("/usr/bin/python3").exists() {
        return skip("there is no /usr/bin/python3");
    }
    let scratch = Scratch::new();
    let job = Job::new("/usr/bin/python3").arg("-B").arg(&script).arg("data");
    let run = traced(&job, &["--mem", "off"], &scratch).run;
    // The job has 40 waits of 30 ms; the findings list the longest ones.
    let findings = document("findings", &run);
    let rows = |table: &str| findings["tables"][table].as_array().unwrap().iter();
    let number = &rows("findings").find(|row| row["rule"] == "DataWait").unwrap()["finding"];
    let waits = rows("evidence").filter(|row| &row["finding"] == number);
    let first_ns = waits.map(|row| row["start_ns"].as_u64().unwrap()).min().unwrap();
    let from_ms = first_ns / 1_000_000 + 1;
    let judged = |from_ms: u64, to_ms: u64| -> (f64, f64) {
        let output = scratch.path().join("cut");
        let export = tprof(["export", "--to", "csv", "--force", "-o"]).arg(&output).arg(&run);
        let export = export.args(["--from-time", &format!("{from_ms}ms")]);
        let export = export.args(["--to-time", &format!("{to_ms}ms")]);
        export.run_in(scratch.path()).expect_code(0);
        let table = std::fs::read_to_string(output.join("host_times.csv")).unwrap();
        let rows = table.lines().map(|row| row.split(',').collect::<Vec<&str>>());
        // The columns are: run, rank, instance, host, section, step, part, wall time.
        let rows = rows.filter(|row| row[4] == "judged");
        let parts = rows.map(|row| (row[6].to_owned(), row[7].parse::<f64>().unwrap() / 1e6));
        let parts: Vec<(String, f64)> = parts.collect();
        let data = parts.iter().filter(|(part, _)| part == "data").map(|(_, ms)| ms).sum();
        (parts.iter().map(|(_, ms)| ms).sum(), data)
    };
    let (all, data) = judged(from_ms, from_ms + 400);
    assert!((all - 400.0).abs() < 1e-6, "{all} of 400 ms");
    let (first, of_first) = judged(from_ms, from_ms + 150);
    let (second, of_second) = judged(from_ms + 150, from_ms + 400);
    assert!((first - 150.0).abs() < 1e-6 && (second - 250.0).abs() < 1e-6, "{first}, {second}");
    // A wait across the edge is divided between the two excerpts. Short waits have no times of
    // their own, only a sum, which fills the time that no other wait takes.
    let file = rank_file(&run, 0);
    let short = file.blocks::<Sample>().flatten();
    let short = short.filter(|row| row.spread_ns.is_some_and(|ns| row.time_ns + ns > first_ns));
    let short = short.filter(|row| row.state != ThreadState::Runnable);
    let short_ms = short.map(|row| row.weight_ns as f64 / 1e6).sum::<f64>();
    let differ = (of_first + of_second - data).abs();
    assert!(differ < 1e-3 + short_ms.min(15.0), "{of_first}, {of_second}, {data}: {short_ms}");
    assert!(data > 0.0, "{data} of 400 ms");
}
