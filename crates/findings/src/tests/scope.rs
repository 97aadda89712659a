//! Tests that rules don't judge events outside of the steps, but don't say either that these events
//! don't exist.

use tprof_document::{Cell, Table};
use tprof_trace::TraceFile;
use tprof_trace::model::{CopyKind, MemoryKind};

use super::super::outcome::RankFindings;
use super::super::rules::stragglers;
use super::super::tables;
use super::job::{Job, MS, ask, judged};

/// Builds a job with one step of 10 ms that contains only a copy. Everything else happens after the
/// step.
fn outside() -> TraceFile {
    let mut job = Job::new(1, 10 * MS);
    job.copy(MS, MS, CopyKind::HostToDevice, MemoryKind::Pinned, "cudaMemcpyAsync");
    job.kernel(20 * MS, 21 * MS, 25 * MS, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    job.kernel(20 * MS, 25 * MS, 30 * MS, "volta_sgemm_128x32_nt");
    job.call(25 * MS, 5 * MS, "cudaDeviceSynchronize");
    job.call(30 * MS, MS, "cudaFree");
    job.copy(31 * MS, MS, CopyKind::HostToDevice, MemoryKind::Pageable, "cudaMemcpy");
    job.fixture.finish()
}

/// Builds a job with a device, but without any of the events for which the rules search.
fn without() -> TraceFile {
    let mut job = Job::new(1, 10 * MS);
    job.copy(MS, MS, CopyKind::DeviceToDevice, MemoryKind::Device, "cudaMemcpyAsync");
    job.fixture.finish()
}

#[test]
fn texts_say_if_events_exist_only_outside_of_the_steps() {
    for (rule, thing) in [
        ("ExposedCommunication", "communication kernel"),
        ("SyncBound", "call that waits for the device"),
        ("DeviceAllocations", "call such as cudaMalloc or cudaFree"),
        ("SynchronousCopies", "synchronous copy"),
        ("SmallBatches", "compute kernel"),
        ("MemoryBound", "compute kernel"),
    ] {
        let reason = |file| {
            let outcome = ask(&file, rule);
            outcome.no_problem.or(outcome.unchecked.map(|unchecked| unchecked.why)).unwrap()
        };
        let reason_outside = reason(outside());
        assert!(
            reason_outside.starts_with(&format!("no {thing} lies in the steps")),
            "{rule}: {reason_outside}"
        );
        assert!(
            reason_outside.ends_with(", only outside")
                || reason_outside.ends_with(", only elsewhere"),
            "{reason_outside}"
        );
        assert_eq!(reason(without()), format!("no {thing} was recorded"), "{rule}");
    }
    let pageable = ask(&outside(), "PageableCopies").no_problem.unwrap();
    assert_eq!(pageable, "all copies between host and device in the steps use pinned memory");
}

fn text(table: &Table, key: &str) -> Vec<String> {
    let at = table.columns.iter().position(|column| column.key == key).unwrap();
    let text = |row: &Vec<Cell>| match &row[at] {
        Cell::Is(value) => format!("{value:?}"),
        _ => String::new(),
    };
    table.rows.iter().map(text).collect()
}

#[test]
fn ranks_with_different_reasons_do_not_share_a_row() {
    let mut ranks: Vec<RankFindings> =
        vec![judged(&without(), "rank 0"), judged(&outside(), "rank 1")];
    stragglers::judge(&mut ranks);
    let body = tables::body(&ranks);
    let clear = body.tables.iter().find(|table| table.key == "clear").unwrap();
    let rows = text(clear, "rule").into_iter().zip(text(clear, "on")).zip(text(clear, "measured"));
    let of_rule = rows.filter(|((rule, _), _)| rule.contains("DeviceAllocations"));
    let rows: Vec<(String, String)> = of_rule.map(|((_, on), measured)| (on, measured)).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].0.contains("rank 0") && rows[0].1.contains("was recorded"), "{rows:?}");
    assert!(rows[1].0.contains("rank 1") && rows[1].1.contains("only elsewhere"), "{rows:?}");
    let outside = "10.0 ms of device work, of rank 1, lies outside of the steps and is not judged";
    assert!(body.notes.iter().any(|note| note == outside), "{:?}", body.notes);
}

#[test]
fn copies_outside_of_the_steps_are_not_judged() {
    let mut job = Job::new(1, 10 * MS);
    for at in [1, 20, 30] {
        job.copy(at * MS, MS, CopyKind::HostToDevice, MemoryKind::Pageable, "cudaMemcpyAsync");
    }
    let outcome = job.ask("PageableCopies");
    let (finding, places) = &outcome.found[0];
    assert!(finding.seen.starts_with("1 asynchronous copy a step"), "{}", finding.seen);
    assert_eq!((finding.places, places[0].start_ns), (2, MS), "a copy and its call");
}
