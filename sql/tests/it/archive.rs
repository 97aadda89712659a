//! Tests `tprof archive` into a directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::many_ranks::many_ranks;
use crate::runs::{Ended, copy, ended, number, program, rows, runs};

/// Archives a run.
pub fn archive(run: &Path, to: &str, more: &[&str]) -> Ended {
    let mut words = vec!["archive", run.to_str().unwrap(), "--to", to];
    words.extend(more);
    ended(words)
}

/// Returns every file below a directory, with its size and modification time.
fn files(directory: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if let Ok(meta) = entry.metadata() {
            all.insert(path, (meta.len(), meta.modified().unwrap()));
        }
    }
    all
}

/// Creates a directory for an archive.
fn place() -> (TempDir, PathBuf, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("archive");
    let text = path.to_str().unwrap().to_owned();
    (directory, path, text)
}

fn ids(archive: &Path) -> Vec<String> {
    rows(archive, "SELECT run FROM runs ORDER BY run")
}

/// Query for sums over kernels. If any rank is missing, the result differs.
pub const SUMS: &str = "SELECT count(*), sum(total_ns), sum(\"count\") FROM rank_kernels";

fn sums(of: &Path) -> Vec<String> {
    rows(of, SUMS)
}

#[test]
fn an_archived_run_has_the_same_sums_as_the_run() {
    let (_directory, path, to) = place();
    let done = archive(&runs().run(), &to, &[]);
    assert_eq!((done.code, &*done.err), (0, ""), "{}", done.out);
    assert!(done.out.contains(": archived as r8-"), "{}", done.out);
    assert_eq!(sums(&path), sums(&runs().run()));
    assert_eq!(ids(&path).len(), 1);
    let id = &ids(&path)[0];
    // The ID is in the column `run` of every table, not only in the names of directories.
    let of_id = |table: &str| format!("SELECT count(*) FROM {table} WHERE run = '{id}'");
    for table in ["ranks", "rank_summary", "rank_steps"] {
        let all = number(&path, &format!("SELECT count(*) FROM {table}"));
        assert!(all > 0, "{table}");
        assert_eq!(number(&path, &of_id(table)), all, "{table}");
    }
    assert_eq!(ended(["archive", "--check", &to]).code, 0);
    let listed = ended(["archive", "--list", &to]);
    assert!(listed.code == 0 && listed.out.contains(id.as_str()), "{}", listed.out);
}

#[test]
fn archiving_again_changes_nothing() {
    let (_directory, path, to) = place();
    assert_eq!(archive(&runs().run(), &to, &["--raw", "kernels"]).code, 0);
    let before = files(&path);
    let again = archive(&runs().run(), &to, &[]);
    assert_eq!((again.code, &*again.err), (0, ""));
    assert!(again.out.contains(": is in the archive as r8-"), "{}", again.out);
    assert_eq!(files(&path), before);
    // The same run under another directory name is not archived again.
    let copy = copy();
    let renamed = archive(copy.path(), &to, &[]);
    assert!(renamed.out.contains(": is in the archive as r8-"), "{}", renamed.out);
    assert_eq!(files(&path), before);
}

#[test]
fn two_runs_of_the_same_name_get_different_ids() {
    let (directory, path, to) = place();
    let other = directory.path().join("r8");
    many_ranks(&runs().run(), &other, 3).unwrap();
    assert_eq!(archive(&runs().run(), &to, &[]).code, 0);
    assert_eq!(archive(&other, &to, &[]).code, 0);
    let ids = ids(&path);
    assert!(ids.len() == 2 && ids.iter().all(|id| id.starts_with("r8-")), "{ids:?}");
    let ranks = rows(&path, "SELECT ranks FROM runs ORDER BY ranks");
    assert_eq!(ranks, ["3", "8"]);
}

#[test]
fn tables_of_events_are_archived_on_request_and_missing_ones_are_noted() {
    let (directory, path, to) = place();
    let other = directory.path().join("r3");
    many_ranks(&runs().run(), &other, 3).unwrap();
    assert_eq!(archive(&runs().run(), &to, &["--raw", "kernels,steps"]).code, 0);
    assert_eq!(archive(&other, &to, &[]).code, 0);
    let query = "SELECT count(*) FROM kernels";
    let counted = ended([to.as_str(), query, "--format=csv"]);
    let there = number(&runs().run(), query);
    assert_eq!((counted.code, counted.out.lines().nth(1)), (0, Some(&*there.to_string())));
    assert!(counted.err.contains("kernels of 1 of 2 runs, r3-"), "{}", counted.err);
    let spans = ended([to.as_str(), "SELECT count(*) FROM spans", "--format=csv"]);
    assert_eq!((spans.code, spans.out.lines().nth(1)), (0, Some("0")));
    assert!(spans.err.contains("spans of 2 of 2 runs"), "{}", spans.err);
    // Nothing is missing for the run that was archived with these tables.
    let of_one = "SELECT count(*) FROM kernels WHERE run LIKE 'r8-%'";
    assert_eq!(number(&path, of_one), there);
    // A run in an archive does not change.
    let more = archive(&runs().run(), &to, &["--raw", "all"]);
    assert_eq!(more.code, 1);
    assert!(more.err.contains("is archived already, without spans"), "{}", more.err);
}

#[test]
fn a_run_in_progress_is_refused() {
    let (_directory, path, to) = place();
    let run = copy();
    let file = run.path().join("run.json");
    let mut info: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    info["finished"] = json!(false);
    info["collector_pid"] = json!(std::process::id());
    info["collector_start_tick"] = json!(fields[19].parse::<u64>().unwrap());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    info["machine"] = json!({ "boot_id": boot.trim(), "pid_namespace": namespace });
    fs::write(&file, info.to_string()).unwrap();
    let refused = archive(run.path(), &to, &[]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("is still being recorded") && refused.err.contains("--unfinished")
    );
    assert_eq!(files(&path).len(), 0);
    assert_eq!(archive(run.path(), &to, &["--unfinished"]).code, 0);
}

#[test]
fn check_names_damage_and_orphans_but_no_other_files() {
    let (_directory, path, to) = place();
    assert_eq!(archive(&runs().run(), &to, &[]).code, 0);
    let of = |table: &str| files(&path.join(table)).into_keys().next().unwrap();
    fs::write(path.join("README"), "ours").unwrap();
    fs::create_dir_all(path.join("runs/run=x-1")).unwrap();
    fs::write(path.join("runs/run=x-1/all-0.parquet"), "half").unwrap();
    let orphans = ended(["archive", "--check", &to]);
    assert_eq!(orphans.code, 0);
    assert!(orphans.out.contains("orphan") && orphans.out.contains("run=x-1"), "{}", orphans.out);
    assert!(!orphans.out.contains("README"));
    // Readers do not read the orphan.
    assert_eq!(ids(&path).len(), 1);
    fs::remove_file(of("rank_steps")).unwrap();
    let short = of("ranks");
    let bytes = fs::read(&short).unwrap();
    fs::write(&short, &bytes[..bytes.len() / 2]).unwrap();
    let damaged = ended(["archive", "--check", &to]);
    assert_eq!(damaged.code, 1);
    for (what, table) in [("missing", "rank_steps/run="), ("size", "ranks/run=")] {
        let line = damaged.out.lines().find(|line| line.contains(what));
        assert!(line.is_some_and(|line| line.contains(table)), "{}", damaged.out);
    }
    // A query that needs the missing object fails instead of leaving out rows.
    let failed = ended([to.as_str(), "SELECT count(step) FROM rank_steps"]);
    assert_eq!(failed.code, 1, "{}", failed.out);
    assert!(failed.err.contains("cannot read an object of an archive"), "{}", failed.err);
}

/// Starts an archiver.
pub fn begun(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Whether the command succeeds.
pub fn succeeds(mut command: Command) -> bool {
    command.output().unwrap().status.success()
}

/// Kills a process once `count` reaches `at`, or waits for its end. Returns whether it was killed.
pub fn kill_at(mut child: Child, at: usize, count: impl Fn() -> usize) -> bool {
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if count() >= at {
            // `kill` sends SIGKILL.
            child.kill().unwrap();
            return child.wait().unwrap().signal().is_some();
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_kill_leaves_all_of_a_run_or_nothing() {
    let run = runs().run();
    let all = sums(&run);
    // A killed archiver also leaves files that were not sent yet. With this TMPDIR, they are in a
    // directory that the test removes.
    let temporary = TempDir::new().unwrap();
    let words = |to: &str| {
        let mut command = program(["archive", run.to_str().unwrap(), "--to", to, "--raw", "all"]);
        command.env("TMPDIR", temporary.path());
        command
    };
    let (_directory, path, to) = place();
    assert!(succeeds(words(&to)));
    let whole: BTreeMap<PathBuf, u64> = contents(&path);
    let mut before_commit = 0;
    for at in (0..=whole.len()).step_by(2) {
        let (_directory, path, to) = place();
        let killed = kill_at(begun(words(&to)), at, || files(&path).len());
        let is_there = contents(&path).keys().any(|path| path.starts_with("_runs"));
        before_commit += usize::from(killed && !is_there);
        if path.join("_runs").is_dir() {
            // Before the commit, the archive has no run, and so not even a table.
            let runs = number(&path, "SELECT count(*) FROM runs");
            assert_eq!(runs, i64::from(is_there), "killed at {at}");
            if is_there {
                assert_eq!(sums(&path), all, "killed at {at}");
            }
        }
        // Files that a killed process left are written again under the same names.
        assert!(succeeds(words(&to)), "killed at {at}");
        assert_eq!(sums(&path), all, "killed at {at}");
        let checked = ended(["archive", "--check", &to]);
        assert_eq!((checked.code, &*checked.out), (0, ""), "killed at {at}");
        assert_eq!(contents(&path), whole, "killed at {at}");
    }
    assert!(before_commit > whole.len() / 8, "{before_commit} of {}", whole.len());
}

/// Returns the objects of an archive with their sizes, but no size for a run's commit file, which
/// contains the time. Partial files of a file-system client are not objects.
fn contents(archive: &Path) -> BTreeMap<PathBuf, u64> {
    let inside = |path: PathBuf| path.strip_prefix(archive).unwrap().to_owned();
    let all = files(archive).into_iter().map(|(path, (bytes, _))| (inside(path), bytes));
    let all = all.filter(|(path, _)| !path.to_string_lossy().contains('#'));
    all.map(|(path, bytes)| if path.starts_with("_runs") { (path, 0) } else { (path, bytes) })
        .collect()
}

#[test]
fn a_wrong_command_line_is_refused() {
    let run = runs().run();
    let run = run.to_str().unwrap();
    for (words, what) in [
        (&["archive", run, "--to", "x", "--raw", "kernel"][..], "bad value `kernel` for --raw"),
        (&["archive", run, "--to", "http://x/y"], "keeps no archives in"),
        (&["archive", run, "--to", "s3://a:b@x/y"], "with more than a bucket and a prefix"),
    ] {
        let refused = ended(words);
        assert_eq!(refused.code, 2, "{words:?}");
        assert!(refused.err.contains(what), "{}", refused.err);
    }
    let refused = ended(["archive", run, "--to", "no/such/parent"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("cannot create"), "{}", refused.err);
    let (_directory, _, to) = place();
    let refused = ended(["archive", "/dev/null", run, "--to", &to]);
    assert!(
        refused.code != 0 && refused.err.contains("`/dev/null` is not a run"),
        "{}",
        refused.err
    );
    // The other runs are archived nevertheless.
    assert!(refused.out.contains("archived as"), "{}", refused.out);
}

#[test]
fn the_json_list_has_the_tables_of_each_run() {
    let (directory, path, to) = place();
    let other = directory.path().join("r3");
    many_ranks(&runs().run(), &other, 3).unwrap();
    assert_eq!(archive(&runs().run(), &to, &["--raw", "kernels"]).code, 0);
    assert_eq!(archive(&other, &to, &[]).code, 0);
    let named = ended(["archive", "--list", &to, "--ids"]);
    assert_eq!((named.code, &*named.err), (0, ""));
    assert_eq!(named.out.lines().collect::<Vec<_>>(), ids(&path));
    let listed = ended(["archive", "--list", &to, "--json"]);
    let list: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!((listed.code, &list["problems"]), (0, &json!([])));
    for run in list["runs"].as_array().unwrap() {
        let is_r8 = run["run"].as_str().unwrap().starts_with("r8-");
        let kernels = number(&runs().run(), "SELECT count(*) FROM kernels");
        assert_eq!(run["tables"]["kernels"], if is_r8 { json!(kernels) } else { Value::Null });
        assert_eq!(run["tables"]["ranks"], if is_r8 { 8 } else { 3 });
        assert!(run["ended"] == true && run["bytes"].as_u64().unwrap() > 1000, "{run}");
    }
    // A file that cannot be read is named, and the other runs are there.
    fs::write(path.join("_runs/half-00.json"), "{").unwrap();
    let listed = ended(["archive", "--list", &to, "--json"]);
    let list: Value = serde_json::from_str(&listed.out).unwrap();
    assert!(list["problems"][0].as_str().unwrap().contains("_runs/half-00.json"), "{list}");
    assert_eq!(list["runs"].as_array().unwrap().len(), 2);
    for words in [["archive", "--check", &to, "--ids"], ["archive", "--check", &to, "--json"]] {
        assert_eq!(ended(words).code, 2, "{words:?}");
    }
}

#[test]
fn only_the_named_runs_of_an_archive_are_read() {
    let (directory, path, to) = place();
    let other = directory.path().join("r3");
    many_ranks(&runs().run(), &other, 3).unwrap();
    assert_eq!(archive(&runs().run(), &to, &[]).code, 0);
    assert_eq!(archive(&other, &to, &[]).code, 0);
    let all = ids(&path);
    let counted = |words: &[&str]| {
        let query = "SELECT count(*) FROM ranks";
        ended([&[to.as_str(), query, "--format=csv"], words].concat())
    };
    for (run, ranks) in all.iter().zip(["3", "8"]) {
        let of_one = counted(&["--run", run]);
        assert_eq!((of_one.code, of_one.out.lines().nth(1)), (0, Some(ranks)), "{}", of_one.err);
    }
    let of_both = counted(&["--run", &all[0], "--run", &all[1], "--run", &all[0]]);
    assert_eq!(of_both.out.lines().nth(1), Some("11"));
    // The commit files of other runs are not opened, so they may be unreadable.
    fs::write(path.join("_runs").join(format!("{}.json", all[0])), "{").unwrap();
    assert_eq!(
        (counted(&["--run", &all[1]]).out.lines().nth(1), &*counted(&["--run", &all[1]]).err),
        (Some("8"), "")
    );
    assert_eq!(counted(&["--run", &all[0]]).code, 1);
    for id in ["r9-00", "", "../_runs/r8", "r8'; DROP TABLE ranks"] {
        let missing = counted(&["--run", id]);
        assert_eq!(missing.code, 1, "{id}");
        assert!(missing.err.contains("there is no run `"), "{}", missing.err);
    }
    let run = runs().run();
    let no_archive = ended([run.to_str().unwrap(), "SELECT 1", "--run", "r8-00"]);
    assert_eq!(no_archive.code, 2);
    assert!(no_archive.err.contains("--run needs an archive"), "{}", no_archive.err);
}
