//! Tests of a run in progress, as pages and metric scrapers see it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tprof_tests::{
    EXACT, Job, Live, Reading, Scratch, Served, children_of, kill, program, run_info, tprof,
    traced_job, wait_until,
};

/// Starts a run with this name, and waits until it can be controlled.
pub fn begun(directory: &Path, name: &str) -> (Live, PathBuf) {
    std::fs::create_dir_all(directory).unwrap();
    let run = directory.join(name);
    let job = Job::new(program("steady")).arg("200");
    let mut live = Live::start(&traced_job(&job, EXACT, &run), directory.parent().unwrap());
    live.wait_for("ready");
    run_info(&run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    (live, run)
}

/// Sends a control request for a run, and returns the answer.
#[track_caller]
pub fn control(served: &Served, id: u64, request: &Value) -> Value {
    let path = format!("/api/v1/runs/{id}/control");
    served.change("POST", &path, &request.to_string()).expect(200).json()
}

/// Reads events until one satisfies the predicate.
#[track_caller]
fn until(events: &mut Reading, what: &str, passes: impl Fn(&str, &Value) -> bool) -> Value {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Some((name, snapshot)) = events.event() {
        if passes(&name, &snapshot) {
            return snapshot;
        }
        assert!(std::time::Instant::now() < end, "{what}: not within a minute; {snapshot}");
    }
    panic!("{what}: the events ended");
}

fn has_event(snapshot: &Value, kind: &str, text: &str) -> bool {
    let mut events = snapshot["events"].as_array().into_iter().flatten();
    events.any(|one| one["kind"] == kind && one["text"].as_str().is_some_and(|t| t.contains(text)))
}

#[test]
fn a_run_in_progress_is_followed_to_its_end() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let (mut job, run) = begun(&directory, "going");
    let served = Served::start(&directory, &["--control"]);
    let id = served.id_of(&run);
    assert_eq!(served.row("going")["state"], "running");
    let now = served.json(&format!("/api/v1/runs/{id}/live"));
    assert_eq!((&now["version"], &now["state"]), (&json!(1), &json!("running")));
    assert!(now["history"]["times_ns"].is_array(), "{now}");
    let mut events = served.begin(&format!("/api/v1/runs/{id}/events"));
    let (name, start) = events.event().unwrap();
    assert!(
        name == "start" && start["history"].is_object() && start["state"] == "running",
        "{start}"
    );
    let rank = &start["ranks"][0];
    assert!(rank["file"].as_str().is_some_and(|file| file.ends_with(".tprof")), "{rank}");
    control(&served, id, &json!({ "action": "mark", "name": "half-time" }));
    job.obey("a");
    let tick = until(&mut events, "the mark", |_, tick| has_event(tick, "mark", "half-time"));
    assert!(tick["history"].is_null(), "only the first event has the history: {tick}");
    // The job makes steps, and then none for longer than usual.
    for _ in 0..8 {
        control(&served, id, &json!({ "action": "step" }));
    }
    let tick = until(&mut events, "a stall", |_, tick| {
        tick["stalls"].as_array().is_some_and(|stalls| !stalls.is_empty())
    });
    assert!(tick["stalls"][0]["for_ns"].as_u64() > Some(0), "{tick}");
    control(&served, id, &json!({ "action": "step" }));
    until(&mut events, "the end of the stall", |_, tick| tick["stalls"] == json!([]));
    assert_eq!(job.finish().code, Some(48));
    until(&mut events, "the end", |name, _| name == "end");
    assert_eq!(events.event().map(|(name, _)| name), None, "nothing comes after the end");
    tprof_tests::wait_until("the list has the end", || served.row("going")["state"] == "finished");
    assert_eq!(served.json(&format!("/api/v1/runs/{id}/live"))["state"], "finished");
    // The event stream of a run that has ended closes at once.
    let mut events = served.begin(&format!("/api/v1/runs/{id}/events"));
    assert_eq!(events.event().unwrap().0, "start");
    until(&mut events, "the end", |name, _| name == "end");
}

/// Parses a line of metrics into name, labels as they are written, and value.
fn parsed(line: &str) -> (String, Vec<(String, String)>, f64) {
    let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("{line}"));
    let mut labels = Vec::new();
    let mut rest = rest;
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next().unwrap_or_else(|| panic!("{line}")) {
                (at, '"') => break at,
                (_, '\\') => match letters.next().unwrap().1 {
                    'n' => value.push('\n'),
                    letter @ ('\\' | '"') => value.push(letter),
                    letter => panic!("\\{letter} in {line}"),
                },
                (_, letter) => value.push(letter),
            }
        };
        labels.push((label.to_owned(), value));
        rest = after[end + 1..].trim_start_matches(',');
    }
    let value = rest[1..].trim().parse().unwrap_or_else(|_| panic!("{line}"));
    (name.to_owned(), labels, value)
}

#[test]
fn metrics_are_prometheus_text_whatever_a_run_is_called() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let name = "odd \"name\" \\ with\nlines } and {labels=\"a\"}";
    let (job, run) = begun(&directory, name);
    let served = Served::start(&directory, &[]);
    served.id_of(&run);
    let answer = served.get("/metrics").expect(200);
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = answer.text();
    let (mut family, mut count) = (String::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap().to_owned();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {family} "));
            assert!(matches!(kind, Some("gauge" | "counter")), "{line}");
            continue;
        }
        let (own, labels, value) = parsed(line);
        assert!(own == family && value.is_finite(), "{line}");
        let is_name = |label: &str| label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        assert!(is_name(&own) && labels.iter().all(|(label, _)| is_name(label)), "{line}");
        assert_eq!(labels[0], ("run".to_owned(), name.to_owned()), "{line}");
        count += 1;
    }
    assert!(count > 5 && text.contains("tprof_run_recorded_total"), "{text}");
    drop(job);
}

#[test]
fn metrics_have_the_figures_of_steps_for_the_whole_job() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let run = directory.join("going");
    std::fs::create_dir(&directory).unwrap();
    let job = Job::new(program("steps_on")).arg("100000").arg("");
    let mut live = Live::start(&traced_job(&job, &["--keep", "1s"], &run), &scratch.cwd());
    live.wait_for("step 600");
    // Figures wait until they fill a block, or for a minute. A dump writes them at once.
    tprof(["ctl", "dump"]).arg(&run).run_in(scratch.path()).expect_code(0);
    let served = Served::start(&directory, &[]);
    served.id_of(&run);
    let of = |text: &str, name: &str| {
        text.lines().find(|line| line.starts_with(&format!("{name}{{"))).map(|line| parsed(line).2)
    };
    let mut text = String::new();
    wait_until("the figures of the first steps", || {
        text = served.get("/metrics").expect(200).text();
        of(&text, "tprof_rank_step_time_seconds_total").is_some_and(|seconds| seconds > 1.0)
    });
    // Each step sleeps for 10 ms.
    let median = of(&text, "tprof_rank_step_median_seconds").unwrap();
    assert!(median >= 0.01, "{text}");
    assert!(of(&text, "tprof_rank_cpu_seconds_total").is_some(), "{text}");
    // No device was recorded, and there is one rank.
    for unknown in ["gpu_busy_seconds_total", "gpu_energy_joules_total", "late_ratio"] {
        assert!(!text.contains(unknown), "{unknown}");
    }
    for pid in children_of(live.pid()) {
        assert!(kill(pid, libc::SIGKILL));
    }
    live.finish();
}
