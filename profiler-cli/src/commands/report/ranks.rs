//! Compares the ranks of a run.

use tprof_analyze::Report;
use tprof_analyze::summary::Rank;
use tprof_facts::units::{bytes, count, duration};
use tprof_rank::base::reading::Reading;

use super::head::cell;
use crate::terminal::page::Page;
use crate::terminal::table::{Table, cut};

/// Returns the rank with the highest peak, or the first rank.
pub fn highest_peak(report: &Report) -> Option<&Rank> {
    // `max_by_key` returns the last of equal ranks. The order is reversed so that the first one is
    // chosen.
    report.ranks.iter().rev().max_by_key(|rank| weight(rank))
}

fn weight(rank: &Rank) -> (Option<u64>, Option<u64>) {
    let memory = &rank.host_memory;
    (memory.peak_bytes.get(), memory.allocated_bytes.get())
}

/// Adds one row per rank, highest peaks first. Adds nothing for a single rank.
pub fn table(page: &mut Page, report: &Report, top: usize) {
    if report.ranks.len() < 2 {
        return;
    }
    page.heading(&format!("Ranks, by peak{}", cut(top, report.ranks.len())));
    let mut ranks: Vec<&Rank> = report.ranks.iter().collect();
    ranks.sort_by_key(|rank| std::cmp::Reverse(weight(rank)));
    let headings = ["heap peak", "at", "live at exit", "allocations", "resident", "processes"];
    let headings: Vec<(&str, bool)> =
        [("rank", true)].into_iter().chain(headings.map(|text| (text, false))).collect();
    let mut table = Table::aligned(&headings);
    for rank in ranks.iter().take(top) {
        table.row(row(rank));
    }
    let left = ranks.len().saturating_sub(top);
    if left > 0
        && let Some(last) = ranks.last()
    {
        if left > 1 {
            let mut cells = vec!["...".to_owned(); headings.len() - 1];
            cells.insert(0, format!("{} more", left - 1));
            table.row(cells);
        }
        table.row(row(last));
    }
    page.table(&table);
    let uncertain: Vec<&Rank> =
        ranks.iter().copied().filter(|rank| rank.host_memory.at_least.is_some()).collect();
    if let Some((rank, caution)) =
        uncertain.first().and_then(|rank| Some((rank, rank.host_memory.caution()?)))
    {
        let others = match uncertain.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        page.paragraph(2, &format!("The heap of {}{others}: {caution}", rank.label));
    }
    spread(page, &ranks);
}

fn row(rank: &Rank) -> Vec<String> {
    let memory = &rank.host_memory;
    vec![
        rank.label.clone(),
        cell(&memory.peak_bytes, bytes),
        cell(&memory.peak_at_ns, duration),
        cell(&memory.live_at_exit_bytes, bytes),
        cell(&memory.allocations, count),
        resident(rank),
        count(rank.processes as u64),
    ]
}

/// Formats the highest resident memory. A `<` comes before a sum in which shared pages count once
/// per process.
fn resident(rank: &Rank) -> String {
    let timeline = &rank.timeline;
    match (&timeline.resident_peak_bytes, timeline.rss_peak_bytes.get()) {
        (Reading::Missing(_), Some(most)) => format!("<{}", bytes(most)),
        (resident, _) => cell(resident, bytes),
    }
}

/// Adds the lowest, median and highest peak of the ranks, without launchers.
fn spread(page: &mut Page, ranks: &[&Rank]) {
    let proper = ranks.iter().filter(|rank| rank.rank.is_some());
    let mut peaks: Vec<u64> = proper.filter_map(|rank| rank.host_memory.peak_bytes.get()).collect();
    peaks.sort_unstable();
    if let (true, Some(least), Some(highest)) = (peaks.len() > 2, peaks.first(), peaks.last()) {
        page.line(&format!(
            "  peaks of {} ranks: lowest {}, median {}, highest {}",
            peaks.len(),
            bytes(*least),
            bytes(peaks[peaks.len() / 2]),
            bytes(*highest)
        ));
    }
}
