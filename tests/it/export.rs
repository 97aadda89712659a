//! Tests of exports: a Chrome trace per rank, collapsed stacks that add up, archives on standard
//! output.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tprof_tests::{EXACT, Job, Scratch, expected, program, report, tprof, traced};

/// Unpacks and parses a Chrome trace.
pub fn chrome(path: &Path) -> Value {
    let unpacked = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(
        unpacked.status.success(),
        "{}: {}",
        path.display(),
        String::from_utf8_lossy(&unpacked.stderr)
    );
    serde_json::from_slice(&unpacked.stdout)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ranks_run(scratch: &Scratch) -> PathBuf {
    let script =
        "for r in 0 1; do RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r \"$1\" >/dev/null & done; wait";
    traced(&Job::sh(script).arg(program("thread_names")), EXACT, scratch).run
}

#[test]
fn chrome_writes_one_valid_file_per_rank() {
    let scratch = Scratch::new();
    let run = ranks_run(&scratch);
    let out = scratch.join("out");
    tprof(["export", "--to", "chrome"])
        .arg(&run)
        .arg("-o")
        .arg(&out)
        .run_in(scratch.path())
        .expect_code(0);
    for rank in 0..2 {
        let trace = chrome(&out.join(format!("rank-{rank}.trace.json.gz")));
        let events = trace["traceEvents"].as_array().or(trace.as_array()).expect("traceEvents");
        for event in events {
            let phase = event["ph"].as_str().unwrap_or_else(|| panic!("no phase: {event}"));
            // Marks and losses belong to no process, so their pid is a text.
            let whose = event["pid"].is_number() || event["pid"] == "Traces";
            assert!(whose && event["name"].is_string(), "{event}");
            assert!(phase == "M" || event["ts"].is_number(), "{event}");
        }
        let named = |kind: &str, name: &str| {
            events.iter().any(|event| {
                event["ph"] == "M"
                    && event["name"] == kind
                    && event["args"]["name"].as_str().is_some_and(|n| n.contains(name))
            })
        };
        assert!(named("process_name", ""), "rank {rank}");
        for name in ["by-prctl", "by-itself", "by-another", "by-proc"] {
            assert!(named("thread_name", name), "rank {rank}: no thread {name}");
        }
        assert!(events.iter().any(|event| event["ph"] == "C"), "rank {rank}: no counter");
    }
}

#[test]
fn chrome_goes_beside_the_files_of_the_run_by_default() {
    let scratch = Scratch::new();
    let run = ranks_run(&scratch);
    tprof(["export", "--to", "chrome"]).arg(&run).run_in(scratch.cwd()).expect_code(0);
    for rank in 0..2 {
        chrome(&run.join(format!("rank-{rank}.trace.json.gz")));
    }
    // An existing file is not overwritten without `--force`.
    let again = tprof(["export", "--to", "chrome"]).arg(&run).run_in(scratch.cwd());
    tprof_tests::assert_refused(&again, &["--force"]);
}

fn folded(run: &Path, weight: &str) -> Vec<(String, i64)> {
    let job = tprof(["export", "--to", "folded", "-o", "-", "--weight", weight]).arg(run);
    let outcome = job.run_in(run.parent().unwrap()).expect_code(0);
    let lines = outcome.stdout.lines().map(|line| {
        let (stack, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        (stack.to_owned(), number.parse().unwrap_or_else(|_| panic!("{line:?}")))
    });
    lines.collect()
}

#[test]
fn folded_stacks_are_written_to_a_file_or_to_stdout() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("stacks")), EXACT, &scratch).run;
    let export = |words: &[&str]| tprof(words).arg(&run).run_in(scratch.cwd()).expect_code(0);
    let to_file = export(&["export", "--to", "folded", "--weight", "bytes"]);
    let file = run.join("stacks.folded");
    assert_eq!(to_file.stdout.trim_end(), file.display().to_string());
    let to_stdout = export(&["export", "--to", "folded", "--weight", "bytes", "-o", "-"]);
    assert_eq!(to_stdout.stdout, std::fs::read_to_string(&file).unwrap());
    // A format that consists of one file is printed as that file.
    let json = export(&["export", "--to", "json", "-o", "-"]).stdout;
    assert!(serde_json::from_str::<Value>(&json).is_ok(), "{json}");
    assert!(
        export(&["export", "--to", "flame", "-o", "-"])
            .stdout
            .to_lowercase()
            .starts_with("<!doctype html>")
    );
}

/// Returns the files below a directory with their contents.
pub fn files_in(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{next:?}: {error}")) {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(directory).unwrap().to_owned();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

/// Runs `tprof export … -o -`, unpacks the printed archive, and returns the folder.
pub fn unpacked(scratch: &Scratch, words: &[&str], of: &Path) -> PathBuf {
    let to = tempfile::tempdir_in(scratch.path()).unwrap().keep();
    let temporary = scratch.join("temporary");
    fs::create_dir_all(&temporary).unwrap();
    let script =
        "\"$1\" export \"$2\" -o - \"${@:4}\" > \"$3.tar\" && tar -xf \"$3.tar\" -C \"$3\"";
    let job = Job::new("bash").args(["-c", script, "bash"]).arg(tprof_tests::tprof_at());
    let job = job.arg(of).arg(&to).args(words).env("TMPDIR", &temporary);
    job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{words:?}");
    to
}

#[test]
fn a_format_of_several_files_is_one_archive_on_stdout() {
    let scratch = Scratch::new();
    let run = ranks_run(&scratch);
    // A format that may have several files is an archive even if there is only one file, so that a
    // script needn't look at the run.
    for words in
        [&["chrome"][..], &["chrome", "--rank", "0"], &["csv"], &["parquet"], &["tensorboard"]]
    {
        let directory = tempfile::tempdir_in(scratch.path()).unwrap().keep().join("out");
        let asked = [&["--to"], words].concat();
        let export = tprof(["export"]).args(&asked).arg("-o").arg(&directory).arg(&run);
        export.run_in(scratch.cwd()).expect_code(0);
        let (archive, there) = (unpacked(&scratch, &asked, &run), files_in(&directory));
        assert_eq!(files_in(&archive.join(words[0])), there, "{words:?}");
        assert!(!there.is_empty() && fs::read_dir(&archive).unwrap().count() == 1, "{words:?}");
    }
}

#[test]
fn an_export_that_a_signal_ends_leaves_no_temporary_files() {
    let scratch = Scratch::new();
    // The export must be larger than a pipe's buffer.
    let job = Job::new("python3").args(["-c", "import json; json.dumps(list(range(1000)))"]);
    let run = traced(&job, EXACT, &scratch).run;
    let directory = scratch.join("csv");
    let export = tprof(["export", "--to", "csv", "-o"]).arg(&directory).arg(&run);
    export.run_in(scratch.cwd()).expect_code(0);
    let bytes: usize = files_in(&directory).values().map(Vec::len).sum();
    assert!(bytes > 512 << 10, "{bytes} bytes");
    let temporary = scratch.join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(tprof_tests::tprof_at());
    command.args(["export", "--to", "csv", "-o", "-"]).arg(&run).env("TMPDIR", &temporary);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // Nobody reads the pipe, so tprof blocks with half of the archive written, while its temporary
    // files still exist.
    let is_there =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().path().join("csv").is_dir();
    tprof_tests::wait_until("the files are written", || {
        fs::read_dir(&temporary).unwrap().any(is_there)
    });
    assert!(tprof_tests::kill(child.id(), libc::SIGTERM));
    let ended = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(libc::SIGTERM), "{ended:?}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

/// Returns the sum of a measure over all nodes of a profile. `side` is `self`, or `self_before` for
/// the run that is compared.
pub fn flame_sum(profile: &Value, measure: usize, side: &str) -> u64 {
    let nodes = profile["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node[side][measure].as_u64().unwrap()).sum()
}

#[test]
fn the_trees_of_the_flame_graph_are_exported_as_json() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    let run = traced(&Job::new(program("stacks")), EXACT, &scratch).run;
    let other = traced(&Job::new(program("short")), EXACT, &scratch).run;
    let made = tprof(["export", "--to", "flame", "--json"]).arg(&run).run_in(&cwd).expect_code(0);
    assert_eq!(made.stdout.trim_end(), run.join("flame.json").display().to_string());
    let text = std::fs::read_to_string(run.join("flame.json")).unwrap();
    let flame: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&flame["version"], &flame["before"]), (&Value::from(1), &Value::Null));
    let frames = flame["frames"].as_array().unwrap();
    let profiles = flame["profiles"].as_array().unwrap();
    let of = |key: &str| profiles.iter().find(|one| one["key"] == key).unwrap();
    let heap = of("heap");
    assert_eq!(heap["empty"], Value::Null);
    let report = report(&run);
    assert_eq!(flame_sum(heap, 0, "self") as i64, report.total("allocated_bytes"));
    assert_eq!(flame_sum(heap, 1, "self") as i64, report.total("allocations"));
    assert_eq!(heap["measures"][1]["total"].as_f64(), Some(report.total("allocations") as f64));
    // The parents of a node are its callers.
    let nodes = heap["nodes"].as_array().unwrap();
    let name = |node: &Value| {
        frames[node["frame"].as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned()
    };
    let at = nodes.iter().position(|node| name(node).contains("victim_a")).unwrap();
    let mut above = Vec::new();
    let mut next = Some(at as u64);
    while let Some(index) = next {
        let node = &nodes[index as usize];
        above.push(name(node));
        next = node["parent"].as_u64();
        assert!(next.is_none_or(|parent| parent < index), "parents come before their children");
    }
    assert!(above.iter().any(|name| name == "main"), "{above:?}");
    // An empty profile has a reason and no total.
    let gpu = of("gpu");
    assert!(gpu["empty"].is_string() && gpu["measures"][0]["total"].is_null(), "{gpu}");

    let words = ["export", "--to", "flame", "--json", "-o", "-", "--against"];
    let both = tprof(words).arg(&other).arg(&run).run_in(&cwd).expect_code(0).stdout;
    let both: Value = serde_json::from_str(&both).unwrap();
    let heap =
        both["profiles"].as_array().unwrap().iter().find(|one| one["key"] == "heap").unwrap();
    assert_eq!(flame_sum(heap, 1, "self") as i64, report.total("allocations"));
    let before = tprof_tests::report(&other);
    assert_eq!(flame_sum(heap, 1, "self_before") as i64, before.total("allocations"));
}

#[test]
fn no_export_is_written_into_a_missing_directory() {
    let scratch = Scratch::new();
    let cwd = scratch.cwd();
    let run = traced(&Job::new(program("short")), EXACT, &scratch).run;
    let run = run.display().to_string();
    let trace = scratch.join("trace.json");
    std::fs::write(&trace, r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":5}]"#).unwrap();
    let trace = trace.display().to_string();
    for words in [
        &["export", &run, "--to", "flame", "-o", "no/such/page.html"][..],
        &["export", &run, "--to", "parquet", "-o", "no/such/tables"],
        &["export", &run, "--to", "chrome", "-o", "no/such/traces"],
        &["report", "all", &run, "--csv", "-o", "no/such/tables"],
        &["import", &trace, "-o", "no/such/run"],
        &["man", "-o", "no/such/pages"],
    ] {
        let outcome = tprof(words).run_in(&cwd);
        tprof_tests::assert_refused(&outcome, &["no/such", "mkdir -p no/such"]);
        assert!(!cwd.join("no").exists(), "{words:?}");
    }
    let made = tprof(["export", &run, "--to", "chrome", "-o", "traces"]).run_in(&cwd);
    made.expect_code(0);
    assert!(cwd.join("traces").is_dir());
}

#[test]
fn folded_stacks_add_up_to_the_report() {
    let scratch = Scratch::new();
    for victim in ["stacks", "fork", "exceptions"] {
        let run = traced(&Job::new(program(victim)), EXACT, &scratch);
        let report = report(&run.run);
        for (weight, total) in [("bytes", "allocated_bytes"), ("count", "allocations")] {
            let sum: i64 = folded(&run.run, weight).iter().map(|(_, number)| number).sum();
            assert_eq!(sum, report.total(total), "{victim}, {weight}");
        }
    }
}

#[test]
fn folded_stacks_begin_at_main() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("stacks")), EXACT, &scratch);
    let wanted = expected(&run.outcome.stdout);
    let lines = folded(&run.run, "count");
    assert_eq!(lines.iter().map(|(_, n)| n).sum::<i64>(), wanted.allocations);
    let (chain, _) = lines.iter().max_by_key(|(_, n)| *n).unwrap();
    let place = |name: &str| chain.find(name).unwrap_or_else(|| panic!("no {name} in {chain:?}"));
    assert!(place("main") < place("victim_d") && place("victim_d") < place("victim_a"), "{chain}");
}

#[test]
fn tprof_run_exports_on_request() {
    let scratch = Scratch::new();
    let run =
        traced(&Job::new(program("stacks")), &["--mem", "exact", "--export", "chrome"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    chrome(&run.run.join("rank-0.trace.json.gz"));
}

#[test]
fn redaction_leaves_no_argument_path_or_variable() {
    let scratch = Scratch::new();
    let job = Job::new(program("leave"))
        .args(["exit", "100", "50", "sesame-argument"])
        .env("SECRET", "sesame-variable");
    let run = traced(&job, &["--mem", "exact", "--redact"], &scratch);
    assert_eq!(run.outcome.code, Some(11), "{:?}", run.outcome);
    let folder = program("leave").parent().unwrap().display().to_string();
    let mut written = String::new();
    for kind in ["summary", "memory"] {
        written += &tprof(["report", kind, "--json"])
            .arg(&run.run)
            .run_in(scratch.path())
            .expect_code(0)
            .stdout;
    }
    for entry in fs::read_dir(&run.run).unwrap() {
        written += &String::from_utf8_lossy(&fs::read(entry.unwrap().path()).unwrap());
    }
    for secret in ["sesame", &folder] {
        assert!(!written.contains(secret), "{secret} is in the run");
    }
}

#[test]
fn options_that_a_format_cannot_honour_are_refused_by_name() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let made = tprof(["run", "--quiet", "-o"]).arg(&run).args(["--", "true"]);
    assert_eq!(made.run_in(scratch.cwd()).code, Some(0));
    let formats = [
        "perfetto",
        "chrome",
        "tensorboard",
        "speedscope",
        "pprof",
        "folded",
        "flame",
        "timeline",
        "report",
        "parquet",
        "csv",
        "json",
    ];
    // Each option, the text of its refusal, and the formats that take it.
    let rules: [(&[&str], &str, &[&str]); 5] = [
        (&["--json"], "--json does not apply to", &["flame"]),
        (&["--weight", "bytes"], "--weight does not apply to", &["folded"]),
        (&["--against", "."], "--against does not apply to", &["flame"]),
        (
            &["--max-size", "10M"],
            "--max-size does not apply to",
            &["perfetto", "chrome", "tensorboard", "timeline"],
        ),
        (
            &["--from-time", "1s"],
            "a part of the run does not apply to",
            &formats.map(|name| if name == "report" { "flame" } else { name }),
        ),
    ];
    for format in formats {
        for (option, refusal, takers) in rules {
            if takers.contains(&format) {
                continue;
            }
            let output = scratch.join(format);
            let job = tprof(["export", "--to", format, "-o"]).arg(&output).args(option).arg(&run);
            let outcome = job.run_in(scratch.cwd());
            assert_eq!(outcome.code, Some(125), "{outcome:?}");
            assert!(outcome.stderr.contains(&format!("{refusal} {format}")), "{outcome:?}");
            assert!(outcome.stderr.contains("  try: "), "{outcome:?}");
            assert!(!output.exists(), "{format}");
        }
    }
}
