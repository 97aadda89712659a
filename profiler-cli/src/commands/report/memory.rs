//! Formats `tprof report memory` as text.

use std::sync::Arc;

use tprof_analyze::Report;
use tprof_analyze::summary::Rank;
use tprof_facts::units::{self, bytes, count, duration, estimate, percent, signed_bytes};
use tprof_metrics::memory::growth::Growth;
use tprof_metrics::memory::sites::GrowingSite;
use tprof_metrics::memory::timeline::Timeline;
use tprof_metrics::memory::{HostMemory, PEAK_SLACK_BYTES};
use tprof_rank::base::reading::Reading;

use super::head::{self, plural, text_of};
use super::{distinguish, plot, ranks, sites};
use crate::terminal::page::{Form, Page};

/// Largest number of growing sites that are listed.
const MOST_GROWING: usize = 5;
/// Columns for the error of a site's growth, in text.
const ERROR: usize = 13;

/// Returns the text of the whole report.
pub fn text(report: &Report, top: usize, form: Form) -> String {
    let mut page = Page::new(form);
    head::completeness(&mut page, &head::Head::of_report(report), "memory");
    body(&mut page, report, top);
    page.into_text()
}

/// Adds the report, without the beginning that all kinds share.
pub fn body(page: &mut Page, report: &Report, top: usize) {
    head::killed(page, report);
    ranks::table(page, report, top);
    let Some(rank) = ranks::highest_peak(report) else {
        page.gap();
        page.line("No rank file could be read: memory is unknown.");
        return;
    };
    heap(page, report, rank);
    over_time(page, rank);
    sites::table(page, &rank.host_memory, "", top);
    sites::lists(page, &rank.host_memory);
    growth(page, &rank.host_memory);
    if report.ranks.len() > 1 {
        page.gap();
        page.paragraph(
            0,
            &format!("This is {}, with the highest peak; --rank N selects another.", rank.label),
        );
    }
}

fn heap(page: &mut Page, report: &Report, rank: &Rank) {
    let memory = &rank.host_memory;
    page.heading(&format!("Heap of {}, {}", rank.label, recording(memory)));
    let at = memory.peak_at_ns.get().map(|at| format!(" at {}", duration(at)));
    page.field(
        "peak",
        &format!("{}{}", text_of(&memory.peak_bytes, bytes), at.unwrap_or_default()),
    );
    page.field("live at exit", &head::live_at_exit(rank));
    page.field(
        "allocated",
        &match (memory.allocated_bytes.get(), memory.allocations.get(), memory.frees.get()) {
            (Some(total), Some(allocations), Some(frees)) => format!(
                "{} in {}; {}",
                bytes(total),
                plural(allocations, "allocation", "allocations"),
                plural(frees, "free", "frees")
            ),
            (Some(_), Some(_), None) => format!(
                "{} in {} allocations; frees {}",
                text_of(&memory.allocated_bytes, bytes),
                text_of(&memory.allocations, count),
                text_of(&memory.frees, count)
            ),
            _ => text_of(&memory.allocations, count),
        },
    );
    churn(page, memory);
    if memory.recording == "sampled" {
        let text = match memory.allocations {
            Reading::Estimate { .. } => "counts, bytes and sites are estimates".to_owned(),
            _ => format!(
                "counts and bytes are exact, live and peak in usable bytes, the peak within {} per \
                 thread; sites are estimates",
                bytes(PEAK_SLACK_BYTES)
            ),
        };
        page.field("sampling", &text);
    }
    if let Some(caution) = memory.caution() {
        page.field("caution", &caution);
    }
    if memory.unmatched_frees > 0 {
        page.field("unmatched", &unmatched(memory));
    }
    let maps = &memory.maps;
    let added = maps.maps + maps.remaps + maps.attached_segments;
    if added + maps.unmaps + maps.detached_segments > 0 || maps.at_least.is_some() {
        let text = format!(
            "the program mapped {} in {} and unmapped {}",
            bytes(maps.mapped_bytes),
            plural(added, "call", "calls"),
            bytes(maps.unmapped_bytes)
        );
        let text = match maps.attached_segments {
            0 => text,
            count => format!(
                "{text}; {} of it are {} (shmat)",
                bytes(maps.attached_bytes),
                plural(count, "System V segment", "System V segments")
            ),
        };
        let text = match &maps.at_least {
            Some(why) => format!("{text}, at least: {why}"),
            None => text,
        };
        page.field("mappings", &text);
    }
    head::cgroup(page, report);
}

/// Describes the frees of blocks whose allocation was not recorded, and where these blocks came
/// from.
fn unmatched(memory: &HostMemory) -> String {
    let (all, forked) = (memory.unmatched_frees, memory.unmatched_frees_forked);
    let lost = if memory.at_least.is_some() { ", or their allocations were lost" } else { "" };
    let older = format!("older than the recording{lost}");
    let from = match (forked, all - forked) {
        (0, _) => format!("they are {older}"),
        (_, 0) => format!("forked processes have them from their parents{lost}"),
        (forked, _) => format!(
            "{} in forked processes, which have them from their parents; the rest are {older}",
            count(forked)
        ),
    };
    let frees = plural(all, "free", "frees");
    format!("{frees} of blocks without a recorded allocation: {from}")
}

fn recording(memory: &HostMemory) -> String {
    let in_part = memory.live_at_exit_bytes.get().is_none() && memory.allocations.get().is_some();
    match (memory.recording, memory.sample_interval_bytes) {
        ("exact", _) if in_part => "recorded in part".to_owned(),
        ("exact", _) => "every allocation recorded".to_owned(),
        ("sampled", Some(interval)) => format!("sampled every {}", bytes(interval)),
        _ => "not recorded (--mem off)".to_owned(),
    }
}

fn churn(page: &mut Page, memory: &HostMemory) {
    let churn = &memory.churn;
    let mut parts = Vec::new();
    if let (Some(calls), Some(rate)) = (churn.allocations_per_s.get(), churn.bytes_per_s.get()) {
        parts.push(format!("{} allocations/s, {}", estimate(calls), units::rate(rate)));
    }
    let about = |reading: &Reading<f64>| if reading.error().is_some() { "about " } else { "" };
    if let Some(short) = churn.short_lived_fraction.get() {
        let about = about(&churn.short_lived_fraction);
        parts.push(format!("{about}{} of freed blocks lived 1 ms or less", percent(short)));
    }
    if let Some(life) = churn.mean_lifetime_ns.get() {
        parts.push(format!(
            "{}{} on average",
            about(&churn.mean_lifetime_ns),
            duration(life as u64)
        ));
    }
    if !parts.is_empty() {
        page.field("churn", &parts.join("; "));
    }
}

fn over_time(page: &mut Page, rank: &Rank) {
    let timeline = &rank.timeline;
    let known = |name: &str| timeline.resident_source == Reading::Is(name);
    let resident = match known("PSS") || known("RSS") {
        true => (if known("PSS") { "PSS" } else { "RSS" }, &timeline.resident_bytes),
        // The label is "RSS sum", because RSS counts a shared page once for each process.
        false => ("RSS sum", &timeline.rss_bytes),
    };
    let curves = [
        resident,
        ("heap", &timeline.heap_bytes),
        ("cgroup", &timeline.cgroup_bytes),
        ("mapped", &timeline.mapped_bytes),
    ];
    let length = curves.iter().filter_map(|(_, c)| Some(c.value()?.len())).max().unwrap_or(0);
    let most = |series: &[Option<u64>]| series.iter().flatten().copied().max();
    // Only the first two curves share a scale. Mapped bytes are address space, and the cgroup may
    // contain other processes: on the same scale, these would make the other curves flat.
    let highest = curves[..2].iter().filter_map(|(_, curve)| most(curve.value()?)).max();
    let end_ns = timeline.start_ns.saturating_add(timeline.bucket_ns.saturating_mul(length as u64));
    page.heading(&match length {
        0 => "Over time".to_owned(),
        _ => format!(
            "Over time, {} to {} ({} and heap on one scale)",
            duration(timeline.start_ns),
            duration(end_ns),
            resident.0
        ),
    });
    for (name, series) in curves {
        match series {
            Reading::Missing(why) => page.paragraph(2, &format!("{name} unknown: {why}.")),
            series => {
                let Some(buckets) = series.value() else { continue };
                let own = most(buckets).unwrap_or(0);
                let shared = name == resident.0 || name == "heap";
                let scale = highest.filter(|_| shared).unwrap_or(own);
                let line = plot::curve(buckets, length, scale, page.width());
                page.fixed(&format!("  {name:<7} {line} {:>10} max", bytes(own)));
            }
        }
    }
    if let Reading::Missing(why) = &timeline.resident_source
        && timeline.rss_bytes.value().is_some()
    {
        page.paragraph(2, &format!("RSS counts shared pages once per process; {why}."));
    }
    readings(page, rank, resident.0);
    gap(page, timeline);
}

/// Adds a sentence that says that the highest reading is not the peak, and how large the difference
/// may be.
fn readings(page: &mut Page, rank: &Rank, resident: &str) {
    let timeline = &rank.timeline;
    let (most, readings) = match timeline.resident_peak_bytes.get() {
        Some(most) => (most, timeline.resident_readings),
        None => (timeline.rss_peak_bytes.get().unwrap_or(0), timeline.rss_readings),
    };
    let Some(readings) = readings else { return };
    let mut text = format!(
        "{resident} was read {}: its peak is at least {}.",
        if readings == 1 { "once".to_owned() } else { format!("{} times", count(readings)) },
        bytes(most)
    );
    if let Some(heap) = rank.host_memory.peak_bytes.get().filter(|heap| *heap > most) {
        text += &format!(
            " The heap's peak of {} lies above that: it was between readings, or memory was \
             allocated and never touched.",
            bytes(heap)
        );
    }
    page.paragraph(2, &text);
}

/// Adds the difference between resident memory and heap at the peak of resident memory.
fn gap(page: &mut Page, timeline: &Timeline) {
    let (Some(rss), Some(heap), Some(gaps)) =
        (timeline.resident_bytes.value(), timeline.heap_bytes.value(), timeline.gap_bytes.value())
    else {
        return;
    };
    let highest = (0..rss.len()).rev().max_by_key(|&i| rss[i]);
    let Some(at) = highest else { return };
    let (Some(Some(rss)), Some(Some(heap)), Some(Some(gap))) =
        (rss.get(at), heap.get(at), gaps.get(at))
    else {
        return;
    };
    let when = timeline.resident_peak_at_ns.get().unwrap_or(0);
    let text = if *gap >= 0 {
        format!(
            "At the highest reading ({}): {} resident = {} heap + {} other: code, stacks, mappings, and \
             freed blocks that the allocator keeps.",
            duration(when),
            bytes(*rss),
            bytes(*heap),
            bytes(gap.unsigned_abs())
        )
    } else {
        format!(
            "At the highest reading ({}): {} resident, {} heap: at least {} allocated but never touched, \
             or swapped out.",
            duration(when),
            bytes(*rss),
            bytes(*heap),
            bytes(gap.unsigned_abs())
        )
    };
    page.paragraph(2, &text);
}

fn growth(page: &mut Page, memory: &HostMemory) {
    match (&memory.growth, &memory.growth_over_quarters) {
        (Reading::Missing(why), quarters) => {
            page.heading("Growth");
            page.paragraph(2, &format!("Growth per step is unknown: {why}."));
            if let Some(quarters) = quarters {
                page.paragraph(2, "Growth between the middles of the quarters of the run:");
                grown(page, memory, quarters);
            }
        }
        (growth, _) => {
            if let Some(growth) = growth.value() {
                page.heading(&format!("Growth from {} to {}", growth.by, growth.by));
                grown(page, memory, growth);
            }
        }
    }
}

fn grown(page: &mut Page, memory: &HostMemory, growth: &Growth) {
    let signed = |reading: &Reading<i64>| signed_bytes(reading.get().unwrap_or(0));
    let error = |reading: &Reading<i64>| reading.error().map(|error| bytes(error.unsigned_abs()));
    let whole = match error(&growth.growth_bytes) {
        Some(error) => format!("about {} (\u{b1} {error})", signed(&growth.growth_bytes)),
        None => signed(&growth.growth_bytes),
    };
    page.paragraph(
        2,
        &format!(
            "{whole} live bytes over the last {} of {} points ({}; {}), {} to {}: {} -> {}; trend {} a {}.",
            count((growth.points - growth.warm_up) as u64),
            count(growth.points as u64),
            match growth.by {
                "step" => "beginnings of steps, and the end of the last",
                "mark" => "marks",
                _ => "middles of quarters",
            },
            match growth.warm_up {
                1 => "the first one is warm-up".to_owned(),
                more => format!("the first {} are warm-up", count(more as u64)),
            },
            duration(growth.first_ns),
            duration(growth.last_ns),
            text_of(&growth.first_bytes, bytes),
            text_of(&growth.last_bytes, bytes),
            signed_bytes(growth.bytes_per_interval as i64),
            growth.by
        ),
    );
    if growth.sites.is_empty() {
        page.line("  No site grew.");
        return;
    }
    let least = least_growth(memory);
    let value = |site: &GrowingSite| site.growth_bytes.get().unwrap_or(0);
    // The sites are sorted, the largest growth first.
    let listed = growth.sites.partition_point(|site| value(site).unsigned_abs() >= least);
    let (listed, trifles) = growth.sites.split_at(listed);
    let most = &listed[..listed.len().min(MOST_GROWING)];
    let stacks: Vec<&[Arc<str>]> = most.iter().map(|site| &*site.stack).collect();
    // A name has a line of its own, so that it isn't cut.
    for (site, name) in most.iter().zip(distinguish::names(&stacks, page.width() - 6)) {
        let error = error(&site.growth_bytes).map(|error| format!(" \u{b1} {error}"));
        page.fixed(&format!(
            "  {:>11}{:<ERROR$}  {:>11} a {}",
            signed(&site.growth_bytes),
            error.unwrap_or_default(),
            signed_bytes(site.bytes_per_interval as i64),
            growth.by,
        ));
        page.fixed(&format!("      {name}"));
    }
    if listed.len() > MOST_GROWING {
        page.line(&format!(
            "  ... and {} more sites: --json lists them",
            listed.len() - MOST_GROWING
        ));
    }
    if !trifles.is_empty() {
        let sum = trifles.iter().fold(0i64, |sum, site| sum.saturating_add(value(site)));
        let sites = plural(trifles.len() as u64, "site", "sites");
        let each = if trifles.len() == 1 { "" } else { " each" };
        page.paragraph(
            2,
            &format!(
                "Not listed: {sites} that grew by less than {}{each}, {} in sum; --json lists them.",
                bytes(least),
                signed_bytes(sum)
            ),
        );
    }
}

/// Returns the smallest growth to list: 1 % of the peak, but at least a page. It is at most 1 MiB,
/// because a growth of 1 MiB matters in a job of any size.
fn least_growth(memory: &HostMemory) -> u64 {
    (memory.peak_bytes.get().unwrap_or(0) / 100).clamp(4 << 10, 1 << 20)
}
