//! Every process belongs to the rank that its environment names: under torchrun, mpirun and srun,
//! and in the processes that ranks start.

use std::fs;
use std::path::Path;
use std::time::Duration;
use tprof_tests::{
    EXACT, Job, Live, Scratch, host_name, memory_report, program, report, traced, traced_job,
};

/// Returns the names of the trace files of a run.
fn traces(run: &Path) -> Vec<String> {
    let names =
        fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".tprof")).collect();
    names.sort();
    names
}

fn launcher() -> String {
    format!("launcher-{}.tprof", host_name())
}

/// Returns the allocations in victims' functions for each rank.
fn allocations(run: &Path) -> Vec<(Option<i64>, i64)> {
    let report = memory_report(run);
    let mut found: Vec<(Option<i64>, i64)> = report.0["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| (rank["rank"].as_i64(), rank["host_memory"]["allocations"].as_i64().unwrap()))
        .collect();
    found.sort();
    found
}

/// Runs the script in `sh` as a launcher; `$1` is the victim `leave`.
fn launch(script: &str, scratch: &Scratch) -> std::path::PathBuf {
    let run = traced(&Job::sh(script).arg(program("leave")), EXACT, scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    run.run
}

#[test]
fn a_run_without_ranks_is_rank_0_alone() {
    let scratch = Scratch::new();
    let run = launch("\"$1\" exit 100 0; \"$1\" exit 50 0; true", &scratch);
    assert_eq!(traces(&run), ["rank-0.tprof"]);
    assert_eq!(memory_report(&run).in_victims("allocations"), 150);
    assert!(
        report(&run).0["processes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|p| p["rank"].is_null() || p["rank"] == 0)
    );
}

#[test]
fn each_rank_of_torchrun_and_the_launcher_have_a_file() {
    let scratch = Scratch::new();
    let run = launch(
        "for r in 0 1; do
            RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 \"$1\" exit $((1000 + r)) 10 &
        done; wait",
        &scratch,
    );
    assert_eq!(traces(&run), [launcher(), "rank-0.tprof".into(), "rank-1.tprof".into()]);
    let found = allocations(&run);
    assert_eq!(found[1..], [(Some(0), 1000), (Some(1), 1001)]);
    assert_eq!(found[0].0, None);
    let report = report(&run);
    let ranks: Vec<_> =
        report.processes("/leave exit").iter().map(|p| p["rank"].as_i64()).collect();
    assert!(ranks.contains(&Some(0)) && ranks.contains(&Some(1)), "{}", report.0["processes"]);
}

#[test]
fn a_rank_number_without_a_world_size_is_ignored() {
    let scratch = Scratch::new();
    let run = launch("RANK=7 \"$1\" exit 100 0; true", &scratch);
    assert_eq!(traces(&run), ["rank-0.tprof"]);
}

#[test]
fn mpirun_and_srun_ranks_are_known() {
    for name in ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"] {
        let scratch = Scratch::new();
        let run = launch(
            &format!(
                "export SLURM_STEP_ID=0; for r in 0 1 2; do {name}=$r \"$1\" exit $((100 + r)) 10 & done; wait"
            ),
            &scratch,
        );
        assert_eq!(
            traces(&run),
            [launcher(), "rank-0.tprof".into(), "rank-1.tprof".into(), "rank-2.tprof".into()],
            "{name}"
        );
        assert_eq!(
            allocations(&run)[1..],
            [(Some(0), 100), (Some(1), 101), (Some(2), 102)],
            "{name}"
        );
    }
}

#[test]
fn torchrun_under_srun_is_a_launcher() {
    let scratch = Scratch::new();
    // Everything below srun's task inherits its SLURM_PROCID; torchrun sets the ranks.
    let run = launch(
        "export SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2
        sh -c 'for r in 2 3; do
            RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r - 2)) \"$1\" exit $((1000 + r)) 10 &
        done; wait' sh \"$1\"; true",
        &scratch,
    );
    // The shell around srun is outside of srun's task, so it is a launcher of its own.
    let (launchers, ranks): (Vec<String>, Vec<String>) =
        traces(&run).into_iter().partition(|name| name.starts_with("launcher-"));
    assert_eq!(ranks, ["rank-2.tprof", "rank-3.tprof"]);
    assert!(launchers.contains(&launcher()), "{launchers:?}");
    let found = allocations(&run);
    let (rest, of_ranks): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(rank, _)| rank.is_none());
    assert_eq!(of_ranks, [(Some(2), 1002), (Some(3), 1003)]);
    assert_eq!(rest.len(), launchers.len());
}

#[test]
fn children_of_a_rank_belong_to_it() {
    let scratch = Scratch::new();
    // Workers are forked, started with the rank's environment, or started without it.
    let run = launch(
        "for r in 0 1; do
            RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r sh -c '\"$1\" exit 100 0; env -u RANK -u LOCAL_RANK \"$1\" exit 10 0; true' sh \"$1\" &
        done; wait",
        &scratch,
    );
    assert_eq!(traces(&run), [launcher(), "rank-0.tprof".into(), "rank-1.tprof".into()]);
    let report = memory_report(&run);
    for rank in report.0["ranks"].as_array().unwrap() {
        if rank["rank"].is_null() {
            continue;
        }
        let sites = rank["host_memory"]["sites"].as_array().unwrap();
        let victims = sites.iter().filter(|site| {
            tprof_tests::stack(site).iter().any(|frame| frame.starts_with("victim_"))
        });
        let sum: i64 = victims.map(|site| site["allocations"].as_i64().unwrap()).sum();
        assert_eq!(sum, 110, "{}", rank["label"]);
    }
}

#[test]
fn forked_workers_belong_to_their_rank() {
    let scratch = Scratch::new();
    let script =
        "for r in 0 1; do RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r \"$1\" >/dev/null & done; wait";
    let run = traced(&Job::sh(script).arg(program("fork")), EXACT, &scratch).run;
    assert_eq!(traces(&run), [launcher(), "rank-0.tprof".into(), "rank-1.tprof".into()]);
    let report = report(&run);
    for rank in [0, 1] {
        let of_rank = report
            .processes("fork")
            .into_iter()
            .filter(|p| p["rank"].as_i64() == Some(rank))
            .count();
        assert_eq!(of_rank, 7, "{}", report.0["processes"]);
    }
}

#[test]
fn an_elastic_restart_overwrites_nothing() {
    let scratch = Scratch::new();
    let run = launch(
        "export WORLD_SIZE=2
        for restart in 0 1; do
            for r in 0 1; do
                TORCHELASTIC_RESTART_COUNT=$restart RANK=$r LOCAL_RANK=$r \"$1\" exit $((100 + 10 * restart + r)) 0 &
            done; wait
        done",
        &scratch,
    );
    let wanted = ["rank-0.1.tprof", "rank-0.tprof", "rank-1.1.tprof", "rank-1.tprof"];
    let found: Vec<String> = traces(&run).into_iter().filter(|name| *name != launcher()).collect();
    assert_eq!(found, wanted);
    assert_eq!(
        allocations(&run)[1..],
        [(Some(0), 100), (Some(0), 110), (Some(1), 101), (Some(1), 111)]
    );
}

#[test]
fn two_ranks_recorded_by_two_tprofs_share_a_directory() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live: Vec<Live> = (0..2)
        .map(|rank: i32| {
            let job = Job::new(program("steady"))
                .arg("200")
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "2")
                .env("LOCAL_RANK", rank.to_string());
            Live::start(&traced_job(&job, EXACT, &run), scratch.path())
        })
        .collect();
    for job in &mut live {
        job.wait_for("ready");
        job.obey("a");
    }
    for job in live {
        let outcome = job.finish();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(48), ""), "{outcome:?}");
    }
    assert_eq!(traces(&run), ["rank-0.tprof", "rank-1.tprof"]);
    let report = memory_report(&run);
    let kept = report.sites(|frame| frame.starts_with("victim_keep"));
    assert_eq!(kept.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(), 2000);
    assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
    assert_eq!(report.processes("steady").len(), 2, "{}", report.0["processes"]);
}

#[test]
fn a_rank_that_replaces_a_run_waits_while_another_does() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = Job::new(program("leave")).args(["exit", "10", "0"]);
    assert_eq!(traced_job(&job, EXACT, &run).run_in(scratch.cwd()).code, Some(11));
    let old = fs::read(run.join("run.json")).unwrap();
    // The test holds the lock, like a rank of the same job that is removing the old run's files.
    let turn = fs::File::create(run.join(".tprof-lock")).unwrap();
    turn.lock().unwrap();
    let options: Vec<&str> = EXACT.iter().copied().chain(["--force"]).collect();
    let live = Live::start(&traced_job(&job, &options, &run), scratch.path());
    std::thread::sleep(Duration::from_millis(500));
    let meanwhile = fs::read(run.join("run.json"));
    turn.unlock().unwrap();
    let outcome = live.finish();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(11), ""), "{outcome:?}");
    assert_eq!(meanwhile.ok(), Some(old));
    assert_eq!(memory_report(&run).0["process_count"], 1);
    assert!(!run.join(".tprof-lock").exists());
}

#[test]
fn one_rank_of_a_run_can_be_reported() {
    let scratch = Scratch::new();
    let run = launch(
        "for r in 0 1; do RANK=$r WORLD_SIZE=2 \"$1\" exit $((100 + r)) 0 & done; wait",
        &scratch,
    );
    let file = memory_report(&run.join("rank-1.tprof"));
    assert_eq!(file.total("allocations"), 101);
}

/// Returns the labels of a run's ranks.
fn labels(run: &Path) -> Vec<String> {
    let report = memory_report(run);
    let ranks = report.0["ranks"].as_array().unwrap().iter();
    ranks.map(|rank| rank["label"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_batch_script_of_slurm_is_not_a_rank() {
    let scratch = Scratch::new();
    // The script itself has a task number in its environment, and its ranks inherit the number.
    let run = launch(
        "export SLURM_JOB_ID=7 SLURM_PROCID=0
        sh -c 'for r in 0 1; do
            OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 \"$1\" exit 100 0 &
        done; wait' sh \"$1\"; true",
        &scratch,
    );
    assert_eq!(traces(&run), [launcher(), "rank-0.tprof".into(), "rank-1.tprof".into()]);
    let report = report(&run);
    assert!(
        report.processes("sh ").iter().all(|p| p["rank"].is_null()),
        "{}",
        report.0["processes"]
    );
    assert_eq!(report.0["completeness"]["complete"], true, "{}", report.0["completeness"]);
}

#[test]
fn a_helper_that_srun_started_is_not_a_rank() {
    let scratch = Scratch::new();
    // mpirun sets these variables on each node of a batch job: its helper task has a rank's number.
    let run = launch(
        "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 sh -c 'for r in 0 1; do
            OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 \"$1\" exit 100 0 &
        done; wait' sh \"$1\"; true",
        &scratch,
    );
    assert!(labels(&run)[..2] == ["rank 0", "rank 1"], "{:?}", labels(&run));
    let report = report(&run);
    assert!(
        report.processes("sh ").iter().all(|p| p["rank"].is_null()),
        "{}",
        report.0["processes"]
    );
}

#[test]
fn a_rank_that_names_itself_for_its_workers_stays_a_rank() {
    let scratch = Scratch::new();
    // Scripts set these variables for PyTorch below srun, before they start their data loaders.
    let run = launch(
        "for r in 0 1; do
            SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$r sh -c '
                export RANK=$SLURM_PROCID WORLD_SIZE=2 LOCAL_RANK=$SLURM_PROCID
                \"$1\" exit 100 0; true' sh \"$1\" &
        done; wait",
        &scratch,
    );
    assert_eq!(traces(&run), [launcher(), "rank-0.tprof".into(), "rank-1.tprof".into()]);
    let report = report(&run);
    let own = report.processes("sh -c \n");
    assert!(own.iter().all(|p| p["rank"].is_number()), "{}", report.0["processes"]);
}

#[test]
fn two_launches_in_one_run_are_not_a_restart() {
    let scratch = Scratch::new();
    let run = launch(
        "for job in a b; do for r in 0 1; do
            PMIX_NAMESPACE=$job OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 \"$1\" exit 100 0 &
        done; done; wait",
        &scratch,
    );
    let wanted = ["rank 0", "rank 0, launch 2", "rank 1", "rank 1, launch 2"];
    assert_eq!(labels(&run)[..4], wanted);
    assert_eq!(report(&run).0["completeness"]["complete"], true);
}

#[test]
fn a_rank_that_was_started_and_not_recorded_is_named() {
    let scratch = Scratch::new();
    let run = launch(
        "for r in 0 2 3; do
            OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=4 \"$1\" exit 100 0 &
        done; wait",
        &scratch,
    );
    let report = report(&run);
    let blind = report.0["completeness"]["blind"].as_array().unwrap();
    assert!(blind.iter().any(|one| one["process"] == "rank 1 of 4"), "{blind:?}");
    assert_eq!(report.0["completeness"]["complete"], false);
}
