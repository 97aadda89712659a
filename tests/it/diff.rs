//! `tprof diff` compares two recorded runs of jobs without a device.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Outcome, Scratch, document, has_native_or_skip, junit, need_some, program, tprof, traced,
};

const OPTIONS: &[&str] = &["--sample-rate", "997", "--mem", "exact"];

/// Records a run of the program with these arguments.
fn run(arguments: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("compared")).args(arguments), OPTIONS, &scratch).run;
    (scratch, run)
}

fn diff(a: &Path, b: &Path, more: &[&str]) -> Outcome {
    tprof(["diff"]).arg(a).arg(b).args(more).run_in(std::env::temp_dir())
}

fn compared(a: &Path, b: &Path) -> Value {
    let outcome = diff(a, b, &["--json"]).expect_code(0);
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[track_caller]
fn row<'v>(diff: &'v Value, table: &str, key: &str, name: &str) -> &'v Value {
    let rows = diff["tables"][table].as_array().unwrap_or_else(|| panic!("no {table} in {diff:#}"));
    let found =
        rows.iter().find(|row| row[key].as_str().is_some_and(|text| text.starts_with(name)));
    found.unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row:#}"))
}

fn are_sampled(run: &Path) -> bool {
    has_native_or_skip(&document("cpu", run))
}

#[test]
fn a_diff_of_runs_without_a_device_compares_their_hosts() {
    let (_keep_a, a) = run(&["300", "0", "50", "10", "1"]);
    let (_keep_b, b) = run(&["300", "400", "350", "1010", "3"]);
    if !are_sampled(&a) {
        return;
    }
    let both = compared(&a, &b);
    // Only the function that was added takes longer.
    let added = row(&both, "cpu_functions", "name", "spin_added");
    assert_eq!((&added["presence"], &added["verdict"]), (&"B".into(), &"more".into()), "{added}");
    assert!((number(added, "change_ns") / 400e6 - 1.0).abs() < 0.15, "{added}");
    let (least, error) = (number(added, "change_ns").abs(), number(added, "interval_ns"));
    assert!(0.0 < error && error < least, "{added}");
    let sleep = row(&both, "waits", "name", "sleep");
    assert!((number(sleep, "change_ns") - 300e6).abs() < 100e6, "{sleep}");
    let modules = row(&both, "cpu_modules", "name", "compared");
    assert!(number(modules, "change_ns") > 350e6, "{modules}");
    // The counts are exact: each call at the only site is counted.
    let site = row(&both, "sites", "name", "allocate");
    assert_eq!(
        (number(site, "change_bytes"), number(site, "interval_bytes")),
        (1e6, 0.0),
        "{site}"
    );
    assert_eq!((number(site, "a_count"), number(site, "b_count")), (10.0, 1010.0), "{site}");
    let threads = row(&both, "threads", "name", "");
    assert!(number(threads, "b_count") - number(threads, "a_count") == 2.0, "{threads}");
    assert_eq!(number(row(&both, "host", "metric", "threads"), "change"), 2.0);

    let cpu = row(&both, "run", "metric", "cpu_time");
    assert_eq!(cpu["verdict"], "worse?", "{cpu}");
    let fails = diff(&a, &b, &["--fail-on", "cpu_time>+20%"]).expect_code(1);
    assert!(fails.stderr.contains("FAILED: cpu_time>+20%: CPU time from"), "{fails:?}");
    // The job's first thread drives it, so the parts of its time change as the program does. The
    // thread sleeps, and waits for threads to end.
    let causes = both["tables"]["causes"].as_array().unwrap();
    let rests =
        causes.iter().find(|row| row["part"] == "other" && row["name"] == "rest (compared.c)");
    let rests = rests.unwrap_or_else(|| panic!("no sleep: {causes:#?}"));
    assert!((number(rests, "change_ns") - 300e6).abs() < 100e6, "{rests}");
    let waits = row(&both, "parts", "part", "other");
    assert!(number(waits, "change_ns") > 200e6, "{waits}");
    let cause = causes
        .iter()
        .find(|row| row["part"] == "native" && row["name"] == "spin_added (compared.c)");
    let cause = cause.unwrap_or_else(|| panic!("no native code that was added: {causes:#?}"));
    assert!((number(cause, "change_ns") / 400e6 - 1.0).abs() < 0.15, "{cause}");
    let gate = |condition: &str| diff(&a, &b, &["--fail-on", condition]);
    for condition in ["function:spin_added>+100ms", "wait:other>+100ms", "part:native>+20%"] {
        let fails = gate(condition).expect_code(1);
        assert!(fails.stderr.contains(&format!("FAILED: {}", &condition[..10])), "{fails:?}");
    }
    gate("function:spin_same>+50%").expect_code(0);
    let unknown = gate("function:spin_aded>+1%").expect_code(125);
    assert!(unknown.stderr.contains("--fail-on 'function:spin_added>+1%'"), "{unknown:?}");
    let text = diff(&a, &b, &[]).expect_code(0).stdout;
    assert!(text.contains("spin_added") && text.contains("CPU time of functions"), "{text}");
}

#[test]
fn conditions_are_test_cases_in_a_junit_file() {
    let (keep, a) = run(&["100", "20", "10", "10", "1"]);
    let (_keep, b) = run(&["100", "20", "10", "10", "3"]);
    let file = keep.join("junit.xml");
    let options = |conditions: &[&str]| -> Vec<String> {
        let conditions = conditions.iter().flat_map(|text| ["--fail-on", text]);
        conditions.chain(["--junit", file.to_str().unwrap()]).map(str::to_owned).collect()
    };
    let judge = |conditions: &[&str], code: i32| {
        let options = options(conditions);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        diff(&a, &b, &options).expect_code(code)
    };
    // Threads are counted exactly; neither run has a device; and no function has the last name.
    let conditions =
        ["threads>+50%", "threads<+0", "launches>+5%", "function:no<such>&\"one\">+1%"];
    let outcome = judge(&conditions, 125);
    assert!(outcome.stderr.contains("FAILED: threads>+50%: "), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot check `launches>+5%`"), "{outcome:?}");
    let read = need_some!(junit(&file));
    assert_eq!((&read["stated"], &read["counted"]), (&json!([4, 1, 0, 2]), &json!([4, 1, 0, 2])));
    let cases = read["cases"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, conditions);
    let unknown = "95 % interval of the change: not known, there are no repeats";
    let failure =
        format!("threads from 2.0 to 4.0, +100.0 %; {unknown}; limit of the change: +50 %");
    assert_eq!(cases[0]["results"], json!([["failure", failure, failure]]));
    assert_eq!(cases[1]["results"], json!([]));
    assert_eq!(
        cases[1]["out"],
        format!("threads from 2.0 to 4.0, +100.0 %; {unknown}; limit of the change: +0")
    );
    for case in &cases[2..] {
        let result = &case["results"][0];
        assert_eq!((&result[0], case["results"].as_array().unwrap().len()), (&json!("skipped"), 1));
        assert!(!result[1].as_str().unwrap().is_empty(), "{result}");
    }
    assert!(cases[2]["results"][0][1].as_str().unwrap().contains("in neither"), "{cases:#?}");
    assert_eq!(read["runs"]["A"], a.to_str().unwrap());

    judge(&conditions[..2], 1);
    judge(&conditions[1..2], 0);
    let lonely = diff(&a, &b, &["--junit", file.to_str().unwrap()]).expect_code(125);
    assert!(lonely.stderr.contains("--fail-on"), "{lonely:?}");
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let (_keep, run) = run(&["100", "20", "10", "10", "1"]);
    let both = compared(&run, &run);
    for (name, table) in both["tables"].as_object().unwrap() {
        for row in table.as_array().into_iter().flatten() {
            assert!(row["verdict"] == "same" || row["verdict"].is_null(), "{name}: {row}");
        }
    }
    diff(&run, &run, &["--fail-on", "cpu_time>+0%"]).expect_code(0);
}

#[test]
fn the_wall_time_of_rank_files_is_shorter_than_their_runs() {
    let scratch = Scratch::new();
    let script = format!(
        "RANK=0 WORLD_SIZE=2 {0} 20 0 0 1 0; RANK=1 WORLD_SIZE=2 {0} 20 0 500 1 0",
        program("compared").display()
    );
    let run = traced(&Job::sh(&script), OPTIONS, &scratch).run;
    let [first, second] = [0, 1].map(|rank| run.join(format!("rank-{rank}.tprof")));
    let both = compared(&first, &second);
    let wall = row(&both, "run", "metric", "wall_time");
    assert!(number(wall, "change") > 400e6, "{wall}");
    let whole = compared(&run, &run);
    let whole = number(row(&whole, "run", "metric", "wall_time"), "a");
    assert!(number(wall, "a") + number(wall, "b") <= whole, "{wall}, of {whole}");
    let text = diff(&first, &second, &[]).expect_code(0).stdout;
    assert!(text.contains("Wall time of the longest rank"), "{text}");
}
