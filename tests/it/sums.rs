//! A victim's own sums beside what a report counts.

use std::path::PathBuf;
use tprof_tests::{
    DEFAULT, EXACT, Expected, Job, Report, Scratch, Traced, expected, memory_report, report, traced,
};

/// Runs a victim, and compares all that the report counts of its one process
/// with what it printed. It must call the allocator in `victim_` functions only.
#[track_caller]
pub fn exact(job: &Job) -> Report {
    let Recorded { run, wanted, _scratch } = recorded(job, EXACT);
    let report = memory_report(&run);
    same(&report, wanted, job);
    if wanted.live >= 0 {
        assert_eq!(report.total("live_at_exit_bytes"), wanted.live, "live, {}", job.name());
    }
    if wanted.peak >= 0 {
        assert_eq!(report.total("peak_bytes"), wanted.peak, "peak, {}", job.name());
    }
    assert_eq!(report.in_victims("allocations"), wanted.allocations, "in sites, {}", job.name());
    report
}

/// As [`exact`], for the totals that sampling keeps exact.
#[track_caller]
pub fn exact_when_sampled(job: &Job) {
    let Recorded { run, wanted, _scratch } = recorded(job, DEFAULT);
    let report = report(&run);
    same(&report, wanted, job);
    if wanted.live >= 0 {
        // In usable bytes, which are what the C library rounds to.
        let live = report.total("live_at_exit_bytes");
        let blocks = wanted.allocations - wanted.frees;
        let most = wanted.live + 32 * blocks.max(0) + wanted.live / 8;
        assert!((wanted.live..=most).contains(&live), "live {live}, {wanted:?}, {}", job.name());
    }
}

/// A run, what its victim printed, and the folder that holds it.
pub struct Recorded {
    /// Folder of the run.
    pub run: PathBuf,
    /// The sums that the victim printed.
    pub wanted: Expected,
    /// Goes with this.
    pub _scratch: Scratch,
}

#[track_caller]
pub fn recorded(job: &Job, options: &[&str]) -> Recorded {
    let scratch = Scratch::new();
    let Traced { outcome, run } = traced(job, options, &scratch);
    Recorded { run, wanted: expected(&outcome.stdout), _scratch: scratch }
}

#[track_caller]
pub fn same(report: &Report, wanted: Expected, job: &Job) {
    assert_eq!(report.lost(), 0, "{}: {}", job.name(), report.0["completeness"]);
    let found = (report.total("allocations"), report.total("frees"));
    assert_eq!(found, (wanted.allocations, wanted.frees), "allocations, frees; {}", job.name());
    if wanted.bytes >= 0 {
        assert_eq!(report.total("allocated_bytes"), wanted.bytes, "bytes, {}", job.name());
    }
}

/// Runs a victim with threads, which the C library allocates for:
/// compares the sites of its own functions, and bounds the rest.
#[track_caller]
pub fn exact_in_threads(job: &Job) -> (Report, Expected) {
    let Recorded { run, wanted, _scratch } = recorded(job, EXACT);
    let report = memory_report(&run);
    assert_eq!(report.lost(), 0, "{}: {}", job.name(), report.0["completeness"]);
    assert_eq!(report.in_victims("allocations"), wanted.allocations, "allocations, {}", job.name());
    if wanted.bytes >= 0 {
        assert_eq!(report.in_victims("bytes"), wanted.bytes, "bytes, {}", job.name());
    }
    if wanted.live >= 0 {
        assert_eq!(report.in_victims("live_bytes"), wanted.live, "live, {}", job.name());
    }
    assert!(report.total("frees") >= wanted.frees, "frees, {}", job.name());
    let others = report.total("allocations") - wanted.allocations;
    let freed_by_others = report.total("frees") - wanted.frees;
    assert!(
        freed_by_others <= others,
        "{freed_by_others} more frees, {others} more allocations, {}",
        job.name()
    );
    (report, wanted)
}
