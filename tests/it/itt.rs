//! Compares recorded ITT tasks with the program's own log. The tasks come from a program with its
//! own static part of ITT, and from Intel's library in Python's `ittapi`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tprof_tests::{
    Job, Refused, Scratch, assert_unchanged, client_python, clients, document, need_some, program,
    rank_file, rows, run_info, skip, traced,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, Span, SpanKind};

const ITT: &[&str] = &["--activities", "nvtx"];
const ALL: [&str; 4] = ["tasks", "overlapped", "threads", "fork"];

/// The number of tasks, by process, thread, name and domain.
type Counts = BTreeMap<(u64, u64, String, String), usize>;

fn logged(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let number = |key: &str| line[key].as_u64().unwrap();
        let key = (number("pid"), number("tid"), text("name"), text("domain"));
        *counts.entry(key).or_default() += 1;
    }
    counts
}

fn recorded(file: &TraceFile) -> Counts {
    let mut counts = Counts::new();
    for span in rows::<Span>(file).iter().filter(|span| span.kind == SpanKind::Nvtx) {
        let process = file.processes().iter().find(|p| p.process == span.process).unwrap();
        let thread = file.threads().iter().find(|t| t.thread == span.thread).unwrap();
        let text = |id| file.name(id).to_owned();
        let key = (process.pid.into(), thread.tid.into(), text(span.name), text(span.category));
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[test]
fn every_task_is_recorded_once_in_its_domain() {
    let scratch = Scratch::new();
    let log = scratch.join("log");
    let run = traced(&Job::new(program("itt")).arg(&log).args(ALL), ITT, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let log = logged(&std::fs::read_to_string(&log).unwrap());
    assert_eq!(log.values().sum::<usize>(), 5 + 6 + 4 * 50 + 1);
    let file = rank_file(&run.run, 0);
    assert_eq!(recorded(&file), log);
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
    assert_eq!(marks.map(|mark| file.name(mark.name)).collect::<Vec<_>>(), ["marked"]);
    let named = file.threads().iter().filter_map(|thread| file.thread_name(thread.thread));
    assert_eq!(named.filter(|name| *name == "worker of ITT").count(), 4);
    // Tasks of one thread nest as they did in the program.
    let spans = rows::<Span>(&file);
    let of = |name: &str| {
        let span = spans.iter().find(|span| file.name(span.name) == name).unwrap();
        (span.start_ns, span.start_ns + span.duration_ns)
    };
    let (outer, inner, early, after) = (of("outer"), of("inner"), of("early text"), of("after"));
    assert!(outer.0 <= inner.0 && inner.1 <= early.0 && early.1 <= outer.1 && outer.1 <= after.0);
    let (one, two, far) = (of("one"), of("two"), of("far"));
    assert!(one.0 <= two.0 && two.0 <= far.0 && one.1 <= far.1 && far.1 <= two.1);
    let info = run_info(&run.run, |info| info["finished"] == true);
    assert_eq!(info["completeness"]["losses"].as_array().unwrap().len(), 0, "{info}");
    assert_eq!(info["completeness"]["blind"].as_array().unwrap().len(), 0, "{info}");
}

#[test]
fn the_program_is_unchanged() {
    let scratch = Scratch::new();
    let job = Job::new(program("itt")).arg(scratch.join("log")).args(ALL).arg("open");
    assert_unchanged(&job, &[ITT, &[], &["--activities", "mem"]], &scratch);
}

#[test]
fn a_task_that_never_ends_is_recorded_up_to_the_process_end() {
    let scratch = Scratch::new();
    let job = Job::new(program("itt")).arg(scratch.join("log")).args(["tasks", "open"]);
    let run = traced(&job, ITT, &scratch);
    let file = rank_file(&run.run, 0);
    assert!(rows::<Span>(&file).iter().any(|span| file.name(span.name) == "never ended"));
    let info = run_info(&run.run, |info| info["finished"] == true);
    let losses = info["completeness"]["losses"].as_array().unwrap();
    let cut = losses.iter().find(|loss| loss["what"] == "ends of NVTX ranges").unwrap();
    assert_eq!(cut["count"], 1);
}

#[test]
fn no_task_is_recorded_while_recording_or_the_activity_is_off() {
    for options in [&["--activities", "mem"][..], &["--activities", "nvtx", "--paused"]] {
        let scratch = Scratch::new();
        let job = Job::new(program("itt")).arg(scratch.join("log")).args(ALL);
        let run = traced(&job, options, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let file = rank_file(&run.run, 0);
        assert!(recorded(&file).is_empty(), "{options:?}");
        assert!(file.marks().iter().all(|mark| file.name(mark.name) != "marked"));
    }
}

#[test]
fn a_jobs_own_itt_collector_gets_the_tasks_and_the_run_reports_it() {
    let scratch = Scratch::new();
    let source = scratch.join("tool.c");
    let text = "#include <stdio.h>\n\
         void __itt_api_init(void *g, int all) { (void)g; (void)all; puts(\"own tool\"); fflush(stdout); }\n";
    std::fs::write(&source, text).unwrap();
    let tool = scratch.join("tool.so");
    let built = Job::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&tool).arg(&source);
    assert_eq!(built.run_in(scratch.path()).code, Some(0));
    let (named, groups) = ("INTEL_LIBITTNOTIFY64", "INTEL_ITTNOTIFY_GROUPS");
    for (variable, value, printed, why) in [
        (named, tool.to_str().unwrap(), "own tool", "another library (tool.so), which keeps them"),
        (named, "/no/such/tool.so", "", "/no/such/tool.so, which is not a library"),
        (groups, "sync", "", "is set: libittnotify.so gets them"),
    ] {
        let job = Job::new(program("itt")).arg(scratch.join("log")).arg("tasks");
        let job = job.env(variable, value);
        let run = assert_unchanged(&job, &[ITT], &scratch);
        assert!(run.outcome.stdout.contains(printed), "{:?}", run.outcome);
        let info = run_info(&run.run, |info| info["finished"] == true);
        let blind = info["completeness"]["blind"].as_array().unwrap();
        let entries = blind.iter().filter(|entry| {
            let why_not = entry["why"].as_str().unwrap();
            entry["what"] == "ITT tasks" && why_not.contains(variable) && why_not.contains(why)
        });
        assert_eq!(entries.count(), 1, "{info}");
    }
}

#[test]
fn tasks_of_intels_own_library_are_recorded_and_reported() {
    let (python, path) = (need_some!(client_python()), need_some!(clients()));
    let scratch = Scratch::new();
    let script = scratch.join("train.py");
    std::fs::write(
        &script,
        "import ittapi\n\
         for step in range(5):\n    \
             with ittapi.task('step', 'model'):\n        \
                 with ittapi.task('forward', 'model'): pass\n\
         whole = ittapi.overlapped_task('whole', 'model'); whole.begin(); whole.end()\n\
         with ittapi.event('event'): pass\n\
         ittapi.thread_set_name('itt thread')\n",
    )
    .unwrap();
    let job = Job::new(python).arg(&script).env("PYTHONPATH", path);
    let run = traced(&job, &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let file = rank_file(&run.run, 0);
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ((_, _, name, domain), count) in recorded(&file) {
        *found.entry((name, domain)).or_default() += count;
    }
    let wanted =
        [("event", "", 1), ("forward", "model", 5), ("step", "model", 5), ("whole", "model", 1)];
    let wanted = wanted.map(|(name, domain, count)| ((name.into(), domain.into()), count));
    assert_eq!(found, BTreeMap::from(wanted));
    let names: BTreeSet<&str> =
        file.threads().iter().filter_map(|thread| file.thread_name(thread.thread)).collect();
    assert!(names.contains("itt thread"), "{names:?}");
    let report = document("annotations", &run.run);
    let rows = report["tables"]["annotations"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["range"] == "forward" && row["runs"] == 5), "{report}");
}

/// Records PyTorch's own ranges, those of its operators within `emit_itt`, and oneDNN's primitives.
#[test]
fn ranges_of_pytorch_are_recorded() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let scratch = Scratch::new();
    let script = scratch.join("train.py");
    std::fs::write(
        &script,
        "import torch\n\
         from torch.profiler import itt\n\
         layer = torch.nn.Conv2d(8, 8, 3)\n\
         image = torch.ones(4, 8, 32, 32)\n\
         for step in range(3):\n    \
             itt.range_push(f'pass {step}'); layer(image); itt.range_pop()\n\
         with torch.autograd.profiler.emit_itt():\n    \
             layer(image)\n\
         print(itt.is_available())\n",
    )
    .unwrap();
    let run = traced(&Job::new(python).arg("-B").arg(&script), ITT, &scratch);
    assert_eq!((run.outcome.code, run.outcome.stdout.as_str()), (Some(0), "True\n"));
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ((_, _, name, domain), count) in recorded(&rank_file(&run.run, 0)) {
        *found.entry((domain, name)).or_default() += count;
    }
    let of = |domain: &str, name: &str| found.get(&(domain.to_owned(), name.to_owned()));
    for name in ["pass 0", "pass 1", "pass 2", "aten::conv2d"] {
        assert_eq!(of("PyTorch", name), Some(&1), "{found:#?}");
    }
    assert!(of("dnnl::primitive::execute", "convolution") >= Some(&4), "{found:#?}");
}
