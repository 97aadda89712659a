//! Formats `tprof report summary` as text.

use tprof_analyze::Report;
use tprof_analyze::summary::Rank;
use tprof_facts::units::{bytes, count, counted, duration, signal};
use tprof_findings::lines::Line;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::processes::{ImageEnd, ProcessRow};
use tprof_trace::run::misses_allocations;

use super::head::{self, Head, plural, text_of};
use super::{gpu, ranks, sites};
use crate::terminal::commands;
use crate::terminal::page::{Form, Page};
use crate::terminal::table::Table;

/// Processes that lasted less than the longest one / this are only counted.
const LEAST_OF_LONGEST: u64 = 20;

/// Returns the text of the whole report.
pub fn text(report: &Report, top: usize, form: Form) -> String {
    let mut page = Page::new(form);
    head::completeness(&mut page, &Head::of_report(report), "summary");
    page.gap();
    body(&mut page, report, top);
    page.gap();
    let path = crate::terminal::quote::word(report.run.path.as_os_str());
    page.line("More:");
    for kind in
        if gpu::ran(report) { ["gpu-time", "steps", "memory"] } else { ["host", "cpu", "memory"] }
    {
        page.command(&format!("tprof report {kind} {path}"));
    }
    page.line("All kinds: tprof report --help");
    page.into_text()
}

/// Adds the report, without the beginning that all kinds share.
pub fn body(page: &mut Page, report: &Report, top: usize) {
    findings(page, report);
    page.heading("The run");
    steps(page, report);
    gpu::fields(page, report);
    gpu::sampled(page, report);
    // An imported trace contains no heap, so the line is left out.
    let heap = !gpu::ran(report) || report.ranks.iter().any(knows_heap);
    if heap {
        memory(page, report);
    }
    head::cgroup(page, report);
    head::run(page, report);
    head::killed(page, report);
    if heap {
        ranks::table(page, report, top);
    }
    if let Some(rank) = ranks::highest_peak(report).filter(|_| heap) {
        let whose =
            if report.ranks.len() > 1 { format!(" of {}", rank.label) } else { String::new() };
        sites::table(page, &rank.host_memory, &whose, top.min(3));
    }
    gpu::kernels(page, report, top.min(3));
    processes(page, report, top);
}

/// Adds the number of steps and their median time, where the cost of recording is known by step.
fn steps(page: &mut Page, report: &Report) {
    let Reading::Is(cost) = &report.overhead.step else { return };
    let whose = if report.ranks.len() > 1 { format!(" in {}", cost.rank) } else { String::new() };
    let steps = counted(cost.steps, "step", "steps");
    page.field("steps", &format!("{steps}{whose}, {} in the median", duration(cost.step_ns)));
}

fn knows_heap(rank: &Rank) -> bool {
    rank.host_memory.allocations.value().is_some()
}

/// Adds the first findings, one line each. Without findings, no line says so: the run may have only
/// data about memory, on which the rules have no opinion.
fn findings(page: &mut Page, report: &Report) {
    let Reading::Is(lines) = &report.findings else { return };
    page.heading("Findings");
    if lines.is_empty() {
        page.line("  none of 1 % of a step or more");
    }
    let mut table = Table::new(&["severity", "up to", "what"]);
    for line in lines {
        let gain = match (line.size_bytes, line.gain_step_ns.get(), line.gain_ns.get()) {
            (Some(size), ..) => bytes(size),
            (_, _, None) => "not known".to_owned(),
            (_, _, Some(0)) => "no time".to_owned(),
            (_, Some(gain_ns), _) => format!("{} a step", duration(gain_ns)),
            (_, None, Some(gain_ns)) => duration(gain_ns),
        };
        table.row(vec![line.severity.to_uppercase(), gain, what(line)]);
    }
    if !lines.is_empty() {
        page.table(&table);
        let path = crate::terminal::quote::word(report.run.path.as_os_str());
        page.line("  All findings, with evidence and remedies:");
        page.command(&format!("tprof report findings {path}"));
    }
}

/// Describes a finding, its place in the code first: `parse (load.py:22): one function takes much of
/// the CPU time`.
fn what(line: &Line) -> String {
    match line.place.is_empty() {
        true => line.what.clone(),
        false => format!("{}: {}", line.place, line.what),
    }
}

fn memory(page: &mut Page, report: &Report) {
    let Some(rank) = ranks::highest_peak(report) else { return };
    let memory = &rank.host_memory;
    let whose = if report.ranks.len() > 1 { format!(" in {}", rank.label) } else { String::new() };
    let misses = misses_allocations(&report.completeness.blind);
    let bound = match memory.peak_bytes.value() {
        Some(_) if misses && memory.at_least.is_none() => "at least ",
        _ => "",
    };
    let mut text = format!("peak {bound}{}", text_of(&memory.peak_bytes, bytes));
    if let Some(at) = memory.peak_at_ns.get() {
        text += &format!(" at {}", duration(at));
    }
    text += &whose;
    if let Some(live) = memory.live_at_exit_bytes.get() {
        text += &format!("; {} live at exit", bytes(live));
        if rank.images > 1 {
            text += &format!(" (summed over {} program images)", count(rank.images as u64));
        }
    }
    if memory.allocations.get().and(memory.allocated_bytes.get()).is_some() {
        let total = text_of(&memory.allocated_bytes, bytes);
        text += &format!("; {total} allocated in {} calls", text_of(&memory.allocations, count));
    }
    page.field("heap", &text);
    if let Some(caution) = memory.caution() {
        page.field("caution", &format!("the heap's {caution}"));
    }
    resident(page, rank, &whose);
}

/// Adds the peak of resident memory, and whether it is a sum over processes.
fn resident(page: &mut Page, rank: &Rank, whose: &str) {
    let timeline = &rank.timeline;
    let summed = timeline.rss_peak_bytes.get().zip(timeline.rss_peak_at_ns.get());
    let Some((summed, summed_at_ns)) = summed else { return };
    let counted_often = "which counts shared pages once per process";
    let peak = timeline.resident_peak_bytes.get().zip(timeline.resident_peak_at_ns.get());
    let of_readings = |readings: Option<u64>| {
        let of = readings.map(|count| plural(count, "reading", "readings"));
        of.map(|of| format!(", the highest of {of}")).unwrap_or_default()
    };
    let highest = |peak: u64, at_ns: u64, readings: Option<u64>| {
        let (peak, at, of) = (bytes(peak), duration(at_ns), of_readings(readings));
        format!("{peak} at {at}{whose}{of}")
    };
    match (peak, &timeline.resident_source) {
        (Some((peak, at_ns)), Reading::Is("PSS")) => {
            let text = format!(
                "peak at least {}; RSS adds up to {}, {counted_often}",
                highest(peak, at_ns, timeline.resident_readings),
                bytes(summed)
            );
            page.field("PSS", &text);
        }
        (None, Reading::Missing(why)) => {
            let text = format!(
                "adds up to {}, {counted_often}; {why}",
                highest(summed, summed_at_ns, timeline.rss_readings)
            );
            page.field("RSS", &text);
        }
        _ => {
            let highest = highest(summed, summed_at_ns, timeline.rss_readings);
            page.field("RSS", &format!("peak at least {highest}"));
        }
    }
}

fn processes(page: &mut Page, report: &Report, top: usize) {
    let mut rows: Vec<&ProcessRow> = report.processes.iter().filter(|row| !row.own).collect();
    let own = report.processes.len() - rows.len();
    if rows.len() < 2 {
        return;
    }
    let all = rows.len();
    page.heading(match report.processes.len() == report.process_count {
        true => "Processes, longest first",
        false => "Program images of processes, longest first",
    });
    let longest_ns = rows.iter().filter_map(|row| lasted(row)).max().unwrap_or(0);
    // What a version manager or a build starts for a moment would hide the job's own processes.
    rows.retain(|row| {
        let is_short = lasted(row).is_some_and(|ns| ns < longest_ns / LEAST_OF_LONGEST);
        !is_short || is_failure(row)
    });
    let short = all - rows.len();
    rows.sort_by_key(|row| std::cmp::Reverse(lasted(row).unwrap_or(u64::MAX)));
    let mut table =
        Table::new(&["pid", "parent", "rank", "start", "lasted", "end", "command"]).names(6);
    rows.truncate(top);
    for row in &rows {
        table.row(process(row));
    }
    let commands: Vec<&str> = rows.iter().map(|row| row.command.as_str()).collect();
    table.fill_last(page.width(), |room| commands::labels(&commands, room));
    page.table(&table);
    let left = all - rows.len();
    if left > 0 {
        // Short ones are in no text.
        let how = if left > short { "--top or --json" } else { "--json" };
        page.line(&format!("  ... and {} more: {how}", count(left as u64)));
    }
    if own > 0 {
        let own = counted(own as u64, "command of tprof's own", "commands of tprof's own");
        page.line(&format!("  ... and {own}: --json"));
    }
}

/// Whether a program image ended by a signal, or with a status other than 0.
fn is_failure(row: &ProcessRow) -> bool {
    match &row.ended {
        ImageEnd::Status(status) => *status != 0,
        ImageEnd::Signal(_) => true,
        ImageEnd::Replaced | ImageEnd::Otherwise(_) => false,
    }
}

/// Returns how long a process image lasted; `None` if its end was not recorded.
fn lasted(row: &ProcessRow) -> Option<u64> {
    Some(row.end_ns.get()?.saturating_sub(row.start_ns))
}

fn process(row: &ProcessRow) -> Vec<String> {
    vec![
        row.pid.to_string(),
        row.parent.to_string(),
        row.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        duration(row.start_ns),
        lasted(row).map_or_else(|| "?".to_owned(), duration),
        match &row.ended {
            ImageEnd::Status(status) => format!("exit {status}"),
            ImageEnd::Signal(number) => signal(*number),
            ImageEnd::Replaced => "exec".to_owned(),
            ImageEnd::Otherwise(why) if why.contains("running") => "running".to_owned(),
            ImageEnd::Otherwise(_) => "?".to_owned(),
        },
        row.command.clone(),
    ]
}
