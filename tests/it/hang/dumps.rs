//! `tprof where` of dumps that PyTorch's Flight Recorder wrote.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{Scratch, assert_refused, tprof};

fn dumps(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/import/tests/flight_recorder").join(name)
}

#[test]
fn dumps_of_a_job_that_timed_out_name_the_rank_that_was_late() {
    let scratch = Scratch::new();
    let asked = tprof(["where"]).arg(dumps("late")).run_in(scratch.path()).expect_code(0);
    let verdict = asked.stdout.lines().next().unwrap();
    assert!(
        verdict.starts_with(
            "late rank: rank 1 has not entered all_reduce 3 of group 0 (default_pg): its last \
             operation, all_reduce 2 of group 0 (default_pg), called in train (/home/u/train.py:"
        ),
        "{verdict}"
    );
    assert!(verdict.ends_with(". 2 ranks wait for it"), "{verdict}");
    let (one, others) = (asked.stdout.find("\nrank 1: "), asked.stdout.find("\n2 ranks (0, 2): "));
    assert!(one.is_some() && one < others, "{}", asked.stdout);
    let asked = tprof(["where", "--json", "--rank", "2"]).arg(dumps("late"));
    let answer: Value =
        serde_json::from_str(&asked.run_in(scratch.path()).expect_code(0).stdout).unwrap();
    assert_eq!(answer["verdict"]["kind"], "late_rank");
    let rank = &answer["ranks"][0];
    assert_eq!((&rank["rank"], &rank["dump"]["file"]), (&2.into(), &"fr_rank_2".into()));
    assert_eq!((&rank["host"], &rank["pid"]), (&Value::Null, &Value::Null), "{answer:#}");
    assert_eq!(rank["collective"]["tensors"], "Float [8, 4]");
    let file = tprof(["where"]).arg(dumps("late/fr_rank_0")).run_in(scratch.path());
    assert!(file.expect_code(0).stdout.contains("\nno dump: ranks 1-2: "));
}

#[test]
fn what_is_neither_run_nor_dump_is_refused() {
    let scratch = Scratch::new();
    let refused = |words: &[&str], path: &Path, named: &[&str]| {
        assert_refused(&tprof(["where"]).args(words).arg(path).run_in(scratch.path()), named);
    };
    let neither = "is neither a run nor a dump of PyTorch's Flight Recorder";
    refused(&[], scratch.path(), &[neither, "whose name ends with the rank"]);
    refused(&[], &dumps("make.py"), &[neither]);
    refused(&[], &scratch.join("absent"), &["is not a run", "does not exist"]);
    refused(&["--rank", "7"], &dumps("late"), &["there is no dump of rank 7"]);
}
