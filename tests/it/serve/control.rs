//! With `--control`, clients can control, annotate and delete a run, and change nothing else.

use serde_json::json;
use tprof_tests::{Scratch, Served, memory_report};

use super::live::{begun, control};
use super::{copy, recorded};

#[test]
fn a_run_in_progress_is_controlled() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let (mut job, run) = begun(&directory, "going");
    let served = Served::start(&directory, &["--control"]);
    let id = served.id_of(&run);
    let ask = |request| control(&served, id, &request);
    job.obey("a");
    let snapshot = ask(json!({ "action": "snapshot" }));
    assert!(
        snapshot["snapshot"]["tables"]["ranks"][0]["live_bytes"].as_u64() > Some(0),
        "{snapshot}"
    );
    assert!(run.join("snapshot-1.json").exists());
    ask(json!({ "action": "stop" }));
    job.obey("a");
    ask(json!({ "action": "start" }));
    job.obey("a");
    for name in ["--help", "-o/tmp/x", "--", "$(id)", "</script>", "a\nb\u{1b}[2J", "日本"] {
        ask(json!({ "action": "mark", "name": name }));
    }
    let path = format!("/api/v1/runs/{id}/control");
    let long = "a".repeat(257);
    for bad in [
        json!({ "action": "mark" }),
        json!({ "action": "mark", "name": "" }),
        json!({ "action": "mark", "name": " \n" }),
        json!({ "action": "mark", "name": "a\0b" }),
        json!({ "action": "mark", "name": long }),
        json!({ "action": "mark", "name": 7 }),
        json!({ "action": "start", "steps": -1 }),
        json!({ "action": "start", "steps": "1 --help" }),
        json!({ "action": "rm" }),
        json!({ "action": "--help" }),
        json!({ "action": ["stop"] }),
        json!({ "action": "stop", "run": "/tmp" }),
        json!({}),
        json!([]),
        json!(null),
    ] {
        served.change("POST", &path, &bad.to_string()).expect_failure(400);
    }
    for bad in ["", "{", "\0", "{\"action\":\"stop\"} x", &"[".repeat(10_000)] {
        served.change("POST", &path, bad).expect_failure(400);
    }
    assert_eq!(job.finish().code, Some(48));
    let sites = memory_report(&run).sites(|frame| frame.starts_with("victim_keep"));
    let kept: i64 = sites.iter().map(|site| site["allocations"].as_i64().unwrap()).sum();
    assert_eq!(kept, 2000, "blocks between stop and start are not recorded");
    // A run that has ended can't be controlled, and the answer has the reason.
    let failure = served.change("POST", &path, r#"{"action":"stop"}"#).expect_failure(422);
    assert_ne!(failure["why"], "", "{failure}");
}

#[test]
fn notes_stay_with_the_run() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let run = copy(recorded(), &directory, "noted");
    let served = Served::start(&directory, &["--control"]);
    let path = format!("/api/v1/runs/{}/notes", served.id_of(&run));
    let note = "--output=/tmp/x </script>\u{0}\u{1b}[2J\n日本";
    let body = json!({ "tags": ["--rm", "a,b", "</b>"], "note": note }).to_string();
    let row = served.change("PUT", &path, &body).expect(200).json();
    assert_eq!((&row["note"], &row["tags"][0]), (&json!(note), &json!("--rm")));
    let again = Served::start(&directory, &[]);
    assert_eq!(again.row("noted")["note"], note);
    for bad in [
        json!({ "tags": vec!["a"; 33] }),
        json!({ "tags": [""] }),
        json!({ "tags": ["a".repeat(65)] }),
        json!({ "note": "a".repeat(9000) }),
        json!({ "tags": "a" }),
        json!({ "note": 1 }),
    ] {
        served.change("PUT", &path, &bad.to_string()).expect_failure(400);
    }
    assert_eq!(served.row("noted")["note"], note, "refused requests changed the note");
    served.change("PUT", &path, "{}").expect(200);
    assert!(!run.join("tprof-notes.json").exists());
}

#[test]
fn a_deleted_run_is_gone_and_its_neighbours_are_not() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let doomed = copy(recorded(), &directory, "--help");
    let kept = copy(recorded(), &directory, "kept");
    let foreign = copy(recorded(), &directory, "foreign");
    std::fs::write(foreign.join("thesis.txt"), "ten years of work").unwrap();
    let served = Served::start(&directory, &["--control"]);
    let delete = |id: u64| served.change("DELETE", &format!("/api/v1/runs/{id}"), "");
    let id = served.id_of(&doomed);
    delete(id).expect(200);
    assert!(!doomed.exists() && kept.exists());
    delete(id).expect_failure(404);
    served.get(&format!("/api/v1/runs/{id}")).expect_failure(404);
    // Files that aren't tprof's are not deleted, and the answer has the reason.
    delete(served.id_of(&foreign));
    assert!(foreign.join("thesis.txt").exists());
    let (running, run) = begun(&directory, "going");
    let failure = delete(served.id_of(&run)).expect_failure(422);
    assert_ne!(failure["why"], "", "{failure}");
    assert!(run.join("run.json").exists());
    assert_eq!(running.finish().code, Some(48));
}
