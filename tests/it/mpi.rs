//! Calls of MPI are recorded with their sizes, and behave as without tprof.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

use tprof_tests::{Job, Scratch, Traced, document, skip, tprof, traced};

const STEPS: u64 = 10;
/// Bytes of the large message of `exchanges.c`.
const LARGE: u64 = 8000;
pub const MPIS: [&str; 2] = ["mpich", "openmpi"];

/// Builds a program with an MPI's compiler; `None` if the MPI is not installed.
pub fn built(mpi: &str, source: &str, more: &[&str], scratch: &Scratch) -> Option<PathBuf> {
    let compiler = format!("mpicc.{mpi}");
    if !Path::new("/usr/bin").join(&compiler).exists() {
        skip(format!("there is no {compiler}"));
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    let program = scratch.join(source.file_stem().unwrap().to_str().unwrap());
    let mut compiler = Command::new(compiler);
    let made = compiler.args(["-g", "-O2"]).args(more).arg("-o").arg(&program).arg(source);
    assert!(made.status().unwrap().success());
    Some(program)
}

fn ranks(mpi: &str, program: &Path) -> Job {
    ranks_with(mpi, &[], program)
}

/// Starts two ranks of a program, with options of the MPI's launcher.
pub fn ranks_with(mpi: &str, options: &[&str], program: &Path) -> Job {
    ranks_of(2, mpi, options, program)
}

/// Starts so many ranks of a program, with options of the MPI's launcher.
pub fn ranks_of(ranks: u32, mpi: &str, options: &[&str], program: &Path) -> Job {
    Job::new(format!("mpirun.{mpi}"))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .args(options)
        .args(["-n", &ranks.to_string()])
        .arg(program)
}

/// Returns the rows of a table of a report.
fn rows(run: &Path, kind: &str, table: &str) -> Vec<Value> {
    let outcome = tprof(["report", kind, "--json"]).arg(run).run_in(run.parent().unwrap());
    let report: Value = serde_json::from_str(&outcome.expect_code(0).stdout).unwrap();
    report["tables"][table].as_array().unwrap().clone()
}

/// Returns the time that all ranks measured of their large reductions, in ns.
fn within_ns(run: &Traced) -> u64 {
    let words = run.outcome.stdout.split([' ', '\n']);
    words.filter_map(|word| word.strip_prefix("within_ns=")?.parse::<u64>().ok()).sum()
}

#[test]
fn messages_have_their_sizes_and_the_late_rank_is_named() {
    for mpi in MPIS {
        let scratch = Scratch::new();
        let Some(program) = built(mpi, "exchanges.c", &[], &scratch) else { continue };
        let run = traced(&ranks(mpi, &program), &["--mem", "off"], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let results = run.outcome.stdout.matches("sum=19 ").count();
        assert_eq!((results, run.outcome.stdout.matches("refused=1").count()), (2, 2));
        let comm = rows(&run.run, "comm", "comm");
        let calls = |operation: &str, bytes: Option<u64>| {
            let is =
                |row: &&Value| row["operation"] == operation && row["bytes"] == Value::from(bytes);
            comm.iter().find(is).map(|row| (row["calls"].as_u64(), row["group_size"].as_u64()))
        };
        let two = |calls: u64| Some((Some(calls), Some(2)));
        for (operation, bytes, known) in [
            ("all_reduce", Some(LARGE), two(2 * STEPS)),
            ("all_reduce", Some(24), two(2)),
            ("broadcast", Some(LARGE), two(2)),
            // The other broadcast was refused, so it has no row.
            ("broadcast", Some(0), two(2)),
            ("all_gather", Some(2 * LARGE), two(2)),
            ("gather", Some(LARGE), two(1)),
            ("gather", None, two(1)),
            ("scatter", Some(40), two(1)),
            ("all_to_all", Some(14), two(2)),
            ("send", Some(4), two(1)),
            ("recv", None, two(1)),
            ("barrier", None, two(2)),
        ] {
            assert_eq!(calls(operation, bytes), known, "{mpi}: {operation} {bytes:?}: {comm:#?}");
        }
        let large = comm.iter().find(|row| row["calls"] == 2 * STEPS).unwrap();
        let (recorded, measured) = (large["total_ns"].as_u64().unwrap(), within_ns(&run));
        let apart = recorded.abs_diff(measured);
        assert!(apart < measured / 50, "{mpi}: {recorded} ns, measured {measured} ns");
        let late = rows(&run.run, "stragglers", "late_arrivals");
        assert_eq!(late[0]["rank"], "rank 1", "{mpi}: {late:#?}");
        let held_up = late[0]["delay_ns"].as_u64().unwrap();
        assert!(held_up > STEPS * 30_000_000 / 2, "{mpi}: {late:#?}");
    }
}

/// Iterations of `iterations.c`.
const ITERATIONS: u64 = 30;

#[test]
fn iterations_that_send_the_same_messages_are_steps_by_an_estimate() {
    for mpi in MPIS {
        let scratch = Scratch::new();
        let Some(program) = built(mpi, "iterations.c", &[], &scratch) else { continue };
        let run = traced(&ranks(mpi, &program), &["--mem", "off"], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let steps = rows(&run.run, "steps", "steps");
        for rank in ["rank 0", "rank 1"] {
            let of_rank: Vec<u64> = steps
                .iter()
                .filter(|row| row["rank"] == rank)
                .map(|row| row["duration_ns"].as_u64().unwrap())
                .collect();
            // Nothing was sent after the last iteration, so it has no end.
            assert_eq!(of_rank.len() as u64, ITERATIONS - 1, "{mpi}: {steps:#?}");
            let line = format!("rank={} first_to_last_ns=", &rank[5..]);
            let measured = run.outcome.stdout.split(line.as_str()).nth(1).unwrap();
            let measured: u64 = measured.lines().next().unwrap().parse().unwrap();
            let inferred: u64 = of_rank.iter().sum();
            assert!(measured.abs_diff(inferred) < measured / 5, "{measured} {of_rank:?}");
        }
        let sources = rows(&run.run, "steps", "step_times");
        assert!(sources.iter().all(|row| row["source"] == "inferred"), "{sources:#?}");
        for kind in ["steps", "host", "stragglers", "comm", "findings"] {
            let notes = document(kind, &run.run)["notes"].to_string();
            assert_eq!(notes.matches("steps are an estimate").count(), 1, "{kind}: {notes}");
        }
    }
}

#[test]
fn iterations_with_different_messages_are_not_inferred_as_steps() {
    let scratch = Scratch::new();
    let Some(program) = built("mpich", "iterations.c", &[], &scratch) else { return };
    let run = traced(&ranks("mpich", &program).arg("vary"), &["--mem", "off"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert!(rows(&run.run, "comm", "comm").len() > 3);
    assert_eq!(rows(&run.run, "steps", "steps"), [] as [Value; 0]);
}

#[test]
fn a_tool_that_wraps_a_function_of_mpi_is_called_as_without_tprof() {
    for mpi in MPIS {
        let scratch = Scratch::new();
        let Some(program) = built(mpi, "exchanges.c", &[], &scratch) else { continue };
        let tool = built(mpi, "mpi_tool.c", &["-shared", "-fPIC"], &scratch).unwrap();
        let job = ranks(mpi, Path::new("env"));
        let job = job.arg(format!("LD_PRELOAD={}", tool.display())).arg(&program);
        let alone = job.run_in(scratch.path()).expect_code(0);
        assert_eq!(alone.stdout.matches("wrapped=11").count(), 2, "{mpi}: {alone:?}");
        // The tool is loaded after tprof's own library, like a tool that is linked.
        let script =
            format!("LD_PRELOAD=\"$LD_PRELOAD:{}\" exec {}", tool.display(), program.display());
        let job = ranks(mpi, Path::new("sh")).args(["-c", &script]);
        let run = traced(&job, &["--mem", "off"], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{mpi}: {:?}", run.outcome);
        assert_eq!(run.outcome.stdout.matches("wrapped=11").count(), 2, "{mpi}: {:?}", run.outcome);
        let comm = rows(&run.run, "comm", "comm");
        assert!(comm.iter().any(|row| row["calls"] == 2 * STEPS), "{mpi}: {comm:#?}");
    }
}
