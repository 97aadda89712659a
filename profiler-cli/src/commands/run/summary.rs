//! The lines that `tprof run` prints after the job: what happened, what was not recorded, where the
//! run is, and which command to type next.

use crate::commands::run::first_finding::Shown;
use crate::commands::run::peak::Peak;
use crate::launch::wait::Outcome;
use crate::terminal::quote;
use std::collections::BTreeSet;
use std::time::Duration;
use tprof_collect::Config;
use tprof_facts::units::{self, count, duration};
use tprof_trace::Recorded;
use tprof_trace::run::{EVERYTHING, LATER_EVENTS, RunInfo, group_blind_spots};
use tprof_ui::paint;

/// Largest number of blind processes that are named. Reports list all of them.
const MOST_BLIND: usize = 3;

/// Returns the summary of a run, for stderr. `notes` are the lines about windows of PyTorch's
/// profiler and about logs of `torch.compile`.
pub fn summary(
    info: &RunInfo,
    peak: Option<Peak>,
    shown: Shown,
    config: &Config,
    outcome: Outcome,
    notes: Vec<String>,
) -> String {
    let mut lines = vec![("tprof", job(info, outcome)), ("", recorded(info))];
    lines.extend(shown.step.map(|step| ("", step)));
    lines.extend(peak.map(|peak| ("", peak.to_string())));
    lines.extend(in_part(info, config, outcome).map(|line| ("", line)));
    lines.extend(unseen(info, config.follow).into_iter().map(|line| ("", line)));
    let run = quote::word(quote::nearby(&config.output).as_os_str());
    lines.extend(notes.into_iter().map(|line| ("", line)));
    lines.extend(shown.finding.map(|finding| ("found", finding)));
    lines.push(("run", run.clone()));
    let tprof = quote::program();
    lines.push((
        "next",
        match was_never_on(info) {
            true => format!("{tprof} ctl start {run}, while the job runs"),
            false => format!("{tprof} report findings {run}"),
        },
    ));
    let mut text = String::new();
    for (label, line) in lines {
        // The label is padded before it is coloured, because escape sequences have no width.
        text += &format!("{}  {line}\n", paint::label(&format!("{label:>5}")));
    }
    text
}

/// Whether recording was off during the whole run.
fn was_never_on(info: &RunInfo) -> bool {
    info.completeness.blind.iter().any(|gap| gap.as_asked && gap.what == EVERYTHING)
}

/// Describes which part of the job was recorded, if an option limits it.
fn in_part(info: &RunInfo, config: &Config, outcome: Outcome) -> Option<String> {
    if config.paused {
        let text = "--paused: only events after `tprof ctl start` are recorded";
        return Some(text.to_owned());
    }
    if config.schedule.is_some() || config.capture.is_some() {
        let text = "live and peak bytes are unknown: they need all of the job";
        return Some(text.to_owned());
    }
    let ran = info.end_ns?.saturating_sub(info.start_ns);
    let ran = Duration::from_nanos(ran);
    let delay = config.delay.unwrap_or_default();
    let time = |time: Duration| duration(time.as_nanos() as u64);
    if !delay.is_zero() && ran <= delay && outcome != Outcome::Interrupted {
        return Some(format!("nothing recorded: the job ended before {} (--delay)", time(delay)));
    }
    let mut parts = Vec::new();
    if !delay.is_zero() {
        parts.push(format!("started after {} (--delay)", time(delay)));
    }
    if let Some(duration) = config.duration.filter(|duration| ran > delay + *duration) {
        parts.push(format!("stopped after {} (--duration)", time(duration)));
    }
    let whole = "so live and peak bytes are unknown";
    (!parts.is_empty()).then(|| format!("recording {}, {whole}", parts.join(" and ")))
}

fn job(info: &RunInfo, outcome: Outcome) -> String {
    let ended = match outcome {
        Outcome::Interrupted => "recording interrupted, the job continues".to_owned(),
        Outcome::Ended(status) if libc::WIFSIGNALED(status) => {
            format!("killed by signal {}", libc::WTERMSIG(status))
        }
        Outcome::Ended(status) => format!("exit status {}", libc::WEXITSTATUS(status)),
    };
    let wall = info.end_ns.map(|end| duration(end.saturating_sub(info.start_ns)));
    let wall = wall.unwrap_or_else(|| "unknown time".to_owned());
    let ranks: BTreeSet<_> = info.processes.iter().filter_map(|process| process.rank).collect();
    let mut text =
        format!("{wall}, {}", units::processes(info.process_count(), info.processes.len()));
    if !ranks.is_empty() {
        text += &format!(", {}", counted(ranks.len() as u64, "rank", "ranks"));
    }
    format!("{text}, {ended}")
}

/// Shortest total wait for the collector that the summary mentions.
const SHORTEST_WAIT_NS: u64 = 1_000_000;

fn recorded(info: &RunInfo) -> String {
    let counts = &info.completeness;
    let lost = match counts.lost {
        0 if !counts.losses.is_empty() => "some lost".to_owned(),
        0 => "none lost".to_owned(),
        lost => format!("{} lost", count(lost)),
    };
    let events = counted_events(info);
    let mut cost = match (info.overhead.fraction_low, info.overhead.fraction_high) {
        (_, Some(high)) if high < 0.001 => "overhead below 0.1 % of CPU time (estimate)".to_owned(),
        (Some(low), Some(high)) => {
            let (low, high) = (units::percent(low), units::percent(high));
            format!("overhead {low} to {high} of CPU time (estimate)")
        }
        _ => "overhead unknown".to_owned(),
    };
    if info.overhead.wait_ns >= SHORTEST_WAIT_NS {
        cost += &format!(", {} of waits", units::duration(info.overhead.wait_ns));
    }
    format!("{events} recorded, {lost}; {cost}")
}

/// Returns how many events and samples were recorded, as text.
pub fn counted_events(info: &RunInfo) -> String {
    let counts = &info.completeness;
    units::recorded(Recorded { events: counts.recorded, samples: counts.samples })
}

/// Returns a line for each kind of loss, and for each group of blind processes.
fn unseen(info: &RunInfo, followed: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for loss in &info.completeness.losses {
        lines.push(match loss.count {
            0 => format!("lost: {} ({}), count unknown", loss.what, loss.why),
            lost => format!("lost: {} {} ({})", count(lost), loss.what, loss.why),
        });
    }
    let groups = group_blind_spots(&info.completeness.blind);
    let more = groups.len().saturating_sub(MOST_BLIND);
    for (what, whom, why) in groups.into_iter().take(MOST_BLIND) {
        lines.push(format!("not recorded: {what} of {whom} ({why})"));
    }
    if more > 0 {
        lines.push(format!("not recorded: {more} more; the report lists them"));
    }
    if !followed && info.completeness.blind.iter().any(|blind| blind.what == LATER_EVENTS) {
        lines.push("`tprof run --follow` records such processes until they end".to_owned());
    }
    if info.processes.is_empty() && info.completeness.blind.is_empty() {
        lines.push("no process was recorded: `tprof doctor -- COMMAND` checks why".to_owned());
    }
    lines
}

fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
