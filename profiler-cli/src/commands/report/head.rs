//! The beginning that all reports share: what ran, and whether the recording is complete.

use std::collections::{BTreeMap, BTreeSet};

use tprof_analyze::Report;
use tprof_analyze::summary::Rank;
use tprof_document::Document;
use tprof_facts::units::{self, bytes, count, duration, percent, signal};
use tprof_metrics::memory::killed::Death;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::completeness::{Completeness, of_blind_spots, of_loss};
use tprof_rank::run::info::Run;
use tprof_rank::run::processes::{ImageEnd, ProcessRow, REPLACED};
use tprof_rank::run::step_cost::StepCost;
use tprof_ui::columns::width;

use crate::terminal::commands;
use crate::terminal::page::Page;

/// Largest number of blind processes and of problems that are listed.
const MOST_GAPS: usize = 6;

/// The data for the first lines of every report.
pub struct Head<'a> {
    pub run: &'a Run,
    pub completeness: &'a Completeness,
    pub problems: &'a [String],
    pub notes: &'a [String],
}

impl<'a> Head<'a> {
    /// Creates the head of a report.
    pub fn of_report(report: &'a Report) -> Head<'a> {
        let Report { run, completeness, problems, notes, .. } = report;
        Head { run, completeness, problems, notes }
    }

    /// Creates the head of a document.
    pub fn of_document(document: &'a Document) -> Head<'a> {
        let Document { run, completeness, problems, notes, .. } = document;
        Head { run, completeness, problems, notes }
    }
}

/// Adds the title, and whether the recording is complete.
pub fn completeness(page: &mut Page, head: &Head<'_>, kind: &str) {
    let path = head.run.path.file_name().unwrap_or(head.run.path.as_os_str());
    page.title(&format!("tprof {kind}: {}", path.to_string_lossy()));
    page.gap();
    let sum = head.completeness;
    let recorded = format!("{} recorded", sum.recorded_words());
    if sum.complete {
        page.paragraph(0, &format!("COMPLETE: {recorded}, no event lost, every process recorded."));
        notes(page, head.notes);
        return;
    }
    let lost: Vec<String> = sum.losses.iter().map(of_loss).collect();
    if sum.is_whole() {
        let mut words = vec![format!("{}: {recorded}", sum.verdict)];
        match sum.blind.is_empty() {
            true => words.push("every process recorded".to_owned()),
            false => words.extend(of_blind_spots(&sum.blind)),
        }
        if !lost.is_empty() {
            words.push(format!("without a place: {}", lost.join("; ")));
        }
        page.paragraph(0, &format!("{}.", words.join("; ")));
        notes(page, head.notes);
        return;
    }
    page.line(&format!("{}: {recorded}, but", sum.verdict));
    match head.run.state {
        // Only if a collector wrote an info file is it known that more was recorded than was
        // written.
        "cut off" if !head.run.recorded_by.is_empty() => {
            page.item(&match &head.run.unwritten {
                Some(why) => {
                    let why = why.split(" (os error").next().unwrap_or(why).to_lowercase();
                    let why = if why.is_empty() { why } else { format!(" ({why})") };
                    format!(
                        "from some moment on tprof could not write its files{why}; the report covers the \
                         part that was written before, and how much is missing is unknown"
                    )
                }
                // The collector waits up to these times for a block to fill before it writes the
                // block, so that many of the last rows are missing.
                None => "the recording was cut off; the report covers the part that was written, \
                         which may lack the last 4 s of CPU samples and 3 s of the rest"
                    .to_owned(),
            });
            if let Some((number, time_ns)) = head.run.asked_to_end {
                let (name, at) = (signal(number), duration(time_ns));
                page.item(&format!("tprof had received {name} at {at}, and was killed after it"));
            }
        }
        "running" => {
            page.item("the run is in progress; the report covers the part that is written")
        }
        _ => {}
    }
    list(page, lost, "kinds of loss");
    if sum.lost > 0 && sum.losses.is_empty() {
        page.item(&format!("{} events lost", count(sum.lost)));
    }
    list(page, of_blind_spots(&sum.blind).collect(), "groups of processes not recorded");
    list(page, head.problems.to_vec(), "problems");
    notes(page, head.notes);
}

/// Adds notes, one paragraph each.
pub fn notes(page: &mut Page, notes: &[String]) {
    for note in notes {
        page.paragraph(0, &format!("Note: {note}."));
    }
}

fn list(page: &mut Page, items: Vec<String>, what: &str) {
    for item in items.iter().take(MOST_GAPS) {
        page.item(item);
    }
    if items.len() > MOST_GAPS {
        page.item(&format!("and {} more {what}: --json lists them all", items.len() - MOST_GAPS));
    }
}

/// Adds the command, the times and the overhead.
pub fn run(page: &mut Page, report: &Report) {
    let run = &report.run;
    if !run.command.is_empty() {
        page.field("command", &run.command.join(" "));
    }
    let processes = report.process_count;
    // A rank that was restarted counts once.
    let ranks: BTreeSet<u32> = report.ranks.iter().filter_map(|rank| rank.rank).collect();
    let ranks = ranks.len();
    let mut text = match run.state {
        "finished" => text_of(&run.wall_ns, duration),
        state => format!("{} until it was {state}", text_of(&run.wall_ns, duration)),
    };
    if run.state == "running" {
        text = format!("{} so far", text_of(&run.wall_ns, duration));
    }
    text += &format!(", {}", units::processes(processes, report.processes.len()));
    if ranks > 1 {
        text += &format!(" in {ranks} ranks");
    }
    match run.hosts.as_slice() {
        // Imported runs have no host.
        [] => {}
        [host] if host.is_empty() => {}
        [host] => text += &format!(", on {host}"),
        hosts => text += &format!(", on {} hosts", hosts.len()),
    }
    page.field("ran", &text);
    if let Some(text) = how_it_ended(report) {
        page.field("ended", &text);
    }
    overhead(page, report);
}

/// Describes how the command ended. If each rank has its own command, this is the worst end of all.
fn how_it_ended(report: &Report) -> Option<String> {
    // What the job ran of tprof isn't its command, and ends none of its ranks.
    let rows: Vec<&ProcessRow> = report.processes.iter().filter(|row| !row.own).collect();
    // After an exec, the process's last image is the one that ended.
    let last: BTreeMap<_, _> = rows.iter().map(|row| ((&row.host, row.pid), *row)).collect();
    let last_of = |first: &ProcessRow| last.get(&(&first.host, first.pid)).copied();
    let first = last_of(rows.first()?)?;
    let is_started =
        |row: &&ProcessRow| row.rank.is_some() && !last.contains_key(&(&row.host, row.parent));
    let launched: BTreeMap<_, _> =
        rows.iter().copied().filter(is_started).map(|row| ((&row.host, row.pid), row)).collect();
    Some(match report.run.command.is_empty() {
        // The processes were attached by hand, so it isn't known which of them is the command.
        true if report.process_count > 1 => {
            format!("{} (pid {}, the first)", ended(&first.ended), first.pid)
        }
        false if first.rank.is_some() && launched.len() > 1 => {
            let ends: Vec<_> = launched.into_values().filter_map(last_of).collect();
            let worst = ends.iter().max_by_key(|row| badness(&row.ended))?;
            let mut ranks: Vec<u32> =
                ends.iter().filter(|row| row.ended == worst.ended).filter_map(|r| r.rank).collect();
            ranks.sort_unstable();
            match (badness(&worst.ended).0, ranks.as_slice()) {
                (0, _) | (_, []) => ended(&worst.ended),
                (_, [one]) => format!("{} (rank {one})", ended(&worst.ended)),
                (_, [one, more @ ..]) => {
                    format!("{} (rank {one} and {} more)", ended(&worst.ended), more.len())
                }
            }
        }
        _ => ended(&first.ended),
    })
}

/// Returns a key that sorts ends from good to bad: success, unknown, exit status, signal.
fn badness(end: &ImageEnd) -> (u8, i32) {
    match end {
        ImageEnd::Status(0) => (0, 0),
        ImageEnd::Replaced | ImageEnd::Otherwise(_) => (1, 0),
        ImageEnd::Status(status) => (2, *status),
        ImageEnd::Signal(signal) => (3, *signal),
    }
}

fn overhead(page: &mut Page, report: &Report) {
    let overhead = &report.overhead;
    let step = overhead.step.value();
    let mut texts: Vec<String> = step.map(StepCost::short).into_iter().collect();
    if let (Some(step), true) = (step, report.ranks.len() > 1) {
        texts[0] = format!("{}, which it slowed most: {}", step.rank, texts[0]);
    }
    let span = |low: String, high: String| match low == high {
        true => low,
        false => format!("{low} to {high}"),
    };
    let the_job = if step.is_some() { "the whole job's" } else { "the job's" };
    match (&overhead.host_ns.value, overhead.host_ns.bounds()) {
        (_, Some((low, high))) => {
            let time = span(duration(low), duration(high));
            texts.push(match overhead.fraction.bounds() {
                Some((low, high)) => {
                    let share = span(percent(low), percent(high));
                    format!("{share} of {the_job} CPU time, {time} (estimates)")
                }
                None => format!("{time} of {the_job} CPU time (estimates)"),
            });
        }
        (Reading::Missing(why), None) => texts.push(format!("unknown: {why}")),
        (_, None) => texts.push("unknown".to_owned()),
    }
    match overhead.wait_ns.value.get() {
        Some(0) => texts.push("no waits for the collector".to_owned()),
        Some(ns) => texts.push(format!("{} of waits for the collector", duration(ns))),
        None => {}
    }
    // In a job with steps, most of this share comes from the start of the job, so it isn't shown.
    if let (Some((low, high)), None) = (overhead.fraction_of_wall.bounds(), step) {
        let share = span(percent(low), percent(high));
        texts.push(format!("the job was slowed by {share} of its wall time (estimate)"));
    }
    if let Some(cpu_ns) = overhead.collector_cpu_ns.value.get() {
        texts.push(format!("the collector took {} of CPU", duration(cpu_ns)));
    }
    page.field("overhead", &texts.join("; "));
}

/// Adds the cgroup, if it has limits or kills.
pub fn cgroup(page: &mut Page, report: &Report) {
    let cgroup = &report.cgroup;
    let (Some(peak), limit) = (cgroup.peak_bytes.get(), cgroup.limit_bytes.get()) else { return };
    let mut text = match limit {
        Some(limit) if limit > 0 => format!(
            "at most {} of {} in use ({})",
            bytes(peak),
            bytes(limit),
            percent(peak as f64 / limit as f64)
        ),
        _ => format!("at most {} in use, no limit", bytes(peak)),
    };
    text += &match cgroup.oom_kills.get() {
        Some(0) => ", no OOM kill".to_owned(),
        Some(1) => ", 1 OOM kill".to_owned(),
        Some(kills) => format!(", {kills} OOM kills"),
        None => ", OOM kills unknown".to_owned(),
    };
    page.field("cgroup", &text);
}

/// Adds lines that say why processes were killed.
pub fn killed(page: &mut Page, report: &Report) {
    if report.killed.is_empty() {
        return;
    }
    page.heading("Killed");
    let shown = &report.killed[..report.killed.len().min(MOST_GAPS)];
    let head = |death: &Death| {
        let (signal, at) = (signal(death.signal), duration(death.at_ns));
        format!("  pid {} by {signal} at {at}: ", death.pid)
    };
    let widest = shown.iter().map(|death| width(&head(death))).max().unwrap_or(0);
    let commands: Vec<&str> = shown.iter().map(|death| death.command.as_str()).collect();
    let labels = commands::labels(&commands, page.width().saturating_sub(widest));
    for (death, command) in shown.iter().zip(labels) {
        page.line(&format!("{}{command}", head(death)));
        page.paragraph(4, &death.why);
        let memory = match (death.rss_bytes.get(), death.heap_bytes.get()) {
            (Some(rss), Some(heap)) => {
                format!("Last RSS {}; live heap {}.", bytes(rss), bytes(heap))
            }
            (Some(rss), None) => format!("Last RSS {}.", bytes(rss)),
            (None, Some(heap)) => format!("Live heap {}; RSS was not sampled.", bytes(heap)),
            (None, None) => String::new(),
        };
        page.paragraph(4, &memory);
        for owner in &death.owners {
            let share = bytes(owner.live_bytes);
            page.fixed(&format!(
                "      {share:>10}  {}",
                super::frames::name(&owner.stack, page.width() - 20)
            ));
        }
    }
    if report.killed.len() > MOST_GAPS {
        page.line(&format!(
            "  ... and {} more: --json lists them",
            report.killed.len() - MOST_GAPS
        ));
    }
}

/// Describes how a process ended.
pub fn ended(ended: &ImageEnd) -> String {
    match ended {
        ImageEnd::Status(status) => format!("exit status {status}"),
        ImageEnd::Signal(number) => format!("killed by {}", signal(*number)),
        ImageEnd::Replaced => REPLACED.to_owned(),
        ImageEnd::Otherwise(why) => why.clone(),
    }
}

/// Formats the live bytes of a rank at its exit. If the rank has several processes, this sums
/// values of different times, and may exceed the peak.
pub fn live_at_exit(rank: &Rank) -> String {
    let text = text_of(&rank.host_memory.live_at_exit_bytes, bytes);
    match rank.host_memory.live_at_exit_bytes.get() {
        Some(_) if rank.images > 1 => {
            format!(
                "{text}, summed over {} program images at their ends",
                count(rank.images as u64)
            )
        }
        _ => text,
    }
}

/// Formats a reading for a sentence.
pub fn text_of(reading: &Reading<u64>, show: impl Fn(u64) -> String) -> String {
    match reading {
        Reading::Is(value) => show(*value),
        Reading::Estimate { value, error } => {
            format!("about {} (\u{b1} {})", show(*value), show(*error))
        }
        Reading::Missing(why) => format!("unknown: {why}"),
    }
}

/// Formats a reading for a table.
pub fn cell(reading: &Reading<u64>, show: impl Fn(u64) -> String) -> String {
    match reading {
        Reading::Is(value) => show(*value),
        Reading::Estimate { value, .. } => format!("~{}", show(*value)),
        Reading::Missing(_) => "?".to_owned(),
    }
}

/// Formats a count, such as `1 process` or `1,234 processes`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}
