//! Tests of MemoryNearLimit and ForkedCopies.

use tprof_trace::model::{Counter, HeapTotals, Process, counter};

use super::job::{Job, MS};

const MIB: u64 = 1 << 20;

fn count(job: &mut Job, time_ns: u64, process: Option<u32>, name: &str, bytes: u64) {
    let name = job.fixture.name(name);
    let value = bytes as f64;
    job.fixture.writer.counter(Counter { time_ns, process, device: None, name, value });
}

/// Builds a job whose cgroup uses `bytes`. If `limited`, the cgroup's limit is one GiB.
fn in_use(bytes: u64, limited: bool, kills: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    for (at, part) in [(10, 4), (50, 1), (90, 2)] {
        count(&mut job, at * MS, None, counter::CGROUP_BYTES, bytes / part);
        if limited {
            count(&mut job, at * MS, None, counter::CGROUP_LIMIT_BYTES, 1024 * MIB);
        }
    }
    count(&mut job, 95 * MS, None, counter::CGROUP_OOM_KILLS, kills);
    job
}

#[test]
fn only_a_cgroup_near_its_limit_or_with_kills_is_found() {
    let outcome = in_use(1000 * MIB, true, 0).ask("MemoryNearLimit");
    let (finding, _) = &outcome.found[0];
    assert_eq!(finding.bytes, Some(1000 * MIB));
    assert!(finding.seen.starts_with("At most 1000.0 MiB of 1.0 GiB (97.7 %)"), "{}", finding.seen);
    assert!(in_use(900 * MIB, true, 0).ask("MemoryNearLimit").found.is_empty());
    assert!(in_use(1000 * MIB, false, 0).ask("MemoryNearLimit").found.is_empty());
    let killed = in_use(900 * MIB, true, 2).ask("MemoryNearLimit");
    assert!(killed.found[0].0.seen.contains("killed 2 processes of the cgroup"));
    // The kernel killed a process, but the limit may be that of a parent cgroup that tprof can't
    // read.
    assert_eq!(in_use(900 * MIB, false, 1).ask("MemoryNearLimit").found.len(), 1);
    let unread = Job::new(1, 100 * MS).ask("MemoryNearLimit");
    assert_eq!(unread.unchecked.unwrap().why, "no memory of a cgroup was recorded");
}

#[test]
fn page_cache_does_not_count_as_used_memory() {
    let with_cache = |cache: u64| {
        let mut job = in_use(1000 * MIB, true, 0);
        count(&mut job, 10 * MS, None, counter::CGROUP_CACHE_BYTES, cache);
        job.ask("MemoryNearLimit")
    };
    let outcome = with_cache(300 * MIB);
    let clear = "at most 700.0 MiB of 1.0 GiB (68.4 %) of the cgroup in use without page cache";
    assert_eq!((outcome.found.len(), outcome.no_problem.as_deref()), (0, Some(clear)));
    // The collector writes an unchanged counter only once, so a single value counts for the whole
    // time.
    let mut job = in_use(900 * MIB, true, 0);
    count(&mut job, 10 * MS, None, counter::CGROUP_CACHE_BYTES, 10 * MIB);
    count(&mut job, 20 * MS, None, counter::CGROUP_BYTES, 1000 * MIB);
    assert_eq!(job.ask("MemoryNearLimit").found.len(), 1);
    let seen = &with_cache(10 * MIB).found[0].0.seen;
    assert!(seen.contains("990.0 MiB are not page cache"), "{seen}");
}

/// Builds a process of 200 MiB that forks two workers. Each worker copies `copied` MiB and
/// allocates 10 MiB.
fn forked(copied: u64, is_heap_recorded: bool) -> Job {
    let mut job = Job::new(1, 3000 * MS);
    let parent = job.process();
    for (process, pid) in [(1, 5001), (2, 5002)] {
        let child = Process { process, pid, parent: 4711, start_ns: 500 * MS, ..parent };
        job.fixture.writer.process(&child);
        count(&mut job, 2000 * MS, Some(process), counter::RSS_BYTES, 210 * MIB);
        let shared = (200 - 2 * copied) / 3;
        count(&mut job, 2000 * MS, Some(process), counter::PSS_BYTES, (10 + copied + shared) * MIB);
    }
    count(&mut job, 400 * MS, Some(0), counter::RSS_BYTES, 200 * MIB);
    let shared = 200 - 2 * ((200 - 2 * copied) / 3);
    count(&mut job, 2000 * MS, Some(0), counter::PSS_BYTES, shared * MIB);
    let totals = |time_ns, process, live: u64| HeapTotals {
        time_ns,
        process,
        live_bytes: Some(live * MIB),
        ..HeapTotals::default()
    };
    if is_heap_recorded {
        let rows = [totals(450 * MS, 0, 150), totals(1900 * MS, 0, 150)];
        let of_children = [totals(1900 * MS, 1, 10), totals(1900 * MS, 2, 10)];
        rows.iter().chain(&of_children).for_each(|row| job.fixture.writer.totals(*row));
    }
    job
}

#[test]
fn copies_of_forked_workers_are_growth_minus_allocations() {
    let size = |job: Job| job.ask("ForkedCopies").found.first().map(|(finding, _)| finding.bytes);
    assert_eq!(size(forked(40, true)), Some(Some(80 * MIB)));
    assert_eq!(size(forked(40, false)), Some(Some(100 * MIB)));
    assert_eq!(size(forked(7, true)), None);
    let lone = Job::new(1, 100 * MS).ask("ForkedCopies");
    assert_eq!(lone.no_problem.as_deref(), Some("no process kept forked workers"));
}
