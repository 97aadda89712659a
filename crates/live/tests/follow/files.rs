//! Tests files of a run that are renamed, replaced, refused, or no traces.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use tprof_live::{FileEntry, Follower, PlainFiles, RunFiles, Snapshot};
use tprof_trace::run::RankInfo;

use super::run::{Run, SECOND, every, values};

#[test]
fn a_renamed_file_continues_and_a_replaced_one_starts_again() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    let mut follower = run.follower();
    assert_eq!(values(&follower.poll(), "steps"), [Some(8.0)]);
    fs::rename(run.file(0), run.file(5)).unwrap();
    // The writer of rank 0 has the file open and now writes to `rank-5.tprof`.
    run.mark_steps(0, [10 * SECOND]);
    let renamed = follower.poll();
    assert_eq!((renamed.ranks[0].rank, renamed.ranks.len()), (Some(5), 1));
    assert_eq!(values(&renamed, "steps"), [Some(9.0)]);
    // The file that replaces it has no steps.
    let other = Run::begun(60 * SECOND, 1);
    fs::rename(other.file(0), run.file(5)).unwrap();
    let replaced = follower.poll();
    assert_eq!(values(&replaced, "steps"), [None]);
    fs::remove_file(run.file(5)).unwrap();
    assert_eq!(follower.poll().ranks, []);
}

#[test]
fn the_info_file_tells_restarts_from_launches() {
    let mut run = Run::begun(60 * SECOND, 1);
    fs::copy(run.file(0), run.path().join("rank-0.1.tprof")).unwrap();
    let rank_info =
        |file: &str, restarts| RankInfo { file: file.to_owned(), restarts, ..RankInfo::default() };
    let mut follower = run.follower();
    let labels =
        |snapshot: Snapshot| snapshot.ranks.into_iter().map(|rank| rank.label).collect::<Vec<_>>();
    assert_eq!(labels(follower.poll()), ["rank 0", "rank 0, restart 1"]);
    run.info.ranks = vec![rank_info("rank-0.tprof", 0), rank_info("rank-0.1.tprof", 0)];
    run.write_info();
    assert_eq!(labels(follower.poll()), ["rank 0", "rank 0, launch 2"]);
}

/// A run whose files can be listed, but not opened while `is_refusing` is set.
struct RefusingFiles {
    inner: PlainFiles,
    is_refusing: RefCell<bool>,
}

impl RunFiles for RefusingFiles {
    fn directory(&self) -> &Path {
        self.inner.directory()
    }

    fn list(&self) -> io::Result<Vec<FileEntry>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        match *self.is_refusing.borrow() {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => self.inner.open(name),
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_a_problem_of_its_rank() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    let inner = PlainFiles::of(run.path()).unwrap();
    let mut follower = Follower::new(RefusingFiles { inner, is_refusing: RefCell::new(true) });
    let nothing = follower.poll();
    assert_eq!((nothing.ranks.len(), nothing.recording), (1, None));
    assert!(nothing.ranks[0].problem.is_some());
    // A metric that no rank has a value of says why.
    assert_eq!(nothing.metrics[0].why.is_some(), nothing.metrics[0].values == [None]);
}

#[test]
fn a_file_that_is_not_a_trace_is_a_problem_of_its_rank_only() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    fs::write(run.path().join("rank-1.tprof"), "{}").unwrap();
    // The name of this file is one of an info file, but its content isn't.
    fs::write(run.path().join("run-mine.json"), "{\"lr\": 1}").unwrap();
    let snapshot = run.follower().poll();
    assert!(snapshot.ranks[1].problem.as_ref().unwrap().contains("is not a tprof file"));
    assert_eq!(values(&snapshot, "steps"), [Some(8.0), None]);
}

#[test]
fn one_file_is_a_run_and_a_follower_may_move_to_another_thread() {
    let mut run = Run::begun(60 * SECOND, 2);
    run.mark_steps(1, every(SECOND, 9));
    let mut follower = Follower::new(PlainFiles::of(&run.file(1)).unwrap());
    let poll = move || follower.poll();
    let snapshot = std::thread::spawn(poll).join().unwrap();
    assert_eq!((snapshot.ranks.len(), snapshot.ranks[0].rank), (1, Some(1)));
    assert_eq!(values(&snapshot, "steps"), [Some(8.0)]);
    assert_eq!(snapshot.command, ["python", "train.py"]);
}
