//! Tests of recording PyTorch's operators and ranges. A stand-in exports the same symbols as
//! PyTorch and has the object layouts of several versions.

use crate::calls::rows;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tprof_tests::{
    Job, Live, Scratch, Traced, document, run_info, skip, tprof, traced, traced_job,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, Span, SpanKind};

const PYTHON: &str = "/usr/bin/python3";
const SHAPES: &[&str] = &["--operators", "shapes"];
/// Layouts of PyTorch 2.15 and 2.4; 2.4 has the older ABI of strings.
const NEW: [&str; 2] = ["-DPYTHON_WORDS=1", "-DNAME_BYTES=40"];
const OLD: [&str; 2] = ["-DPYTHON_WORDS=2", "-DNAME_BYTES=16"];

/// Builds the stand-in, and the programs that use it. Returns false without a compiler.
pub fn build(defines: &[&str], scratch: &Scratch) -> bool {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/torch_stand_in");
    if Job::new("sh").args(["-c", "command -v g++"]).run_in(scratch.path()).code != Some(0) {
        skip("no g++");
        return false;
    }
    let compile = |arguments: &[&str]| {
        let job = Job::new("g++").args(["-g", "-O1", "-std=c++17"]).args(defines).args(arguments);
        let job = job.run_in(scratch.path());
        assert_eq!(job.code, Some(0), "{job:?}");
    };
    let source = |name: &str| format!("{sources}/{name}");
    let rpath = "-Wl,-rpath,$ORIGIN";
    compile(&["-shared", "-fPIC", &source("core.cpp"), "-o", "libc10.so"]);
    let library = ["-shared", "-fPIC", rpath, "-pthread", &source("cpu.cpp"), "libc10.so"];
    compile(&[&library[..], &["-o", "libtorch_cpu.so"]].concat());
    compile(&[rpath, &source("linked.cpp"), "libtorch_cpu.so", "libc10.so", "-o", "linked"]);
    compile(&["-x", "c++", &source("loads.c"), "-ldl", "-o", "loads"]);
    true
}

/// Builds the stand-in with the layout of the newest PyTorch.
pub fn build_stand_in(scratch: &Scratch) -> bool {
    build(&NEW, scratch)
}

fn run(program: &str, what: &str, options: &[&str], scratch: &Scratch) -> Traced {
    traced(&Job::new(scratch.join(program)).arg(what), options, scratch)
}

/// Returns how often each name was recorded.
fn counts(file: &TraceFile, spans: &[Span], kind: SpanKind) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in spans.iter().filter(|span| span.kind == kind) {
        *counts.entry(file.name(span.name).to_owned()).or_default() += 1;
    }
    counts
}

fn named<'s>(file: &TraceFile, spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| file.name(span.name) == name).collect()
}

fn of(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Returns the file's property about the recording of operators.
fn recorded(file: &TraceFile) -> serde_json::Value {
    serde_json::from_str(file.property("pytorch").unwrap_or("null")).unwrap()
}

#[test]
fn operators_have_their_sizes_in_every_object_layout() {
    for layout in [NEW, OLD] {
        let scratch = Scratch::new();
        if !build(&layout, &scratch) {
            return;
        }
        let traced = run("linked", "", SHAPES, &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let (file, spans) = rows::<Span>(&traced.run, 0);
        let operators = counts(&file, &spans, SpanKind::Operator);
        assert_eq!(operators, of(&[("MmBackward0", 5), ("aten::linear", 5), ("aten::mm", 5)]));
        assert_eq!(counts(&file, &spans, SpanKind::Annotation), of(&[("step", 5)]));
        let dims = r#"{"Input Dims":[[2,3],[3,4],[],[],[],[[2,3],[],[3,4]],[],[],[],[]],"#;
        let types = r#""Input type":["float","double","Scalar","","","TensorList","TensorList","ScalarList","Scalar","ScalarList"],"#;
        let values =
            r#""Concrete Inputs":["","","","","","","","[2, -1]","True","[True, False]"]}"#;
        for (at, mm) in named(&file, &spans, "aten::mm").iter().enumerate() {
            assert_eq!(
                (file.name(mm.args), mm.sequence),
                (&*format!("{dims}{types}{values}"), Some(at as u64))
            );
        }
        let (outer, inner) = ("aten::linear", "aten::mm");
        for (outer, inner) in named(&file, &spans, outer).iter().zip(named(&file, &spans, inner)) {
            assert!(outer.start_ns <= inner.start_ns);
            assert!(inner.start_ns + inner.duration_ns <= outer.start_ns + outer.duration_ns);
        }
        assert_eq!(recorded(&file)["operators"], "shapes");
    }
}

#[test]
fn a_build_that_throws_when_tested_has_names_without_sizes() {
    let scratch = Scratch::new();
    if !build(&[NEW[0], NEW[1], "-DTHROWS"], &scratch) {
        return;
    }
    let traced = run("linked", "", SHAPES, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let mm = named(&file, &spans, "aten::mm");
    assert_eq!((mm.len(), file.name(mm[0].args), mm[0].sequence), (5, "", None));
    let recorded = recorded(&file);
    assert_eq!(recorded["operators"], "names");
    assert!(recorded["why"].as_str().unwrap().contains("raised an exception"), "{recorded}");
}

#[test]
fn a_build_without_the_function_runs_unrecorded_with_a_reason() {
    let scratch = Scratch::new();
    if !build(&[NEW[0], NEW[1], "-DMISSING"], &scratch) {
        return;
    }
    let traced = run("linked", "", SHAPES, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    assert!(counts(&file, &spans, SpanKind::Operator).is_empty());
    assert_eq!(recorded(&file)["operators"], "off");
}

#[test]
fn operators_are_recorded_again_when_python_reloads_the_library() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let library = scratch.join("libtorch_cpu.so");
    let traced = run("loads", library.to_str().unwrap(), &["--operators", "names"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    assert_eq!(counts(&file, &spans, SpanKind::Annotation), of(&[("step", 10)]));
    assert_eq!(named(&file, &spans, "aten::mm").len(), 10);
    assert_eq!(file.name(named(&file, &spans, "aten::mm")[0].args), "");
}

#[test]
fn a_forked_child_defines_its_own_names() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "fork", SHAPES, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let mut by_process = BTreeMap::new();
    for span in named(&file, &spans, "aten::mm") {
        *by_process.entry(span.process).or_insert(0) += 1;
        assert!(file.name(span.args).contains("[2,3]"));
    }
    assert_eq!(by_process.into_values().collect::<Vec<_>>(), [5, 3]);
}

#[test]
fn a_child_forked_while_callbacks_are_registered_registers_its_own() {
    let scratch = Scratch::new();
    if !build(&[NEW[0], NEW[1], "-DFORKS=1"], &scratch) {
        return;
    }
    let traced = run("linked", "", SHAPES, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let mut by_process = BTreeMap::new();
    for span in named(&file, &spans, "aten::mm") {
        *by_process.entry(span.process).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = by_process.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 5]);
}

#[test]
fn a_child_forked_during_the_registration_counts_its_loss() {
    let scratch = Scratch::new();
    if !build(&[NEW[0], NEW[1], "-DFORKS=2"], &scratch) {
        return;
    }
    let traced = run("linked", "", SHAPES, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    assert_eq!(named(&file, &spans, "aten::mm").len(), 5);
    assert_eq!(recorded(&file)["operators"], "shapes");
    let info = run_info(&traced.run, |info| info["finished"] == true);
    let lost = info["completeness"]["losses"].to_string();
    assert!(lost.contains("forked while its parent registered callbacks"), "{lost}");
}

/// Builds a Python module that is linked with the stand-in, beside the stand-in. Returns false if
/// it can't be built.
fn build_module(scratch: &Scratch) -> bool {
    if !Path::new(PYTHON).exists() {
        skip("there is no /usr/bin/python3");
        return false;
    }
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/torch_stand_in");
    build(&NEW, scratch) && {
        let job = Job::new("gcc").args(["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"]);
        let job = job.arg(format!("{sources}/module.c")).args(["libtorch_cpu.so", "libc10.so"]);
        let job = job.args(["-o", "stand_in_module.so"]).run_in(scratch.path());
        assert_eq!(job.code, Some(0), "{job:?}");
        true
    }
}

/// Runs a script that may import the module, in an interpreter without its site module and
/// environment.
fn run_python(script: &str, scratch: &Scratch) -> (TraceFile, Vec<Span>) {
    let script = format!("import sys; sys.path.insert(0, {:?})\n{script}", scratch.path());
    let job = Job::new(PYTHON).args(["-I", "-S", "-c"]).arg(script);
    let traced = traced(&job, SHAPES, scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    rows::<Span>(&traced.run, 0)
}

#[test]
fn an_interpreter_without_site_and_environment_records_operators() {
    let scratch = Scratch::new();
    if !build_module(&scratch) {
        return;
    }
    let (file, spans) = run_python("import stand_in_module", &scratch);
    let mm = named(&file, &spans, "aten::mm");
    assert!(mm.len() == 5 && mm.iter().all(|span| file.name(span.args).contains("[2,3]")));
    assert_eq!(recorded(&file)["operators"], "shapes");
}

#[test]
fn operators_of_each_interpreter_of_a_process_are_recorded_once() {
    const SCRIPT: &str = "
import stand_in_module
try:
    import _xxsubinterpreters as interpreters
    create = lambda: interpreters.create(isolated=False)
except ImportError:
    import _interpreters as interpreters
    create = lambda: interpreters.create('legacy')
other = create()
path = sys.path[0]
interpreters.run_string(other, f'import sys; sys.path.insert(0, {path!r}); import stand_in_module')
interpreters.destroy(other)
del sys.modules['stand_in_module']
import stand_in_module
";
    let scratch = Scratch::new();
    if !build_module(&scratch) {
        return;
    }
    let (file, spans) = run_python(SCRIPT, &scratch);
    assert_eq!(named(&file, &spans, "aten::mm").len(), 15);
    assert_eq!(counts(&file, &spans, SpanKind::Annotation), of(&[("step", 15)]));
}

#[test]
fn a_range_may_end_in_another_thread() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "other-thread", SHAPES, &scratch);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let found = counts(&file, &spans, SpanKind::Annotation);
    assert_eq!(found, of(&[("asynchronous", 1), ("step", 5)]));
}

#[test]
fn a_range_open_at_a_kill_is_recorded_and_its_lost_end_is_counted() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "kill", SHAPES, &scratch);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let epoch = named(&file, &spans, "epoch");
    let last = named(&file, &spans, "aten::mm")[5];
    assert_eq!(epoch.len(), 1);
    assert!(epoch[0].start_ns <= last.start_ns);
    assert!(epoch[0].start_ns + epoch[0].duration_ns >= last.start_ns + last.duration_ns);
    let info = run_info(&traced.run, |info| info["finished"] == true);
    let lost = info["completeness"].to_string();
    assert!(lost.contains("ends of ranges"), "{lost}");
}

#[test]
fn recording_of_costly_operators_ends_if_nothing_marks_steps() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "many", &["--operators", "auto"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    assert_eq!(counts(&file, &spans, SpanKind::Annotation), of(&[("step", 10_005)]));
    let operators: usize = counts(&file, &spans, SpanKind::Operator).values().sum();
    assert!((8_192..3 * 10_005).contains(&operators), "{operators}");
    let recorded = recorded(&file);
    assert_eq!(recorded["operators"], "steps");
    assert!(recorded["why"].as_str().unwrap().contains("more than 0.5 %"), "{recorded}");
    // Reports that use operators must say that they cover only a part of the time.
    let ended = "1 rank recorded operators for a part of the time only";
    for kind in ["operators", "sequences", "critical-path", "findings"] {
        let notes = document(kind, &traced.run)["notes"].to_string();
        assert_eq!(notes.matches(ended).count(), 1, "{kind}: {notes}");
    }
    assert!(!document("annotations", &traced.run)["notes"].to_string().contains(ended));
    for (format, notes_it) in [("chrome", true), ("csv", true), ("flame", true), ("folded", false)]
    {
        let export = tprof(["export", "--to", format, "-o", format]).arg(&traced.run);
        let outcome = export.run_in(scratch.path());
        assert_eq!(outcome.stderr.matches(ended).count(), usize::from(notes_it), "{outcome:?}");
    }
}

#[test]
fn costly_operators_are_recorded_completely_in_some_steps() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "trains", &["--operators", "auto"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    assert_eq!(recorded(&file)["operators"], "steps");
    let updates = named(&file, &spans, "Optimizer.step#SGD.step");
    let mut ends: Vec<_> = updates.iter().map(|span| span.start_ns + span.duration_ns).collect();
    ends.sort_unstable();
    assert_eq!(ends.len(), 600);
    let mut operators = vec![0; ends.len() + 1];
    for span in spans.iter().filter(|span| span.kind == SpanKind::Operator) {
        operators[ends.partition_point(|end| *end <= span.start_ns)] += 1;
    }
    // The first step has 15 more operators, from before it. A step in which the cost exceeded the
    // share is incomplete. All steps may be recorded again for a while, if the machine was so busy
    // that the share seemed small.
    let after = operators.iter().position(|count| *count == 0).expect("a step without operators");
    assert_eq!(operators[..after - 1].iter().filter(|n| !matches!(n, 900 | 915)).count(), 0);
    let turns = &operators[after..600];
    let is_whole = |count: i32| matches!(count, 0 | 900);
    let exceeds = |of: &[i32]| is_whole(of[1]) || of[0] == 900 && of[2] == 0;
    assert!(turns.windows(3).all(exceeds), "{operators:?}");
    assert!(turns.contains(&900), "{operators:?}");
}

#[test]
fn the_cost_of_operators_is_part_of_the_overhead() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "many", &["--operators", "names"], &scratch);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let operators: usize = counts(&file, &spans, SpanKind::Operator).values().sum();
    let info = run_info(&traced.run, |info| info["finished"] == true);
    let parts = info["overhead"]["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["part"] == "operators").expect("a part");
    assert_eq!(part["count"].as_u64(), Some(operators as u64), "{part}");
    let ns = |key: &str| part[key].as_u64().unwrap() / operators as u64;
    assert!(ns("ns_low") >= 10 && ns("ns_high") > ns("ns_low"), "{part}");
}

/// Returns the number of operators for which PyTorch made an object because they had a callback.
fn observed(stdout: &str) -> Option<&str> {
    stdout.lines().find_map(|line| line.strip_prefix("observed "))?.split(',').next()
}

/// Returns the number of callbacks that PyTorch had at the end.
fn callbacks(stdout: &str) -> Option<&str> {
    stdout.lines().find_map(|line| line.rsplit_once("callbacks ")).map(|(_, number)| number)
}

#[test]
fn while_recording_is_off_operators_have_no_callback() {
    let ways = [
        (&[][..], "0", "0"),
        (&["-DDIRECT"], "0", "0"),
        (&["-DOLD_LIST"], "0", "2"),
        (&["-DWITHOUT_SWITCH"], "15", "2"),
    ];
    for (defines, expected, left) in ways {
        let scratch = Scratch::new();
        if !build(&[&NEW[..], defines].concat(), &scratch) {
            return;
        }
        let traced = run("linked", "", &["--operators", "names", "--paused"], &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        assert_eq!(observed(&traced.outcome.stdout), Some(expected), "{:?}", traced.outcome);
        assert_eq!(callbacks(&traced.outcome.stdout), Some(left), "{:?}", traced.outcome);
        assert!(rows::<Span>(&traced.run, 0).1.is_empty());
    }
}

#[test]
fn only_the_steps_of_a_schedule_have_callbacks_and_they_are_whole() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let schedule = ["--operators", "names", "--schedule", "wait=1,active=2,repeat=1"];
    let traced = run("linked", "updates", &schedule, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    let operators = counts(&file, &spans, SpanKind::Operator);
    assert_eq!(operators, of(&[("MmBackward0", 2), ("aten::linear", 2), ("aten::mm", 2)]));
    assert_eq!(observed(&traced.outcome.stdout), Some("6"), "{:?}", traced.outcome);
}

/// Starts a paused job that waits for a line, and switches recording on.
fn started(what: &str, scratch: &Scratch) -> (Live, PathBuf) {
    let run = scratch.run();
    let job = Job::new(scratch.join("linked")).arg(what);
    let options = ["--operators", "names", "--paused"];
    let mut live = Live::start(&traced_job(&job, &options, &run), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    tprof(["ctl", "start"]).arg(&run).run_in(scratch.path()).expect_code(0);
    live.send("go\n");
    (live, run)
}

#[test]
fn operators_have_callbacks_again_once_recording_is_on() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let (mut live, run) = started("waits", &scratch);
    assert_eq!(live.wait_for("observed "), "observed 15, callbacks 1");
    assert_eq!(live.finish().code, Some(0));
    let (file, spans) = rows::<Span>(&run, 0);
    let operators = counts(&file, &spans, SpanKind::Operator);
    assert_eq!(operators, of(&[("MmBackward0", 5), ("aten::linear", 5), ("aten::mm", 5)]));
}

#[test]
fn ranges_need_no_registered_callback_if_their_beginning_can_be_interposed() {
    for (define, left) in [("-g", "1"), ("-DDIRECT", "2")] {
        let scratch = Scratch::new();
        if !build(&[NEW[0], NEW[1], define], &scratch) {
            return;
        }
        let traced = run("linked", "other-thread", &["--operators", "names"], &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        assert_eq!(callbacks(&traced.outcome.stdout), Some(left), "{:?}", traced.outcome);
        let (file, spans) = rows::<Span>(&traced.run, 0);
        let ranges = counts(&file, &spans, SpanKind::Annotation);
        assert_eq!(ranges, of(&[("asynchronous", 1), ("step", 5)]));
    }
}

/// The job allocates memory after PyTorch's list of callbacks is destroyed. The stand-in aborts if
/// the list is used then.
#[test]
fn an_ending_process_does_not_call_pytorch() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let outcome = started("ends", &scratch).0.finish();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn operators_off_records_no_operator() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let traced = run("linked", "", &["--operators", "off"], &scratch);
    let (file, spans) = rows::<Span>(&traced.run, 0);
    assert!(spans.is_empty() && file.property("pytorch").is_none());
}

/// Starts two ranks of a paused job at different times. Both begin each step at the same time.
fn two_ranks(scratch: &Scratch) -> (Live, PathBuf) {
    let run = scratch.run();
    let ranks = "exec 3<&0; export WORLD_SIZE=2 LOCAL_RANK=0; RANK=0 ./linked clocked <&3 & \
                 sleep 0.3; RANK=1 LOCAL_RANK=1 ./linked clocked <&3; wait";
    let job = Job::new("sh").args(["-c", ranks]);
    let options = ["--operators", "names", "--paused"];
    let mut live = Live::start(&traced_job(&job, &options, &run), scratch.path());
    for _ in 0..2 {
        live.wait_for("ready");
    }
    (live, run)
}

/// Waits until both ranks have recorded this many cycles.
fn have_recorded(cycles: usize, run: &Path) {
    let began = Instant::now();
    let ended = |rank: u32| {
        let Ok(file) = TraceFile::open(&run.join(format!("rank-{rank}.tprof"))) else { return 0 };
        let own = file.marks().iter().filter(|mark| mark.process.is_some());
        let is_on: Vec<bool> = own.map(|mark| mark.kind == MarkKind::RecordingOn).collect();
        is_on.windows(2).filter(|pair| *pair == [true, false]).count()
    };
    while [0, 1].map(ended).iter().any(|seen| *seen < cycles) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", [0, 1].map(ended));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn requested_steps_are_the_same_in_all_ranks_although_pytorch_has_no_callback() {
    let scratch = Scratch::new();
    if !build(&NEW, &scratch) {
        return;
    }
    let (live, run) = two_ranks(&scratch);
    let asked = tprof(["ctl", "start", "--steps", "3"]).arg(&run).run_in(scratch.path());
    assert!(asked.expect_code(0).stderr.contains("are recorded as cycle 1"));
    have_recorded(1, &run);
    tprof(["ctl", "stop"]).arg(&run).run_in(scratch.path()).expect_code(0);
    // The ranks have counted alike since then, but not while they were not asked to.
    let again = tprof(["ctl", "start", "--steps", "2"]).arg(&run).run_in(scratch.path());
    assert!(again.expect_code(0).stderr.contains("are recorded as cycle 2"));
    have_recorded(2, &run);
    assert_eq!(live.finish().code, Some(0));
    let ranges = |rank| {
        let (file, spans) = rows::<Span>(&run, rank);
        assert_eq!(counts(&file, &spans, SpanKind::Operator)["aten::mm"], 5, "rank {rank}");
        let names = spans.iter().map(|span| file.name(span.name).to_owned());
        names.filter(|name| name.starts_with("at ")).collect::<Vec<_>>()
    };
    let (first, second) = (ranges(0), ranges(1));
    assert_eq!(first.len(), 5, "{first:?} {second:?}");
    assert_eq!(first, second);
}
