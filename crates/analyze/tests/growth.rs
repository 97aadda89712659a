//! Tests the growth of live memory: the time that it covers, and its error.

use std::path::Path;

use tprof_analyze::{Kind, Report, report};
use tprof_fixture::runs::{Maker, run_json};
use tprof_rank::base::reading::Reading;
use tprof_trace::model::*;

const MS: u64 = 1_000_000;

fn read(dir: &Path, kind: Kind) -> Report {
    report(dir, kind, None).unwrap()
}

#[test]
fn growth_and_rates_end_with_the_processes() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(100, 0, MemoryRecording::Exact);
    maker.stack(p, 1, &["grow", "main"]);
    for step in 1..=8 {
        maker.alloc(p, step * 10 * MS, 1000, 1);
    }
    maker.end(p, 100 * MS, ProcessEnd::Exited(0));
    // The collector goes on reading the host's memory while it symbolizes functions after the job's
    // end.
    maker.counter(None, 1000 * MS, counter::CGROUP_BYTES, 5e6);
    maker.finish();
    run_json(dir.path(), 100 * MS, Vec::new());
    let memory = read(dir.path(), Kind::Memory).ranks.remove(0).host_memory;
    let quarters = memory.growth_over_quarters.unwrap();
    assert_eq!((quarters.last_ns, quarters.last_bytes), (87_500_000, Reading::Is(8000)));
    let rate = memory.churn.allocations_per_s.get().unwrap();
    assert!((79.0..81.0).contains(&rate), "{rate}");
}

#[test]
fn growth_of_sampled_allocations_stays_within_the_counted_peak() {
    const KIB: u64 = 1 << 10;
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(100, 0, MemoryRecording::Sampled { interval: 512 * KIB });
    maker.stack(p, 1, &["grow", "main"]);
    // Each sample stands for some 550 KiB. Chance has made more samples than usual, so the estimate
    // alone would exceed the 2 MiB of the heap.
    for step in 1..=8 {
        maker.alloc(p, step * 10 * MS, 64 * KIB, 1);
    }
    maker.writer.totals(HeapTotals {
        time_ns: 99 * MS,
        process: p,
        allocations: 40,
        frees: 0,
        allocated_bytes: 2048 * KIB,
        live_bytes: Some(2048 * KIB),
        peak_bytes: Some(2048 * KIB),
        peak_at_ns: Some(90 * MS),
    });
    maker.end(p, 100 * MS, ProcessEnd::Exited(0));
    maker.finish();
    run_json(dir.path(), 100 * MS, Vec::new());
    let memory = read(dir.path(), Kind::Memory).ranks.remove(0).host_memory;
    let peak = memory.peak_bytes.get().unwrap() + memory.peak_bytes.error().unwrap();
    let quarters = memory.growth_over_quarters.unwrap();
    assert!(quarters.estimate);
    let growth = [&quarters.growth_bytes, &quarters.sites[0].growth_bytes];
    for reading in growth {
        let (value, error) = (reading.get().unwrap(), *reading.error().unwrap());
        assert!(0 < value && value <= peak as i64, "{value} of {peak}");
        assert!(0 < error && error < peak as i64 + value, "{error}");
    }
    for reading in [&quarters.first_bytes, &quarters.last_bytes] {
        assert!(reading.get().unwrap() <= peak && reading.error().is_some(), "{reading:?}");
    }
    // Between two quarters, live bytes grow at most from 0 to the peak.
    assert!(quarters.bytes_per_interval <= peak as f64 / 2.0, "{}", quarters.bytes_per_interval);
    let json = serde_json::to_value(&quarters).unwrap();
    assert!(json["error_growth_bytes"].is_i64(), "{json}");
}
