//! Tests of `--stacks python`: each allocation has the Python functions that made it, on every
//! installed Python.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Refused, Report, Scratch, assert_unchanged, memory_report, need, program, skip_for, stack,
    tprof, traced,
};

/// Records every block, with Python's frames.
const EXACT: &[&str] = &["--stacks", "python", "--mem", "exact", "--activities", "mem"];
/// Records every block that the test checks, because these are larger than the sampling interval.
const LARGE: &[&str] = &["--stacks", "python", "--mem", "sampled=40000", "--activities", "mem"];

/// Returns the installed Pythons from 3.8 on, each once.
pub fn pythons() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten();
    let mut found: Vec<PathBuf> = (8..=14)
        .map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")))
        .chain(versions.flatten().flat_map(|version| {
            (8..=14).map(move |minor| version.path().join(format!("bin/python3.{minor}")))
        }))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Returns the number of the line of a program that contains a marker.
fn line_of(program: &str, marker: &str) -> usize {
    let source = std::fs::read_to_string(script(program)).unwrap();
    let marker = format!("# line: {marker}");
    1 + source.lines().position(|line| line.ends_with(&marker)).unwrap()
}

/// Whether a frame of a report is Python's: its file is a Python file or made-up code.
fn is_python(frame: &str) -> bool {
    frame.contains(".py:") || frame.contains("(<")
}

/// Returns the Python frames of a site, innermost first.
fn python_frames(site: &Value) -> Vec<&str> {
    stack(site).into_iter().filter(|frame| is_python(frame)).collect()
}

/// Returns the number of blocks of one size with this innermost Python frame, and the bytes of them
/// that are live at the end. The function is compared without its class, because older Pythons
/// don't report the class.
fn blocks(sites: &[Value], place: &str, size: i64) -> (i64, i64) {
    let is_it = |frame: &str| {
        let (name, at) = frame.split_once(" (").unwrap_or((frame, ""));
        let last = name.rsplit('.').next().unwrap_or(name);
        format!("{last} ({at}").contains(place)
    };
    let own = sites.iter().filter(|site| {
        let count = site["allocations"].as_i64().unwrap();
        let innermost = python_frames(site).first().is_some_and(|frame| is_it(frame));
        innermost && site["bytes"].as_i64() == Some(count * size)
    });
    own.fold((0, 0), |(count, live), site| {
        (count + site["allocations"].as_i64().unwrap(), live + site["live_bytes"].as_i64().unwrap())
    })
}

/// Returns `function (…/program:line)`, which a frame must contain.
fn place(program: &str, function: &str, marker: &str) -> String {
    format!("{function} ({}:{})", script(program).display(), line_of(program, marker))
}

#[track_caller]
fn whole(report: &Report, name: &str) {
    assert_eq!(report.lost(), 0, "{name}: {}", report.0["completeness"]);
    assert_eq!(report.0["completeness"]["blind"], serde_json::json!([]), "{name}");
}

#[test]
fn allocations_have_their_python_function_and_line() {
    need!(!pythons().is_empty(), "there is no Python");
    const HEAP: &str = "python_heap.py";
    for python in pythons() {
        let name = python.display().to_string();
        let scratch = Scratch::new();
        let job = Job::new(&python).arg(script(HEAP));
        // Each kind of Python is tested once with both ways of recording.
        let options = if name.ends_with("3.10") || name.ends_with("3.12") { EXACT } else { LARGE };
        let run = traced(&job, options, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{name}: {:?}", run.outcome);
        let report = memory_report(&run.run);
        whole(&report, &name);
        let sites = report.sites(is_python);
        // A bytearray allocates one byte more than requested.
        for (function, marker, size, count, live) in [
            ("victim_plain", "plain", 300_018, 7, 7),
            ("victim_dropped", "dropped", 310_018, 5, 0),
            ("__init__", "init", 320_018, 40, 40),
            ("victim_generator", "generator", 330_018, 3, 3),
            ("victim_recurses", "recursion", 340_018, 1, 1),
            ("victim_unlocked", "unlocked", 360_017, 11, 11),
            ("victim_locked", "locked", 370_017, 12, 12),
            ("victim_thread", "thread", 380_018, 80, 80),
            ("victim_thread", "thread unlocked", 390_017, 80, 80),
            ("victim_key", "key", 400_018, 3, 3),
            ("victim_ünïcode", "unicode", 410_018, 1, 1),
            ("victim_child", "child", 420_018, 1, 1),
        ] {
            let found = blocks(&sites, &place(HEAP, function, marker), size);
            assert_eq!(found, (count, live * size), "{name}: {function}, {marker}");
        }
        for i in 0..30 {
            let found = blocks(&sites, &format!("<module> (<made {i:02}>:{})", i + 1), 350_018);
            assert_eq!(found, (1, 350_018), "{name}: code made {i}");
        }
        let deep =
            report.sites(|frame| frame.contains(&place(HEAP, "victim_recurses", "recursion")));
        let deep = deep.iter().find(|site| site["bytes"] == 340_018).unwrap();
        let frames = python_frames(deep);
        let callers = frames.iter().filter(|frame| frame.starts_with("victim_recurses")).count();
        let outer: Vec<&str> = frames[31..].iter().map(|f| f.split(' ').next().unwrap()).collect();
        assert_eq!((callers, outer), (31, vec!["main", "<module>"]), "{name}: {frames:#?}");
        // Native frames are in the right place: the sort is between the key function and its
        // caller.
        let sorts = report.sites(|frame| frame.contains(&place(HEAP, "victim_key", "key")));
        for site in sorts.iter().filter(|site| site["bytes"] == 3 * 400_018) {
            let frames = stack(site);
            let at = |part: &str| frames.iter().position(|frame| frame.contains(part)).unwrap();
            let between = &frames[at("victim_key (") + 1..at("victim_sorts (")];
            assert!(between.iter().any(|frame| frame.contains("sort")), "{name}: {frames:#?}");
        }
    }
}

#[test]
fn python_counts_the_same_blocks_by_line() {
    let pythons = pythons();
    need!(!pythons.is_empty(), "there is no Python");
    let python = pythons.last().unwrap();
    let scratch = Scratch::new();
    let native = Job::new(python).arg(script("python_heap.py")).arg("count");
    let outcome = native.clone().env("PYTHONTRACEMALLOC", "1").run_in(scratch.cwd()).expect_code(0);
    let counted: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let job = Job::new(python).arg(script("python_heap.py"));
    let sites = memory_report(&traced(&job, LARGE, &scratch).run).sites(is_python);
    let lines = counted.as_object().unwrap();
    assert!(lines.len() >= 7, "{counted}");
    for (line, sum) in lines {
        let (count, bytes) = (sum[0].as_i64().unwrap(), sum[1].as_i64().unwrap());
        let at = format!("({}:{line})", script("python_heap.py").display());
        let (_, live) = blocks(&sites, &at, bytes / count);
        assert_eq!(live, bytes, "line {line}: {counted}");
    }
}

#[test]
fn workers_are_recorded_as_well() {
    const WORKERS: &str = "python_workers.py";
    need!(!pythons().is_empty(), "there is no Python");
    for python in pythons() {
        let scratch = Scratch::new();
        let methods = ["fork", "spawn", "forkserver"];
        let run = traced(&Job::new(&python).arg(script(WORKERS)).args(methods), LARGE, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{python:?}: {:?}", run.outcome);
        let report = memory_report(&run.run);
        let sites = report.sites(is_python);
        let (count, _) = blocks(&sites, &place(WORKERS, "victim_item", "item"), 500_018);
        assert_eq!(count, 9, "{python:?}: {}", report.0["completeness"]);
        assert_eq!(report.lost(), 0, "{python:?}: {}", report.0["completeness"]);
    }
}

#[test]
fn a_child_that_is_forked_while_another_thread_unloads_is_recorded() {
    const UNLOADS: &str = "python_unloads.py";
    need!(!pythons().is_empty(), "there is no Python");
    let library = program("unloads_slowly");
    for python in pythons() {
        let scratch = Scratch::new();
        let job = Job::new(&python).arg(script(UNLOADS)).arg(&library);
        let run = traced(&job, LARGE, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{python:?}: {:?}", run.outcome);
        let report = memory_report(&run.run);
        let (count, _) =
            blocks(&report.sites(is_python), &place(UNLOADS, "victim_child", "forked"), 500_018);
        assert_eq!(count, 9, "{python:?}: {}", report.0["completeness"]);
        whole(&report, &python.display().to_string());
    }
}

#[test]
fn an_interpreter_that_ends_while_threads_allocate_is_left_alone() {
    need!(!pythons().is_empty(), "there is no Python");
    let library = program("allocates_for_ever");
    for python in pythons() {
        let job = Job::new(&python).arg(script("python_ends.py")).arg(&library);
        for mode in ["exact", "sampled"] {
            let options = ["--stacks", "python", "--mem", mode, "--activities", "mem"];
            for _ in 0..3 {
                assert_unchanged(&job, &[&options], &Scratch::new());
            }
        }
    }
}

#[test]
fn an_interpreter_may_start_and_end_repeatedly() {
    let libraries = pythons().into_iter().filter_map(|python| {
        let version = python.file_name()?.to_str()?.strip_prefix("python")?.to_owned();
        let home = python.parent()?.parent()?.to_owned();
        let folders = ["lib".to_owned(), format!("lib/{}-linux-gnu", std::env::consts::ARCH)];
        let name = format!("libpython{version}.so.1.0");
        let library = folders.iter().map(|folder| home.join(folder).join(&name));
        Some((library.into_iter().find(|library| library.is_file())?, home))
    });
    let mut tried = 0;
    for (library, home) in libraries {
        tried += 1;
        let scratch = Scratch::new();
        let job = Job::new(program("python_embedded")).arg(&library).env("PYTHONHOME", home);
        let native = job.run_in(scratch.cwd());
        if native.code != Some(0) {
            // The Python itself fails to start an interpreter twice, without tprof too.
            skip_for(Refused::Untraced, &format!("{library:?}: {native:?}"));
            continue;
        }
        let run = traced(&job, LARGE, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{library:?}: {:?}", run.outcome);
        let report = memory_report(&run.run);
        let sites = report.sites(is_python);
        for (function, size, count) in [("victim_first", 610_018, 6), ("victim_second", 620_018, 8)]
        {
            let found = blocks(&sites, &format!("{function} (<string>:2)"), size);
            assert_eq!(found, (count, 0), "{library:?}: {function}");
        }
        // Code of threads that Python does not know has no Python frames.
        let native = report.sites(|frame| frame.starts_with("victim_native"));
        assert!(!native.is_empty());
        for site in native {
            assert!(python_frames(&site).is_empty(), "{library:?}: {site:#}");
        }
    }
    need!(tried > 0, "there is no shared library of Python");
}

#[test]
fn no_system_call_is_made_where_a_filter_forbids_it() {
    const CLOSED: &str = "python_closed.py";
    need!(!pythons().is_empty(), "there is no Python");
    for python in pythons() {
        for way in ["filter", "strict"] {
            let code = 7;
            let scratch = Scratch::new();
            let job = Job::new(&python).arg(script(CLOSED)).arg(way);
            let native = job.run_in(scratch.cwd());
            if native.code != Some(code) {
                // This Python asks the kernel for memory here, so it can't run under the filter.
                skip_for(Refused::Untraced, &format!("{python:?}, {way}: {native:?}"));
                continue;
            }
            let run = traced(&job, LARGE, &scratch);
            assert_eq!(run.outcome.code, Some(code), "{python:?}, {way}: {:?}", run.outcome);
            let report = memory_report(&run.run);
            let sites = report.sites(is_python);
            let (count, _) = blocks(&sites, &place(CLOSED, "victim_closed", "closed"), 50_018);
            assert_eq!(count, 9, "{python:?}, {way}");
            let lost = report.lost_of("Python frames in stacks of allocations");
            assert_eq!(
                lost > 0,
                way == "filter",
                "{python:?}, {way}: {}",
                report.0["completeness"]
            );
        }
    }
}

#[test]
fn text_and_exports_name_pythons_functions() {
    let pythons = pythons();
    need!(!pythons.is_empty(), "there is no Python");
    let scratch = Scratch::new();
    let job = Job::new(pythons.last().unwrap()).arg(script("python_heap.py"));
    let run = traced(&job, LARGE, &scratch).run;
    let out = |arguments: &[&str]| {
        let all = arguments.iter().copied().chain([run.to_str().unwrap()]);
        tprof(all).run_in(scratch.cwd()).expect_code(0).stdout
    };
    let text = out(&["report", "memory"]);
    let line = line_of("python_heap.py", "init");
    assert!(text.contains(&format!("Victim.__init__ (python_heap.py:{line})")), "{text}");
    assert!(text.contains("main (python_heap.py:"), "{text}");
    let folded = out(&["export", "--to", "folded", "-o", "-", "--weight", "bytes"]);
    let of_key = folded.lines().find(|line| line.contains("victim_key")).unwrap();
    let at = |name: &str| of_key.find(name).unwrap_or_else(|| panic!("no {name} in {of_key}"));
    assert!(at("main") < at("victim_sorts") && at("victim_sorts") < at("victim_key"), "{of_key}");
    let file = scratch.join("heap.speedscope.json");
    out(&["export", "--to", "speedscope", "-o", file.to_str().unwrap()]);
    let speedscope: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let frames = speedscope["shared"]["frames"].as_array().unwrap();
    let line = line_of("python_heap.py", "key");
    let key = frames.iter().find(|frame| frame["name"] == "victim_key" && frame["line"] == line);
    assert!(
        key.is_some_and(|f| f["file"].as_str().unwrap().ends_with("python_heap.py")),
        "{frames:#?}"
    );
}
