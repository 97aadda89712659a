//! If perf events are refused, as in most containers, tprof samples threads from outside instead,
//! and the report names what is missing.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tprof_tests::{Job, Scratch, document, need, program, tprof, traced};

const OPTIONS: &[&str] = &["--sample-rate", "499", "--mem", "off"];

fn rows<'a>(document: &'a Value, table: &str) -> &'a [Value] {
    let rows = document["tables"][table].as_array();
    rows.unwrap_or_else(|| panic!("no {table}: {document:#}"))
}

#[track_caller]
fn assert_names_what_is_missing(document: &Value) {
    let blind = document["completeness"]["blind"].as_array().unwrap();
    let entry = blind.iter().find(|entry| entry["what"] == "CPU samples of native code");
    let why = entry.unwrap_or_else(|| panic!("{blind:#?}"))["why"].as_str().unwrap();
    assert!(why.contains("perf_event_open is refused") && why.contains("PERFMON"), "{why}");
}

fn refused(job: Job) -> Job {
    job.under([program("no_perf")])
}

#[test]
fn times_of_threads_and_waits_are_known() {
    let scratch = Scratch::new();
    let run = traced(&refused(Job::new(program("cpu_shares"))), OPTIONS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let threads = document("threads", &run.run);
    assert_names_what_is_missing(&threads);
    let rows = rows(&threads, "threads");
    let sum = |key: &str| rows.iter().map(|row| row[key].as_f64().unwrap()).sum::<f64>();
    let losses = threads["completeness"]["losses"].as_array().unwrap();
    let lost = losses.iter().find(|loss| loss["what"] == "milliseconds on a core");
    let lost_ns = lost.map_or(0.0, |loss| loss["count"].as_f64().unwrap() * 1e6);
    assert!((1.15e9..1.6e9).contains(&(sum("running_ns") + lost_ns)), "{lost_ns}: {rows:#?}");
    // The thread sleeps for 0.7 s, and tprof counts from the first time it reads the thread. On a
    // busy machine that is late, because the sampler itself waits for a core.
    assert!((0.5e9..1.5e9).contains(&sum("sleep_ns")), "{rows:#?}");
    let cpu = document("cpu", &run.run);
    let notes = cpu["notes"].as_array().unwrap();
    let noted = notes.iter().any(|note| note.as_str().unwrap().contains("has no sample"));
    assert!(noted, "{notes:#?}");
}

#[test]
fn a_thread_gets_no_time_of_other_threads() {
    let scratch = Scratch::new();
    let job = Job::new(program("many_threads")).arg("3000").arg("10");
    let run = traced(&refused(job), OPTIONS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let threads = document("threads", &run.run);
    let (first, rest) = rows(&threads, "threads").split_first().unwrap();
    let losses = threads["completeness"]["losses"].as_array().unwrap();
    let lost = losses.iter().any(|loss| loss["what"] == "milliseconds on a core");
    assert!(lost || !rest.is_empty(), "3,000 threads left no trace: {threads:#}");
    assert!(rest.iter().all(|row| row["running_ns"].as_f64() < Some(5e6)), "{first} {rest:#?}");
}

#[test]
fn pythons_functions_are_seen() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/cpu_shares.py");
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let job = refused(Job::new("/usr/bin/python3").arg(script));
    let run = traced(&job, OPTIONS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let cpu = document("cpu", &run.run);
    assert_names_what_is_missing(&cpu);
    let total = |name: &str| {
        let row = rows(&cpu, "python").iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name}: {cpu:#}"))["total_ns"].as_f64().unwrap()
    };
    // The parent and the child each run for half a second, and a library for another half.
    let (interpreted, native) = (total("victim_interpreted"), total("Victim.victim_native"));
    assert!((0.9e9..1.1e9).contains(&interpreted), "{interpreted}");
    assert!((0.45e9..0.55e9).contains(&native), "{native}");
    let threads = document("threads", &run.run);
    let sleeps = |row: &&Value| row["waited_in"] == "victim_sleeps (programs/cpu_shares.py)";
    let sleeper = rows(&threads, "threads").iter().find(sleeps);
    assert!(sleeper.is_some_and(|row| row["sleep_ns"].as_f64() > Some(0.6e9)), "{threads:#}");
}

#[test]
fn successive_programs_of_one_process_have_separate_times() {
    let scratch = Scratch::new();
    let spin = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";
    let job = Job::sh(&format!("{spin}; exec sleep 0.4"));
    let run = traced(&refused(job), OPTIONS, &scratch);
    let threads = document("threads", &run.run);
    let of = |program: &str, key: &str| -> f64 {
        let all = rows(&threads, "threads").iter().filter(|row| row["program"] == program);
        all.map(|row| row[key].as_f64().unwrap()).sum()
    };
    assert!(of("sleep", "sleep_ns") > 0.3e9, "{threads:#}");
    assert!(of("sleep", "running_ns") < of("sh", "running_ns"), "{threads:#}");
    assert!(of("sh", "sleep_ns") < 0.1e9, "{threads:#}");
}

#[test]
fn attach_also_samples_children_that_the_process_starts_later() {
    let scratch = Scratch::new();
    let script = "sleep 0.5; (while kill -0 $$; do :; done) 2>/dev/null & sleep 60";
    let mut victim = Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let run = scratch.path().join("run");
    let job = tprof(["attach", "--duration", "1500ms", "-q", "-o"]);
    let job = refused(job.arg(&run).arg(victim.id().to_string()));
    let outcome = job.run_in(scratch.path());
    let lives = victim.try_wait().unwrap().is_none();
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(lives);
    let threads = document("threads", &run);
    assert_names_what_is_missing(&threads);
    let busy = |row: &&Value| {
        row["running_ns"].as_f64().unwrap() + row["ready_ns"].as_f64().unwrap() > 0.2e9
    };
    let rows = rows(&threads, "threads");
    assert_eq!(rows.iter().filter(busy).count(), 1, "{rows:#?}");
    assert!(rows.iter().any(|row| row["sleep_ns"].as_f64() > Some(0.2e9)), "{rows:#?}");
}
