//! `tprof export --to site` writes the dashboard of a directory of runs as files.

use crate::export::{files_in, unpacked};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tprof_tests::{
    DEFAULT, Job, Outcome, Scratch, assert_refused, program, tprof, tprof_at, traced_job,
};

/// Text that is markup in a page if it isn't escaped.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

/// Returns a directory of three runs: one command twice, and one with a hostile argument.
fn runs() -> &'static Path {
    static RUNS: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, runs) = RUNS.get_or_init(|| {
        let scratch = Scratch::new();
        let runs = scratch.join("runs");
        fs::create_dir(&runs).unwrap();
        let plain = Job::new(program("stacks"));
        let hostile = Job::sh("exit 0").arg(HOSTILE);
        for (name, job) in [("first", &plain), ("second", &plain), ("third", &hostile)] {
            let run = runs.join(name);
            traced_job(job, DEFAULT, &run).run_in(scratch.cwd()).expect_code(0);
        }
        (scratch, runs)
    });
    runs
}

fn export(scratch: &Scratch, runs: &Path, to: &Path, words: &[&str]) -> Outcome {
    let job = tprof(["export", "--to", "site"]).args(words).arg("-o").arg(to).arg(runs);
    job.limit(300).run_in(scratch.cwd())
}

/// Returns the arguments of the only call in a file of a site.
fn call(site: &Path, name: &str) -> Vec<Value> {
    let path = site.join("data").join(format!("{name}.js"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let inner = text.strip_suffix(");\n").unwrap_or_else(|| panic!("{text}"));
    let inner = inner.strip_prefix("tprofData(").or_else(|| inner.strip_prefix("tprofSame("));
    let arguments = inner.unwrap_or_else(|| panic!("{text}"));
    let arguments: Value = serde_json::from_str(&format!("[{arguments}]")).unwrap();
    assert_eq!(arguments[0], name);
    assert!(!text.contains('<'), "{text}");
    arguments.as_array().unwrap().clone()
}

fn document(site: &Path, name: &str) -> Value {
    let [_, document] = &call(site, name)[..] else { panic!("{name} has no document") };
    document.clone()
}

/// Returns the numbers of the runs by the names of their directories.
fn ids(site: &Path) -> BTreeMap<String, u64> {
    let list = document(site, "runs");
    let runs = list["runs"].as_array().unwrap().iter();
    runs.map(|run| (run["name"].as_str().unwrap().to_owned(), run["id"].as_u64().unwrap()))
        .collect()
}

#[test]
fn a_site_has_every_file_that_its_pages_request() {
    let scratch = Scratch::new();
    let site = scratch.join("site");
    let made = export(&scratch, runs(), &site, &[]).expect_code(0);
    assert_eq!(made.stdout.trim_end(), site.display().to_string());
    let index = document(&site, "index");
    let kinds: Vec<&str> = index["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["name"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"kernels") && index["control"] == false, "{index}");
    let formats = index["formats"].as_array().unwrap();
    assert!(formats.iter().all(|format| format["name"] != "site") && formats.len() > 5);
    let list = document(&site, "runs");
    assert_eq!((&list["pending"], list["runs"].as_array().unwrap().len()), (&json!(0), 3));
    for run in list["runs"].as_array().unwrap() {
        assert_eq!(run["summary"], "ready", "{run}");
        let id = &run["id"];
        assert_eq!(document(&site, &format!("runs/{id}")), *run);
        for kind in &kinds {
            document(&site, &format!("runs/{id}/report/{kind}"));
        }
        for metric in ["step_ns", "compute_ns", "exposed_communication_ns", "idle_ns", "late_ns"] {
            let heat = document(&site, &format!("runs/{id}/heat/metric={metric}/over=step"));
            assert_eq!(heat["metric"], metric);
        }
        for page in ["timeline", "flame", "report"] {
            let file = document(&site, &format!("runs/{id}/page/{page}"));
            assert_eq!(file, format!("pages/{id}/{page}.html"));
            let text = fs::read_to_string(site.join(file.as_str().unwrap())).unwrap();
            assert!(text.to_lowercase().starts_with("<!doctype html>"), "{page}");
        }
        call(&site, &format!("history/run={id}"));
    }
    let ids = ids(&site);
    let (first, second, third) = (ids["first"], ids["second"], ids["third"]);
    document(&site, &format!("diff/a={first}/b={second}"));
    assert!(site.join(format!("pages/flame-{first}-{second}.html")).is_file());
    assert!(!site.join(format!("data/diff/a={second}/b={third}.js")).exists());
    let history = document(&site, &format!("history/run={second}"));
    assert_eq!(history["runs"].as_array().unwrap().len(), 2);
    let same = call(&site, &format!("history/run={first}"));
    assert_eq!(same[1], format!("history/run={second}"));
    let shell = fs::read_to_string(site.join("index.html")).unwrap();
    assert!(shell.contains("window.TPROF_SITE") && !shell.contains("onerror=alert"));
}

#[test]
fn documents_of_a_site_equal_those_that_tprof_prints() {
    let scratch = Scratch::new();
    let site = scratch.join("site");
    export(&scratch, runs(), &site, &[]).expect_code(0);
    let ids = ids(&site);
    for (name, kind) in [("first", "memory"), ("third", "summary")] {
        let id = ids[name];
        let report = tprof(["report", kind, "--json"]).arg(runs().join(name));
        let printed = report.run_in(scratch.cwd()).expect_code(0).stdout;
        assert!(name == "first" || printed.contains(HOSTILE), "{printed}");
        let path = format!("runs/{id}/report/{kind}");
        let call = format!("tprofData(\"{path}\", {});\n", printed.replace('<', "\\u003c"));
        assert_eq!(fs::read_to_string(site.join(format!("data/{path}.js"))).unwrap(), call);
    }
}

#[test]
fn a_damaged_run_is_in_the_site_with_its_reason() {
    let scratch = Scratch::new();
    let (directory, site) = (scratch.join("runs"), scratch.join("site"));
    for name in ["sound", "damaged"] {
        fs::create_dir_all(directory.join(name)).unwrap();
        for (file, content) in files_in(&runs().join("first")) {
            let to = directory.join(name).join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, content).unwrap();
        }
    }
    fs::write(directory.join("damaged/run.json"), "{\"version\": 1, \"comm").unwrap();
    export(&scratch, &directory, &site, &[]).expect_code(0);
    let ids = ids(&site);
    let damaged = document(&site, &format!("runs/{}", ids["damaged"]));
    let why = damaged["why"].as_str().unwrap_or_else(|| panic!("{damaged}"));
    assert!(!why.is_empty(), "{damaged}");
    document(&site, &format!("runs/{}/report/kernels", ids["sound"]));
    // A run without readable files has no report; its file in the site has the reason.
    fs::remove_file(directory.join("damaged/rank-0.tprof")).unwrap();
    let made = export(&scratch, &directory, &site, &["--force"]).expect_code(0);
    assert!(made.stderr.contains("damaged is damaged"), "{}", made.stderr);
    let [_, none, error, status] =
        &call(&site, &format!("runs/{}/report/kernels", ids["damaged"]))[..]
    else {
        panic!("there is a report: {}", made.stderr)
    };
    assert!(none.is_null() && status.as_u64() >= Some(400), "{status}");
    assert!(error["why"].as_str().is_some_and(|why| !why.is_empty()), "{error}");
}

#[test]
fn a_site_replaces_files_only_under_force_and_never_the_runs() {
    let scratch = Scratch::new();
    let directory = scratch.join("there");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("own"), "own").unwrap();
    let refused = export(&scratch, runs(), &directory, &[]);
    assert_refused(&refused, &["exists", "--force"]);
    assert_eq!(fs::read_to_string(directory.join("own")).unwrap(), "own");
    // The runs themselves are kept, whatever the options are.
    for runs_within in [runs(), runs().parent().unwrap(), &runs().join("first")] {
        let refused = export(&scratch, runs(), runs_within, &["--force"]);
        assert_refused(&refused, &["the runs themselves"]);
    }
    assert!(runs().join("first/run.json").is_file());
    for (words, named) in
        [(&["--rank", "0"][..], "--rank"), (&["--steps", "1"], "whole"), (&["--json"], "--json")]
    {
        assert_refused(&export(&scratch, runs(), &scratch.join("x"), words), &[named, "site"]);
    }
    let empty = scratch.join("empty");
    fs::create_dir(&empty).unwrap();
    assert_refused(&export(&scratch, &empty, &scratch.join("x"), &[]), &["contains no run"]);
    assert!(!scratch.join("x").exists());
}

#[test]
fn a_site_goes_to_stdout_as_an_archive() {
    let scratch = Scratch::new();
    let to = unpacked(&scratch, &["--to", "site"], &runs().join("first"));
    assert_eq!(document(&to.join("site"), "runs")["runs"].as_array().unwrap().len(), 1);
    assert!(to.join("site/index.html").is_file());
}

#[test]
fn a_site_that_is_ended_by_a_signal_is_whole_or_absent() {
    let scratch = Scratch::new();
    let site = scratch.join("site");
    let mut command = Command::new(tprof_at());
    command.args(["export", "--to", "site", "-o"]).arg(&site).arg(runs());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let made = || -> Vec<String> {
        let entries = fs::read_dir(scratch.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("site")).collect()
    };
    tprof_tests::wait_until("the site is begun", || !made().is_empty());
    tprof_tests::kill(child.id(), libc::SIGTERM);
    child.wait().unwrap();
    // On a busy machine the site may have been complete before the signal.
    match site.exists() {
        true => assert!(site.join("index.html").is_file() && made() == ["site"]),
        false => assert_eq!(made(), [""; 0]),
    }
}
