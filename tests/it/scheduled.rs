//! Only the requested steps or range are recorded, and the run names the parts that are not.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Live, Outcome, Refused, Report, Scratch, am_root, document, memory_report, need_some,
    program, run_info, skip, stack, tprof, tprof_at, train, wait_until,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{Kernel, MarkKind};

const SCHEDULE: &[&str] = &["--schedule", "wait=3,warmup=1,active=3,repeat=1"];
/// Number of blocks that each step of the program keeps.
const KEEPS: i64 = 10;

fn words<'a>(options: &[&'a str], run: &'a Path) -> Vec<&'a str> {
    let run = run.to_str().unwrap();
    [&["run", "--mem", "exact"], options, &["-o", run, "--"]].concat()
}

/// Runs the program with these words. It does not pass `--quiet`, because the tests check what
/// tprof prints.
fn run(job: &[&str], options: &[&str]) -> (Scratch, PathBuf, Outcome) {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = tprof(words(options, &run)).arg(program("scheduled")).args(job);
    let outcome = job.run_in(scratch.cwd());
    (scratch, run, outcome)
}

/// Does the same as [`run`] for a job that succeeds.
fn ran(job: &[&str], options: &[&str]) -> (Scratch, PathBuf, Outcome) {
    let (scratch, run, outcome) = run(job, options);
    (scratch, run, outcome.expect_code(0))
}

/// Returns the program's steps whose allocations were recorded, and the number of these
/// allocations, over all ranks.
fn kept(run: &Path) -> BTreeMap<u64, i64> {
    kept_in(&memory_report(run))
}

/// Returns the number of allocations of all steps in one cycle.
fn kept_of(run: &Path, cycle: &str) -> i64 {
    kept_in(&Report(of_cycle("memory", run, cycle))).values().sum()
}

fn kept_in(report: &Report) -> BTreeMap<u64, i64> {
    let mut kept = BTreeMap::new();
    for site in report.sites(|frame| frame.starts_with("step_")) {
        let step = stack(&site).into_iter().find_map(|frame| frame.strip_prefix("step_"));
        let digits: String = step.unwrap().chars().take_while(char::is_ascii_digit).collect();
        *kept.entry(digits.parse().unwrap()).or_default() += site["allocations"].as_i64().unwrap();
    }
    kept
}

fn each(steps: &[u64], blocks: i64) -> BTreeMap<u64, i64> {
    steps.iter().map(|step| (*step, blocks)).collect()
}

/// Returns the numbers of the steps in the report, by rank.
fn reported(run: &Path) -> BTreeMap<String, Vec<u64>> {
    steps_of(&document("steps", run))
}

/// Does the same as [`reported`] for one cycle.
fn reported_of(run: &Path, cycle: &str) -> BTreeMap<String, Vec<u64>> {
    steps_of(&of_cycle("steps", run, cycle))
}

/// Returns a report of one cycle.
fn of_cycle(kind: &str, run: &Path, cycle: &str) -> Value {
    let outcome = tprof(["report", kind, "--json", "--cycle", cycle]).arg(run);
    serde_json::from_str(&outcome.run_in(run.parent().unwrap()).expect_code(0).stdout).unwrap()
}

fn steps_of(report: &Value) -> BTreeMap<String, Vec<u64>> {
    let mut steps: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in report["tables"]["steps"].as_array().unwrap() {
        let rank = row["rank"].as_str().unwrap().to_owned();
        steps.entry(rank).or_default().push(row["step"].as_u64().unwrap());
    }
    steps
}

fn of_rank_0(steps: &[u64]) -> BTreeMap<String, Vec<u64>> {
    BTreeMap::from([("rank 0".to_owned(), steps.to_vec())])
}

/// Returns the parts of the job that the run lists as not recorded, and the reasons.
fn not_recorded(run: &Path) -> Vec<(String, String)> {
    let summary = document("summary", run);
    let all = summary["completeness"]["blind"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let of = all.iter().filter(|row| row["process"] == "the job");
    of.map(|row| (text(row, "what"), text(row, "why"))).collect()
}

fn switched_on(run: &Path) -> Vec<String> {
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let on = file.marks().iter().filter(|mark| mark.kind == MarkKind::RecordingOn);
    on.map(|mark| file.name(mark.name).to_owned()).collect()
}

#[test]
fn a_schedule_records_its_steps_by_every_source() {
    for how in ["abi", "nvtx"] {
        let (_scratch, run, outcome) = ran(&[how, "12", "5"], SCHEDULE);
        let plan = "tprof: records steps 4 to 6; needs at least 7\n";
        assert!(outcome.stderr.starts_with(plan), "{outcome:?}");
        assert_eq!(kept(&run), each(&[4, 5, 6], KEEPS), "{how}");
        assert_eq!(reported(&run), of_rank_0(&[4, 5, 6]), "{how}");
        let rest = "everything outside of steps 4 to 6".to_owned();
        let why = "--schedule".to_owned();
        assert_eq!(not_recorded(&run), [(rest, why)], "{how}");
        assert_eq!(switched_on(&run), ["cycle 1: step 4 (--schedule)"], "{how}");
    }
}

#[test]
fn live_bytes_are_unknown_if_exact_records_cover_only_a_part() {
    let (_scratch, run, _) = ran(&["abi", "12", "5"], SCHEDULE);
    let memory = memory_report(&run).only().clone();
    assert_eq!(memory["allocations"].as_i64(), Some(3 * KEEPS), "{memory}");
    assert!(memory["live_at_exit_bytes"].is_null() && memory["peak_bytes"].is_null(), "{memory}");
}

/// Each of the twelve steps keeps ten blocks of some 1,000 bytes.
#[test]
fn live_bytes_of_a_sampled_job_include_events_outside_the_schedule() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let words = ["run", "-q", "--schedule", "wait=1,warmup=1,active=2,repeat=2", "-o"];
    let job = tprof([&words[..], &[run.to_str().unwrap(), "--"]].concat());
    let job = job.arg(program("scheduled")).args(["nvtx", "12", "5"]);
    job.run_in(scratch.cwd()).expect_code(0);
    let of_steps = |steps: i64| steps * KEEPS * 1016;
    let memory = memory_report(&run).only().clone();
    let live = memory["live_at_exit_bytes"].as_i64().unwrap_or_else(|| panic!("{memory}"));
    assert!((of_steps(12)..of_steps(12) + 100_000).contains(&live), "{memory}");
    assert!(memory["peak_bytes"].as_i64().unwrap() >= live, "{memory}");
    // Owners of blocks were recorded for a part of the job only.
    assert!(memory["sites"][0]["live_bytes"].is_null(), "{memory}");
    let mut ends = Vec::new();
    for cycle in ["1", "2"] {
        let heap = &of_cycle("memory", &run, cycle)["ranks"][0]["host_memory"];
        let known = |key: &str| heap[key].as_i64().unwrap_or_else(|| panic!("{heap}"));
        ends.push(known("live_at_exit_bytes"));
        assert!(known("peak_bytes") >= known("live_at_exit_bytes"), "{heap}");
        assert!(known("peak_bytes") <= memory["peak_bytes"].as_i64().unwrap() + 65_536, "{heap}");
    }
    assert!(ends[0] <= ends[1] && ends[1] <= live, "{ends:?} {live}");
}

#[test]
fn cycles_repeat_and_each_part_may_be_an_option_of_its_own() {
    let options = ["--wait=1", "--warmup=1", "--active=2", "--repeat=2"];
    let (_scratch, run, _) = ran(&["nvtx", "12", "5"], &options);
    assert_eq!(kept(&run), each(&[2, 3, 6, 7], KEEPS));
    assert_eq!(reported(&run), of_rank_0(&[2, 3, 6, 7]));
    let on = ["cycle 1: step 2 (--schedule)", "cycle 2: step 6 (--schedule)"];
    assert_eq!(switched_on(&run), on);
}

#[test]
fn a_report_covers_one_cycle_on_request() {
    let options = ["--schedule", "wait=1,warmup=1,active=2,repeat=2"];
    let (scratch, run, _) = ran(&["nvtx", "12", "5"], &options);
    assert_eq!(reported_of(&run, "1"), of_rank_0(&[2, 3]));
    assert_eq!(reported_of(&run, "2"), of_rank_0(&[6, 7]));
    let report = of_cycle("nvtx", &run, "2");
    let ranges = report["tables"]["nvtx_pushpop_sum"].as_array().unwrap();
    let names = ranges.iter().map(|row| row["range"].as_str().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from([":step 6", ":step 7"]));
    assert_eq!(report["notes"][0], "only cycle 2: step 6 (--schedule)");
    let refused = |words: &[&str]| {
        let outcome = tprof([&["report"], words].concat()).arg(&run).run_in(scratch.cwd());
        assert_eq!(outcome.code, Some(125), "{outcome:?}");
        outcome.stderr
    };
    let no_cycle = refused(&["steps", "--cycle", "3"]);
    assert!(no_cycle.contains("no cycle 3") && no_cycle.contains("--cycle 1"), "{no_cycle}");
}

#[test]
fn memory_and_exports_cover_one_cycle_on_request() {
    let options = ["--schedule", "wait=1,warmup=1,active=2,repeat=2"];
    let (scratch, run, _) = ran(&["nvtx", "12", "5"], &options);
    let memory = of_cycle("memory", &run, "2");
    let heap = &memory["ranks"][0]["host_memory"];
    assert_eq!(heap["allocations"].as_i64(), Some(2 * KEEPS), "{heap}");
    let folded = |cycle: &str| {
        let words = ["export", "--to", "folded", "--weight", "count", "-o", "-", "--cycle", cycle];
        let outcome = tprof(words).arg(&run).run_in(scratch.cwd());
        (outcome.code, outcome.stdout, outcome.stderr)
    };
    let (code, text, _) = folded("2");
    assert_eq!(code, Some(0), "{text}");
    let counts: Vec<(bool, bool)> =
        text.lines().map(|line| (line.contains("step_6"), line.contains("step_7"))).collect();
    assert_eq!(counts.len(), 2, "{text}");
    assert!(counts.iter().all(|(six, seven)| *six || *seven), "{text}");
    let (code, _, text) = folded("3");
    assert!(code == Some(125) && text.contains("no cycle 3"), "{text}");
}

#[test]
fn cycles_without_a_wait_between_them_are_separate() {
    let (_scratch, run, _) = ran(&["nvtx", "8", "5"], &["--schedule", "active=2,repeat=2"]);
    assert_eq!(kept(&run), each(&[0, 1, 2, 3], KEEPS));
    assert_eq!(switched_on(&run), ["cycle 1 (--schedule)", "cycle 2: step 2 (--schedule)"]);
    assert_eq!(reported_of(&run, "1"), of_rank_0(&[0, 1]));
    assert_eq!(reported_of(&run, "2"), of_rank_0(&[2, 3]));
}

#[test]
fn ranks_record_the_same_steps_whatever_their_pace() {
    let (_scratch, run, _) = ran(&["abi", "12", "5", "2"], SCHEDULE);
    assert_eq!(kept(&run), each(&[4, 5, 6], 2 * KEEPS));
    let both = [0, 1].map(|rank| (format!("rank {rank}"), vec![4, 5, 6]));
    assert_eq!(reported(&run), BTreeMap::from(both));
}

#[test]
fn epochs_are_counted_if_they_are_the_unit() {
    let options = ["--schedule", "wait=1,active=1,repeat=1", "--unit", "epoch"];
    let (_scratch, run, outcome) = ran(&["epochs", "8", "5"], &options);
    assert!(outcome.stderr.contains("records epoch 1; needs at least 2"), "{outcome:?}");
    assert_eq!(kept(&run), each(&[2, 3], KEEPS));
}

#[test]
fn a_job_that_is_too_short_or_makes_no_steps_is_named() {
    let (_scratch, run, outcome) = ran(&["abi", "6", "5"], SCHEDULE);
    let short = "the job made 6 steps, the schedule needs 7";
    assert!(outcome.stderr.contains(short), "{outcome:?}");
    let not = not_recorded(&run);
    assert_eq!(not[0], ("step 6".to_owned(), short.to_owned()));
    let (_scratch, run, outcome) = ran(&["none", "6", "5"], SCHEDULE);
    assert!(outcome.stderr.contains("no step was noticed"), "{outcome:?}");
    assert_eq!(kept(&run), BTreeMap::new());
    assert_eq!(not_recorded(&run)[0].0, "steps 4 to 6");
}

#[test]
fn a_range_is_captured_once_or_each_time() {
    for (how, range) in [("eval", "nvtx:eval"), ("range", "range:eval")] {
        let (_scratch, run, _) = ran(&[how, "8", "5"], &["--capture-range", range]);
        assert_eq!(kept(&run), each(&[2], KEEPS), "{range}");
        let options = ["--capture-range", range, "--capture-end", "repeat"];
        let (_scratch, run, _) = ran(&[how, "8", "5"], &options);
        assert_eq!(kept(&run), each(&[2, 5], KEEPS), "{range}");
        let on = ["cycle 1 (--capture-range)", "cycle 2 (--capture-range)"];
        assert_eq!(switched_on(&run), on);
    }
    let (_scratch, run, _) = ran(&["nvtx", "8", "5"], &["--capture-range", "step:2-3"]);
    assert_eq!(kept(&run), each(&[2, 3], KEEPS));
    let (_scratch, run, outcome) = ran(&["nvtx", "8", "5"], &["--capture-range", "nvtx:other"]);
    assert!(outcome.stderr.contains("the job had no such range"), "{outcome:?}");
    assert_eq!(kept(&run), BTreeMap::new());
}

#[test]
fn the_end_of_a_captured_range_can_end_the_job() {
    let options = ["--capture-range", "range:eval", "--capture-end", "stop-job"];
    let (_scratch, run, outcome) = run(&["range", "100000", "5"], &options);
    assert_eq!(outcome.signal, Some(15), "{outcome:?}");
    assert!(!outcome.stdout.contains("done"), "{outcome:?}");
    assert_eq!(kept(&run), each(&[2], KEEPS));
}

#[test]
fn work_between_cudas_profiler_calls_is_recorded() {
    let scratch = Scratch::new();
    let (job, _) = need_some!(train(12, &["6", "profiler"], &scratch));
    let run = scratch.run();
    let options = ["--capture-range", "cudaProfilerApi"];
    let words: Vec<_> = std::iter::once(tprof_at().into())
        .chain(words(&options, &run).into_iter().map(Into::into))
        .collect();
    job.behind(&words).run_in(scratch.cwd()).expect_code(0);
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let (kernels, problems) = file.rows::<Kernel>();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(kernels.len(), 2 * 6, "of steps 2 and 3");
    assert_eq!(switched_on(&run), ["cycle 1 (--capture-range)"]);
    let by_kernel = |report: Value| report["tables"]["kernels"].clone();
    assert_eq!(by_kernel(of_cycle("kernels", &run, "1")), by_kernel(document("kernels", &run)));
}

/// Requests three steps. Returns their numbers, and the number of the cycle that they are.
fn record_three(run: &Path) -> (Vec<u64>, String) {
    let ctl = tprof(["ctl", "start", "--steps", "3"]).arg(run);
    let answer = ctl.run_in(run.parent().unwrap()).expect_code(0).stderr;
    let numbers: Vec<u64> = answer.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [first, last, cycle] = numbers[..] else { panic!("{answer}") };
    ((first..=last).collect(), cycle.to_string())
}

/// Starts two ranks with steps of `ms` milliseconds, which are recorded only on request.
fn paused(ms: &str, scratch: &Scratch) -> Live {
    let job = Job::new(program("scheduled")).args(["abi", "0", ms, "2"]);
    let words: Vec<_> = std::iter::once(tprof_at().into())
        .chain(words(&["--paused"], &scratch.run()).into_iter().map(Into::into))
        .collect();
    let mut live = Live::start(&job.behind(&words), &scratch.cwd());
    for _ in 0..2 {
        live.wait_for("step 3");
    }
    live
}

/// Returns the steps of a rank that have one of these numbers.
fn marked(run: &Path, rank: u64, wanted: &[u64]) -> Vec<u64> {
    let file = TraceFile::open(&run.join(format!("rank-{rank}.tprof"))).unwrap();
    let steps = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step);
    let names = steps.map(|mark| file.name(mark.name).to_owned());
    let numbers = names.map(|name| name.trim_start_matches("step ").parse().unwrap());
    numbers.filter(|number| wanted.contains(number)).collect()
}

#[test]
fn a_request_records_even_short_steps_in_all_ranks() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = paused("0", &scratch);
    let (asked, cycle) = record_three(&run);
    for _ in 0..2 {
        live.wait_for(&format!("step {}", asked[2] + 1));
    }
    assert_eq!(live.finish().code, Some(0));
    assert_eq!((marked(&run, 0, &asked), marked(&run, 1, &asked)), (asked.clone(), asked));
    // If a request came too late, an earlier cycle may contain a part of its first step.
    assert_eq!(kept_of(&run, &cycle), 2 * 3 * KEEPS);
}

#[test]
fn a_paused_server_records_steps_of_all_ranks_when_asked() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = paused("5", &scratch);
    let (first, before) = record_three(&run);
    for _ in 0..2 {
        live.wait_for(&format!("step {}", first[2] + 1));
    }
    let (second, cycle) = record_three(&run);
    for _ in 0..2 {
        live.wait_for(&format!("step {}", second[2] + 1));
    }
    assert_eq!(live.finish().code, Some(0));
    let (asked_last, both) = (second.clone(), [first, second].concat());
    // At the end of a window's last step there is no mark, only the pause.
    assert_eq!((marked(&run, 0, &both), marked(&run, 1, &both)), (both.clone(), both));
    let ranks =
        |steps: &[u64]| BTreeMap::from([0, 1].map(|rank| (format!("rank {rank}"), steps.to_vec())));
    assert_eq!(reported_of(&run, &cycle), ranks(&asked_last));
    for cycle in [before, cycle] {
        assert_eq!(kept_of(&run, &cycle), 2 * 3 * KEEPS, "cycle {cycle}");
    }
}

#[test]
fn a_request_does_not_take_the_steps_of_another() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = paused("20", &scratch);
    let start =
        |steps: &str| tprof(["ctl", "start", "--steps", steps]).arg(&run).run_in(scratch.path());
    let first = start("30").expect_code(0).stderr;
    let numbers: Vec<u64> = first.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [from, to, 1] = numbers[..] else { panic!("{first}") };
    let refused = start("5");
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains(&format!("steps {from} to {to} are recorded")), "{refused:?}");
    for _ in 0..2 {
        live.wait_for(&format!("step {}", to + 2));
    }
    let second = record_three(&run);
    assert_eq!(second.1, "2");
    for _ in 0..2 {
        live.wait_for(&format!("step {}", second.0[2] + 1));
    }
    assert_eq!(live.finish().code, Some(0));
    let all: Vec<u64> = (from..=to).collect();
    assert_eq!((marked(&run, 0, &all), marked(&run, 1, &all)), (all.clone(), all));
}

/// A host name of its own stands in for the second host. Its steps have the same numbers.
#[test]
fn a_request_records_the_same_steps_on_all_hosts() {
    if !am_root() {
        return skip(Refused::Root);
    }
    let scratch = Scratch::new();
    let run = scratch.run();
    let start = |rank: &str, elsewhere: &[&str]| {
        let job = Job::new(program("scheduled")).args(["abi", "0", "20"]);
        let options = ["--paused", "--if-exists", "join"];
        let words = std::iter::once(tprof_at().into())
            .chain(words(&options, &run).into_iter().map(Into::into));
        let job = job.env("RANK", rank).env("WORLD_SIZE", "2");
        let job = job.behind(&words.collect::<Vec<_>>()).under(elsewhere);
        let mut live = Live::start(&job, &scratch.cwd());
        live.wait_for("step 3");
        live
    };
    let here = start("0", &[]);
    let there =
        start("1", &["unshare", "-u", "sh", "-c", "hostname elsewhere && exec \"$@\"", "sh"]);
    let (asked, _) = record_three(&run);
    let mut both = [here, there];
    both.iter_mut().for_each(|live| _ = live.wait_for(&format!("step {}", asked[2] + 1)));
    both.into_iter().for_each(|live| assert_eq!(live.finish().code, Some(0)));
    assert_eq!((marked(&run, 0, &asked), marked(&run, 1, &asked)), (asked.clone(), asked));
}

#[test]
fn a_dormant_job_records_nothing_but_the_steps_that_are_asked_for() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let script = "eval \"$(\"$1\" env --dormant --mem exact -o \"$2\")\" && exec \"$3\" abi 0 10";
    let job = Job::sh(script).arg(tprof_at()).arg(&run).arg(program("scheduled"));
    let mut live = Live::start(&job, &scratch.cwd());
    live.wait_for("step 20");
    for expected in ["1", "2"] {
        let (asked, cycle) = record_three(&run);
        live.wait_for(&format!("step {}", asked[2] + 1));
        assert_eq!(cycle, expected);
        wait_until("the steps", || marked(&run, 0, &asked) == asked);
    }
    assert_eq!(live.finish().code, Some(0));
    run_info(&run, |info| info["finished"] == true);
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let steps = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step).count();
    // If a request came too late, the step that it missed is marked as well.
    assert!((6..12).contains(&steps), "{steps}");
    for cycle in ["1", "2"] {
        assert_eq!(kept_of(&run, cycle), 3 * KEEPS, "cycle {cycle}");
    }
}

#[test]
fn a_request_for_steps_is_refused_if_the_job_makes_none() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new(program("scheduled")).args(["none", "0", "5"]);
    let words: Vec<_> = std::iter::once(tprof_at().into())
        .chain(words(&["--paused"], &run).into_iter().map(Into::into))
        .collect();
    let mut live = Live::start(&job.behind(&words), &scratch.cwd());
    live.wait_for("step 3");
    let ctl = |steps| tprof(["ctl", "start", "--steps", steps]).arg(&run).run_in(scratch.cwd());
    let refused = ctl("3");
    assert!(refused.stderr.contains("no process of the run has made a step"), "{refused:?}");
    assert!(ctl("0").stderr.contains("no steps to record"));
    assert_eq!(live.finish().code, Some(0));
}

/// Uses the PyTorch that `TPROF_TEST_TORCH` names.
#[test]
fn updates_of_an_unedited_pytorch_job_are_steps() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else { return skip(Refused::PyTorch) };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/scheduled_torch.py");
    let scratch = Scratch::new();
    let run = scratch.run();
    let options = ["--schedule", "wait=3,warmup=1,active=3,repeat=2"];
    let job = tprof(words(&options, &run)).arg(&python).arg("-B").arg(&source).limit(300);
    job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!(reported(&run), of_rank_0(&[4, 5, 6, 11, 12, 13]));
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let (spans, _) = file.rows::<tprof_trace::model::Span>();
    let updates = spans.iter().filter(|span| file.name(span.name) == "Optimizer.step#SGD.step");
    assert_eq!(updates.count(), 6);
    // Several optimizers in a group make one step, which ends with the last of them.
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = tprof(words(&options, &run)).arg(python).arg("-B").arg(source).arg("two").limit(300);
    job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!(reported(&run), of_rank_0(&[4, 5, 6, 11, 12, 13]));
    assert_eq!(reported_of(&run, "2"), of_rank_0(&[11, 12, 13]));
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let (spans, _) = file.rows::<tprof_trace::model::Span>();
    let updates = spans.iter().map(|span| file.name(span.name));
    let updates: Vec<&str> = updates.filter(|name| name.starts_with("Optimizer.step#")).collect();
    let pair = ["Optimizer.step#SGD.step", "Optimizer.step#AdamW.step"];
    assert_eq!(updates, pair.repeat(6));
}
