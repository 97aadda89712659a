//! The section of the report page about host memory.

use tprof_analyze::Report;
use tprof_export::report_page::{self, Chart, Section};
use tprof_facts::frames::NO_STACK;
use tprof_facts::units::{bytes, count, duration};
use tprof_rank::base::reading::Reading;

use super::page_table::{MOST_FRAMES, MOST_ROWS, short};

/// Builds the section: the curves, the figures, and the owners of memory at the peak of each rank.
pub(super) fn of(report: &Report) -> Section {
    let mut section = Section {
        key: "memory".to_owned(),
        title: "Memory over time".to_owned(),
        ..Section::default()
    };
    let mut off = 0;
    for rank in &report.ranks {
        let line = &rank.timeline;
        let series = [
            match line.resident_bytes.value() {
                Some(_) => ("resident", &line.resident_bytes),
                None => ("RSS (shared pages count per process)", &line.rss_bytes),
            },
            ("heap", &line.heap_bytes),
            ("mapped", &line.mapped_bytes),
        ];
        let known = series.into_iter().filter_map(|(name, series)| {
            let values = series.value()?;
            let peak = values.iter().flatten().max()?;
            let points = values.iter().map(|value| value.map(|value| value as f64)).collect();
            Some((name.to_owned(), bytes(*peak), points))
        });
        let mut curves: Vec<(String, String, Vec<Option<f64>>)> = known.collect();
        // Mapped bytes are often many times larger than the other values. On the same axis, the
        // other curves would be flat.
        if curves.len() > 1 {
            curves.retain(|(name, ..)| name != "mapped");
        }
        if let Some(points) = curves.first().map(|curve| curve.2.len() as u64) {
            let end_ns = line.start_ns + line.bucket_ns * points;
            let ends = [duration(line.start_ns), duration(end_ns)];
            section.charts.push(Chart::Curves {
                title: format!("Host memory of {}", rank.label),
                ends,
                curves,
            });
        }
        if rank.host_memory.recording == "off" {
            off += 1;
            continue;
        }
        section.tables.push(owners(rank));
    }
    if section.charts.is_empty() && section.tables.is_empty() {
        section.empty = match off {
            0 => "no process was recorded".to_owned(),
            _ => "allocations were not recorded; `tprof run --mem sampled` (or exact) records them"
                .to_owned(),
        };
    }
    section
}

/// Lists the owners of memory at a rank's peak.
fn owners(rank: &tprof_analyze::summary::Rank) -> report_page::Table {
    let heap = &rank.host_memory;
    let cell = |reading: &Reading<u64>, show: fn(u64) -> String| report_page::TableCell {
        text: match reading {
            Reading::Is(value) => show(*value),
            Reading::Estimate { value, .. } => format!("~{}", show(*value)),
            Reading::Missing(_) => "?".to_owned(),
        },
        number: reading.value().map(|value| *value as f64),
        share: None,
        title: match reading {
            Reading::Missing(why) => why.clone(),
            _ => String::new(),
        },
        href: String::new(),
    };
    let peak = cell(&heap.peak_bytes, bytes).text;
    let rows = heap.sites.iter().take(MOST_ROWS).map(|site| {
        let names: Vec<&str> = site.stack.iter().map(|frame| &**frame).collect();
        let mut at_peak = cell(&site.peak_bytes, bytes);
        let whole = heap.peak_bytes.value().copied().unwrap_or(0);
        at_peak.share =
            (site.peak_bytes.value()).filter(|_| whole > 0).map(|held| *held as f64 / whole as f64);
        let stack = report_page::TableCell {
            text: if names.is_empty() { NO_STACK.to_owned() } else { short(&names) },
            title: names.iter().take(MOST_FRAMES).copied().collect::<Vec<_>>().join("\n"),
            ..report_page::TableCell::default()
        };
        vec![
            at_peak,
            cell(&site.live_bytes, bytes),
            cell(&site.bytes, bytes),
            cell(&site.allocations, count),
            stack,
        ]
    });
    report_page::Table {
        title: format!("{}: allocation sites of its {peak} peak", rank.label),
        about: format!(
            "{} recording{}; innermost function first, full stack as a tooltip{}",
            heap.recording,
            if heap.recording == "sampled" { ", estimates" } else { "" },
            heap.caution().map(|caution| format!("; {caution}")).unwrap_or_default(),
        ),
        headings: [
            ("at the peak", false),
            ("live at exit", false),
            ("allocated", false),
            ("calls", false),
            ("from", true),
        ]
        .map(|(heading, words)| (heading.to_owned(), words))
        .to_vec(),
        rows: rows.collect(),
        left_out: heap.sites_total.saturating_sub(heap.sites.len().min(MOST_ROWS)),
        empty: "no allocation was recorded".to_owned(),
        ..report_page::Table::default()
    }
}
