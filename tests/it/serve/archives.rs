//! Tests of `tprof serve` over an archive, if the program that reads it is missing, has another
//! version, is slow, or prints invalid answers. The tests in `sql/tests`, where `tprof-sql` is
//! built, read real archives.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tprof_tests::{Job, Outcome, Scratch, Served, assert_refused, tprof_at, wait_until};

use super::runs;

/// A copy of `tprof` in a directory of its own, beside a script in place of `tprof-sql`; an empty
/// script means that there is none.
struct Apart {
    scratch: Scratch,
    archive: PathBuf,
}

/// A script that answers the two queries for the runs of an archive.
const LISTED: &str = r#"
case "$*" in
*--ids*) echo r1-00; exit ;;
*--json*) echo '{"version":1,"tprof":"0","archive":"a","tables_version":2,"problems":[],"runs":[
{"run":"r1-00","archived_unix_ns":9,"start_unix_ns":5,"hosts":["h"],"files":1,"ended":true,
"tables_version":2,"tables":{"runs":1},"objects":1,"bytes":7,"tprof":"0","notes":[]}]}'; exit ;;
esac
"#;

impl Apart {
    fn new(script: &str) -> Apart {
        let scratch = Scratch::new();
        for name in ["tprof", "tprof-serve"] {
            let (from, to) = (tprof_at().with_file_name(name), scratch.join(name));
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(|_| ())).unwrap();
        }
        if !script.is_empty() {
            let path = scratch.write("tprof-sql", &format!("#!/bin/sh\n{script}"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let archive = scratch.join("archive");
        fs::create_dir_all(archive.join("_runs")).unwrap();
        Apart { scratch, archive }
    }

    fn job(&self, options: &[&str], paths: &[&Path]) -> Job {
        let job = Job::new(self.scratch.join("tprof")).args(["serve", "--no-browser"]);
        job.env("PATH", "/usr/bin:/bin").args(options).args(paths)
    }

    fn outcome(&self, options: &[&str], paths: &[&Path]) -> Outcome {
        self.job(options, paths).run_in(self.scratch.path())
    }
}

#[test]
fn without_tprof_sql_an_archive_is_refused_with_how_to_install_it() {
    let apart = Apart::new("");
    let outcome = apart.outcome(&[], &[&apart.archive]);
    assert_refused(&outcome, &["tprof-sql", "not installed", "cargo install --path sql"]);
    let store = apart.outcome(&[], &[Path::new("s3://jobs/tprof")]);
    assert_refused(&store, &["tprof-sql", "not installed"]);
}

#[test]
fn an_archive_is_shown_by_itself_and_never_changed() {
    let apart = Apart::new("exit 1");
    let directory = runs(&apart.scratch);
    let beside = apart.outcome(&[], &[&apart.archive, &directory]);
    assert_refused(&beside, &["beside runs", "second server"]);
    let two = apart.outcome(&[], &[&apart.archive, Path::new("gs://jobs/tprof")]);
    assert_refused(&two, &["several archives"]);
    let control = apart.outcome(&["--control"], &[&apart.archive]);
    assert_refused(&control, &["--control", "only grows"]);
    let secret = apart.outcome(&[], &[Path::new("s3://key:wJalrXUtnFEMI@jobs"), &directory]);
    assert_refused(&secret, &["beside runs"]);
    assert!(!secret.stderr.contains("wJalrXUtnFEMI"), "{secret:?}");
}

#[test]
fn a_reader_of_another_version_is_named_with_its_version() {
    let older = Apart::new("echo \"error: unexpected argument '--ids' found\" >&2; exit 2");
    assert_refused(&older.outcome(&[], &[&older.archive]), &["--ids", "of one version"]);
    let other = Apart::new("case \"$*\" in *--json*) echo '{\"runs\":3}' ;; esac");
    assert_refused(
        &other.outcome(&[], &[&other.archive]),
        &["tprof-sql printed", "of one version"],
    );
}

#[test]
fn an_invalid_answer_is_an_error_and_the_server_goes_on() {
    let apart = Apart::new(&format!("{LISTED}\necho '</script> nothing of the kind'"));
    let served = Served::of(apart.job(&[], &[&apart.archive]));
    wait_until("figures failed", || served.json("/api/v1/runs")["pending"] == 0);
    let list = served.json("/api/v1/runs");
    assert_eq!(
        (&list["runs"][0]["summary"], &list["runs"][0]["ranks"]),
        (&"failed".into(), &().into())
    );
    for path in ["report/kernels", "heat?metric=step_ns"] {
        let answer = served.get(&format!("/api/v1/runs/1/{path}")).expect(502).json();
        assert!(answer["try"].as_str().unwrap().contains("of one version"), "{answer}");
    }
    served.assert_answers();
}

#[test]
fn a_slow_query_is_abandoned_and_its_program_is_ended() {
    let apart = Apart::new(&format!("{LISTED}\nexec sleep 1000"));
    let served = Served::of(apart.job(&["--time-limit", "1s"], &[&apart.archive]));
    let answer = served.get("/api/v1/runs/1/report/kernels").expect(504).json();
    assert!(answer["why"].as_str().unwrap().contains("longer than 1 s"), "{answer}");
    wait_until("figures failed", || served.json("/api/v1/runs")["pending"] == 0);
    wait_until("all children have ended", || served.descendants().is_empty());
}

#[test]
fn programs_that_read_archives_end_with_the_server() {
    let apart = Apart::new(&format!("{LISTED}\nexec sleep 1000"));
    let served = Served::of(apart.job(&[], &[&apart.archive]));
    // The server queries figures before a client asks.
    let mut children = Vec::new();
    wait_until("a child asks", || {
        children = served.descendants();
        !children.is_empty()
    });
    served.end(9);
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    wait_until("they have ended", || !children.iter().any(is_there));
}
