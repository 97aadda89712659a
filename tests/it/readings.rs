//! How often quantities are read from outside the job is as asked.

use tprof_tests::{Job, Scratch, assert_refused, program, tprof, traced};
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

const MS: u64 = 1_000_000;

/// Times of readings of RSS of a program that grows, ns.
fn rss_read_at(options: &[&str]) -> Vec<u64> {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("grows")).arg("30"), options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let file = TraceFile::open(&run.run.join("rank-0.tprof")).unwrap();
    let rows = file.counters().iter().filter(|row| file.name(row.name) == counter::RSS_BYTES);
    let mut times: Vec<u64> = rows.map(|row| row.time_ns).collect();
    times.sort_unstable();
    times
}

/// Time between neighbouring readings, the shortest, without the first reading,
/// which is taken as a process attaches.
fn shortest(times: &[u64]) -> u64 {
    times[1..].windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(u64::MAX)
}

#[test]
fn rss_is_read_as_often_as_asked() {
    let often = shortest(&rss_read_at(&["--rss-interval", "10ms"]));
    assert!((10 * MS..100 * MS).contains(&often), "{often} ns");
    let usual = shortest(&rss_read_at(&[]));
    assert!(usual >= 100 * MS, "{usual} ns");
    // As it attached, in the first pass, and no more.
    let once = rss_read_at(&["--rss-interval", "1m"]);
    assert!((1..=2).contains(&once.len()), "{once:?}");
}

#[test]
fn an_interval_out_of_bounds_is_refused_with_the_bounds() {
    let scratch = Scratch::new();
    for (option, text, word) in [
        ("--rss-interval", "5ms", "from 10ms to 60s"),
        ("--rss-interval", "often", "from 10ms to 60s"),
        ("--gpu-interval", "2m", "--gpu-interval=60s"),
    ] {
        let run = tprof(["run", option, text, "--", "true"]).run_in(scratch.cwd());
        assert_refused(&run, &[option, text, word]);
    }
}
