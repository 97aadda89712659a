//! Tests of runs in which a pipe, a device, a socket or a directory has the name of a file. No
//! command may wait for it, and each must report what it is.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tprof_tests::{Job, Outcome, Scratch, program, tprof, traced};

/// Seconds after which a command counts as waiting.
const LIMIT: u64 = 60;

fn mkfifo(path: &Path) {
    Job::new("mkfifo").arg(path).run_in(path.parent().unwrap()).expect_code(0);
}

/// Puts something that is not a regular file in place of a file.
fn put(what: &str, path: &Path) {
    let _ = fs::remove_file(path);
    match what {
        "a pipe" => mkfifo(path),
        "a device" => symlink("/dev/zero", path).unwrap(),
        "a socket" => drop(UnixListener::bind(path).unwrap()),
        "a directory" => fs::create_dir(path).unwrap(),
        _ => panic!("{what}"),
    }
}

const KINDS: [&str; 4] = ["a pipe", "a device", "a socket", "a directory"];

fn copy(from: &Path, to: PathBuf) -> PathBuf {
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    to
}

/// Runs a command in a directory; the command must end by itself.
#[track_caller]
fn ends(words: &[&str], scratch: &Scratch) -> Outcome {
    let outcome = tprof(words).limit(LIMIT).run_in(scratch.path());
    assert!(outcome.code.is_some_and(|code| code != 101), "{words:?}: {outcome:?}");
    outcome
}

#[test]
fn no_command_waits_for_something_that_is_not_a_file() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("short")), &["--mem", "exact"], &scratch).run;
    copy(&run, scratch.join("runs/ok"));
    for what in KINDS {
        let name = what.trim_start_matches("a ");
        for file in ["run.json", "rank-0.tprof", "rank-1.tprof", "run-host-7.json"] {
            put(what, &copy(&run, scratch.join(format!("runs/{name}-{file}"))).join(file));
        }
        let alone = scratch.join(format!("runs/alone-{name}"));
        fs::create_dir(&alone).unwrap();
        put(what, &alone.join("run.json"));
        // A log of torch.compile.
        let logs = copy(&run, scratch.join(format!("runs/logs-{name}"))).join("compile/host-a");
        fs::create_dir_all(&logs).unwrap();
        put(what, &logs.join("dedicated_log_torch_trace_a.log"));
    }
    ends(&["ls", "runs"], &scratch);
    for what in KINDS {
        let name = what.trim_start_matches("a ");
        for file in ["run.json", "rank-0.tprof", "rank-1.tprof", "run-host-7.json"] {
            let path = format!("runs/{name}-{file}");
            let report = ends(&["report", &path], &scratch);
            let said = format!("{}{}", report.stdout, report.stderr);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            // A directory is not accepted as the info file of another collector, either.
            let is_named = said.contains(&format!("it is {what}"))
                || what == "a directory" && said.to_lowercase().contains("is a directory");
            assert!(is_named, "{path}: {report:?}");
            ends(&["export", &path, "--to", "folded", "-o", "-"], &scratch);
            ends(&["diff", "runs/ok", &path], &scratch);
            ends(&["compare", "runs/ok", &path], &scratch);
            ends(&["report", &format!("{path}/{file}")], &scratch);
        }
        ends(&["report", "compile", &format!("runs/logs-{name}")], &scratch);
        ends(&["report", &format!("runs/alone-{name}")], &scratch);
        ends(&["rm", "--yes", &format!("runs/{name}-rank-0.tprof")], &scratch);
    }
}

#[test]
fn a_run_without_its_rank_file_is_not_listed_as_whole() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("short")), &["--mem", "exact"], &scratch).run;
    copy(&run, scratch.join("runs/whole"));
    for what in KINDS.into_iter().chain(["an empty file", "nothing", "text"]) {
        let file = copy(&run, scratch.join("runs").join(what)).join("rank-0.tprof");
        match what {
            "an empty file" => fs::write(file, "").unwrap(),
            "text" => fs::write(file, "text").unwrap(),
            "nothing" => fs::remove_file(file).unwrap(),
            _ => put(what, &file),
        }
    }
    for words in [&["ls", "--json", "runs"][..], &["ls", "--json", "--no-findings", "runs"]] {
        let list: Value = serde_json::from_str(&ends(words, &scratch).stdout).unwrap();
        assert_eq!(list["runs"].as_array().unwrap().len(), 8, "{list:#}");
        for run in list["runs"].as_array().unwrap() {
            let is_whole = run["path"] == "runs/whole";
            assert_eq!(
                (&run["complete"], run["lost"] == json!(0)),
                (&json!(is_whole), is_whole),
                "{run}"
            );
            let why = run["lost_missing"].as_str();
            assert_eq!(why.is_some_and(|why| why.contains("rank-0.tprof")), !is_whole, "{run}");
        }
    }
    let text = ends(&["ls", "runs"], &scratch).stdout;
    assert_eq!(text.matches("UNKNOWN what was lost: ").count(), 7, "{text}");
    let report = ends(&["report", "runs/nothing"], &scratch).stdout;
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_named = report.contains("NOT COMPLETE") && report.contains("rank-0.tprof` is missing");
    assert!(is_named, "{report}");
}

#[test]
fn an_import_reads_plain_files_and_pipes_of_a_shell() {
    let scratch = Scratch::new();
    let trace = r#"{"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":5,"pid":1,"tid":1}]}"#;
    let good = scratch.write("good.json", trace);
    for (what, at) in KINDS.into_iter().zip(0..) {
        let name = format!("trace-{at}.json");
        put(what, &scratch.join(&name));
        let outcome = ends(&["import", &name, "-o", "none"], &scratch);
        assert_ne!(outcome.code, Some(0), "{what}: {outcome:?}");
        ends(&["report", &name], &scratch);
        // A directory of traces, one of which is not a regular file.
        let folder = scratch.join(format!("traces-{at}"));
        fs::create_dir(&folder).unwrap();
        fs::copy(&good, folder.join("good.json")).unwrap();
        put(what, &folder.join("other.json"));
        put(what, &folder.join("other.log"));
        put(what, &folder.join("other.pickle"));
        let (folder, output) = (format!("traces-{at}"), format!("made-{at}"));
        let import = ends(&["import", &folder, "-o", &output], &scratch);
        let report = ends(&["report", &folder], &scratch);
        for outcome in [import, report] {
            let outcome = outcome.expect_code(0);
            for name in
                ["json", "log", "pickle"].map(|ending| format!("other.{ending}`: it is {what}"))
            {
                let is_named = outcome.stderr.contains(&name);
                // An import reads a directory by looking for files in it.
                assert_eq!(is_named, what != "a directory", "{name}: {outcome:?}");
            }
        }
    }
    let script = "\"$0\" import <(cat good.json) -o made && \"$0\" report made";
    let bash = Job::new("bash").args(["-c", script]).arg(tprof_tests::tprof_at());
    bash.limit(LIMIT).run_in(scratch.path()).expect_code(0);
}
