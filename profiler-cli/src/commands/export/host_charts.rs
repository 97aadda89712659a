//! Charts of the wall time of driving threads: one bar per rank, and one bar for each of the
//! longest steps.

use tprof_document::Document;
use tprof_export::report_page::Chart;
use tprof_facts::host_parts::HOST_PARTS;
use tprof_facts::units::duration;
use tprof_tables::{HostTime, host_times};

/// Largest number of bars in the chart of steps.
const MOST_STEPS: usize = 24;

/// A bar: its label, and the times that it shows.
type Bar<'t> = (String, Vec<&'t HostTime>);

/// Returns all charts. Charts of ranks have at most `most_ranks` bars.
pub fn all(document: &Document, most_ranks: usize) -> Vec<Chart> {
    let times = host_times(document);
    let mut ranks: Vec<u32> = times.iter().map(|time| time.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let of = |rank: u32, section: &str| -> Vec<&HostTime> {
        times.iter().filter(|time| time.rank == rank && time.section == section).collect()
    };
    let cut = match ranks.len() > most_ranks {
        true => format!(", the first {most_ranks} of {} ranks", ranks.len()),
        false => String::new(),
    };
    ranks.truncate(most_ranks);
    let bars = |section: &str| -> Vec<Bar<'_>> {
        let bars = ranks.iter().map(|rank| (format!("rank {rank}"), of(*rank, section)));
        bars.filter(|(_, times)| !times.is_empty()).collect()
    };
    let mut steps: Vec<Bar<'_>> = Vec::new();
    for time in times.iter().filter(|time| time.section == "step") {
        let label = match ranks.len() {
            1 => format!("step {}", time.step.unwrap_or(0)),
            _ => format!("rank {}, step {}", time.rank, time.step.unwrap_or(0)),
        };
        match steps.last_mut() {
            Some((last, times)) if *last == label => times.push(time),
            _ => steps.push((label, vec![time])),
        }
    }
    let all_steps = steps.len();
    steps.truncate(MOST_STEPS);
    let of_steps = match all_steps > MOST_STEPS {
        true => format!("The {MOST_STEPS} longest of {all_steps} steps"),
        false => "Steps, longest first".to_owned(),
    };
    [
        chart(format!("Wall time by part, judged time{cut}"), bars("judged")),
        chart(of_steps, steps),
        chart(format!("Start-up{cut}"), bars("start_up")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Draws bars of shares. The label of a bar includes its total time.
fn chart(title: String, bars: Vec<Bar<'_>>) -> Option<Chart> {
    let ns = |times: &[&HostTime], part: &str| -> u64 {
        times.iter().filter(|time| time.part == part).map(|time| time.wall_ns).sum()
    };
    let has = |part: &str| bars.iter().any(|(_, times)| ns(times, part) > 0);
    let parts: Vec<&(&str, &str)> = HOST_PARTS.iter().filter(|(key, _)| has(key)).collect();
    let rows: Vec<(String, Vec<f64>)> = (bars.iter())
        .map(|(label, times)| {
            let all: u64 = times.iter().map(|time| time.wall_ns).sum();
            let share = |(key, _): &&(&str, &str)| ns(times, key) as f64 / all.max(1) as f64;
            (format!("{label}, {}", duration(all)), parts.iter().map(share).collect())
        })
        .collect();
    let named = |(key, name): &&(&str, &str)| (format!("of-{key}"), (*name).to_owned());
    let parts = parts.iter().map(named).collect();
    (!rows.is_empty()).then_some(Chart::Stacks { title, parts, rows })
}
