//! Writes the histograms that a program recorded of its own values (`tprof.histogram`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use tprof_facts::histograms::{self, ProgramHistogram};
use tprof_facts::labels::{self, Ids};
use tprof_facts::{Step, Zero, steps};
use tprof_trace::model::{Mark, MarkKind, ProcessIndex};

use super::event_times::{at_time, wall_s};
use super::events::{EventFile, EventTime, Tag, code};
use super::histogram::Histogram;
use super::series::shorten_name;
use crate::OpenRank;

/// Values and histograms that could not be written.
#[derive(Debug, Default)]
pub(super) struct SkippedHistograms {
    /// Number of values that are NaN or infinite, by name.
    pub not_finite: BTreeMap<String, u64>,
    /// Number of histograms whose record is damaged.
    pub damaged: u64,
}

/// Writes a rank's histograms up to a moment. The process that runs the steps gets the plain names;
/// other processes' names get a suffix.
pub(super) fn write<W: Write>(
    part: &OpenRank<'_>,
    zero: Zero,
    primary: Option<ProcessIndex>,
    settled: &[Step],
    until_ns: u64,
    file: &mut EventFile<W>,
) -> io::Result<SkippedHistograms> {
    let trace = &part.trace;
    let is_wanted = |mark: &&Mark| {
        let is_settled = mark.time_ns < until_ns && part.window.holds(mark.time_ns);
        mark.kind == MarkKind::Histogram && is_settled
    };
    let mut marks: Vec<&Mark> = trace.marks().iter().filter(is_wanted).collect();
    marks.sort_by_key(|mark| mark.time_ns);
    let of = |mark: &Mark| histograms::split(trace.name(mark.name));
    let mut processes: HashMap<&str, BTreeSet<Option<ProcessIndex>>> = HashMap::new();
    for mark in &marks {
        processes.entry(of(mark).0).or_default().insert(mark.process);
    }
    let unended = steps::unended(trace);
    let mut left_out = SkippedHistograms::default();
    for mark in marks {
        let (name, values) = of(mark);
        let Some(found) = ProgramHistogram::of(values) else {
            left_out.damaged += 1;
            continue;
        };
        if found.not_finite > 0 {
            *left_out.not_finite.entry(shorten_name(name)).or_default() += found.not_finite;
        }
        let Some(histogram) = Histogram::counted(&found) else { continue };
        let all = &processes[name];
        let has_plain = match all.contains(&primary) {
            true => mark.process == primary,
            false => all.first() == Some(&mark.process),
        };
        let process = mark.process.filter(|_| !has_plain);
        let process = process.map(|process| labels::process(trace, process, Ids::LeftOut));
        let name = match process {
            None => shorten_name(name),
            Some(process) => format!("{}/{}", shorten_name(name), shorten_name(&process)),
        };
        let about = format!("values of {} in the program", code(&name));
        let within = || step_of(mark, settled, &unended);
        let at = match found.step.or_else(within) {
            Some(step) => EventTime { step, wall_s: wall_s(zero, part.since_start(mark.time_ns)) },
            None => at_time(zero, part, mark.time_ns),
        };
        file.histogram(&Tag { name, about }, at, &histogram)?;
    }
    Ok(left_out)
}

/// Returns the number of the step that contains a mark. If no step that has ended contains it, this
/// is the last step that its process began.
fn step_of(mark: &Mark, settled: &[Step], unended: &[Step]) -> Option<u64> {
    let after = settled.partition_point(|step| step.start_ns <= mark.time_ns);
    let last = after.checked_sub(1).map(|at| &settled[at]);
    let within = last.filter(|step| mark.time_ns < step.end_ns);
    let begun = || {
        let of = unended.iter().filter(|step| Some(step.process) == mark.process);
        of.into_iter().find(|step| step.start_ns <= mark.time_ns)
    };
    within.or_else(begun).map(|step| step.number)
}
