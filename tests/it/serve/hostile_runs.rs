//! Malicious runs do not stop the server, which still answers the next request.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tprof_tests::{Answer, Scratch, Served, Synthetic, tprof};

use super::{copy, imported, recorded, runs};

const EVIL: &str = "</script><img src=x onerror=alert(1)>\u{1b}[2J\u{7}\u{202e}'\"&\r\n";

/// Largest permitted memory of a server, whatever it serves.
const MOST: u64 = 200 << 20;

/// Requests everything that reads a run: each answer has content or an error.
#[track_caller]
fn ask_all(served: &Served, id: u64) -> Vec<Answer> {
    let paths = [
        "report/summary",
        "report/memory",
        "page/flame",
        "export/folded",
        "heat?metric=step_ns",
        "live",
        "",
    ];
    let answers =
        paths.map(|path| served.get(format!("/api/v1/runs/{id}/{path}").trim_end_matches('/')));
    for (path, answer) in paths.iter().zip(&answers) {
        assert!(matches!(answer.status, 200 | 403 | 404 | 422 | 507), "{path}: {answer:?}");
        if answer.status != 200 {
            answer.clone().expect_failure(answer.status);
        }
    }
    served.assert_answers();
    answers.into()
}

#[test]
fn texts_of_a_run_are_escaped_on_every_page() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let trace = scratch.join("trace.json");
    let mut text = Vec::new();
    Synthetic { rank: 0, ranks: 1, steps: 5 }.write(&mut text).unwrap();
    let evil = serde_json::to_string(EVIL).unwrap();
    let text = String::from_utf8(text).unwrap().replace("aten::", evil.trim_matches('"'));
    assert!(text.contains("onerror"), "the trace has operators");
    fs::write(&trace, text).unwrap();
    fs::create_dir(&directory).unwrap();
    let name = "<script><img src=x onerror=alert(1)> \u{1b}[2J\n\"'";
    let run = directory.join(name);
    let import = tprof([Path::new("import"), &trace, Path::new("-o"), &run]);
    import.run_in(scratch.path()).expect_code(0);
    let path = run.join("run.json");
    let mut info: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    info["command"] = json!([EVIL, "--", EVIL]);
    info["host"] = EVIL.into();
    info["commit"] = EVIL.into();
    fs::write(&path, info.to_string()).unwrap();
    let odd = copy(recorded(), &directory, "odd");
    fs::rename(odd, directory.join(OsStr::from_bytes(b"not \xff\xfe UTF-8"))).unwrap();
    let served = Served::start(&directory, &["--control"]);
    let row = served.row(name);
    assert_eq!(
        (&row["command"][0], &row["host"], &row["commit"]),
        (&json!(EVIL), &json!(EVIL), &json!(EVIL))
    );
    let id = row["id"].as_u64().unwrap();
    let note = json!({ "tags": ["<b>"], "note": EVIL }).to_string();
    served.change("PUT", &format!("/api/v1/runs/{id}/notes"), &note).expect(200);
    assert_eq!(served.json(&format!("/api/v1/runs/{id}"))["note"], EVIL);
    for page in ["page/timeline", "page/flame", "page/report", "export/timeline"] {
        let answer = served.get(&format!("/api/v1/runs/{id}/{page}"));
        assert_eq!(answer.status, 200, "{page}: {}", answer.text());
        let text = answer.text();
        assert!(text.contains("onerror"), "{page} lacks the names");
        assert!(!text.contains("<img src=x"), "{page} has a tag from the run");
        assert!(!text.contains("<script><img"), "{page} has a script from the run");
    }
    for other in ["/", "/metrics"] {
        assert!(!served.get(other).expect(200).text().contains("onerror=alert"), "{other}");
    }
    // A name that isn't valid UTF-8 is served like any other.
    let list = served.json("/api/v1/runs");
    let odd = list["runs"].as_array().unwrap().iter().find(|one| one["id"] != id).unwrap();
    assert_eq!(odd["state"], "finished", "{odd}");
    served.get(&format!("/api/v1/runs/{}/report/summary", odd["id"])).expect(200);
}

#[test]
fn a_link_out_of_a_run_is_not_followed() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let outside = copy(recorded(), scratch.path(), "outside");
    let linked = copy(recorded(), &directory, "linked");
    fs::remove_file(linked.join("rank-0.tprof")).unwrap();
    symlink(outside.join("rank-0.tprof"), linked.join("rank-0.tprof")).unwrap();
    let relative = copy(recorded(), &directory, "relative");
    fs::remove_file(relative.join("run.json")).unwrap();
    symlink("../../outside/run.json", relative.join("run.json")).unwrap();
    let passwd = copy(recorded(), &directory, "passwd");
    symlink("/etc/passwd", passwd.join("rank-1.tprof")).unwrap();
    symlink(&outside, directory.join("whole")).unwrap();
    symlink(&directory, directory.join("loop")).unwrap();
    let served = Served::start(&directory, &["--control"]);
    for name in ["linked", "relative", "passwd"] {
        let row = served.row(name);
        assert_eq!((&row["state"], &row["command"]), (&json!("damaged"), &json!([])), "{row}");
        for answer in ask_all(&served, row["id"].as_u64().unwrap()) {
            assert!(answer.status == 403 || answer.json()["state"] == "damaged", "{answer:?}");
            assert!(!answer.text().contains("root:"), "{answer:?}");
        }
        let id = row["id"].as_u64().unwrap();
        served
            .change("PUT", &format!("/api/v1/runs/{id}/notes"), r#"{"note":"a"}"#)
            .expect_failure(403);
    }
    assert_eq!(served.json("/api/v1/runs")["runs"].as_array().unwrap().len(), 3);
    // Notes are not written through a link, and the target of a link is not deleted.
    let noted = copy(recorded(), &directory, "noted");
    let target = scratch.write("target", "kept");
    symlink(&target, noted.join("tprof-notes.json")).unwrap();
    symlink(&outside, noted.join("compile")).unwrap();
    let id = served.id_of(&noted);
    served.change("PUT", &format!("/api/v1/runs/{id}/notes"), r#"{"note":"a"}"#).expect(200);
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    let _ = served.change("DELETE", &format!("/api/v1/runs/{id}"), "");
    assert!(outside.join("rank-0.tprof").exists());
}

#[test]
fn names_that_are_not_regular_files_are_not_opened() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    for (name, file) in [
        ("info", "run.json"),
        ("rank", "rank-0.tprof"),
        ("further", "rank-1.tprof"),
        ("notes", "tprof-notes.json"),
    ] {
        let path = copy(recorded(), &directory, name).join(file);
        let _ = fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
    }
    let folder = copy(recorded(), &directory, "folder");
    fs::create_dir(folder.join("rank-1.tprof")).unwrap();
    let device = copy(recorded(), &directory, "device");
    fs::remove_file(device.join("run.json")).unwrap();
    symlink("/dev/zero", device.join("run.json")).unwrap();
    let served = Served::start(&directory, &[]);
    for run in served.json("/api/v1/runs")["runs"].as_array().unwrap() {
        ask_all(&served, run["id"].as_u64().unwrap());
    }
}

#[test]
fn a_huge_or_deep_run_json_costs_little() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let with_info = |name: &str, text: &str| {
        let run = copy(recorded(), &directory, name);
        fs::write(run.join("run.json"), text).unwrap();
    };
    let sound = fs::read_to_string(recorded().join("run.json")).unwrap();
    let started = sound.trim_end().strip_suffix('}').unwrap();
    let of_size = |size: usize, part: &str| {
        format!("{started}, \"odd\": [{}0]}}", part.repeat(size / part.len()))
    };
    with_info("huge", &of_size(100 << 20, "0,"));
    with_info("wide", &of_size(60 << 20, "0,"));
    let deep = 5 << 20;
    with_info(
        "deep",
        &format!("{started}, \"machine\": {}{}}}", "[".repeat(deep), "]".repeat(deep)),
    );
    with_info(
        "machine",
        &started.replace("\"machine\":", "\"old\":").replacen(
            '{',
            &format!("{{\"machine\":{{\"a\":[{}0]}},", "[],".repeat(15 << 20)),
            1,
        ),
    );
    with_info(
        "words",
        &started.replace("\"command\":", "\"old\":").replacen(
            '{',
            &format!("{{\"command\":[{}\"a\"],", "\"\",".repeat(15 << 20)),
            1,
        ),
    );
    with_info("cut", &sound[..sound.len() / 2]);
    let served = Served::start(&directory, &["--memory-limit", "1G"]);
    for run in served.json("/api/v1/runs")["runs"].as_array().unwrap() {
        ask_all(&served, run["id"].as_u64().unwrap());
    }
    assert!(served.peak_bytes() < MOST, "{} MiB", served.peak_bytes() >> 20);
}

#[test]
fn a_thousand_runs_are_listed() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let source = copy(recorded(), scratch.path(), "source");
    for number in 0..1000 {
        let run = directory.join(format!("run-{number}"));
        fs::create_dir_all(&run).unwrap();
        for file in fs::read_dir(&source).unwrap().flatten() {
            fs::hard_link(file.path(), run.join(file.file_name())).unwrap();
        }
    }
    let served = Served::start(&directory, &[]);
    let list = served.json("/api/v1/runs");
    assert_eq!(list["runs"].as_array().unwrap().len(), 1000);
    // A requested report does not wait for the summaries of the runs.
    served.get("/api/v1/runs/1/report/summary").expect(200);
    assert!(served.peak_bytes() < MOST, "{} MiB", served.peak_bytes() >> 20);
}

#[test]
fn a_damaged_trace_ends_a_child_and_not_the_server() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    for (source, kind) in [(recorded(), "recorded"), (imported(), "imported")] {
        let whole = fs::read(source.join("rank-0.tprof")).unwrap();
        for n in 0..6 {
            let run = copy(source, &directory, &format!("{kind}-cut-{n}"));
            fs::write(run.join("rank-0.tprof"), &whole[..n * whole.len() / 6 + n]).unwrap();
            let mut bytes = whole.clone();
            let place = if n < 3 { 40 + n * 13 } else { (n * 7919) % whole.len() };
            bytes[place] ^= 0x81 | n as u8;
            let run = copy(source, &directory, &format!("{kind}-flip-{n}"));
            fs::write(run.join("rank-0.tprof"), bytes).unwrap();
        }
    }
    let served = Served::start(&directory, &[]);
    let runs = served.json("/api/v1/runs");
    assert_eq!(runs["runs"].as_array().unwrap().len(), 24);
    for run in runs["runs"].as_array().unwrap() {
        ask_all(&served, run["id"].as_u64().unwrap());
    }
    assert!(served.peak_bytes() < MOST, "{} MiB", served.peak_bytes() >> 20);
}

#[test]
fn a_run_that_changes_is_read_anew_and_one_that_is_gone_is_absent() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &[]);
    let run = directory.join("recorded");
    let id = served.id_of(&run);
    let path = format!("/api/v1/runs/{id}/report/summary");
    let own = || {
        tprof(["report", "summary", "--json"])
            .arg(&run)
            .run_in(scratch.path())
            .expect_code(0)
            .stdout
    };
    let first = served.get(&path).expect(200).text();
    assert!(first == own());
    fs::remove_dir_all(&run).unwrap();
    served.get(&path).expect_failure(404);
    served.get(&format!("/api/v1/runs/{id}/live")).expect_failure(404);
    // Another run gets the same name.
    copy(imported(), &directory, "recorded");
    let id = served.id_of(&run);
    let path = format!("/api/v1/runs/{id}/report/summary");
    let second = served.get(&path).expect(200).text();
    assert!(second == own() && second != first);
}

#[test]
fn a_run_that_is_replaced_repeatedly_breaks_no_request() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &[]);
    let id = served.id_of(Path::new("recorded"));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // If a request panics, dropping this value ends the thread; otherwise the scope would wait
        // for ever.
        let _done = Done(&is_done);
        scope.spawn(|| {
            let run = directory.join("recorded");
            while !is_done.load(Ordering::Relaxed) {
                for source in [imported(), recorded()] {
                    let _ = fs::rename(&run, scratch.join("gone"));
                    let _ = fs::remove_dir_all(scratch.join("gone"));
                    copy(source, &directory, "recorded");
                    let _ = fs::write(run.join("rank-0.tprof"), "TPROF");
                }
            }
        });
        for _ in 0..10 {
            ask_all(&served, id);
        }
    });
    served.assert_answers();
}

/// Tells the thread to end when it is dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
