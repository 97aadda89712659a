//! Compares a victim's own sums with the counts of a report.

use std::path::PathBuf;
use tprof_tests::{
    DEFAULT, EXACT, Expected, Job, Report, Scratch, Traced, expected, memory_report, report, traced,
};

/// Runs a victim, and compares everything that the report counts of its only process with the sums
/// that it printed. The victim must call the allocator only in `victim_` functions.
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

/// Does the same as [`exact`], but only for the totals that are exact with sampling.
#[track_caller]
pub fn exact_when_sampled(job: &Job) {
    let Recorded { run, wanted, _scratch } = recorded(job, DEFAULT);
    let report = report(&run);
    same(&report, wanted, job);
    if wanted.live >= 0 {
        // Live bytes are usable bytes, to which the C library rounds up.
        let live = report.total("live_at_exit_bytes");
        let blocks = wanted.allocations - wanted.frees;
        let most = wanted.live + 32 * blocks.max(0) + wanted.live / 8;
        assert!((wanted.live..=most).contains(&live), "live {live}, {wanted:?}, {}", job.name());
    }
}

/// A run, the sums that its victim printed, and the folder that contains it.
pub struct Recorded {
    /// Folder of the run.
    pub run: PathBuf,
    /// The sums that the victim printed.
    pub wanted: Expected,
    /// The folder, which is removed together with this value.
    pub _scratch: Scratch,
}

#[track_caller]
pub fn recorded(job: &Job, options: &[&str]) -> Recorded {
    let scratch = Scratch::new();
    let Traced { outcome, run, .. } = traced(job, options, &scratch);
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

/// Runs a victim with threads, for which the C library allocates. Compares the sites of the
/// victim's own functions, and bounds the rest.
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
