//! Estimates are correct: the truth lies within the stated error in 95 of 100 cases.

use tprof_tests::{Job, Report, Scratch, expected, memory_report, program, traced};

const SITES: usize = 100;

/// Counts how many of a hundred sites with this truth are estimated within their error.
fn within(report: &Report, key: &str, truth: f64) -> usize {
    let error_key = format!("error_{key}");
    (0..SITES)
        .filter(|n| {
            let name = format!("victim_site_{n:02}");
            let sites = report.sites(|frame| frame.split([' ', '(']).next() == Some(&name));
            let sum = |key: &str| sites.iter().filter_map(|site| site[key].as_f64()).sum::<f64>();
            (sum(key) - truth).abs() <= sum(&error_key)
        })
        .count()
}

#[test]
fn site_estimates_lie_within_their_error() {
    // Blocks and block size of each site, and the expected number of samples: 8 to 60.
    let loads = [
        ("20000", "1000"),
        ("60000", "300"),
        ("4000", "4000"),
        ("80", "100000"),
        ("4500", "1000"),
        ("500", "60000"),
    ];
    let (mut bytes_within, mut counts_within) = (0, 0);
    for (blocks, size) in loads {
        let scratch = Scratch::new();
        let run = traced(&Job::new(program("sampled_sites")).args([blocks, size]), &[], &scratch);
        let report = memory_report(&run.run);
        let (blocks, size): (f64, f64) = (blocks.parse().unwrap(), size.parse().unwrap());
        bytes_within += within(&report, "bytes", blocks * size);
        counts_within += within(&report, "allocations", blocks);
        let wanted = expected(&run.outcome.stdout);
        assert_eq!(report.total("allocations"), wanted.allocations);
        assert_eq!(report.total("allocated_bytes"), wanted.bytes);
    }
    // If the errors are correct, a result this low has a probability of one in 700.
    let trials = (SITES * loads.len()) as f64;
    let least = (0.95 - 3.0 * (0.95 * 0.05 / trials).sqrt()) * trials;
    assert!(bytes_within as f64 >= least, "bytes: {bytes_within} of {trials}");
    assert!(counts_within as f64 >= least, "allocations: {counts_within} of {trials}");
}

#[test]
fn stated_errors_are_no_wider_than_the_samples_require() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("sampled_sites")).args(["20000", "1000"]), &[], &scratch);
    let report = memory_report(&run.run);
    let sites = report.sites(|frame| frame.starts_with("victim_site_"));
    assert!(sites.len() >= 95, "{} sites", sites.len());
    // Each site has about 38 samples, so by the normal distribution its error is 32 %.
    let wide =
        sites.iter().filter(|site| site["error_bytes"].as_f64().unwrap() > 0.6 * 2e7).count();
    assert!(wide <= 2, "{wide} sites with an error above 60 %");
}

#[test]
fn large_blocks_are_always_recorded() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("sampled_sites")).args(["3", "600000"]), &[], &scratch);
    let report = memory_report(&run.run);
    let sites = report.sites(|frame| frame.starts_with("victim_site_"));
    assert_eq!(sites.len(), SITES);
    for site in sites {
        assert_eq!(
            (site["bytes"].as_i64(), site["allocations"].as_i64()),
            (Some(1_800_000), Some(3)),
            "{site}"
        );
        assert!(site.get("error_bytes").is_none_or(|error| error.as_f64() == Some(0.0)), "{site}");
    }
}

#[test]
fn a_smaller_interval_gives_smaller_errors() {
    let scratch = Scratch::new();
    let job = Job::new(program("sampled_sites")).args(["20000", "1000"]);
    let mean_error = |options: &[&str]| {
        let report = memory_report(&traced(&job, options, &scratch).run);
        let sites = report.sites(|frame| frame.starts_with("victim_site_"));
        sites.iter().filter_map(|site| site["error_bytes"].as_f64()).sum::<f64>()
            / sites.len() as f64
    };
    let (coarse, fine) =
        (mean_error(&["--mem", "sampled"]), mean_error(&["--mem", "sampled=16384"]));
    assert!(fine < coarse / 3.0, "{fine} and {coarse}");
}

#[test]
fn the_block_that_makes_the_peak_is_live_at_the_peak() {
    let ways =
        ["malloc", "calloc", "aligned", "thread", "resized", "again", "end", "small", "late"];
    for how in ways {
        let scratch = Scratch::new();
        let run = traced(&Job::new(program("peak_owner")).arg(how), &[], &scratch);
        let report = memory_report(&run.run);
        let at_peak = |name: &str| {
            let sites = report.sites(|frame| frame.split([' ', '(']).next() == Some(name));
            sites.iter().filter_map(|site| site["peak_bytes"].as_f64()).sum::<f64>() / 1048576.0
        };
        let peak = at_peak("victim_peak");
        // The small blocks are estimated from 200 samples.
        let least = if how == "small" { 70.0 } else { 99.9 };
        assert!(peak >= least, "{how}: {peak} MiB at the peak");
        let kept = at_peak("victim_keeps");
        assert!((39.9..44.0).contains(&kept), "{how}: {kept} MiB of others at the peak");
    }
}
