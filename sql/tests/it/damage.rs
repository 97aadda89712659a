//! Tests that damaged files are named and do not end a query.

use std::fs::OpenOptions;
use std::path::Path;

use crate::runs::{RANKS, copy, ended, runs};

fn cut(file: &Path, part: u64) {
    let size = std::fs::metadata(file).unwrap().len();
    OpenOptions::new().write(true).open(file).unwrap().set_len(size / part).unwrap();
}

const RANKS_OF_ALL: &str = "SELECT count(DISTINCT rank) AS n FROM kernels";

#[test]
fn a_damaged_rank_is_named_and_the_others_are_read() {
    let run = copy();
    std::fs::write(run.path().join("rank-3.tprof"), "no trace at all").unwrap();
    let words = [run.path().as_os_str(), RANKS_OF_ALL.as_ref(), "--format=csv".as_ref()];
    let all = ended(words);
    assert_eq!((all.code, all.out), (0, format!("n\n{}\n", RANKS - 1)), "{}", all.err);
    assert!(all.err.starts_with("not read: ") && all.err.contains("rank-3.tprof"), "{}", all.err);
    // A query that does not concern this rank does not even open its file.
    let other = format!("{RANKS_OF_ALL} WHERE rank = 2");
    let one = ended([run.path().as_os_str(), other.as_ref(), "--format=csv".as_ref()]);
    assert_eq!((one.out.as_str(), one.err.as_str()), ("n\n1\n", ""));
}

#[test]
fn a_rank_that_was_cut_off_is_read_up_to_the_cut() {
    let run = copy();
    cut(&run.path().join("rank-3.tprof"), 2);
    let all = ended([run.path().as_os_str(), "SELECT count(*) FROM spans".as_ref()]);
    assert_eq!(all.code, 0, "{}", all.err);
    assert!(all.err.contains("rank-3.tprof"), "{}", all.err);
}

#[test]
fn a_damaged_file_of_a_data_set_is_named() {
    let copy = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp")
        .args(["-r".as_ref(), runs().set().as_os_str(), copy.path().as_os_str()])
        .status();
    assert!(status.unwrap().success());
    let set = copy.path().join("set");
    let directory = std::fs::read_dir(set.join("kernels")).unwrap().flatten();
    let of_three = directory.map(|entry| entry.path()).find(|path| path.ends_with("rank=3"));
    let file = std::fs::read_dir(of_three.unwrap()).unwrap().flatten().next().unwrap().path();
    cut(&file, 2);
    let all = ended([set.as_os_str(), RANKS_OF_ALL.as_ref(), "--format=csv".as_ref()]);
    assert_eq!((all.code, all.out), (0, format!("n\n{}\n", RANKS - 1)), "{}", all.err);
    assert!(all.err.contains(file.to_str().unwrap()), "{}", all.err);
}
