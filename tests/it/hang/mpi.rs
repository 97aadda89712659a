//! Ranks of MPI wait for each other by spinning, and are seen to wait nevertheless.

use super::{Hanging, blames, source};
use crate::mpi::{MPIS, built, ranks_with};
use serde_json::Value;
use std::path::PathBuf;
use tprof_tests::{Scratch, program};

/// Makes each MPI let the other ranks go on when one has ended.
fn keeps_others(mpi: &str) -> &'static str {
    if mpi == "openmpi" { "--enable-recovery" } else { "-disable-auto-cleanup" }
}

/// Starts two ranks; `None` if the MPI is not installed.
fn start(mpi: &str, how: &str) -> Option<Hanging> {
    start_under(mpi, how, None)
}

/// Does the same, with a command in front.
fn start_under(mpi: &str, how: &str, command: Option<PathBuf>) -> Option<Hanging> {
    let scratch = Scratch::new();
    let program = built(mpi, "hang_mpi.c", &[], &scratch)?;
    let job = ranks_with(mpi, &[keeps_others(mpi)], &program).arg(how).under(command);
    Some(Hanging::start(&job, &["--mem", "off"], scratch, 2))
}

#[test]
fn a_rank_that_sleeps_or_computes_is_late_to_the_others_that_spin() {
    for mpi in MPIS {
        for how in ["sleeps", "computes"] {
            let Some(hanging) = start(mpi, how) else { continue };
            let answer = hanging.verdict("late_rank");
            let verdict = &answer["verdict"];
            assert_eq!(verdict["rank"], 1, "{mpi}: {answer:#}");
            let text = verdict["text"].as_str().unwrap();
            assert!(text.contains("has not entered MPI_Allreduce 10: it is in "), "{mpi}: {text}");
            assert!(text.ends_with(". 1 rank waits for it"), "{mpi}: {text}");
            let waits = &answer["ranks"][0]["collective"];
            assert_eq!(waits["operation"], "MPI_Allreduce", "{mpi}: {answer:#}");
            assert_eq!(waits["number"], 10, "{mpi}: {answer:#}");
            assert!(answer["ranks"][1]["collective"].is_null(), "{mpi}: {answer:#}");
            if how == "sleeps" {
                let source = source("programs/hang_mpi.c");
                blames(&answer, 1, "sleeps", &source, "HERE sleeps");
            }
        }
    }
}

#[test]
fn without_samples_an_open_call_tells_that_a_rank_waits() {
    for mpi in MPIS {
        let Some(hanging) = start_under(mpi, "computes", Some(program("no_perf"))) else {
            continue;
        };
        let answer = hanging.verdict("late_rank");
        assert_eq!(answer["verdict"]["rank"], 1, "{mpi}: {answer:#}");
        assert_eq!(answer["ranks"][0]["collective"]["operation"], "MPI_Allreduce", "{answer:#}");
        assert_eq!(answer["ranks"][0]["stack"], serde_json::json!([]), "{mpi}: {answer:#}");
    }
}

/// Whether only rank 1 is blamed: the other waits for it.
#[track_caller]
fn blames_only_rank_1(answer: &Value, function: &str, mark: &str) {
    blames(answer, 1, function, &source("programs/hang_mpi.c"), mark);
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.starts_with("rank 1 (host "), "{text}");
    assert!(text.ends_with(". 1 rank waits for it"), "{text}");
    assert_eq!(answer["ranks"][0]["collective"]["number"], 10, "{answer:#}");
}

#[test]
fn a_rank_that_handles_a_failure_of_which_the_others_do_not_know_is_late() {
    for mpi in MPIS {
        let Some(hanging) = start(mpi, "fails") else { continue };
        blames_only_rank_1(&hanging.verdict("late_rank"), "handles", "HERE handles");
    }
}

/// A server that is stopped stands in for a file server that is gone.
#[test]
fn a_rank_that_reads_from_a_server_that_is_gone_is_late() {
    for mpi in MPIS {
        let Some(hanging) = start(mpi, "reads") else { continue };
        let answer = hanging.verdict("late_rank");
        blames_only_rank_1(&answer, "loads", "HERE loads");
        assert_eq!(answer["ranks"][1]["waits_for"]["text"], "a pipe", "{mpi}: {answer:#}");
    }
}

/// In MPICH a barrier and a reduction may be taken for each other, and end the job.
#[test]
fn a_barrier_that_one_rank_of_mpi_leaves_out_is_a_mismatch_of_both_lines() {
    let Some(hanging) = start("openmpi", "barrier") else { return };
    let answer = hanging.verdict("mismatch");
    assert_eq!(answer["verdict"]["rank"], 1, "{answer:#}");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.starts_with("ranks differ in operation 10: rank 0 "), "{text}");
    for (call, function) in [("MPI_Barrier", "meets"), ("MPI_Allreduce", "reduces")] {
        assert!(text.contains(&format!("is in {call}, in `{call}` at {function} (")), "{text}");
    }
}

#[test]
fn a_rank_of_mpi_that_has_ended_is_named() {
    for mpi in MPIS {
        let Some(hanging) = start(mpi, "ends") else { continue };
        let answer = hanging.verdict("dead_rank");
        assert_eq!(answer["verdict"]["rank"], 1, "{mpi}: {answer:#}");
        let text = answer["verdict"]["text"].as_str().unwrap();
        assert!(text.contains("exited with status 3"), "{mpi}: {text}");
        assert!(text.ends_with("1 rank waits in MPI_Allreduce 10"), "{mpi}: {text}");
    }
}

#[test]
fn ranks_of_mpi_whose_operations_go_on_are_healthy() {
    for mpi in MPIS {
        let Some(hanging) = start(mpi, "calm") else { continue };
        for _ in 0..3 {
            let answer = hanging.ask();
            assert_eq!(answer["verdict"]["kind"], "healthy", "{mpi}: {answer:#}");
        }
    }
}
