//! Tests of importing other tools' traces with the command line.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use tprof_tests::{Counts, Outcome, Scratch, Synthetic, assert_refused, many_ranks, page_contents};
use tprof_trace::model::*;
use tprof_trace::{RunDir, TraceFile};

fn trace(scratch: &Scratch, name: &str, rank: u32, ranks: u32, steps: u64) -> (PathBuf, Counts) {
    let path = scratch.join(name);
    let mut file = BufWriter::new(File::create(&path).unwrap());
    let counts = Synthetic { rank, ranks, steps }.write(&mut file).unwrap();
    (path, counts)
}

fn tprof<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Outcome {
    tprof_tests::tprof(words).run_in(std::env::temp_dir())
}

fn import(input: &Path, run: &Path) {
    let outcome = tprof([Path::new("import"), input, Path::new("-o"), run]);
    assert_eq!((outcome.code, &outcome.stdout[..]), (Some(0), ""), "{outcome:?}");
}

fn json(words: &[&Path]) -> Value {
    let words = words.iter().map(|word| word.as_os_str()).chain(["--json".as_ref()]);
    let outcome = tprof(words);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn a_name_that_matches_nothing_is_refused_with_the_existing_names() {
    let scratch = Scratch::new();
    let (input, _) = trace(&scratch, "trace.json", 0, 1, 5);
    let run = scratch.join("run");
    import(&input, &run);
    let report = |words: &[&str]| {
        let words = words.iter().map(|word| OsStr::new(*word));
        tprof([OsStr::new("report")].into_iter().chain(words).chain([run.as_os_str()]))
    };
    let refused = report(&["critical-path", "--within", "nosuch"]);
    assert_refused(&refused, &["--within `nosuch`", "the annotations", "ProfilerStep#", "(1)"]);
    let past = report(&["critical-path", "--within", "ProfilerStep:99"]);
    assert_refused(&past, &["numbered from 0", "--within ProfilerStep:"]);
    report(&["critical-path", "--within", "ProfilerStep:1"]).expect_code(0);
    assert_refused(&report(&["sequences", "--operator", "nosuch"]), &["the operators are aten::"]);
    // The trace has annotations but no NVTX range. `report all` works, because one of its kinds
    // finds the range.
    assert_refused(&report(&["cpu", "--within", "ProfilerStep"]), &["no NVTX ranges"]);
    report(&["all", "--within", "ProfilerStep"]).expect_code(0);
    // Kinds that always cover the whole run ignore the option.
    assert_refused(&report(&["kernels", "--within", "ProfilerStep"]), &["critical-path and cpu"]);
    assert_refused(
        &report(&["summary", "--operator", "aten"]),
        &["--operator does not apply to summary"],
    );
}

#[test]
fn a_ranks_time_is_divided_among_host_and_gpu() {
    let scratch = Scratch::new();
    let (input, _) = trace(&scratch, "trace.json", 0, 1, 5);
    let report = json(&[Path::new("report"), Path::new("breakdown"), &input]);
    let row = &report["tables"]["host_and_gpu"][0];
    let of = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"));
    let parts = ["both_ns", "host_only_ns", "gpu_only_ns", "neither_ns"].map(of);
    assert_eq!(parts.iter().sum::<u64>(), of("window_ns"), "{row}");
    assert_eq!(parts[0] + parts[1], of("host_ns"), "{row}");
    assert_eq!(parts[0] + parts[2], of("gpu_ns"), "{row}");
    // The device's busy time is the one in the breakdown of the device.
    let device = &report["tables"]["breakdown"][0];
    let busy = device["window_ns"].as_u64().unwrap() - device["idle_ns"].as_u64().unwrap();
    assert_eq!(of("gpu_ns"), busy);
    // Calls alone don't show what a host does between them, so the report must say that this time
    // is unknown.
    let bare = scratch.join("bare.json");
    let event = |cat: &str, ts: u64, tid: &str| {
        format!(
            r#"{{"ph":"X","cat":"{cat}","name":"n","pid":1,"tid":{tid},"ts":{ts},"dur":5,"args":{{"correlation":1,"device":0,"stream":7}}}}"#
        )
    };
    let text = [event("cuda_runtime", 10, "1"), event("kernel", 20, "7")].join(",");
    std::fs::write(&bare, format!("[{text}]")).unwrap();
    let report = json(&[Path::new("report"), Path::new("breakdown"), &bare]);
    let row = &report["tables"]["host_and_gpu"][0];
    assert_eq!((&row["both_ns"], &row["gpu_ns"]), (&Value::Null, &Value::from(5_000)));
    assert!(report.to_string().contains("between calls is unknown"), "{report}");
}

#[test]
fn a_json_list_that_is_not_a_trace_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.join("list.json");
    std::fs::write(&path, "[1,2,3]").unwrap();
    let run = scratch.join("run");
    let outcome = tprof([Path::new("import"), &path, Path::new("-o"), &run]);
    assert_refused(&outcome, &["list.json", "has no event"]);
    assert!(!run.exists());
}

#[test]
fn an_imported_trace_is_a_run_like_any_other() {
    let scratch = Scratch::new();
    let (input, counts) = trace(&scratch, "trace.json", 3, 8, 5);
    let run = scratch.join("run");
    import(&input, &run);
    let file = TraceFile::open(&run.join("rank-3.tprof")).unwrap();
    assert_eq!(file.row_count::<Span>(), counts.spans);
    assert_eq!(file.row_count::<Kernel>(), counts.kernels);
    assert_eq!(file.row_count::<MemoryCopy>(), counts.copies);
    assert_eq!(file.row_count::<Collective>(), counts.collectives);
    assert_eq!(file.row_count::<DeviceAllocation>(), counts.allocations);
    let report = json(&[Path::new("report"), &run]);
    assert_eq!(report["completeness"]["complete"], true);
    assert_eq!(report["overhead"]["fraction"], Value::Null);
    assert_eq!(report["ranks"][0]["rank"], 3);
    // The run is marked as not recorded by tprof.
    assert_eq!(report["run"]["imported"].as_array().map(Vec::len), Some(1), "{report}");
    let page = scratch.join("report.html");
    let words = [Path::new("export"), &run, Path::new("--to"), Path::new("report")];
    tprof(words.into_iter().chain([Path::new("-o"), &page])).expect_code(0);
    let run = &page_contents(&page)["data"]["runs/1/report/summary"]["run"];
    assert!(run["imported"][0].as_str().unwrap().ends_with("trace.json"), "{run}");
}

#[test]
fn several_reports_at_once_equal_the_single_reports() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    std::fs::create_dir(scratch.join("traces")).unwrap();
    for rank in 0..3 {
        trace(&scratch, &format!("traces/rank-{rank}.json"), rank, 3, 4);
    }
    import(&scratch.join("traces"), &run);
    let report = |kind: &str| json(&[Path::new("report"), Path::new(kind), &run]);
    let all = report("all");
    let kinds: Vec<&String> = all["reports"].as_object().unwrap().keys().collect();
    assert!(kinds.len() > 20, "{kinds:?}");
    for kind in kinds {
        assert_eq!(all["reports"][kind], report(kind), "{kind}");
    }
    let two = report("steps,kernels");
    let kinds: Vec<&String> = two["reports"].as_object().unwrap().keys().collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    // In the text, each report has a heading, in the requested order, below the part that all
    // reports share.
    let words = ["report".as_ref(), "steps,kernels".as_ref(), run.as_os_str()];
    let text = tprof(words).expect_code(0).stdout;
    let places = ["COMPLETE: ", "\n== steps: ", "\n== kernels: "].map(|part| text.find(part));
    assert!(places.is_sorted() && places[0].is_some(), "{text}");
    assert_eq!(text.matches("COMPLETE").count(), 1, "{text}");
}

#[test]
fn csv_of_several_reports_is_a_file_for_each_table() {
    let scratch = Scratch::new();
    let (input, _) = trace(&scratch, "trace.json", 0, 1, 3);
    let run = scratch.join("run");
    import(&input, &run);
    let words = |more: &[&str]| {
        let words = ["report", "steps,kernels"].iter().map(|word| word.to_string());
        let more = more.iter().map(|word| word.to_string());
        words.chain([run.display().to_string(), "--csv".to_owned()]).chain(more).collect::<Vec<_>>()
    };
    assert_refused(
        &tprof(words(&[])),
        &["several reports do not fit into one CSV table", "-o DIR"],
    );
    let tables = scratch.join("tables");
    let outcome = tprof(words(&["-o", &tables.display().to_string()])).expect_code(0);
    assert_eq!(outcome.stdout, "");
    let mut files: Vec<String> = std::fs::read_dir(&tables)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    for file in ["kernels.kernels.csv", "steps.step_times.csv", "steps.steps.csv"] {
        assert!(files.iter().any(|name| name == file), "{files:?}");
    }
    for file in files {
        let (kind, table) = file.trim_end_matches(".csv").split_once('.').unwrap();
        let run = run.display().to_string();
        let alone = tprof(["report", kind, &run, "--csv", "--table", table]).expect_code(0).stdout;
        assert_eq!(std::fs::read_to_string(tables.join(&file)).unwrap(), alone, "{file}");
    }
}

#[test]
fn report_diff_and_export_accept_a_trace_without_an_import() {
    let scratch = Scratch::new();
    let (input, _) = trace(&scratch, "trace.json", 0, 1, 5);
    let (longer, _) = trace(&scratch, "longer.json", 0, 1, 8);
    let run = scratch.join("run");
    import(&input, &run);
    for kind in ["summary", "breakdown"] {
        let direct = json(&[Path::new("report"), Path::new(kind), &input]);
        let mut imported = json(&[Path::new("report"), Path::new(kind), &run]);
        assert_eq!(direct["run"]["path"], input.to_str().unwrap());
        imported["run"]["path"] = direct["run"]["path"].clone();
        assert_eq!(direct, imported, "{kind}");
    }
    let diff = json(&[Path::new("diff"), &input, &longer]);
    assert!(diff.to_string().contains("step_time"));
    let outcome = tprof([Path::new("export"), &input, Path::new("--to"), Path::new("chrome")]);
    assert_refused(&outcome, &["-o"]);
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    let words = [
        Path::new("export"),
        &input,
        Path::new("--to"),
        Path::new("chrome"),
        Path::new("-o"),
        &out,
    ];
    let outcome = tprof(words);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // An export can be imported again, without a loss of device events.
    let again = scratch.join("again");
    import(&out, &again);
    let rows = |run: &Path| {
        let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
        let (mut kernels, problems) = file.rows::<Kernel>();
        assert_eq!(problems, []);
        let first = kernels[0].start_ns;
        kernels.iter_mut().for_each(|kernel| kernel.start_ns -= first);
        let shape =
            |k: &Kernel| (k.start_ns, k.duration_ns, k.stream, file.name(k.name).to_owned());
        kernels.iter().map(shape).collect::<Vec<_>>()
    };
    assert_eq!(rows(&run), rows(&again));
}

#[test]
fn an_unreadable_trace_is_refused_with_the_position_of_the_error() {
    let scratch = Scratch::new();
    let bad = scratch.write("bad.json", "{\"traceEvents\": 5}");
    let run = scratch.join("run");
    let words = |input: &Path| ["import".into(), input.to_owned(), "-o".into(), run.clone()];
    assert_refused(&tprof(words(&bad)), &["bad.json", "at byte"]);
    assert_refused(&tprof([Path::new("report"), &bad]), &["bad.json", "at byte"]);
    assert_refused(&tprof(words(&scratch.join("none.json"))), &["none.json", "no such file"]);
    let (good, _) = trace(&scratch, "trace.json", 0, 1, 2);
    let limited = words(&good).into_iter().chain(["--max-input".into(), "1KiB".into()]);
    assert_refused(&tprof(limited), &["trace.json", "--max-input"]);
    assert!(!run.exists());
    import(&good, &run);
    assert_refused(&tprof(words(&good)), &["--force"]);
    let forced = words(&good).into_iter().chain(["--force".into()]);
    assert_eq!(tprof(forced).code, Some(0));
}

#[test]
fn many_ranks_multiplies_the_ranks_of_a_run() {
    let scratch = Scratch::new();
    let traces = scratch.join("traces");
    std::fs::create_dir(&traces).unwrap();
    for rank in 0..2 {
        trace(&scratch, &format!("traces/rank-{rank}.json"), rank, 2, 3);
    }
    let (few, many) = (scratch.join("few"), scratch.join("many"));
    import(&traces, &few);
    many_ranks(&few, &many, 1024).unwrap();
    let run = RunDir::open(&many).unwrap();
    assert_eq!(run.problems(), []);
    let ranks: Vec<_> = run.files().iter().filter_map(|file| file.rank).collect();
    assert_eq!(ranks, (0..1024).collect::<Vec<_>>());
    let open = |path: &Path| TraceFile::open(path).unwrap();
    let (source, copy) = (open(&few.join("rank-1.tprof")), open(&many.join("rank-777.tprof")));
    assert_eq!(copy.row_count::<Kernel>(), source.row_count::<Kernel>());
    let (there, _) = source.rows::<Kernel>();
    let (here, _) = copy.rows::<Kernel>();
    let shift = here[0].start_ns - there[0].start_ns;
    assert!(
        here.iter().zip(&there).all(|(a, b)| a.start_ns - b.start_ns == shift && a.name == b.name)
    );
    assert_eq!(copy.communicators()[0].rank, Some(777));
    assert_eq!(copy.processes()[0].rank, Some(777));
}
