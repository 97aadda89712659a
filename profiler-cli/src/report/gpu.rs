//! What devices did, in the summary.

use tprof_analyze::Report;
use tprof_analyze::gpu::{Copies, Gpu};
use tprof_analyze::names::short;
use tprof_analyze::summary::Rank;
use tprof_analyze::units::{bytes, count, duration, percent};

use super::page::{Page, Table};

/// Ranks on whose devices something ran.
fn of_ranks(report: &Report) -> Vec<(&Rank, &Gpu)> {
    report.ranks.iter().filter_map(|rank| Some((rank, rank.gpu.value()?))).collect()
}

/// Whether anything ran on a device.
pub fn ran(report: &Report) -> bool {
    report.ranks.iter().any(|rank| rank.gpu.value().is_some())
}

/// Busy time, communication, copies; nothing where nothing ran.
pub fn fields(page: &mut Page, report: &Report) {
    let mut ranks = of_ranks(report);
    ranks.sort_by(|a, b| a.1.busy_share.total_cmp(&b.1.busy_share));
    let Some((least, gpu)) = ranks.first() else { return };
    let mut text = String::new();
    if ranks.len() > 1 {
        let mean = ranks.iter().map(|(_, gpu)| gpu.busy_share).sum::<f64>() / ranks.len() as f64;
        text += &format!("busy {} on average, least in {}: ", percent(mean), least.label);
    }
    text += &format!(
        "busy {} of {}: compute {}, exposed communication {}, copies {}",
        percent(gpu.busy_share),
        duration(gpu.window_ns),
        percent(gpu.compute_share),
        percent(gpu.exposed_share),
        percent(gpu.copies_share),
    );
    page.field("GPU", &text);
    let most = ranks.iter().max_by_key(|(_, gpu)| gpu.communication_ns);
    if let Some((rank, gpu)) = most.filter(|(_, gpu)| gpu.communication_kernels > 0) {
        let whose =
            if ranks.len() > 1 { format!(", most in {}", rank.label) } else { String::new() };
        let hidden = gpu.hidden_share.get().map_or_else(|| "?".to_owned(), percent);
        page.field(
            "collectives",
            &format!(
                "{} in {}, {hidden} of it hidden by compute{whose}",
                count(gpu.communication_kernels),
                duration(gpu.communication_ns),
            ),
        );
    }
    let most = ranks.iter().max_by_key(|(_, gpu)| copied(gpu));
    if let Some((rank, gpu)) = most.filter(|(_, gpu)| !gpu.copies.is_empty()) {
        let whose =
            if ranks.len() > 1 { format!(", most in {}", rank.label) } else { String::new() };
        let kinds: Vec<String> = gpu.copies.iter().map(copy).collect();
        page.field("copies", &format!("{}{whose}", kinds.join("; ")));
    }
}

fn copied(gpu: &Gpu) -> u64 {
    gpu.copies.iter().map(|row| row.busy_ns).sum()
}

fn copy(row: &Copies) -> String {
    let kind = row.kind.trim_start_matches("Memcpy ");
    let moved = row.bytes.get().map_or_else(|| "?".to_owned(), bytes);
    format!("{} {kind} of {moved} in {}", count(row.count), duration(row.busy_ns))
}

/// The kernels with the most time, of the rank with the most.
pub fn kernels(page: &mut Page, report: &Report, top: usize) {
    let ranks = of_ranks(report);
    let total = |gpu: &Gpu| gpu.top_kernels.iter().map(|row| row.total_ns).sum::<u64>();
    let Some((rank, gpu)) = ranks.iter().max_by_key(|(_, gpu)| total(gpu)) else { return };
    let whose = if ranks.len() > 1 { format!(" of {}", rank.label) } else { String::new() };
    page.heading(&format!("Kernels with the most time{whose}"));
    let mut table =
        Table::aligned(&[("total", false), ("share", false), ("runs", false), ("kernel", true)]);
    for row in gpu.top_kernels.iter().take(top) {
        table.row(vec![
            duration(row.total_ns),
            percent(row.share),
            count(row.count),
            short(&row.name),
        ]);
    }
    for line in table.lines() {
        page.line(&line);
    }
}
