//! Writes a report's table as CSV: the ranks for the summary, the sites for the memory report.
//!
//! An unknown value is an empty cell. Times are nanoseconds since the run began.

use std::fmt::Write as _;

use tprof_analyze::{Kind, Report};
use tprof_facts::csv::text;
use tprof_rank::base::reading::Reading;

/// Returns the table as CSV.
pub fn csv(report: &Report) -> String {
    match report.kind {
        Kind::Summary => ranks(report),
        Kind::Memory => sites(report),
    }
}

fn ranks(report: &Report) -> String {
    let mut out = String::from(
        "rank,label,file,processes,allocations,frees,allocated_bytes,peak_bytes,peak_at_ns,\
         live_at_exit_bytes,rss_peak_bytes,resident_peak_bytes\n",
    );
    for rank in &report.ranks {
        let memory = &rank.host_memory;
        let numbers = [
            &memory.allocations,
            &memory.frees,
            &memory.allocated_bytes,
            &memory.peak_bytes,
            &memory.peak_at_ns,
            &memory.live_at_exit_bytes,
            &rank.timeline.rss_peak_bytes,
            &rank.timeline.resident_peak_bytes,
        ];
        let mut row = vec![
            rank.rank.map(|rank| rank.to_string()).unwrap_or_default(),
            text(&rank.label).into_owned(),
            text(&rank.file).into_owned(),
            rank.processes.to_string(),
        ];
        row.extend(numbers.map(number));
        let _ = writeln!(out, "{}", row.join(","));
    }
    out
}

fn sites(report: &Report) -> String {
    let mut out = String::from(
        "rank,label,bytes,error_bytes,allocations,live_bytes,peak_bytes,estimate,stack\n",
    );
    for rank in &report.ranks {
        for site in &rank.host_memory.sites {
            let row = [
                rank.rank.map(|rank| rank.to_string()).unwrap_or_default(),
                text(&rank.label).into_owned(),
                number(&site.bytes),
                site.bytes.error().map(u64::to_string).unwrap_or_default(),
                number(&site.allocations),
                number(&site.live_bytes),
                number(&site.peak_bytes),
                site.estimate.to_string(),
                text(&site.stack.join(";")).into_owned(),
            ];
            let _ = writeln!(out, "{}", row.join(","));
        }
    }
    out
}

fn number(reading: &Reading<u64>) -> String {
    reading.get().map(|value| value.to_string()).unwrap_or_default()
}
