//! Tests of the Python module `tprof` in real processes. It must record what programs ask for, and
//! programs must behave the same with and without tprof.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{EXACT, Job, Scratch, need, need_some, rank_file, rows, skip, tprof, traced};
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, Span};

use crate::python_stacks::pythons;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn job(python: &Path, program: &str) -> Job {
    let script = folder("programs/python_module").join(program);
    Job::new(python).arg("-B").arg(script).env("PYTHONPATH", folder("../python"))
}

/// Returns how many spans of each name a program has recorded itself.
fn spans(file: &TraceFile) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in rows::<Span>(file).iter().filter(|span| file.name(span.category) == "tprof") {
        *counts.entry(file.name(span.name).to_owned()).or_default() += 1;
    }
    counts
}

fn marks(file: &TraceFile, kind: MarkKind) -> Vec<String> {
    let of = file.marks().iter().filter(|mark| mark.kind == kind);
    of.map(|mark| file.name(mark.name).to_owned()).collect()
}

#[test]
fn programs_behave_as_without_tprof_and_are_recorded() {
    need!(!pythons().is_empty(), "there is no Python");
    for python in pythons() {
        let what = python.display();
        let job = job(&python, "core.py");
        let scratch = Scratch::new();
        let native = job.run_in(scratch.cwd()).expect_code(0);
        assert!(native.stdout.ends_with("exits\n"), "{what}: {native:?}");
        let run = traced(&job, EXACT, &scratch);
        assert_eq!(run.outcome, native, "{what}");

        let file = rank_file(&run.run, 0);
        // The program runs twice: it restarts itself with exec, and then runs to its end.
        let spans = spans(&file);
        for (name, count) in [
            ("around", 2),
            ("around a fork", 2),
            ("async with", 2 * 3),
            ("asynchronous generator", 2 * 3),
            ("at exit", 1),
            ("at the end", 1),
            ("class", 2),
            ("coroutine", 2 * 4),
            ("fails", 2),
            ("generator", 2 * 2),
            ("of the child", 2),
            ("shared", 2 * 4 * 200),
            ("static", 2),
            ("with bytes", 2 * 4),
            ("within", 2 * 4),
        ] {
            assert_eq!(spans.get(name), Some(&count), "{what}: {name} in {spans:?}");
        }
        assert!(spans["recursive"] > 2 * 100, "{what}: {spans:?}");
        let marks = marks(&file, MarkKind::Mark);
        let long = format!("{}…", "é".repeat(3800 / 2));
        let names = ["collected", "exit", "in the child", "sub", "surrogate \\ud800"];
        for name in names.into_iter().chain([long.as_str(), "(no name)"]) {
            assert!(marks.iter().any(|mark| mark == name), "{what}: no {name} in {marks:?}");
        }
        assert!(
            !marks.iter().any(|mark| mark == "not recorded"),
            "{what}: recorded while recording was off"
        );
    }
}

#[test]
fn steps_values_and_arguments_are_those_of_the_program() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let run = traced(&job(&python, "core.py").arg("again"), EXACT, &scratch);
    let file = rank_file(&run.run, 0);
    let steps = [0, 1, 2, 3, 4, 5, 100, 101].map(|step| format!("step {step}"));
    assert_eq!(marks(&file, MarkKind::Step), steps);
    let values = file.counters().to_vec();
    let of = |name: &str| -> Vec<f64> {
        let rows = values.iter().filter(|row| file.name(row.name) == name);
        rows.map(|row| row.value).collect()
    };
    assert_eq!(of("loss"), [7.0, 0.5]);
    assert!(of("no number").len() == 2 && of("no number").iter().all(|value| value.is_nan()));

    let spans = rows::<Span>(&file);
    let of = |name: &str| -> Vec<&Span> {
        spans.iter().filter(|span| file.name(span.name) == name).collect()
    };
    for span in of("generator") {
        let expected =
            r#"{"batch":3,"nan":"nan","of":"<object>","style":"start/end","where":"gpu"}"#;
        assert_eq!(file.name(span.args), expected);
    }
    let mut numbers: Vec<&str> = of("with bytes").iter().map(|span| file.name(span.args)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["", r#"{"number":1}"#, r#"{"number":2}"#, r#"{"number":3}"#]);
    // The coroutine ends after other spans of its thread have begun, so it is found by its own
    // number.
    let outer = of("coroutine");
    for within in of("within").into_iter().chain(of("async with")) {
        let end = |span: &Span| span.start_ns + span.duration_ns;
        let inside =
            |outer: &&&Span| outer.start_ns <= within.start_ns && end(outer) >= end(within);
        assert!(outer.iter().any(|outer| inside(&outer)), "{within:?}");
    }
}

/// Returns the names of a trace's events that are the program's own, each once.
fn names_in(path: &Path) -> Vec<String> {
    let trace: serde_json::Value = match path.extension().is_some_and(|end| end == "gz") {
        true => crate::export::chrome(path),
        false => serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
    };
    let mut names: Vec<String> = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "X" && event["cat"] == "tprof")
        .map(|event| event["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the files below a directory, by their relative paths.
fn files_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        match entry.path().is_dir() {
            true => {
                let below = files_below(&entry.path()).into_iter();
                found.extend(below.map(|path| format!("{name}/{path}")));
            }
            false => found.push(name),
        }
    }
    found.sort();
    found
}

#[test]
fn profiles_record_and_export_the_steps_of_their_schedule() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let out = |name: &str| scratch.path().join(name);
    let job = |name: &str| job(&python, "profile.py").arg(out(name));
    let native = job("native").run_in(scratch.cwd()).expect_code(0);
    assert_eq!(
        native.stderr,
        "tprof: nothing is recorded; to record this: tprof run -- python ...\n"
    );
    assert_eq!(files_below(&out("native")), Vec::<String>::new());

    let run = traced(&job("traced"), EXACT, &scratch);
    // Without tprof the program must not name a file that is never written.
    let printed = ("dir nothing-was-recorded", "dir flagged-rank0.trace.json.gz");
    assert_eq!(run.outcome.stdout, native.stdout.replace(printed.0, printed.1));
    assert!(
        run.outcome.stderr.contains("ended in step 1, before its schedule records any"),
        "{:?}",
        run.outcome
    );
    // Recording was off before, so live bytes are unknown and must not be written as zero.
    let stderr = &run.outcome.stderr;
    assert!(stderr.contains("flagged-rank0.memory.pickle`: the heap is not measured"), "{stderr}");
    let mut files = files_below(&out("traced"));
    let boards: Vec<String> = files.extract_if(.., |path| path.starts_with("tb/")).collect();
    let expected = [
        "dir/flagged-rank0.memory.json",
        "dir/flagged-rank0.trace.json.gz",
        "dir/function-rank0.trace.json.gz",
        "dir/function.2-rank0.trace.json.gz",
        "plain.json",
    ];
    assert_eq!(files, expected);
    let names = |path: &str| names_in(&out("traced").join(path));
    let [first, second] = &boards[..] else { panic!("{boards:?}") };
    assert_eq!(names(first), ["of step 2", "of step 3", "work"]);
    assert_eq!(names(second), ["of step 6", "of step 7", "work"]);
    assert_eq!(names("plain.json"), names(second));
    assert_eq!(names("dir/flagged-rank0.trace.json.gz"), ["flagged", "work"]);
    assert_eq!(names("dir/function.2-rank0.trace.json.gz"), ["call", "work"]);
    // Spans outside of all parts were not recorded, because the program had stopped recording.
    let spans = spans(&rank_file(&run.run, 0));
    let expected = [("call", 4), ("flagged", 1), ("work", 4 + 1 + 2)];
    for (name, count) in expected {
        assert_eq!(spans.get(name), Some(&count), "{spans:?}");
    }
    assert!(!run.run.join("requests").exists());
}

#[test]
fn tprof_run_ends_with_the_paths_of_the_written_traces() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let script = "import sys, tprof\nwith tprof.profile() as of:\n    with tprof.range('work'):\n        pass\n\
                  for path in sys.argv[1:]:\n    of.export_chrome_trace(path)";
    let paths =
        ["plain.json", "packed.json.gz", "other.gz", "without"].map(|name| scratch.join(name));
    let run = tprof(["run", "--mem", "off", "-o"]).arg(scratch.join("run")).arg("--").arg(&python);
    let run = run.args(["-B", "-c", script]).args(&paths).env("PYTHONPATH", folder("../python"));
    let outcome = run.run_in(scratch.cwd()).expect_code(0);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), path.extension().is_some_and(|of| of == "gz"));
        assert!(lines.contains(&path.to_str().unwrap()), "{path:?} in {lines:?}");
    }
    let named = lines.iter().filter(|line| line.starts_with('/')).count();
    assert_eq!(named, paths.len(), "{lines:?}");
    // `tprof export` itself prints such a path.
    let own = scratch.join("own.json");
    let export = tprof(["export", "--to", "chrome", "-o"]).arg(&own).arg(scratch.join("run"));
    let export = export.run_in(scratch.path()).expect_code(0);
    assert_eq!(export.stdout.trim(), own.to_str().unwrap());
    assert!(std::fs::read_to_string(own).unwrap().starts_with('{'));
}

#[test]
fn a_script_starts_itself_again_under_tprof_once() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let script = "import sys, tprof; tprof.exec_under('-q', '-o', sys.argv[1]); \
                  print(tprof.is_recording(), sys.argv[2:])";
    let run = scratch.path().join("run");
    let job = Job::new(&python)
        .args(["-B", "-c", script])
        .arg(&run)
        .arg("two words")
        .env("PYTHONPATH", folder("../python"))
        .env("TPROF_BIN", tprof_tests::tprof_at());
    let outcome = job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!(outcome.stdout, "True ['two words']\n");
    assert!(run.join("run.json").is_file());
    let off = job.env("TPROF_ENABLED", "0").run_in(scratch.cwd()).expect_code(0);
    assert_eq!(off.stdout, "False ['two words']\n");
}

#[test]
fn a_script_that_is_asked_for_a_profile_records_it_or_names_no_file() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let script = scratch.path().join("train.py");
    let text = "import argparse, tprof\n\
                parser = tprof.add_arguments(argparse.ArgumentParser())\n\
                parser.add_argument('--epochs', type=int)\n\
                args = parser.parse_args()\n\
                with tprof.from_args(args, name='generate') as profiler:\n    \
                    sum(range(10000))\n\
                print(args.epochs, profiler.output_dir / profiler.trace_path.name)\n";
    std::fs::write(&script, text).unwrap();
    let job = Job::new(&python)
        .arg("-B")
        .arg(&script)
        .args(["--profile", "--epochs", "3"])
        .env("PYTHONPATH", folder("../python"))
        .env("TPROF_BIN", tprof_tests::tprof_at());
    let names_file = |stdout: &str| {
        let path = stdout.trim_end().strip_prefix("3 ").unwrap_or_else(|| panic!("{stdout}"));
        PathBuf::from(path)
    };
    let outcome = job.run_in(scratch.cwd()).expect_code(0);
    let path = names_file(&outcome.stdout);
    assert!(path.is_file(), "{outcome:?}");
    assert!(path.ends_with("generate-rank0.trace.json.gz"), "{path:?}");
    // A script that must not be recorded, and a worker of several ranks.
    for (name, value) in [("TPROF_ENABLED", "0"), ("WORLD_SIZE", "2")] {
        let outcome = job.clone().env(name, value).run_in(scratch.cwd()).expect_code(0);
        assert!(names_file(&outcome.stdout).ends_with("nothing-was-recorded"), "{outcome:?}");
        assert!(outcome.stderr.contains("to record this: tprof run -"), "{outcome:?}");
    }
    // A script that came through a pipe can't be read again.
    let piped = "cat ../train.py | \"$0\" -B - --profile --epochs 3";
    let piped = Job::new("/bin/sh").args(["-c", piped]).arg(&python);
    let piped =
        piped.env("PYTHONPATH", folder("../python")).env("TPROF_BIN", tprof_tests::tprof_at());
    let outcome = piped.run_in(scratch.cwd()).expect_code(0);
    assert!(names_file(&outcome.stdout).ends_with("nothing-was-recorded"), "{outcome:?}");
    assert!(outcome.stderr.contains("came through a pipe"), "{outcome:?}");
    // A schedule that ends before it records.
    let job = job.args(["--profile-wait", "5"]);
    let outcome = job.run_in(scratch.cwd()).expect_code(0);
    assert!(names_file(&outcome.stdout).ends_with("nothing-was-recorded"), "{outcome:?}");
    assert!(outcome.stderr.contains("before its schedule records any"), "{outcome:?}");
}

#[test]
fn calls_are_measured_and_reports_are_dictionaries() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let run = scratch.path().join("run");
    let job = job(&python, "measure.py").env("TPROF_BIN", tprof_tests::tprof_at());
    let native = job.clone().arg("measure").run_in(scratch.cwd()).expect_code(0);
    let traced = traced(&job.clone().arg("measure"), EXACT, &scratch);
    assert_eq!(traced.outcome, native);
    let file = rank_file(&traced.run, 0);
    let spans = spans(&file);
    assert_eq!((spans.get("sum"), spans.get("half")), (Some(&20), Some(&7)), "{spans:?}");
    std::fs::rename(&traced.run, &run).unwrap();
    job.arg("load").arg(&run).run_in(scratch.cwd()).expect_code(0);
    // A process takes a snapshot of the live run that records it.
    let job =
        self::job(&python, "measure.py").arg("snapshot").arg(scratch.path().join("held.json"));
    let native = job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!(native.stdout, "None\n");
    let traced = tprof_tests::traced(&job, EXACT, &scratch);
    assert_eq!(traced.outcome.stdout, "held\n", "{:?}", traced.outcome);
    let pickle = scratch.path().join("held.json.pickle");
    let words =
        ["report".as_ref(), "device-memory".as_ref(), pickle.as_os_str(), "--json".as_ref()];
    let report = tprof_tests::tprof(words).run_in(scratch.cwd()).expect_code(0);
    let notes = report.stderr;
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let held = report["tables"]["snapshot"][0]["held_bytes"].as_u64();
    assert!(held >= Some(50_000_000), "{report:#}");
    assert!(notes.contains("device 0 is no device") && !notes.contains("estimates"), "{notes}");
    // The `tprof` that the module ran for the snapshot is not part of the job.
    let info = tprof_tests::run_info(&traced.run, |_| true);
    assert_eq!(info["completeness"]["blind"], serde_json::json!([]), "{info}");
}

#[test]
fn the_module_and_the_run_agree_on_the_rank() {
    let Some(python) = pythons().pop() else { return skip("there is no Python from 3.8 on") };
    let code = "from tprof._session import rank; print(rank())";
    for (variables, expected) in [
        (&[][..], 0),
        (&[("RANK", "3"), ("WORLD_SIZE", "8")], 3),
        (&[("RANK", "3")], 0),
        (&[("PMI_RANK", "4")], 4),
        (&[("RANK", "x"), ("WORLD_SIZE", "8"), ("PMIX_RANK", "2")], 2),
        (&[("SLURM_PROCID", "5"), ("SLURM_STEP_ID", "0")], 5),
        (&[("SLURM_PROCID", "5"), ("SLURM_STEP_ID", "4294967290")], 0),
    ] {
        let job = Job::new(&python).args(["-B", "-c", code]).env("PYTHONPATH", folder("../python"));
        let job = variables.iter().fold(job, |job, (name, value)| job.env(name, value));
        let scratch = Scratch::new();
        let run = traced(&job, &["--activities", "mem"], &scratch);
        assert_eq!(run.outcome.stdout, format!("{expected}\n"), "{variables:?}");
        rank_file(&run.run, expected);
    }
}
