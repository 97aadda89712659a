//! Tests `tprof serve ARCHIVE`: the API over an archive has the same figures as the runs
//! themselves.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::many_ranks::many_ranks;
use crate::runs::{RANKS, ended, runs};
use crate::served::{Served, command, tprof, wait_until};

/// A directory with two runs, and an archive of both.
struct Both {
    directory: TempDir,
    /// Path of `tprof`.
    tprof: PathBuf,
}

impl Both {
    fn new() -> Option<Both> {
        let tprof = tprof()?;
        let directory = TempDir::new().unwrap();
        let both = Both { directory, tprof };
        fs::create_dir(both.runs()).unwrap();
        for (name, ranks) in [("first", RANKS), ("second", 2 * RANKS)] {
            let run = both.runs().join(name);
            many_ranks(&runs().run(), &run, ranks).unwrap();
            both.archive(&run);
        }
        Some(both)
    }

    fn runs(&self) -> PathBuf {
        self.directory.path().join("runs")
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    fn archive(&self, run: &Path) {
        let path = self.path();
        let words = ["archive", run.to_str().unwrap(), "--to", path.to_str().unwrap()];
        assert_eq!(ended(words).code, 0);
    }

    fn serve(&self) -> Served {
        self.serve_with(&[self.path().to_str().unwrap()])
    }

    fn serve_with(&self, words: &[&str]) -> Served {
        Served::start(command(&self.tprof, &[&["serve"], words].concat()))
    }

    /// Returns the error that `tprof` prints if it does not serve.
    fn refused(&self, words: &[&str]) -> String {
        refused(&mut command(&self.tprof, &[&["serve", "--no-browser"], words].concat()))
    }

    /// Returns the only object of a table of a run.
    fn object(&self, table: &str, name: &str) -> PathBuf {
        let mut found = files(&self.path().join(table));
        found.retain(|path| path.to_string_lossy().contains(&format!("run={name}-")));
        assert_eq!(found.len(), 1, "{table}");
        found.remove(0)
    }
}

/// Runs a command that must fail as tprof itself does, and returns the three lines of its error.
pub fn refused(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{text}");
    for label in ["error: ", "cause: ", "  try: "] {
        assert!(text.lines().any(|line| line.starts_with(label)), "{text}");
    }
    text
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => vec![path],
        })
        .collect()
}

/// Returns the run of a list whose name begins with `name`.
#[track_caller]
fn of<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    let mut found = rows.iter().filter(|row| row["name"].as_str().unwrap().starts_with(name));
    found.next().unwrap_or_else(|| panic!("{name}: {rows:?}"))
}

fn id(row: &Value) -> u64 {
    row["id"].as_u64().unwrap()
}

/// Fails unless two values are the same, with numbers up to rounding.
#[track_caller]
fn assert_same(what: &str, a: &Value, b: &Value) {
    let is_same = match (a.as_f64(), b.as_f64()) {
        // Tables contain only whole nanoseconds.
        (Some(a), Some(b)) => (a - b).abs() <= 0.5 + 1e-9 * a.abs(),
        _ => a == b || a.is_null() && b == "",
    };
    assert!(is_same, "{what}: {a} in the archive, {b} in the run");
}

#[test]
fn the_list_of_an_archive_has_the_figures_of_the_runs() {
    let Some(both) = Both::new() else { return };
    let (archived, there) = (both.serve(), both.serve_with(&[both.runs().to_str().unwrap()]));
    let (archived, there) = (archived.whole_list(2), there.whole_list(2));
    for name in ["first", "second"] {
        let (a, b) = (of(&archived, name), of(&there, name));
        assert_eq!((&a["summary"], &b["summary"]), (&json!("ready"), &json!("ready")));
        for key in [
            "state",
            "start_unix_ns",
            "wall_ns",
            "ranks",
            "recorded",
            "lost",
            "gpu_busy",
            "step_ns",
            "steps",
            "findings",
            "worst",
        ] {
            assert!(!b[key].is_null(), "{key}");
            assert_same(&format!("{key} of {name}"), &a[key], &b[key]);
        }
        assert_eq!(a["peak_device_bytes"], 1 << 30);
        // A value that an archive lacks is unknown, with a reason.
        for key in ["peak_bytes", "peak_rss_bytes", "processes", "failed", "complete"] {
            assert!(a[key].is_null() && a[format!("{key}_why")].is_string(), "{key}: {a}");
        }
    }
}

#[test]
fn documents_of_an_archive_have_the_rows_of_the_reports() {
    let Some(both) = Both::new() else { return };
    let (archived, there) = (both.serve(), both.serve_with(&[both.runs().to_str().unwrap()]));
    let a = id(of(&archived.whole_list(2), "first"));
    let b = id(of(&there.whole_list(2), "first"));
    let mut compared = 0;
    for (kind, table) in [
        ("findings", "findings"),
        ("breakdown", "breakdown"),
        ("steps", "steps"),
        ("steps", "step_times"),
        ("idle", "idle"),
        ("overlap", "overlap"),
        ("kernels", "by_rank"),
        ("kernels", "kernels"),
        ("launches", "launches"),
        ("comm", "comm_by_rank"),
        ("comm", "comm"),
        ("device-memory", "pools"),
        ("stragglers", "late_arrivals"),
    ] {
        let document =
            |server: &Served, id: u64| server.json(&format!("/api/v1/runs/{id}/report/{kind}"));
        let rows = |document: &Value| {
            let rows = document["tables"][table].as_array().cloned();
            rows.unwrap_or_else(|| panic!("{kind}: {document}"))
        };
        let [in_archive, in_run] = [document(&archived, a), document(&there, b)];
        let (of_archive, of_run) = (rows(&in_archive), rows(&in_run));
        // The page shows both with the same words.
        let [shown, shown_of_run] = [&in_archive, &in_run].map(|one| &one["shown"][table]);
        assert!(shown["title"].is_string(), "{kind}: {table}: {shown}");
        assert_eq!(shown["title"], shown_of_run["title"], "{kind}: {table}");
        for column in shown_of_run["columns"].as_array().unwrap() {
            let mut columns = shown["columns"].as_array().unwrap().iter();
            let same = columns.find(|one| one["key"] == column["key"]).unwrap();
            assert_eq!(same["unit"], column["unit"], "{kind}: {table}");
            // Some columns have a heading only if the run has something to show there.
            let is_shown = same["heading"] != "";
            assert!(!is_shown || same == column, "{kind}: {table}: {column}");
        }
        assert_eq!(of_archive.len(), of_run.len(), "{kind}: {table}");
        assert!(!of_run.is_empty(), "{kind}: {table}");
        // Rows are identified by everything that is not a time.
        let key = |row: &Value| {
            let named =
                ["rank", "device", "stream", "step", "name", "operation", "bytes", "finding"];
            named.map(|key| row[key].to_string()).join("|")
        };
        for row in &of_archive {
            let mut others = of_run.iter().filter(|other| key(other) == key(row));
            let other = others.next().unwrap_or_else(|| panic!("{kind}: {table}: {row}"));
            assert!(others.next().is_none(), "{kind}: {table}: {row}");
            for (column, value) in row.as_object().unwrap() {
                if let Some(of_report) = other.get(column) {
                    assert_same(&format!("{kind}: {table}: {column}"), value, of_report);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
    // This is the report of one rank.
    let one = archived.json(&format!("/api/v1/runs/{a}/report/breakdown?rank=2"));
    let rows = one["tables"]["breakdown"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["rank"]), (1, &json!("rank 2")));
    let none = archived.json(&format!("/api/v1/runs/{a}/report/breakdown?rank=99"));
    assert!(none["tables"]["breakdown_missing"].as_str().unwrap().contains("the rank has no"));
    let refused = archived.get(&format!("/api/v1/runs/{a}/report/breakdown?rank=1%20OR%201=1"));
    assert_eq!(refused.status, 400);
    refused.error();
}

#[test]
fn the_heat_map_of_an_archive_equals_that_of_the_run() {
    let Some(both) = Both::new() else { return };
    let (archived, there) = (both.serve(), both.serve_with(&[both.runs().to_str().unwrap()]));
    let a = id(of(&archived.whole_list(2), "first"));
    let b = id(of(&there.whole_list(2), "first"));
    for metric in ["step_ns", "compute_ns", "exposed_communication_ns", "idle_ns", "late_ns"] {
        let heat = |server: &Served, id: u64| {
            server.json(&format!("/api/v1/runs/{id}/heat?metric={metric}&over=step"))
        };
        let (of_archive, of_run) = (heat(&archived, a), heat(&there, b));
        assert_eq!(of_archive["values"].as_array().unwrap().len(), RANKS as usize);
        assert_eq!(of_archive, of_run, "{metric}");
    }
    let over_time = archived.get(&format!("/api/v1/runs/{a}/heat?metric=step_ns&over=time"));
    assert_eq!(over_time.status, 404);
    assert!(over_time.error().2.contains("over=step"));
}

#[test]
fn two_runs_are_compared_and_share_a_history() {
    let Some(both) = Both::new() else { return };
    let served = both.serve();
    let list = served.whole_list(2);
    let (a, b) = (id(of(&list, "first")), id(of(&list, "second")));
    let diff = served.json(&format!("/api/v1/diff?a={a}&b={b}"));
    let metric = |key: &str| {
        let tables = ["times", "shares", "run", "memory"].iter();
        let mut rows = tables.flat_map(|table| diff["tables"][table].as_array().unwrap());
        rows.find(|row| row["metric"] == key).unwrap_or_else(|| panic!("{key}"))
    };
    let step = metric("median_step_time");
    assert_eq!(step["a"], of(&list, "first")["step_ns"]);
    assert!(step["interval"].is_null() && step["interval_missing"].is_string(), "{step}");
    let ranks = diff["tables"]["differences"].as_array().unwrap();
    assert!(ranks.contains(&json!({ "key": "ranks", "a": "8", "b": "16" })), "{ranks:?}");
    // All ranks of both runs are copies of one rank, so a kernel takes equally long per step and
    // rank in both.
    let kernels = diff["tables"]["kernels"].as_array().unwrap();
    assert!(kernels.len() > 2);
    for kernel in kernels {
        assert_eq!(kernel["change_ns"], 0.0, "{kernel}");
        assert!(kernel["a_ns"].as_f64().unwrap() > 0.0, "{kernel}");
    }
    // Imported runs have no command, so the history contains runs of the same name.
    let again = both.runs().join("again");
    fs::create_dir(&again).unwrap();
    many_ranks(&runs().run(), &again.join("first"), 4).unwrap();
    both.archive(&again.join("first"));
    served.whole_list(3);
    let history = served.json(&format!("/api/v1/history?run={a}"));
    assert_eq!(history["runs"].as_array().unwrap().len(), 2, "{history}");
    let steps = history["metrics"].as_array().unwrap().iter().find(|of| of["key"] == "step_ns");
    assert_eq!(steps.unwrap()["points"].as_array().unwrap().len(), 2);
}

#[test]
fn figures_from_a_table_that_was_not_archived_are_unknown() {
    let Some(both) = Both::new() else { return };
    let commit = files(&both.path().join("_runs")).remove(0);
    let mut without: Value = serde_json::from_slice(&fs::read(&commit).unwrap()).unwrap();
    assert!(without["tables"].as_object_mut().unwrap().remove("rank_kernels").is_some());
    fs::write(&commit, without.to_string()).unwrap();
    let served = both.serve();
    served.whole_list(2);
    let tables = &served.json("/api/v1/diff?a=1&b=2")["tables"];
    assert_eq!(tables["kernels"], json!([]));
    let why = tables["kernels_missing"].as_str().unwrap();
    assert_eq!(why, "the run was archived without its table `rank_kernels`");
    assert!(!tables["launches"].as_array().unwrap().is_empty());
}

#[test]
fn refused_requests_have_a_reason_and_a_hint() {
    let Some(both) = Both::new() else { return };
    let served = both.serve();
    for path in [
        "/api/v1/runs/1/page/timeline",
        "/api/v1/runs/1/page/flame",
        "/api/v1/runs/1/export/chrome",
        "/api/v1/runs/1/live",
        "/api/v1/runs/1/events",
        "/api/v1/diff/flame?a=1&b=2",
        "/api/v1/runs/1/report/cpu",
        "/api/v1/runs/77",
        "/api/v1/runs/1/heat?metric=colour",
        "/api/profiler/flame",
        "/metrics",
        "/nothing",
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        answer.error();
    }
    for (method, path) in [
        ("DELETE", "/api/v1/runs/1"),
        ("PUT", "/api/v1/runs/1/notes"),
        ("POST", "/api/v1/runs/1/control"),
    ] {
        let answer = served.send(method, path, "X-Tprof: 1\r\n");
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
        assert!(answer.error().1.contains("an archive only grows"));
    }
    assert_eq!(files(&both.path().join("_runs")).len(), 2);
    // The list of routes does not contain the refused routes.
    let routes = served.json("/api/v1")["routes"].to_string();
    assert!(routes.contains("/heat") && !routes.contains("/page/") && !routes.contains("DELETE"));
    let described = served.json("/api/v1/openapi.json")["paths"].to_string();
    assert!(described.contains("/api/v1/diff") && !described.contains("/api/profiler"));
}

#[test]
fn a_newly_archived_run_appears_and_others_keep_their_numbers() {
    let Some(both) = Both::new() else { return };
    let served = both.serve();
    let before = served.whole_list(2);
    let third = both.runs().join("a-third");
    many_ranks(&runs().run(), &third, 2).unwrap();
    both.archive(&third);
    let after = served.whole_list(3);
    for name in ["first", "second"] {
        assert_eq!(of(&before, name), of(&after, name));
    }
    assert_eq!((id(of(&after, "a-third")), &of(&after, "a-third")["ranks"]), (3, &json!(2)));
}

#[test]
fn a_lost_object_affects_only_its_run() {
    let Some(both) = Both::new() else { return };
    fs::remove_file(both.object("rank_steps", "second")).unwrap();
    let damaged = both.object("rank_kernels", "first");
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, vec![0x5a; bytes.len()]).unwrap();
    let commits = both.path().join("_runs");
    fs::write(commits.join("half-000000000000.json"), "{\"archive_ver").unwrap();
    // A commit file is renamed, so that the run in it cannot be found by its ID.
    let first = files(&commits).into_iter().find(|path| path.to_string_lossy().contains("/first-"));
    let text = fs::read_to_string(first.unwrap()).unwrap();
    let at = text.find("\"first-").unwrap() + 1;
    let renamed = format!("{}renamed-00{}", &text[..at], &text[at + "first-000000000000".len()..]);
    fs::write(commits.join("moved-00.json"), renamed).unwrap();
    let served = both.serve();
    let list = served.list(|list| list["pending"] == 0);
    let problems = list["problems"].as_array().unwrap();
    assert!(problems[0].as_str().unwrap().contains("half-000000000000.json"), "{problems:?}");
    let rows = list["runs"].as_array().unwrap();
    let (whole, lost) = (of(rows, "first"), of(rows, "second"));
    assert_eq!(of(rows, "renamed-00")["summary"], "failed");
    assert_eq!((&whole["summary"], &whole["ranks"]), (&json!("ready"), &json!(RANKS)));
    assert_eq!(lost["state"], "damaged");
    assert!(lost["why"].as_str().unwrap().contains("cannot read an object"), "{lost}");
    // The figures that need the object are unknown for that reason. Other figures are known.
    for key in ["step_ns", "steps"] {
        assert!(lost[key].is_null() && lost[format!("{key}_why")] == lost["why"], "{key}: {lost}");
    }
    for key in ["gpu_busy", "ranks", "findings", "worst", "wall_ns"] {
        assert!(!lost[key].is_null(), "{key}: {lost}");
    }
    // A document that needs the object states the reason. Other documents of the run are complete.
    let (first, second) = (id(whole), id(lost));
    for (id, kind, status) in [
        (second, "steps", 502),
        (second, "kernels", 200),
        (first, "kernels", 502),
        (first, "steps", 200),
    ] {
        let answer = served.get(&format!("/api/v1/runs/{id}/report/{kind}"));
        assert_eq!(answer.status, status, "{kind}: {}", answer.text);
        if status != 200 {
            answer.error();
        }
    }
}

#[test]
fn an_archive_without_runs_is_shown_as_empty() {
    let Some(tprof) = tprof() else { return };
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("_runs")).unwrap();
    let path = directory.path().to_str().unwrap();
    let served = Served::start(command(&tprof, &["serve", path]));
    let list = served.json("/api/v1/runs");
    assert_eq!((&list["runs"], &list["pending"]), (&json!([]), &json!(0)));
    assert_eq!(
        served.json("/api/v1")["archive"],
        *directory.path().canonicalize().unwrap().to_str().unwrap()
    );
}

#[test]
fn sources_that_cannot_be_served_together_are_refused() {
    let Some(both) = Both::new() else { return };
    let (path, there) = (both.path(), both.runs());
    let (path, there) = (path.to_str().unwrap(), there.to_str().unwrap());
    assert!(both.refused(&[path, there]).contains("is not shown beside runs"));
    assert!(both.refused(&[path, "s3://jobs/a"]).contains("several archives"));
    assert!(both.refused(&["--control", path]).contains("--control does not apply"));
    assert!(both.refused(&["ftp://jobs/a"]).contains("keeps no archives in"));
    let secret = both.refused(&["s3://key:wJalrXUtnFEMI@jobs"]);
    assert!(!secret.contains("wJalrXUtnFEMI"), "{secret}");
}

#[test]
fn requests_to_an_archive_are_checked_like_others() {
    let Some(both) = Both::new() else { return };
    let served = both.serve();
    let elsewhere = served.send("GET", "/api/v1/runs", "Origin: http://evil.example\r\n");
    assert_eq!(elsewhere.status, 403);
    let page = served.get("/");
    assert_eq!(page.status, 200);
    let policy = page.head.to_lowercase();
    assert!(policy.contains("content-security-policy: default-src 'none'; script-src 'nonce-"));
}

#[test]
fn nothing_is_left_when_the_server_is_killed() {
    let Some(both) = Both::new() else { return };
    let mut served = both.serve();
    served.whole_list(2);
    // The query takes long, because an object of its table is replaced by a pipe without a writer.
    let object = both.object("rank_idle", "first");
    fs::remove_file(&object).unwrap();
    nix::unistd::mkfifo(&object, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let begun = served.begin("/api/v1/runs/1/report/idle");
    let mut children = Vec::new();
    wait_until("a child asks", || {
        children = served.descendants();
        children.iter().any(|(_, line)| line.contains("rank_idle"))
    });
    served.kill();
    wait_until("all have ended", || {
        children.iter().all(|(pid, _)| !Path::new(&format!("/proc/{pid}")).exists())
    });
    drop(begun);
}
