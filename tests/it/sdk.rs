//! Tests of Rust programs that record spans and values with the crate `tprof`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{
    EXACT, Job, Scratch, Traced, document, memory_report, program, rank_file, rows, run_info,
    traced,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, Span};

fn job(mode: &str) -> Job {
    Job::new(env!("CARGO_BIN_EXE_sdk")).args([mode])
}

fn heap_job() -> Job {
    Job::new(env!("CARGO_BIN_EXE_sdk-heap"))
}

fn spans(file: &TraceFile) -> Vec<Span> {
    let all = rows::<Span>(file).into_iter();
    all.filter(|span| file.name(span.category) == "tprof").collect()
}

/// Returns the start, the end and the arguments of the only span of a name.
fn one(file: &TraceFile, name: &str) -> (u64, u64, Value) {
    let found: Vec<Span> =
        spans(file).into_iter().filter(|span| file.name(span.name) == name).collect();
    let [span] = found[..] else { panic!("{} spans {name}", found.len()) };
    let args = serde_json::from_str(file.name(span.args)).unwrap_or(Value::Null);
    (span.start_ns, span.start_ns + span.duration_ns, args)
}

fn losses(run: &Path) -> BTreeMap<(String, String), u64> {
    let lost = run_info(run, |_| true)["completeness"]["losses"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row =
        |row: &Value| ((text(&row["what"]), text(&row["why"])), row["count"].as_u64().unwrap());
    lost.iter().map(row).collect()
}

fn lost(run: &Path, what: &str, why: &str) -> u64 {
    losses(run).get(&(what.to_owned(), why.to_owned())).copied().unwrap_or(0)
}

fn counter(file: &TraceFile, name: &str) -> Vec<f64> {
    let of = file.counters().iter().filter(|row| file.name(row.name) == name);
    let mut of: Vec<(u64, f64)> = of.map(|row| (row.time_ns, row.value)).collect();
    of.sort_by_key(|(time_ns, _)| *time_ns);
    of.into_iter().map(|(_, value)| value).collect()
}

#[test]
fn without_tprof_a_program_does_the_same_and_nothing_is_recorded() {
    let scratch = Scratch::new();
    let outcome = job("all").run_in(scratch.cwd()).expect_code(0);
    assert_eq!(outcome.stdout, "recording false\nheap false\n");
    for mode in ["odd", "fork", "off", "threads"] {
        job(mode).run_in(scratch.cwd()).expect_code(0);
    }
    let run = traced(&job("all"), &[], &scratch);
    assert_eq!(run.outcome.stdout, "recording true\nheap true\n");
}

#[test]
fn a_part_of_a_program_has_its_report() {
    let scratch = Scratch::new();
    let run = traced(&job("results"), EXACT, &scratch);
    let lines: Vec<&str> = run.outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{:?}", run.outcome);
    assert_eq!(lines[0], "8388608 None");
    assert!(lines[1].starts_with("device time  unknown: no kernel, copy or memset"), "{lines:?}");
    assert_eq!(lines[2..], ["false true false", "Some(true)", "None true"]);
    let native = job("results").run_in(scratch.cwd()).expect_code(0);
    let how = "nothing is recorded without tprof; to record this: tprof run -- PROGRAM";
    let expected = format!(
        "8388608 Some(\"{how}\")\ndevice time  unknown: {how}\nfalse false false\nNone\nNone true\n"
    );
    assert_eq!(native.stdout, expected);
}

#[test]
fn a_table_of_another_version_is_not_used() {
    let scratch = Scratch::new();
    let table = program("other_table");
    let outcome = job("all").env("LD_PRELOAD", &table).run_in(scratch.cwd()).expect_code(0);
    assert_eq!(outcome.stdout, "recording false\nheap false\n");
}

/// NVTX has one stack, so a range ends together with the range around it.
#[test]
fn without_tprof_another_tool_gets_nvtx_ranges() {
    let scratch = Scratch::new();
    let tool = program("other_nvtx");
    let job = job("nvtx").env("NVTX_INJECTION64_PATH", &tool);
    let outcome = job.run_in(scratch.cwd()).expect_code(0);
    let calls = [
        "version 3",
        "push outer",
        "push inner",
        "mark mark",
        "pop",
        "pop",
        "push after",
        "pop",
        "start upload 101",
        "start step 5 102",
        "start step 1 103",
        "end 102",
        "end 101",
    ];
    assert_eq!(outcome.stderr.lines().collect::<Vec<_>>(), calls);
    assert_eq!(outcome.stdout, "true None\n");
    let run = traced(&job, &[], &scratch);
    assert!(!run.outcome.stderr.contains("push outer"), "under tprof, another tool gets no range");
    assert_eq!(spans(&rank_file(&run.run, 0)).len(), 4);
}

#[test]
fn a_refusing_or_missing_nvtx_tool_changes_nothing() {
    let scratch = Scratch::new();
    for library in [program("other_table"), scratch.join("missing.so")] {
        let outcome =
            job("all").env("NVTX_INJECTION64_PATH", &library).run_in(scratch.cwd()).expect_code(0);
        assert_eq!(outcome.stdout, "recording false\nheap false\n");
    }
}

/// Builds the crate and a program that uses it, linked statically. The crate has no dependencies,
/// so rustc is enough.
fn static_program(scratch: &Scratch) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (library, program) = (scratch.join("libtprof.rlib"), scratch.join("operations"));
    let rustc = || {
        let options = ["--edition", "2021", "-O", "-C", "target-feature=+crt-static", "-o"];
        Job::new("rustc").args(options)
    };
    let built = rustc().arg(&library).args(["--crate-type", "rlib", "--crate-name", "tprof"]);
    built.arg(here.join("../crates/sdk/src/lib.rs")).run_in(scratch.path()).expect_code(0);
    let named = format!("tprof={}", library.display());
    let built = rustc().arg(&program).args(["--extern", &named]);
    built
        .arg(here.join("../crates/sdk/examples/operations.rs"))
        .run_in(scratch.path())
        .expect_code(0);
    program
}

#[test]
fn a_static_program_records_nothing_and_the_run_reports_it() {
    let scratch = Scratch::new();
    let job = Job::new(static_program(&scratch));
    let alone = job.clone().run_in(scratch.cwd()).expect_code(0);
    assert!(alone.stdout.ends_with("recorded: false\n"), "{alone:?}");
    // Neither tprof's library nor another tool's can be loaded into a static program.
    let other = job.clone().env("NVTX_INJECTION64_PATH", program("other_nvtx"));
    let other = other.run_in(scratch.cwd()).expect_code(0);
    assert_eq!((other.stdout, other.stderr.as_str()), (alone.stdout.clone(), ""));
    let run = traced(&job, &[], &scratch);
    assert_eq!((run.outcome.code, &run.outcome.stdout), (Some(0), &alone.stdout));
    assert!(spans(&rank_file(&run.run, 0)).is_empty());
    let info = run_info(&run.run, |_| true);
    let blind = info["completeness"]["blind"].as_array().unwrap();
    assert!(blind.iter().any(|row| row["why"].as_str().unwrap().contains("static")), "{blind:?}");
}

#[test]
fn spans_and_their_arguments_are_those_of_the_program() {
    let scratch = Scratch::new();
    for options in [EXACT, &["--mem", "sampled"]] {
        let run = traced(&job("all"), options, &scratch);
        let file = rank_file(&run.run, 0);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for span in spans(&file) {
            *counts.entry(file.name(span.name).to_owned()).or_default() += 1;
            let args: Value = serde_json::from_str(file.name(span.args)).unwrap_or(Value::Null);
            match file.name(span.name) {
                "outer" => {
                    let at = args["at"].as_u64().unwrap();
                    let expected = serde_json::json!({
                        "at": at, "even": at.is_multiple_of(2), "half": at as f64 / 2.0,
                        "category": "compute", "flops": 10, "dtype": "bf16",
                    });
                    assert_eq!(args, expected);
                }
                "load" => assert_eq!(
                    args,
                    serde_json::json!({"category": "data_load", "of": "train", "small": -3})
                ),
                _ => {}
            }
        }
        let expected = [
            ("decode", 1),
            ("inner", 400),
            ("load", 5),
            ("outer", 400),
            ("timed", 1),
            ("upload", 1),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counts, BTreeMap::from(expected));
        let (_, _, args) = one(&file, "upload");
        assert_eq!(args, serde_json::json!({"bytes": 4096, "style": "start/end"}));
        // The program slept for 20 ms within the span, and for 20 ms before it reported the span,
        // which is before `timed`.
        let (start_ns, end_ns, _) = one(&file, "decode");
        assert!(end_ns - start_ns >= 20_000_000, "{}", end_ns - start_ns);
        let (upload_ns, _, _) = one(&file, "upload");
        let (timed_ns, _, _) = one(&file, "timed");
        assert!(upload_ns < start_ns && end_ns + 20_000_000 <= timed_ns);
        let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
        let marks: Vec<&str> = marks.map(|mark| file.name(mark.name)).collect();
        assert_eq!(marks, ["instant", "sum 45"]);
        std::fs::remove_dir_all(&run.run).unwrap();
    }
}

#[test]
fn values_are_counted_in_buckets_while_they_are_recorded() {
    let scratch = Scratch::new();
    let native = job("histograms").run_in(scratch.cwd()).expect_code(0);
    let run = traced(&job("histograms"), &["--mem", "off"], &scratch);
    assert_eq!(run.outcome, native);
    let file = rank_file(&run.run, 0);
    let of = |kind| {
        let marks = file.marks().iter().filter(move |mark| mark.kind == kind);
        marks.map(|mark| file.name(mark.name)).collect::<Vec<_>>()
    };
    assert_eq!(of(MarkKind::Mark), ["instant"]);
    let found: Vec<(&str, Value)> = (of(MarkKind::Histogram).into_iter())
        .map(|text| text.split_once('\u{1f}').unwrap())
        .map(|(name, values)| (name, serde_json::from_str(values).unwrap()))
        .collect();
    // 61 values from 0 to 60: two in each bucket, and three in the last one, which includes the
    // highest.
    let counts: Vec<u64> = (0..30).map(|bucket| if bucket < 29 { 2 } else { 3 }).collect();
    let squares: u64 = (0..=60).map(|value| value * value).sum();
    let weights = |step: Option<u64>| {
        let mut of = serde_json::json!({
            "min": 0.0, "max": 60.0, "sum": 1830.0, "squares": squares as f64, "counts": counts,
            "not_finite": 1,
        });
        if let Some(step) = step {
            of["step"] = step.into();
        }
        ("weights", serde_json::json!({ "histogram": of }))
    };
    assert_eq!(found[..2], [weights(None), weights(Some(9))]);
    assert_eq!((found.len(), found[2].0), (3, "none"));
    assert!(found[2].1["histogram"]["min"].is_null(), "{found:?}");
}

#[test]
fn bytes_work_steps_and_values_are_exact() {
    for options in [EXACT, &["--mem", "sampled"]] {
        let scratch = Scratch::new();
        let run = traced(&job("all"), options, &scratch);
        let spans_document = document("spans", &run.run);
        let rows = spans_document["tables"]["spans"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
        // Each of 4 threads allocates 100 times; with `System` as allocator, a block must not be
        // recorded twice.
        let of = |name: &str| {
            let row = row(name);
            [&row["runs"], &row["allocated_bytes"], &row["allocations"], &row["flops"]]
                .map(|value| value.as_u64().unwrap())
        };
        assert_eq!(of("inner"), [400, 400 * 400, 1600, 400_000]);
        assert_eq!(of("outer"), [400, 400 * 450, 2000, 4000]);
        let seconds = row("inner")["total_ns"].as_f64().unwrap() / 1e9;
        let rate = row("inner")["flops_per_s"].as_f64().unwrap();
        assert!((rate * seconds / 400_000.0 - 1.0).abs() < 1e-6, "{rate}");

        let file = rank_file(&run.run, 0);
        let sums: Vec<f64> = (1..=400).map(|n| f64::from(n) * 3.0).collect();
        assert_eq!(counter(&file, "samples"), sums, "values of four threads are in order of time");
        assert_eq!(counter(&file, "loss"), [1.0, 1.0 / 2.0, 1.0 / 3.0, 1.0 / 4.0, 1.0 / 5.0]);
        let mib = f64::from(1 << 20);
        let pool: Vec<f64> = [1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2].map(f64::from).to_vec();
        let expected: Vec<f64> = pool.iter().map(|blocks| blocks * mib).collect();
        assert_eq!(counter(&file, "kv-cache pool_bytes"), expected);
        assert_eq!(
            lost(&run.run, "blocks of pools given back", "what took them was not recorded"),
            1
        );
        let steps = document("steps", &run.run);
        let steps = steps["tables"]["steps"].as_array().unwrap().clone();
        let numbers: Vec<_> = steps.iter().map(|row| row["step"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3], "the last step has no end");
    }
}

#[test]
fn odd_spans_are_recorded_correctly_or_counted_as_lost() {
    let scratch = Scratch::new();
    let run = traced(&job("odd"), EXACT, &scratch);
    let file = rank_file(&run.run, 0);
    let (first, second, third) = (one(&file, "first"), one(&file, "second"), one(&file, "third"));
    // The spans were dropped in the order first, third, second, with 5 ms between the first drop
    // and the others.
    assert!(first.0 <= second.0 && second.0 <= third.0);
    assert!(first.1 + 5_000_000 <= third.1 && third.1 <= second.1);
    assert_eq!(first.2["style"], "start/end", "a span that doesn't nest has this style");
    assert_eq!((&second.2, &third.2), (&Value::Null, &Value::Null));
    for name in ["after", "last"] {
        assert_eq!(one(&file, name).2, Value::Null, "later spans nest again");
    }
    let deep = spans(&file).iter().filter(|span| file.name(span.name).starts_with("deep")).count();
    assert_eq!(deep, 100);
    let left = one(&file, "left");
    assert!(left.0 <= left.1);

    let values = counter(&file, "odd");
    assert!(values[0].is_nan());
    assert_eq!(values[1..], [f64::INFINITY, f64::NEG_INFINITY, 0.5]);
    let counters = document("counters", &run.run);
    let row = counters["tables"]["counters"].as_array().unwrap().clone();
    let row = row.iter().find(|row| row["counter"] == "odd").unwrap().clone();
    assert_eq!((&row["samples"], &row["max"]), (&1.into(), &0.5.into()));
    let notes = counters["notes"].to_string();
    assert!(notes.contains("odd was infinite or not a number 3 times"), "{notes}");
    let mut args: Vec<String> = Vec::new();
    for span in spans(&file).iter().filter(|span| file.name(span.name) == "valued") {
        args.push(file.name(span.args).to_owned());
    }
    let expected =
        [r#"{"value":"NaN"}"#, r#"{"value":"inf"}"#, r#"{"value":"-inf"}"#, r#"{"value":0.5}"#];
    assert_eq!(args, expected);

    let longest = spans(&file).iter().map(|span| file.name(span.name).chars().count()).max();
    assert_eq!(longest, Some(3801), "a cut name ends in `…`");
    let (_, _, many) = one(&file, "many");
    assert_eq!(many.as_object().unwrap().len(), 16);
    let (_, _, texts) = one(&file, "texts");
    assert_eq!(texts["empty"], "");
    assert_eq!(texts["long"].as_str().unwrap().chars().count(), 3801);

    assert_eq!(lost(&run.run, "ends of names", "they were too long"), 2);
    assert_eq!(lost(&run.run, "arguments of spans", "a span had too many"), 24);
    assert_eq!(lost(&run.run, "ends of spans", "their thread ended before them"), 1);
    assert_eq!(lost(&run.run, "ends of spans", "their process ended before them"), 1);
    let steps = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step);
    let steps: Vec<&str> = steps.map(|mark| file.name(mark.name)).collect();
    let largest = format!("step {}", u64::MAX - 1);
    assert_eq!(steps, ["step 7", "step 3", &largest, "step 3"]);
    let reported = document("steps", &run.run);
    let rows = reported["tables"]["steps"].as_array().unwrap().iter();
    let numbers: Vec<_> = rows.map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(
        numbers,
        [0, 1, 2],
        "steps are renumbered if their numbers do not rise; the last has no end"
    );
}

#[test]
fn a_forked_child_has_its_own_spans_and_sums() {
    let scratch = Scratch::new();
    let run = traced(&job("fork"), EXACT, &scratch);
    assert_eq!(run.outcome.stdout, "child 0\n");
    let file = rank_file(&run.run, 0);
    let process = |name: &str| {
        let found = spans(&file).into_iter().find(|span| file.name(span.name) == name);
        found.unwrap_or_else(|| panic!("no span {name}")).process
    };
    assert_eq!(process("child"), process("child after"));
    assert_eq!(process("around"), process("parent after"));
    assert_ne!(process("child"), process("around"));
    assert_eq!(counter(&file, "forked"), [1.0, 1.0], "each process counts by itself");
    assert_eq!(lost(&run.run, "ends of spans", "they were not recorded"), 0);
}

#[test]
fn a_program_switches_its_recording() {
    let scratch = Scratch::new();
    let run = traced(&job("off"), EXACT, &scratch);
    assert_eq!(run.outcome.stdout, "off true on true\n");
    let file = rank_file(&run.run, 0);
    let mut names: Vec<&str> = spans(&file).iter().map(|span| file.name(span.name)).collect();
    names.sort();
    assert_eq!(names, ["seen", "seen after"]);
    assert_eq!(counter(&file, "switched"), [2.0]);
}

#[test]
fn recording_makes_no_system_call_and_allocates_nothing() {
    let scratch = Scratch::new();
    let run = traced(&job("calls"), &["--mem", "off"], &scratch);
    assert_eq!(run.outcome.stdout, "allocations Some(0)\nmarkers 4 calls []\n");
    let file = rank_file(&run.run, 0);
    let quiet = spans(&file).iter().filter(|span| file.name(span.name) == "quiet").count();
    assert_eq!(quiet, 51 * 20, "all events were recorded");
}

#[test]
fn threads_add_to_one_sum() {
    let scratch = Scratch::new();
    let run = traced(&job("threads"), &[], &scratch);
    let file = rank_file(&run.run, 0);
    let sums: Vec<f64> = (1..=4000).map(f64::from).collect();
    assert_eq!(counter(&file, "threaded"), sums);
    assert_eq!(spans(&file).len(), 4000);
    assert!(losses(&run.run).is_empty(), "{:?}", losses(&run.run));
}

/// Returns the numbers that the program printed about itself.
fn printed(run: &Traced) -> (u64, u64) {
    let words: Vec<&str> = run.outcome.stdout.split_whitespace().collect();
    let number = |after: &str| {
        let at = words.iter().position(|word| *word == after).unwrap();
        words[at + 1].parse::<u64>().unwrap()
    };
    (number("allocations"), number("bytes"))
}

#[test]
fn allocations_of_another_allocator_are_recorded_with_their_stacks() {
    let scratch = Scratch::new();
    let alone = heap_job().run_in(scratch.cwd()).expect_code(0);
    let expected = "allocations 2000 frees 1900 bytes 4000000 live 100 300000 peak 303000\n";
    assert_eq!(alone.stdout, expected);
    let run = traced(&heap_job(), EXACT, &scratch);
    assert_eq!(run.outcome.stdout, expected, "the crate counts the same under tprof");
    let (allocations, bytes) = printed(&run);
    let spans_document = document("spans", &run.run);
    let row = spans_document["tables"]["spans"][0].clone();
    assert_eq!(row["name"], "planted");
    assert_eq!(
        (row["allocations"].as_u64(), row["allocated_bytes"].as_u64()),
        (Some(allocations), Some(bytes))
    );
    let memory = memory_report(&run.run).0;
    let sites = memory["ranks"][0]["host_memory"]["sites"].as_array().unwrap().clone();
    let planted: Vec<&Value> = sites
        .iter()
        .filter(|site| site["stack"].to_string().contains("sdk_heap::planted"))
        .collect();
    let sum = |key: &str| planted.iter().map(|site| site[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        (sum("bytes"), sum("allocations"), sum("live_bytes")),
        (bytes, allocations, 300_000)
    );
}

#[test]
fn a_sampled_run_counts_another_allocator_too() {
    let scratch = Scratch::new();
    let run = traced(&heap_job(), &["--mem", "sampled"], &scratch);
    let spans_document = document("spans", &run.run);
    let row = spans_document["tables"]["spans"][0].clone();
    assert_eq!(
        (row["allocations"].as_u64(), row["allocated_bytes"].as_u64()),
        (Some(2000), Some(4_000_000))
    );
    let words: Vec<&str> = run.outcome.stdout.lines().nth(1).unwrap().split(' ').collect();
    let [_, live, peak] = words[..] else { panic!("{words:?}") };
    let (live, peak): (u64, u64) = (live.parse().unwrap(), peak.parse().unwrap());
    assert!(live >= 300_000 - 65_536 && live <= peak, "{live} {peak}");
}

fn crates_job() -> Job {
    Job::new(env!("CARGO_BIN_EXE_sdk-crates"))
}

/// Returns the names and arguments of all spans, in order of their beginnings.
fn named(file: &TraceFile) -> Vec<(String, Value)> {
    let mut all = spans(file);
    all.sort_by_key(|span| span.start_ns);
    let args = |span: &Span| serde_json::from_str(file.name(span.args)).unwrap_or(Value::Null);
    all.iter().map(|span| (file.name(span.name).to_owned(), args(span))).collect()
}

#[test]
fn instrumented_functions_and_spans_of_tracing_are_spans() {
    let scratch = Scratch::new();
    let alone = crates_job().run_in(scratch.cwd()).expect_code(0);
    assert_eq!(alone.stdout, "Some(2) None\n2\nOk(7) true\n");
    let run = traced(&crates_job(), EXACT, &scratch);
    assert_eq!(run.outcome.stdout, alone.stdout);
    let file = rank_file(&run.run, 0);
    let mut found = named(&file);
    let request = found.split_off(found.len() - 2);
    let polled = |task: u64| ("polled".to_owned(), serde_json::json!({ "task": task }));
    let expected = [
        ("Model::forward".to_owned(), serde_json::json!({"batch": 2})),
        ("Model::forward".to_owned(), serde_json::json!({"batch": 0})),
        ("plain".to_owned(), serde_json::json!({"category": "compute"})),
        // Three polls of the first call, and two polls of the other, which fails after its first.
        polled(1),
        polled(1),
        polled(1),
        polled(2),
        polled(2),
    ];
    assert_eq!(found, expected);
    let id = request[0].1["tracing_id"].as_u64().unwrap();
    let args = serde_json::json!({"id": 7, "path": "/x", "late": 2.5, "tracing_id": id});
    let both = [("request".to_owned(), args.clone()), ("request".to_owned(), args)];
    assert_eq!(request, both, "the span was entered on two threads");
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
    assert_eq!(marks.map(|mark| file.name(mark.name)).collect::<Vec<_>>(), ["read rows=3"]);
    assert!(losses(&run.run).is_empty(), "{:?}", losses(&run.run));
}

#[test]
fn metrics_are_counters() {
    let scratch = Scratch::new();
    let run = traced(&crates_job(), &[], &scratch);
    let file = rank_file(&run.run, 0);
    assert_eq!(counter(&file, r#"requests{path="/\"",host="a"}"#), [1.0, 3.0, 6.0]);
    assert_eq!(counter(&file, "latency"), [0.5, 1.0, 1.5]);
    assert_eq!(counter(&file, "set"), [5.0, 9.0]);
    assert_eq!(counter(&file, "queue"), [4.0, 6.0, 5.0]);
}
