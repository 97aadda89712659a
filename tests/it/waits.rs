//! Reports distinguish what threads wait for: with and without perf events, stacks and function
//! names.

use std::path::Path;

use serde_json::Value;
use tprof_tests::{
    Job, Kind, Scratch, build, document, has_native_or_skip, need, need_some, program, traced,
};

const OPTIONS: &[&str] = &["--sample-rate", "499", "--mem", "off"];

/// Runs the job with perf events refused, as in most containers.
fn refused(job: Job) -> Job {
    job.under([program("no_perf")])
}

#[track_caller]
fn threads(job: &Job, options: &[&str]) -> Value {
    let scratch = Scratch::new();
    let run = traced(job, options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let mut threads = document("threads", &run.run);
    threads["tables"]["threads"].take()
}

/// Checks the waits of the program's threads, each of which is named after what it waits for most
/// of its life. `idle` lists the accepted waits of threads that sleep by polling no descriptors.
#[track_caller]
fn waits_are_distinguished(job: &Job, more: &[&str], idle: &[&str]) {
    let threads = threads(job, &[OPTIONS, more].concat());
    let rows = threads.as_array().unwrap();
    let expected = [
        ("lock", 5, &["lock"][..]),
        ("I/O", 4, &["I/O"]),
        ("sleep", 1, &["sleep"]),
        ("main", 1, &["sleep"]),
        ("idle", 2, idle),
        ("poll", 3, &["poll"]),
        ("other", 2, &["other"]),
    ];
    for (name, count, waits) in expected {
        let of: Vec<_> = rows.iter().filter(|row| row["name"] == name).collect();
        assert_eq!(of.len(), count, "{name}: {rows:#?}");
        let matches = |row: &&Value| waits.iter().any(|wait| row["most_for"] == *wait);
        assert!(of.iter().all(matches), "{name}: {of:#?}");
    }
}

#[test]
fn waits_are_distinguished_by_samples() {
    // Poll and sleep run the same functions of the kernel. If a sample was lost, tprof decides by
    // the system call.
    waits_are_distinguished(&Job::new(program("waits")), &[], &["poll", "sleep"]);
}

#[test]
fn waits_are_distinguished_where_perf_events_are_refused() {
    waits_are_distinguished(&refused(Job::new(program("waits"))), &[], &["sleep"]);
}

#[test]
fn waits_of_a_static_program_without_names_are_distinguished() {
    let program = need_some!(build("waits", Kind::Static));
    waits_are_distinguished(&refused(Job::new(program)), &[], &["sleep"]);
}

#[test]
fn waits_are_distinguished_without_stacks() {
    let job = refused(Job::new(program("waits")));
    waits_are_distinguished(&job, &["--stacks", "off"], &["sleep"]);
}

/// Debian's Python is stripped, so no name shows which of its functions takes the lock.
#[track_caller]
fn pythons_lock_is_distinguished(under: impl Fn(Job) -> Job) {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/gil.py");
    let threads = threads(&under(Job::new("/usr/bin/python3").arg(script)), OPTIONS);
    let rows = threads.as_array().unwrap();
    let ns = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let spins =
        |row: &&Value| row["ran_in"].as_str().is_some_and(|f| f.starts_with("victim_spins"));
    let of_spinning = |key| rows.iter().filter(spins).map(|row| ns(row, key)).sum::<f64>();
    let (gil, lock) = (of_spinning("gil_ns"), of_spinning("lock_ns"));
    assert!(gil > 0.2e9 && gil > 4.0 * lock, "{gil} {lock}: {rows:#?}");
    let of_the_program = rows.iter().filter(|row| ns(row, "lock_ns") > 0.5e9).count();
    assert_eq!(of_the_program, 2, "{rows:#?}");
}

#[test]
fn pythons_lock_is_distinguished_by_samples() {
    pythons_lock_is_distinguished(|job| job);
}

#[test]
fn pythons_lock_is_distinguished_where_perf_events_are_refused() {
    pythons_lock_is_distinguished(refused);
}

#[test]
fn threads_behind_a_lock_are_not_idle_and_joining_them_is_no_lock() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("contends")), OPTIONS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let cpu = document("cpu", &run.run);
    if !has_native_or_skip(&cpu) {
        return;
    }
    let waits = |what: &str, function: &str| {
        let rows = cpu["tables"]["waiting"].as_array().unwrap().iter();
        let of = rows.filter(|row| {
            row["waits_for"] == what && row["function"].as_str().unwrap().starts_with(function)
        });
        of.map(|row| (row["idle"].as_bool().unwrap(), row["waited_ns"].as_f64().unwrap()))
            .collect::<Vec<_>>()
    };
    let [(idle, joined_ns)] = waits("thread", "main")[..] else { panic!("{cpu:#}") };
    assert!(!idle && joined_ns > 0.5e9, "{joined_ns}");
    assert!(waits("lock", "main").iter().all(|(_, ns)| *ns < 0.1 * joined_ns), "{cpu:#}");
    // At any time, three of the four threads wait.
    let locked: f64 = waits("lock", "victim_works").iter().map(|(_, ns)| ns).sum();
    assert!(locked > 2.0 * joined_ns, "{locked} ns of {joined_ns}");
    assert!(waits("lock", "victim_works").iter().all(|(idle, _)| !idle), "{cpu:#}");
    let findings = document("findings", &run.run);
    let rows = findings["tables"]["findings"].as_array().unwrap();
    let found = |rule: &str| {
        let mut of = rows.iter().filter(|row| row["rule"] == rule);
        of.next().unwrap_or_else(|| panic!("no {rule}: {findings:#}"))
    };
    let contention = found("LockContention");
    assert_eq!(
        (&contention["subject"], &contention["function"]),
        (&"threads".into(), &"victim_works".into()),
        "{contention:#}"
    );
    // The threads' time is shown as the time of the thread that waits for their end.
    let host = document("host", &run.run);
    let followed = host["tables"]["followed"].as_array().unwrap().iter();
    let followed: f64 = followed.map(|row| row["wall_ns"].as_f64().unwrap()).sum();
    // The rest of the main thread's time is the wait for their end.
    let parts = host["tables"]["parts"].as_array().unwrap().iter();
    let waited = parts.filter(|row| row["part"] == "other").map(|row| row["wall_ns"].as_f64());
    let waited: f64 = waited.flatten().sum();
    assert!(followed + waited > 0.8 * joined_ns, "{followed}, {waited} of {joined_ns}: {host:#}");
}
