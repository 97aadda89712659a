//! Ranks of MPI wait for each other by spinning, and are seen to wait nevertheless.

use super::{Hanging, blames, source};
use crate::mpi::{MPIS, built, ranks_with};
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
