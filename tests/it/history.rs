//! Figures of steps over the whole job: they equal what happened, and stay when the events of it are
//! deleted, when the job is killed, and when the collector is.

use std::path::Path;

use serde_json::Value;
use tprof_facts::history::{of_events, of_file};
use tprof_tests::{
    Job, Live, Scratch, children_of, document, document_with, kill, need_some, program, tprof,
    traced, traced_job, train, wait_until,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{HistoryRow, HistorySource, Kernel};

fn rows(run: &Path) -> Vec<Value> {
    let history = document_with("history", run, &["--rank", "0"]);
    history["tables"]["rows"].as_array().unwrap().clone()
}

/// Returns the number of steps of the rows, which must follow each other from 0 on.
#[track_caller]
fn consecutive(rows: &[Value]) -> u64 {
    rows.iter().fold(0, |next, row| {
        assert_eq!(row["first_step"], next, "{row}");
        next + row["steps"].as_u64().unwrap()
    })
}

fn job(steps: u32, how: &str) -> Job {
    Job::new(program("steps_on")).arg(steps.to_string()).arg(how)
}

fn file(run: &Path) -> TraceFile {
    TraceFile::open(&run.join("rank-0.tprof")).unwrap()
}

#[test]
fn rows_of_the_whole_job_stay_when_its_events_are_deleted() {
    let scratch = Scratch::new();
    let run = traced(&job(400, ""), &["--keep", "1s"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let kept = document("steps", &run.run)["tables"]["steps"].as_array().unwrap().len();
    assert!(kept < 300, "{kept}");
    let rows = rows(&run.run);
    assert_eq!(consecutive(&rows), 399);
    for row in &rows {
        // Ten milliseconds of sleep and some work each.
        let (shortest, steps_ns) = (row["shortest_ns"].as_u64(), row["steps_ns"].as_u64());
        assert!(shortest.unwrap() >= 10_000_000, "{row}");
        assert_eq!(steps_ns, row["duration_ns"].as_u64(), "steps follow each other");
        assert!(row["resident_bytes"].as_u64().unwrap() > 1 << 20, "{row}");
        assert!(row["heap_bytes"].is_number() && row["cpu_ns"].is_number(), "{row}");
        assert!(row["busy_ns"].is_null() && row["busy_ns_missing"].is_string(), "{row}");
    }
    let history = document("history", &run.run);
    let rank = &history["tables"]["history"][0];
    assert_eq!((&rank["steps"], &rank["computed_rows"]), (&399.into(), &0.into()));
    assert_eq!(rank["source"], "explicit");
    let text = tprof(["report", "history"]).arg(&run.run).run_in(scratch.path()).stdout;
    assert!(text.contains("Over time") && !text.contains("busy  exposed"), "{text}");
}

#[test]
fn exported_tables_have_the_rows_of_the_report() {
    let scratch = Scratch::new();
    let run = traced(&job(300, ""), &["--keep", "1s"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let path = scratch.join("tables.json");
    tprof(["export", "--to", "json", "-o"]).arg(&path).arg(&run.run).run_in(scratch.path());
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let table = &json["ranks"][0]["tables"]["history"];
    let (columns, exported) = (&table["columns"], table["rows"].as_array().unwrap());
    let at = |row: &Value, key: &str| {
        row[columns.as_array().unwrap().iter().position(|column| column == key).unwrap()].clone()
    };
    let rows = rows(&run.run);
    assert_eq!(exported.len(), rows.len());
    for (exported, row) in exported.iter().zip(&rows) {
        let row = row.as_object().unwrap();
        for (key, value) in row.iter().filter(|(key, _)| !key.ends_with("_missing")) {
            if key != "rank" {
                assert_eq!(at(exported, key), *value, "{key}");
            }
        }
        assert_eq!((at(exported, "process"), at(exported, "computed")), (0.into(), false.into()));
    }
}

/// Otherwise they would wait for a minute.
#[test]
fn a_live_run_has_its_newest_rows() {
    for options in [&["--keep", "10s"][..], &[]] {
        let scratch = Scratch::new();
        let run = scratch.run();
        let mut live = Live::start(&traced_job(&job(100_000, ""), options, &run), &scratch.cwd());
        let written = || {
            let history = of_file(&file(&run), None);
            let rows = &history.rows[..history.rows.len() - history.computed];
            rows.iter().map(|row| row.steps).sum::<u64>()
        };
        live.wait_for("step 100");
        wait_until("rows", || written() > 50);
        let before = written();
        wait_until("more rows", || written() > before);
        for pid in children_of(live.pid()) {
            assert!(kill(pid, libc::SIGKILL));
        }
        live.finish();
        consecutive(&rows(&run));
    }
}

#[test]
fn a_job_that_was_killed_has_all_rows() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let traced = traced_job(&job(100_000, ""), &["--keep", "1s"], &run);
    let mut live = Live::start(&traced, &scratch.cwd());
    live.wait_for("step 300");
    for pid in children_of(live.pid()) {
        assert!(kill(pid, libc::SIGKILL));
    }
    live.finish();
    assert!(consecutive(&rows(&run)) >= 300);
}

#[test]
fn a_collector_that_was_killed_leaves_what_it_wrote_and_the_rest_is_computed() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let mut live = Live::start(&traced_job(&job(100_000, ""), &[], &run), &scratch.cwd());
    live.wait_for("step 300");
    let job = children_of(live.pid());
    assert!(kill(live.pid(), libc::SIGKILL));
    for pid in job {
        kill(pid, libc::SIGKILL);
    }
    live.finish();
    assert!(consecutive(&rows(&run)) >= 250);
    let history = document("history", &run);
    assert!(history["tables"]["history"][0]["computed_rows"].as_u64().unwrap() > 0);
    assert!(history["notes"].to_string().contains("computed from its events"), "{history}");
}

/// The kernel adds the bytes of a child to its parent's once it is reaped.
#[test]
fn bytes_of_children_count_once_at_every_moment() {
    for how in ["", "nested", "ignores"] {
        let scratch = Scratch::new();
        let job = Job::new(program("children_read")).arg(how);
        let run = traced(&job, &[], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let rows = rows(&run.run);
        let mut sum = 0;
        let sums: Vec<u64> = rows
            .iter()
            .map(|row| {
                sum += row["read_bytes"].as_u64().unwrap();
                sum >> 20
            })
            .collect();
        // Nothing, then the child's, then also its parent's. Both read some more at their start.
        let near = |whole: u64| move |sum: &u64| (whole..whole + 2).contains(sum);
        let known = |sum: &u64| near(0)(sum) || near(64)(sum) || near(80)(sum);
        assert!(sums.iter().all(known), "{how} {sums:?}");
        assert!(sums.iter().any(near(64)) && sums.last().is_some_and(near(80)), "{how} {sums:?}");
    }
}

fn without_readings(row: &HistoryRow) -> HistoryRow {
    let HistoryRow {
        start_ns,
        duration_ns,
        process,
        source,
        first_step,
        steps,
        steps_ns,
        shortest_ns,
        median_ns,
        longest_ns,
        longest_step,
        devices,
        busy_ns,
        compute_ns,
        communication_ns,
        exposed_communication_ns,
        copied_bytes,
        collectives,
        collective_bytes,
        collective_ns,
        ..
    } = *row;
    HistoryRow {
        start_ns,
        duration_ns,
        process,
        source,
        first_step,
        steps,
        steps_ns,
        shortest_ns,
        median_ns,
        longest_ns,
        longest_step,
        devices,
        busy_ns,
        compute_ns,
        communication_ns,
        exposed_communication_ns,
        copied_bytes,
        collectives,
        collective_bytes,
        collective_ns,
        ..HistoryRow::default()
    }
}

#[test]
fn figures_of_devices_are_those_of_the_recorded_work() {
    let scratch = Scratch::new();
    let (job, _) = need_some!(train(12, &["300", "steps", "nccl", "overlap"], &scratch));
    let job = job.env("RANK", "0").env("WORLD_SIZE", "1").env("FAKE_CUDA_BLOCK_NS", "100000");
    let run = traced(&job, &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let file = file(&run.run);
    let written = of_file(&file, None);
    assert_eq!((written.computed, written.late_ns), (0, 0));
    let steps: u64 = written.rows.iter().map(|row| row.steps).sum();
    assert_eq!(steps, 300);
    // What the collector added up while it recorded is what the events say.
    let computed = of_events(&file, file.header().start_ns, None);
    let all = |rows: &[HistoryRow]| -> Vec<HistoryRow> {
        let of_steps = rows.iter().filter(|row| row.source != HistorySource::None);
        of_steps.map(without_readings).collect()
    };
    assert_eq!(all(&written.rows), all(&computed));
    // Kernels run on one stream, so their times don't overlap.
    let (first, last) = (&written.rows[0], &written.rows[written.rows.len() - 1]);
    let within = |row: &Kernel| (first.start_ns..last.end_ns()).contains(&row.start_ns);
    let kernels = file.rows::<Kernel>().0;
    let took: u64 = kernels.iter().filter(|row| within(row)).map(|row| row.duration_ns).sum();
    let sum = |of: fn(&HistoryRow) -> Option<u64>| -> u64 {
        written.rows.iter().map(|row| of(row).unwrap()).sum()
    };
    let cut = took.abs_diff(sum(|row| row.compute_ns) + sum(|row| row.communication_ns));
    assert!(took > 0 && cut <= took / 50, "{took} {cut}");
    // A batch to the device and the loss back in each step; two reductions.
    assert_eq!(sum(|row| row.collectives), 600);
    assert_eq!(sum(|row| row.collective_bytes), 300 * 4097 * 4);
    let copied = sum(|row| row.copied_bytes);
    assert!(copied.abs_diff(300 * 4097 * 4) <= 4 * 4097, "{copied}");
}

#[test]
fn readings_of_devices_are_in_the_rows() {
    let scratch = Scratch::new();
    let (job, _) = need_some!(train(12, &["150", "steps"], &scratch));
    let job = job.env("FAKE_CUDA_BLOCK_NS", "100000");
    let run = traced(&job, &["--gpu-interval", "100ms"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let rows = rows(&run.run);
    let known = |key: &str| rows.iter().filter(|row| row[key].is_number()).count();
    for key in ["device_memory_bytes", "temperature_celsius", "power_watts", "sm_clock_hz"] {
        assert!(known(key) > 0, "{key}: {rows:?}");
    }
    let gpus = document("gpu", &run.run);
    let most = &gpus["tables"]["gpus"][0]["peak_memory_bytes"];
    let in_rows = rows.iter().filter_map(|row| row["device_memory_bytes"].as_u64()).max();
    assert!(in_rows <= most.as_u64(), "{in_rows:?} {most}");
}
