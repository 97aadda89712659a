//! tprof reads memory sizes as often as the options say.

use tprof_tests::{Job, Scratch, assert_refused, program, report, tprof, traced};
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

const MS: u64 = 1_000_000;

/// Returns the times at which the RSS of a growing program was read, in ns.
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

/// Returns the shortest time between neighbouring readings. Ignores the first reading, which is
/// taken when a process attaches.
fn shortest(times: &[u64]) -> u64 {
    times[1..].windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(u64::MAX)
}

#[test]
fn rss_is_read_as_often_as_asked() {
    let often = shortest(&rss_read_at(&["--rss-interval", "10ms"]));
    assert!((10 * MS..100 * MS).contains(&often), "{often} ns");
    let usual = shortest(&rss_read_at(&[]));
    assert!(usual >= 100 * MS, "{usual} ns");
    // With a long interval, memory is only read when the process attaches, in the first pass.
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

#[test]
fn pages_that_processes_share_are_resident_once() {
    const MIB: u64 = 1 << 20;
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("shares_pages")).args(["4", "2500"]), &[], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = report(&run.run).0;
    let memory = &report["ranks"][0]["timeline"];
    assert_eq!(memory["resident_source"], "PSS", "{memory}");
    let summed = memory["rss_peak_bytes"].as_u64().unwrap();
    assert!(summed >= 5 * 64 * MIB, "RSS counts shared pages for each process: {summed}");
    let resident = memory["resident_peak_bytes"].as_u64().unwrap();
    assert!((64 * MIB..2 * 64 * MIB).contains(&resident), "{resident}");
    let text = tprof(["report"]).arg(&run.run).run_in(scratch.path()).expect_code(0).stdout;
    assert!(text.contains("PSS ") && text.contains("shared pages"), "{text}");
}

#[test]
fn resident_memory_of_one_process_is_its_rss() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("shares_pages")).args(["0", "0"]), &[], &scratch);
    let report = report(&run.run).0;
    let memory = &report["ranks"][0]["timeline"];
    assert_eq!(memory["resident_source"], "RSS", "{memory}");
    assert_eq!(memory["resident_peak_bytes"], memory["rss_peak_bytes"], "{memory}");
    assert_eq!(memory["resident_readings"], memory["rss_readings"], "{memory}");
    let readings = memory["rss_readings"].as_u64().unwrap();
    let why = memory["rss_peak_at_least"].as_str().unwrap();
    assert!(readings > 0 && why.contains(&format!("{readings} reading")), "{why}");
    let text = |kind: &[&str]| {
        let report = tprof(["report"]).args(kind).arg(&run.run).run_in(scratch.path());
        report.expect_code(0).stdout
    };
    let summary = text(&[]);
    assert!(summary.contains("RSS           peak at least "), "{summary}");
    let memory = text(&["memory"]);
    assert!(
        memory.contains("RSS was read ") && memory.contains("its peak is at least"),
        "{memory}"
    );
}
