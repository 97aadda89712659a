//! Compares recorded NVTX ranges with the program's own log. The ranges come from a program with
//! its own copy of the loading protocol, from one that is built with NVIDIA's own headers, and from
//! Python.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Scratch, assert_unchanged, client_python, clients, document, need_some, program,
    rank_file, rows, run_info, traced, with_real_nvtx,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{HeapChange, MarkKind, Span, SpanKind};

const NVTX: &[&str] = &["--activities", "nvtx"];
/// All modes of the program, except those in which it ends abnormally.
const ALL: [&str; 6] = ["push", "domains", "start", "marks", "threads", "fork"];
/// Both sides read CLOCK_MONOTONIC; converted ticks are accurate to this many nanoseconds.
const SLACK_NS: u64 = 2_000;

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("no {key} in {line}"))
}

fn logged(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ranges_of_steps_are_the_steps_of_reports() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("nvtx_steps")), &["--sample-rate", "997"], &scratch);
    let took_ns: f64 = run.outcome.stdout.trim().parse().unwrap();
    let steps = document("steps", &run.run);
    let times = steps["tables"]["steps"].as_array().unwrap();
    let numbers: Vec<_> = times.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [10, 11, 12, 13, 14], "{times:?}");
    let phases: Vec<String> = steps["tables"]["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{} {} {} {}", row["phase"], row["number"], row["steps"], row["source"]))
        .collect();
    assert_eq!(phases, [r#""train" 2 5 "named""#, r#""checkpoint" null 0 "named""#]);
    let host = document("host", &run.run);
    let driver = &host["tables"]["drivers"][0];
    assert_eq!(driver["judged_from"], "the first step to the last", "{host}");
    let judged_ns = driver["wall_ns"].as_f64().unwrap();
    assert!((judged_ns / took_ns - 1.0).abs() < 0.05, "{judged_ns} of {took_ns}");
}

/// Everything about a range but its times: pid, tid, name, domain, arguments.
type Facts = (u64, u64, String, String, String);

fn facts_of_line(line: &Value) -> Facts {
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    let args = &line["args"];
    (
        number(line, "pid"),
        number(line, "tid"),
        text("name"),
        text("domain"),
        if args.is_null() { String::new() } else { args.to_string() },
    )
}

fn facts_of_span(file: &TraceFile, span: &Span) -> Facts {
    let process = file.processes().iter().find(|p| p.process == span.process).unwrap();
    let thread = file.threads().iter().find(|t| t.thread == span.thread).unwrap();
    let args = match file.name(span.args) {
        "" => String::new(),
        text => serde_json::from_str::<Value>(text).unwrap().to_string(),
    };
    (
        process.pid.into(),
        thread.tid.into(),
        file.name(span.name).to_owned(),
        file.name(span.category).to_owned(),
        args,
    )
}

/// Checks that every range is recorded once, on its thread, between the clock readings around its
/// calls.
#[track_caller]
fn assert_ranges(run: &Path, log: &[Value]) {
    let file = rank_file(run, 0);
    let mut wanted: BTreeMap<Facts, Vec<[u64; 4]>> = BTreeMap::new();
    for line in log {
        let times = ["from", "began", "to", "ended"].map(|key| number(line, key));
        wanted.entry(facts_of_line(line)).or_default().push(times);
    }
    let mut got: BTreeMap<Facts, Vec<(u64, u64)>> = BTreeMap::new();
    for span in rows::<Span>(&file).iter().filter(|span| span.kind == SpanKind::Nvtx) {
        let times = (span.start_ns, span.start_ns + span.duration_ns);
        got.entry(facts_of_span(&file, span)).or_default().push(times);
    }
    let counts: Vec<(&Facts, usize)> = wanted.iter().map(|(f, times)| (f, times.len())).collect();
    let found: Vec<(&Facts, usize)> = got.iter().map(|(f, times)| (f, times.len())).collect();
    assert_eq!(found, counts);
    for (facts, wanted) in &mut wanted {
        let got = got.get_mut(facts).unwrap();
        wanted.sort_unstable();
        got.sort_unstable();
        for ([from, began, to, ended], (start, end)) in wanted.iter().zip(got.iter()) {
            let within =
                |low: u64, at: u64, high: u64| low <= at + SLACK_NS && at <= high + SLACK_NS;
            assert!(
                within(*from, *start, *began) && within(*to, *end, *ended),
                "{facts:?}: {start} to {end}, not {from}..{began} to {to}..{ended}"
            );
        }
    }
}

fn victims() -> Vec<PathBuf> {
    let real = with_real_nvtx();
    if let Err(why) = &real {
        tprof_tests::skip(why.clone());
    }
    [Some(program("nvtx")), real.ok()].into_iter().flatten().collect()
}

#[test]
fn every_range_is_recorded_once_with_all_its_attributes() {
    for victim in victims() {
        let scratch = Scratch::new();
        let log = scratch.join("log");
        let job = Job::new(&victim).arg(&log).args(ALL);
        let run = traced(&job, NVTX, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let log = logged(&log);
        assert_eq!(log.len(), 4 + 3 + 2 + 4 * 50 + 1, "{victim:?}");
        assert_ranges(&run.run, &log);
        let file = rank_file(&run.run, 0);
        let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
        let marks: Vec<&str> = marks.map(|mark| file.name(mark.name)).collect();
        let wanted = ["registered", "mark", "mark in a structure", "mark, wide"];
        assert_eq!(marks, wanted, "{victim:?}");
        let named: BTreeSet<&str> = file
            .threads()
            .iter()
            .filter_map(|thread| file.thread_name(thread.thread))
            .filter(|name| name.starts_with("worker"))
            .collect();
        assert_eq!(named, BTreeSet::from(["worker 0", "worker 1", "worker 2", "worker 3"]));
        let info = run_info(&run.run, |info| info["finished"] == true);
        assert_eq!(info["completeness"]["losses"].as_array().unwrap().len(), 0, "{info}");
    }
}

#[test]
fn the_program_is_unchanged() {
    let scratch = Scratch::new();
    for victim in victims() {
        let job = Job::new(victim).arg(scratch.join("log")).args(ALL).arg("open");
        assert_unchanged(&job, &[NVTX, &[], &["--activities", "mem"]], &scratch);
    }
}

#[test]
fn ranges_of_a_killed_process_are_kept_and_the_open_ones_end_with_it() {
    let scratch = Scratch::new();
    let log = scratch.join("log");
    let job = Job::new(program("nvtx")).arg(&log).args(["push", "open", "kill"]);
    let run = traced(&job, NVTX, &scratch);
    let file = rank_file(&run.run, 0);
    let spans = rows::<Span>(&file);
    let names: BTreeSet<&str> = spans.iter().map(|span| file.name(span.name)).collect();
    assert!(names.contains("step") && names.contains("never ended"), "{names:?}");
    let info = run_info(&run.run, |info| info["finished"] == true);
    let losses = info["completeness"]["losses"].as_array().unwrap();
    let cut = losses.iter().find(|loss| loss["what"] == "ends of NVTX ranges").unwrap();
    assert_eq!(cut["count"], 1);
}

#[test]
fn no_range_is_recorded_while_recording_or_the_activity_is_off() {
    for options in [&["--activities", "mem"][..], &["--activities", "nvtx", "--paused"]] {
        let scratch = Scratch::new();
        let job = Job::new(program("nvtx")).arg(scratch.join("log")).args(ALL);
        let run = traced(&job, options, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let file = rank_file(&run.run, 0);
        assert!(rows::<Span>(&file).is_empty(), "{options:?}");
        assert!(file.marks().iter().all(|mark| !file.name(mark.name).starts_with("mark")));
    }
}

#[test]
fn another_tool_in_the_nvtx_variable_gets_the_ranges_and_is_named() {
    let scratch = Scratch::new();
    let source = scratch.join("tool.c");
    let text = "#include <stdio.h>\n\
         int InitializeInjectionNvtx2(const void *get) { (void)get; puts(\"own tool\"); fflush(stdout); return 1; }\n";
    std::fs::write(&source, text).unwrap();
    let tool = scratch.join("tool.so");
    let built = Job::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&tool).arg(&source);
    assert_eq!(built.run_in(scratch.path()).code, Some(0));
    let text = scratch.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    for (named, printed, why) in [
        (tool.to_str().unwrap(), "own tool", "another library (tool.so), which keeps them"),
        ("/no/such/tool.so", "", "/no/such/tool.so, which is not a library: the ranges are lost"),
        (text.to_str().unwrap(), "", "text.so, which is not a library: the ranges are lost"),
    ] {
        let job = Job::new(program("nvtx"))
            .arg(scratch.join("log"))
            .arg("push")
            .env("NVTX_INJECTION64_PATH", named);
        let run = assert_unchanged(&job, &[NVTX], &scratch);
        assert!(run.outcome.stdout.contains(printed), "{:?}", run.outcome);
        let info = run_info(&run.run, |info| info["finished"] == true);
        let blind = info["completeness"]["blind"].as_array().unwrap();
        let entries = blind.iter().filter(|entry| {
            entry["what"] == "NVTX ranges"
                && entry["why"].as_str().unwrap().contains("NVTX_INJECTION64_PATH")
                && entry["why"].as_str().unwrap().contains(why)
        });
        assert_eq!(entries.count(), 1, "{info}");
    }
}

#[test]
fn ranges_of_pythons_nvtx_are_recorded_and_reported() {
    let (python, path) = (need_some!(client_python()), need_some!(clients()));
    let scratch = Scratch::new();
    let script = scratch.join("train.py");
    std::fs::write(
        &script,
        "import nvtx\n\
         @nvtx.annotate('forward', color='green', domain='model', category='layers')\n\
         def forward(): pass\n\
         for step in range(5):\n    \
             with nvtx.annotate('step', payload=step):\n        forward()\n\
         nvtx.mark('done')\n\
         r = nvtx.start_range('whole'); nvtx.end_range(r)\n",
    )
    .unwrap();
    let job = Job::new(python).arg(&script).env("PYTHONPATH", path);
    let run = traced(&job, &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let file = rank_file(&run.run, 0);
    let spans = rows::<Span>(&file);
    let of = |name: &str| {
        let found = spans.iter().filter(|span| file.name(span.name) == name);
        found.map(|span| (file.name(span.category), file.name(span.args))).collect::<Vec<_>>()
    };
    assert_eq!(of("forward"), [("model", r##"{"category":"layers","colour":"#008000"}"##); 5]);
    let steps = of("step");
    assert_eq!(steps.len(), 5);
    for (at, (domain, args)) in steps.iter().enumerate() {
        let args: Value = serde_json::from_str(args).unwrap();
        assert_eq!((args["payload"].as_u64(), *domain), (Some(at as u64), ""));
    }
    assert_eq!(of("whole").len(), 1);
    let report = document("annotations", &run.run);
    let rows = report["tables"]["annotations"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["range"] == "step" && row["runs"] == 5), "{report}");
}

#[test]
fn a_forked_child_whose_first_event_is_a_range_is_one_process() {
    let scratch = Scratch::new();
    let log = scratch.join("log");
    let job = Job::new(program("nvtx")).arg(&log).arg("early");
    let run = traced(&job, &["--activities", "nvtx,mem", "--mem", "exact"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let info = run_info(&run.run, |info| info["finished"] == true);
    let processes = info["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert!(processes.iter().all(|process| process["exit_status"] == 0), "{processes:?}");
    assert_eq!(info["completeness"]["blind"], Value::Array(Vec::new()));
    let file = rank_file(&run.run, 0);
    assert_eq!(file.processes().len(), 2, "{:?}", file.processes());
    let child = &file.processes()[1];
    assert_eq!(file.threads().iter().filter(|row| row.process == child.process).count(), 1);
    let spans = rows::<Span>(&file);
    let [range] = spans
        .iter()
        .filter(|span| span.process == child.process && span.kind == SpanKind::Nvtx)
        .collect::<Vec<_>>()[..]
    else {
        panic!("{spans:?}");
    };
    assert_eq!(file.name(range.name), "first of all");
    let is_block = |what| matches!(what, HeapChange::Alloc { size: 100_000, .. });
    let blocks = file.heap_events_of(child.process).filter(|event| is_block(event.what)).count();
    assert_eq!(blocks, 1, "the child's allocations are its own");
}
