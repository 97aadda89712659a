//! Ranks of several hosts in one picture: clocks are aligned, groups have roles. The jobs are
//! simulated with clocks whose offsets and drifts are known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_fixture::job::SimulatedJob;
use tprof_tests::{Job, Refused, Scratch, am_root, document, skip, tprof, tprof_at};

use crate::mpi::built;

const MS: u64 = 1_000_000;

/// Three hosts of two ranks each. The clock of the second is 30 ms ahead and fast, that of the third
/// 2 s behind and slow.
pub fn job() -> SimulatedJob {
    SimulatedJob {
        hosts: 3,
        ranks_each: 2,
        steps: 200,
        compute_ns: 10 * MS,
        jitter_ns: MS,
        late: None,
        clocks: vec![(0, 0), (30_000_000, 40_000), (-2_000_000_000, -25_000)],
    }
}

pub fn rows<'r>(report: &'r Value, table: &str) -> &'r [Value] {
    report["tables"][table].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn the_clocks_of_hosts_are_known_to_within_their_error() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    job().write(&run).unwrap();
    let report = document("stragglers", &run);
    let clocks = rows(&report, "clocks");
    let hosts: Vec<&str> = clocks.iter().map(|row| row["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["node-0", "node-1", "node-2"], "{clocks:#?}");
    for (row, (ahead_ns, ppb)) in clocks.iter().zip(job().clocks) {
        let error_ns = row["error_ns"].as_f64().unwrap();
        // The clocks are compared when they first met, by which they have drifted by 0.4 us.
        let off_ns = row["ahead_ns"].as_f64().unwrap() - ahead_ns as f64;
        assert!(error_ns < 50_000.0 && off_ns.abs() <= error_ns + 1_000.0, "{row:#?}");
        let off_ppm = row["drift_ppm"].as_f64().unwrap() - ppb as f64 / 1e3;
        assert!(off_ppm.abs() < 20.0, "{row:#?}");
    }
}

/// Exports a run as Chrome traces, and returns the ends of the NCCL kernels of each rank, us, with
/// what the export noted.
fn ends_of_reductions(run: &Path, scratch: &Scratch, name: &str) -> (Vec<Vec<f64>>, String) {
    let output = scratch.join(name);
    let job = tprof(["export", "--to", "chrome"]).arg(run).arg("-o").arg(&output);
    let outcome = job.run_in(scratch.path()).expect_code(0);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&output).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let ends = files.iter().map(|file| {
        let unpacked = Job::new("gzip").arg("-dc").arg(file).run_in(scratch.path());
        let trace: Value = serde_json::from_str(&unpacked.stdout).unwrap();
        let base_us = trace["baseTimeNanoseconds"].as_f64().unwrap_or(0.0) / 1e3;
        let is_reduction = |event: &&Value| {
            event["name"].as_str().is_some_and(|name| name.starts_with("ncclDevKernel"))
        };
        let end = |event: &Value| {
            base_us + event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap()
        };
        trace["traceEvents"].as_array().unwrap().iter().filter(is_reduction).map(end).collect()
    });
    (ends.collect(), outcome.stderr)
}

#[test]
fn a_timeline_of_several_hosts_shows_reductions_that_end_together() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    job().write(&run).unwrap();
    let (ends, notes) = ends_of_reductions(&run, &scratch, "chrome");
    assert_eq!((ends.len(), ends[0].len()), (6, 400));
    // Every second reduction is across hosts, by rank 0, 2 and 4. Without the correction they are
    // up to 2 s apart.
    for at in (1..400).step_by(2) {
        let of_ranks = [0, 2, 4].map(|rank: usize| ends[rank][at]);
        let first = of_ranks.iter().copied().fold(f64::INFINITY, f64::min);
        let last = of_ranks.iter().copied().fold(0.0, f64::max);
        assert!(last - first < 100.0, "reduction {at} ends {} us apart", last - first);
    }
    assert!(notes.contains("the clocks of hosts are aligned by collectives, to within"), "{notes}");
}

#[test]
fn a_host_that_met_no_other_keeps_its_times_and_is_named() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    job().write(&run).unwrap();
    // Of the first and the last host, ranks are left that are in no common group. Both have one
    // with the host in between.
    for rank in [1, 4] {
        std::fs::remove_file(run.join(format!("rank-{rank}.tprof"))).unwrap();
    }
    let operations = |report: &Value| -> Vec<u64> {
        rows(report, "clocks").iter().map(|row| row["operations"].as_u64().unwrap()).collect()
    };
    assert_eq!(operations(&document("stragglers", &run)), [0, 200, 200]);
    for rank in [2, 3] {
        std::fs::remove_file(run.join(format!("rank-{rank}.tprof"))).unwrap();
    }
    let report = document("stragglers", &run);
    assert_eq!(operations(&report), [0, 0], "{report:#?}");
    assert_eq!(rows(&report, "clocks")[1]["error_ns"], Value::Null);
    let notes = ends_of_reductions(&run, &scratch, "chrome").1;
    assert!(notes.contains("the clock of node-2 is not aligned with the others"), "{notes}");
}

#[test]
fn communication_and_lateness_are_split_by_the_roles_of_groups() {
    let scratch = Scratch::new();
    let run = scratch.join("run");
    SimulatedJob { late: Some((3, 5 * MS)), ..job() }.write(&run).unwrap();
    let comm = document("comm", &run);
    let calls: BTreeMap<&str, u64> = rows(&comm, "comm")
        .iter()
        .map(|row| (row["role"].as_str().unwrap(), row["calls"].as_u64().unwrap()))
        .collect();
    assert_eq!(calls, BTreeMap::from([("data", 1200), ("tensor", 1200)]), "{comm:#?}");
    let report = document("stragglers", &run);
    // Rank 3 computes for longer before it meets rank 2, and both are late for the other hosts.
    let late = rows(&report, "late_by_role");
    assert_eq!((&late[0]["rank"], &late[0]["role"]), (&"rank 3".into(), &"tensor".into()));
    let both: Vec<&Value> = late.iter().filter(|row| row["role"] == "data").take(2).collect();
    let mut ranks: Vec<&str> = both.iter().map(|row| row["rank"].as_str().unwrap()).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["rank 2", "rank 3"], "{late:#?}");
}

/// Runs a command on a host of its own, by namespaces: the host's name, by how many seconds its
/// monotonic clock is ahead, and the command.
const ON_HOST: &str = r#"#!/bin/sh
name=$1; ahead=$2; shift 2
exec unshare --uts --time --monotonic "$ahead" --fork sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
"#;

#[test]
fn the_clocks_of_real_ranks_in_two_namespaces_agree_to_within_the_error() {
    if !am_root() {
        return skip(Refused::Root);
    }
    let scratch = Scratch::new();
    let Some(program) = built("mpich", "decided.c", &[], &scratch) else { return };
    let script = scratch.write("on-host.sh", ON_HOST);
    let (run, ahead_s) = (scratch.run(), "5000");
    if Job::new("sh").arg(&script).args(["any", ahead_s, "true"]).run_in(scratch.path()).code
        != Some(0)
    {
        return skip(Refused::Mounts);
    }
    let on_host = |job: Job, name: &str, ahead_s: &str| {
        let job = job.args(["-n", "1", "sh"]).arg(&script).args([name, ahead_s]).arg(tprof_at());
        job.args(["run", "-q", "--mem", "off", "-o"]).arg(&run).arg(&program)
    };
    let job = on_host(Job::new("mpirun.mpich"), "host-a", "0").arg(":");
    on_host(job, "host-b", ahead_s).run_in(scratch.path()).expect_code(0);
    let report = document("stragglers", &run);
    let [first, second] = rows(&report, "clocks") else { panic!("{report:#?}") };
    assert_eq!((&first["ahead_ns"], &first["error_ns"]), (&0.into(), &0.into()), "{first:#?}");
    // The barrier, and two reductions in each of 40 iterations.
    assert_eq!(second["operations"], 81, "{second:#?}");
    let [ahead_ns, error_ns] = ["ahead_ns", "error_ns"].map(|key| second[key].as_f64().unwrap());
    // Both hosts have the time of day of one machine, which each collector read within
    // microseconds of its monotonic clock.
    assert!(ahead_ns.abs() <= error_ns + 50_000.0, "{second:#?}");
    assert!(error_ns < 20_000_000.0, "{second:#?}");
}
