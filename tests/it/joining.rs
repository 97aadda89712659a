//! Several `tprof run` commands may share a directory as ranks of one job, but never as two jobs.

use std::fs;
use std::path::Path;
use tprof_tests::{
    DEFAULT, Job, Live, Outcome, Scratch, assert_refused, kill, program, report, run_info, tprof,
    traced_job,
};

/// Returns the names of the files of a run, sorted. Files of collectors that joined appear as
/// `run-…`.
fn files(run: &Path) -> Vec<String> {
    let names = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().unwrap())
        .map(|name| if name.starts_with("run-") { "run-…".to_owned() } else { name })
        .collect();
    names.sort();
    names
}

/// Returns a rank that ends at once. `of` has the variables that the launcher of its job sets.
fn rank(rank: u32, of: &str) -> Job {
    let job = Job::new(program("short")).arg("0").env("WORLD_SIZE", "16");
    let variables = of.split(' ').filter_map(|word| word.split_once('='));
    variables.fold(job.env("RANK", rank.to_string()), |job, (name, value)| job.env(name, value))
}

/// Options that make it an error if a run may not be shared.
const FAIL: &[&str] = &["--if-exists", "fail"];

fn record(job: &Job, options: &[&str], run: &Path) -> Outcome {
    traced_job(job, options, run).run_in(run.parent().unwrap())
}

const ALONE: [&str; 2] = ["rank-0.tprof", "run.json"];
const BOTH: [&str; 4] = ["rank-0.tprof", "rank-9.tprof", "run-…", "run.json"];

#[test]
fn a_rank_joins_a_finished_run_only_if_both_name_the_same_job() {
    for (first, second) in [
        ("", ""),
        ("SLURM_JOB_ID=7 SLURM_STEP_ID=0", ""),
        ("", "SLURM_JOB_ID=7 SLURM_STEP_ID=0"),
        ("SLURM_JOB_ID=7 SLURM_STEP_ID=0", "SLURM_JOB_ID=7 SLURM_STEP_ID=1"),
        ("PMIX_NAMESPACE=a SLURM_JOB_ID=7", "PMIX_NAMESPACE=b SLURM_JOB_ID=7"),
        ("TORCHELASTIC_RUN_ID=a", "TORCHELASTIC_RUN_ID=b"),
    ] {
        let scratch = Scratch::new();
        let run = scratch.run();
        record(&rank(0, first), DEFAULT, &run).expect_code(0);
        assert_refused(&record(&rank(9, second), FAIL, &run), &["job", "--force", "-o"]);
        assert_eq!(files(&run), ALONE, "{first:?}, then {second:?}");
        assert_eq!(report(&run).processes("short").len(), 1, "{first:?}, then {second:?}");
        record(&rank(9, second), &["--force"], &run).expect_code(0);
        assert_eq!(files(&run), ["rank-9.tprof", "run.json"], "{first:?}, then {second:?}");
    }
}

#[test]
fn ranks_of_one_job_share_a_run_even_after_the_first_rank_ended() {
    for (first, second) in [
        ("SLURM_JOB_ID=7 SLURM_STEP_ID=0", "SLURM_JOB_ID=7 SLURM_STEP_ID=0"),
        ("PMIX_NAMESPACE=a SLURM_JOB_ID=7 SLURM_STEP_ID=3", "PMIX_NAMESPACE=a SLURM_JOB_ID=7"),
        ("TORCHELASTIC_RUN_ID=a", "TORCHELASTIC_RUN_ID=a"),
        ("PBS_JOBID=7.head", "PBS_JOBID=7.head"),
        ("LSB_JOBID=7", "LSB_JOBID=7"),
        ("FLUX_JOB_ID=f7", "FLUX_JOB_ID=f7"),
    ] {
        for redact in [&[][..], &["--redact"]] {
            let scratch = Scratch::new();
            let run = scratch.run();
            record(&rank(0, first), redact, &run).expect_code(0);
            record(&rank(9, second), redact, &run).expect_code(0);
            assert_eq!(files(&run), BOTH, "{first:?}");
            assert_eq!(report(&run).processes("short").len(), 2, "{first:?}");
            let text = fs::read_to_string(run.join("run.json")).unwrap();
            let names = ["\"7\"", "\"7.head\"", "\"f7\""].iter().any(|name| text.contains(name));
            assert!(redact.is_empty() || !names, "{text}");
            // Each rank is still recorded once.
            let options = [redact, FAIL].concat();
            let again = record(&rank(9, second), &options, &run);
            assert_refused(&again, &["contains a run", "--force"]);
        }
    }
}

#[test]
fn ranks_that_one_launcher_started_share_a_run() {
    let scratch = Scratch::new();
    let run = scratch.run();
    // Each launcher runs in a shell of its own, like torchrun without a run id.
    let launcher = |ranks: &str| {
        let script = format!(
            "for r in {ranks}; do RANK=$r WORLD_SIZE=16 TORCHELASTIC_RUN_ID=none \"$@\" || exit; done"
        );
        let words = [program("short").into_os_string(), "0".into()];
        let traced = ["run", "-q", "--if-exists", "fail", "-o"].map(std::ffi::OsString::from);
        let tprof = std::iter::once(tprof_tests::tprof_at().as_os_str().to_owned());
        Job::sh(&script)
            .args(tprof.chain(traced).chain([run.clone().into(), "--".into()]).chain(words))
            .run_in(scratch.cwd())
    };
    launcher("0 9").expect_code(0);
    assert_eq!(files(&run), BOTH);
    assert_refused(&launcher("3"), &["finished run", "--force"]);
    assert_eq!(files(&run), BOTH);
}

#[test]
fn ranks_that_torchrun_restarts_get_files_of_their_own() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let of = "TORCHELASTIC_RUN_ID=a TORCHELASTIC_RESTART_COUNT=";
    record(&rank(0, &format!("{of}0")), DEFAULT, &run).expect_code(0);
    assert_refused(&record(&rank(0, &format!("{of}0")), FAIL, &run), &["contains a run"]);
    record(&rank(0, &format!("{of}1")), DEFAULT, &run).expect_code(0);
    assert_eq!(files(&run), ["rank-0.1.tprof", "rank-0.tprof", "run-…", "run.json"]);
}

#[test]
fn a_live_run_is_joined_unless_another_job_is_named() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let first = Job::new(program("steady")).arg("1").env("SLURM_JOB_ID", "7");
    let first = first.env("RANK", "0").env("WORLD_SIZE", "16");
    let mut live = Live::start(&traced_job(&first, DEFAULT, &run), scratch.path());
    live.wait_for("ready");
    record(&rank(9, ""), DEFAULT, &run).expect_code(0);
    assert_refused(&record(&rank(8, "SLURM_JOB_ID=8"), FAIL, &run), &["-o", "another job"]);
    let env = tprof(["env", "-o"]).arg(&run).env("SLURM_JOB_ID", "8").run_in(scratch.cwd());
    assert!(env.expect_code(0).stdout.contains("-2'"), "another job gets a run of its own");
    // A live run is never replaced: the new run gets a directory beside it.
    let beside = record(&rank(8, "SLURM_JOB_ID=8"), &["--force"], &run).expect_code(0);
    assert!(beside.stderr.contains("is recording"), "{beside:?}");
    live.finish().expect_code(48);
    assert_eq!(files(&run), BOTH);
    let first = run_info(&run, |info| info["finished"] == true);
    assert_eq!(first["job"], serde_json::json!({"SLURM_JOB_ID": "7"}));
}

#[test]
fn a_run_whose_collector_was_killed_is_not_live() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new(program("steady")).arg("1").env("RANK", "0").env("WORLD_SIZE", "16");
    let mut live = Live::start(&traced_job(&job, DEFAULT, &run), scratch.path());
    live.wait_for("ready");
    run_info(&run, |info| info["processes"].as_array().is_some_and(|all| !all.is_empty()));
    assert!(kill(live.pid(), libc::SIGKILL));
    live.finish();
    assert_refused(&record(&rank(9, ""), FAIL, &run), &["finished run", "--force"]);
    assert_eq!(files(&run), ALONE);
}

#[test]
fn tprof_env_replaces_a_run_under_force_and_never_joins_one() {
    let scratch = Scratch::new();
    let run = scratch.run();
    record(&rank(3, ""), DEFAULT, &run).expect_code(0);
    let env = |options: &[&str]| tprof(["env", "-o"]).arg(&run).args(options).run_in(scratch.cwd());
    assert_refused(&env(FAIL), &["--force"]);
    let beside = env(&[]).expect_code(0);
    assert!(beside.stdout.contains("run-0-2'"), "{beside:?}");
    assert!(beside.stderr.contains("contains a run"), "{beside:?}");
    env(&["--force"]).expect_code(0);
    assert!(files(&run).is_empty());
}

#[test]
fn a_job_that_may_not_share_a_run_is_recorded_beside_it() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let beside = run.with_file_name(format!("{}-2", run.file_name().unwrap().display()));
    record(&rank(0, "SLURM_JOB_ID=7 SLURM_STEP_ID=0"), DEFAULT, &run).expect_code(0);
    for number in [0, 9] {
        let second = rank(number, "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=1");
        let second = record(&second, &["-q"], &run).expect_code(0);
        assert!(second.stderr.contains(&*beside.file_name().unwrap().to_string_lossy()));
        assert_eq!(second.stderr.lines().count(), 1, "{second:?}");
    }
    assert_eq!(
        (files(&run), files(&beside)),
        (ALONE.map(String::from).to_vec(), BOTH.map(String::from).to_vec())
    );
    // On request, both jobs share one run.
    record(&rank(9, "SLURM_JOB_ID=8"), &["--if-exists", "join"], &run).expect_code(0);
    assert_eq!(files(&run), BOTH);
    record(&rank(1, "SLURM_JOB_ID=8"), &["--if-exists", "force"], &run).expect_code(0);
    assert_eq!(files(&run), ["rank-1.tprof", "run.json"]);
}
