//! The section of the summary about devices.

use tprof_analyze::Report;
use tprof_analyze::summary::Rank;
use tprof_analyze::summary::gpu::{Copies, Gpu};
use tprof_facts::units::{bytes, count, counted, duration, percent};
use tprof_metrics::gpu::report_gpu::SampledGpu;
use tprof_rank::base::names::short;
use tprof_rank::base::reading::Reading;

use crate::terminal::page::Page;
use crate::terminal::table::{Table, cut};

/// Returns the ranks whose devices did work, with this work.
fn of_ranks(report: &Report) -> Vec<(&Rank, &Gpu)> {
    report.ranks.iter().filter_map(|rank| Some((rank, rank.gpu.value()?))).collect()
}

/// Whether anything ran on a device.
pub fn ran(report: &Report) -> bool {
    report.ranks.iter().any(|rank| rank.gpu.value().is_some())
}

/// Adds busy time, communication and copies. Adds nothing if no device did work.
pub fn fields(page: &mut Page, report: &Report) {
    let mut ranks = of_ranks(report);
    ranks.sort_by(|a, b| a.1.busy_share.total_cmp(&b.1.busy_share));
    let Some((least, gpu)) = ranks.first() else { return };
    let mut text = String::new();
    if ranks.len() > 1 {
        let mean = ranks.iter().map(|(_, gpu)| gpu.busy_share).sum::<f64>() / ranks.len() as f64;
        text += &format!("busy {} on average, least in {}: ", percent(mean), least.label);
    }
    let steps = match gpu.steps {
        0 => String::new(),
        steps => format!(" ({})", counted(steps, "step", "steps")),
    };
    text += &format!(
        "busy {} of {}{steps}: compute {}, exposed communication {}, copies {}",
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
                "{}{} {}, {hidden} of it hidden by compute{whose}",
                count(gpu.communication_kernels),
                if gpu.steps > 0 { "; in the steps for" } else { " in" },
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

/// Adds the readings of devices: of those that the ranks use, or of all if that is unknown. If the
/// job used devices but there are no readings, adds the reason.
pub fn sampled(page: &mut Page, report: &Report) {
    let all = match &report.gpus {
        Reading::Missing(why) if ran(report) => {
            return page.field("GPU sampled", &format!("no: {why}"));
        }
        other => other.value().map(Vec::as_slice).unwrap_or_default(),
    };
    let seen = |gpu: &&SampledGpu| gpu.visible_to.is_some();
    let any = all.iter().any(|gpu| seen(&gpu));
    let gpus: Vec<&SampledGpu> = all.iter().filter(|gpu| !any || seen(gpu)).collect();
    if gpus.is_empty() {
        return;
    }
    let named = |gpu: &SampledGpu| match report.run.hosts.len() {
        _ if gpus.len() == 1 => String::new(),
        0 | 1 => format!(" (GPU {})", gpu.gpu),
        _ => format!(" (GPU {} of {})", gpu.gpu, gpu.host),
    };
    let text = [busy(&gpus, &named), memory(&gpus, &named), throttled(&gpus, &named)].join("; ");
    page.field("GPU sampled", &format!("over the whole run: {text}"));
}

type Named<'a> = &'a dyn Fn(&SampledGpu) -> String;

/// Returns the device with the highest value of a figure, and the value.
fn most<'a>(
    gpus: &[&'a SampledGpu],
    of: impl Fn(&SampledGpu) -> Option<f64>,
) -> Option<(&'a SampledGpu, f64)> {
    let known = gpus.iter().filter_map(|gpu| Some((*gpu, of(gpu)?)));
    known.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns why no device has a value of a figure.
fn unknown<T>(gpus: &[&SampledGpu], of: impl Fn(&SampledGpu) -> &Reading<T>) -> String {
    match gpus.first().map(|gpu| of(gpu)) {
        Some(Reading::Missing(why)) => format!("unknown ({why})"),
        _ => "unknown".to_owned(),
    }
}

fn busy(gpus: &[&SampledGpu], named: Named<'_>) -> String {
    let shares: Vec<f64> = gpus.iter().filter_map(|gpu| gpu.mean_utilization.get()).collect();
    let Some((gpu, highest)) = most(gpus, |gpu| gpu.highest_utilization.get()) else {
        return format!("utilisation {}", unknown(gpus, |gpu| &gpu.mean_utilization));
    };
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    format!("utilisation {} on average, {} at most{}", percent(mean), percent(highest), named(gpu))
}

fn memory(gpus: &[&SampledGpu], named: Named<'_>) -> String {
    let Some((gpu, peak)) = most(gpus, |gpu| gpu.peak_memory_bytes.get().map(|peak| peak as f64))
    else {
        return format!("memory {}", unknown(gpus, |gpu| &gpu.peak_memory_bytes));
    };
    let whole =
        gpu.memory_bytes.get().map_or_else(String::new, |all| format!(" of {}", bytes(all)));
    format!("memory at most {}{whole}{}", bytes(peak as u64), named(gpu))
}

fn throttled(gpus: &[&SampledGpu], named: Named<'_>) -> String {
    match most(gpus, |gpu| gpu.throttled.get()) {
        None => format!("throttling {}", unknown(gpus, |gpu| &gpu.throttled)),
        Some((_, 0.0)) => "never throttled".to_owned(),
        Some((gpu, share)) => format!("throttled {} of the time{}", percent(share), named(gpu)),
    }
}

fn copied(gpu: &Gpu) -> u64 {
    gpu.copies.iter().map(|row| row.busy_ns).sum()
}

fn copy(row: &Copies) -> String {
    let kind = row.kind.trim_start_matches("Memcpy ");
    let moved = row.bytes.get().map_or_else(|| "?".to_owned(), bytes);
    format!("{} {kind}, {moved} in all, in {}", count(row.count), duration(row.busy_ns))
}

/// Adds the kernels with the most time, for the rank with the most kernel time.
pub fn kernels(page: &mut Page, report: &Report, top: usize) {
    let ranks = of_ranks(report);
    let total = |gpu: &Gpu| gpu.top_kernels.iter().map(|row| row.total_ns).sum::<u64>();
    let Some((rank, gpu)) = ranks.iter().max_by_key(|(_, gpu)| total(gpu)) else { return };
    let whose = if ranks.len() > 1 { format!(" of {}", rank.label) } else { String::new() };
    let cut = cut(top, gpu.top_kernels.len());
    page.heading(&format!("Kernels with the most time{whose}{cut}"));
    let mut table =
        Table::aligned(&[("total", false), ("share", false), ("runs", false), ("kernel", true)])
            .names(3);
    for row in gpu.top_kernels.iter().take(top) {
        table.row(vec![
            duration(row.total_ns),
            percent(row.share),
            count(row.count),
            short(&row.name),
        ]);
    }
    page.table(&table);
}
