//! Lines of the screen outside the table: about the run, its stalls and its events.

use tprof_facts::units::{bytes, count, counted, duration, percent};

use super::cells::{clean, value};
use super::view::View;
use crate::metric::Metric;
use crate::snapshot::{Event, RankState, RunState, Stall};

/// Formats the command of the run in a line.
pub fn command(view: &View) -> String {
    match view.now.command.is_empty() {
        true => "attached by hand, or its command is not known".to_owned(),
        false => clean(&view.now.command.join(" ")),
    }
}

/// Formats the state of the run, and how long it has lasted.
pub fn state(view: &View) -> String {
    let (now, word) = (&view.now, view.now.state.word());
    let how_long = duration(now.time_ns);
    match (now.state, now.recording) {
        (RunState::Running, Some(false)) => format!("running for {how_long}, not recorded now"),
        (RunState::Running, _) => format!("running for {how_long}"),
        _ => format!("{word} after {how_long}"),
    }
}

/// Formats the sums over the run.
pub fn totals(view: &View) -> String {
    let totals = &view.now.totals;
    let ranks = view.now.ranks.iter().filter(|rank| rank.rank.is_some()).count() as u64;
    let mut parts = vec![counted(ranks, "rank", "ranks")];
    parts.push(counted(totals.processes, "process", "processes"));
    let rates = view.now.metrics.iter().find(|of| of.key == Metric::StepsPerSecond.key());
    let rates = rates.into_iter().flat_map(|of| of.values.iter().flatten().copied());
    if let Some(least) = rates.reduce(f64::min) {
        parts.push(format!(
            "slowest {}",
            value(Some(least), "per_second").replace("/s", " steps/s")
        ));
    }
    parts.push(format!("{} recorded", count(totals.recorded)));
    parts.push(match totals.lost {
        0 => "none lost".to_owned(),
        lost => format!("{} LOST", count(lost)),
    });
    parts.push(bytes(totals.bytes));
    if view.now.time_ns > 0 {
        let share = totals.collector_cpu_ns as f64 / view.now.time_ns as f64;
        parts.push(format!("collector {} CPU", percent(share)));
    }
    if totals.damaged > 0 {
        parts.push(format!("{} damaged", counted(totals.damaged, "part", "parts")));
    }
    parts.join(", ")
}

/// Formats a stall in a line.
pub fn stall(stall: &Stall) -> String {
    let (for_ns, usual) = (duration(stall.for_ns), duration(stall.usual_ns));
    let what = stall.what.as_ref().map(|what| format!("; {}", clean(what))).unwrap_or_default();
    let label = clean(&stall.label);
    format!("{label}: step {} has lasted for {for_ns}, usually {usual}{what}", stall.step)
}

/// Formats why ranks stand still; `None` if that isn't known.
pub fn verdict(view: &View) -> Option<String> {
    let verdict = view.now.verdict.as_ref()?;
    Some(clean(&format!("{}: {}", verdict.kind.replace('_', " "), verdict.text)))
}

/// Formats the failed requests of a rank for device memory in a line; `None` if there are none.
pub fn out_of_memory(rank: &RankState) -> Option<String> {
    let failed = rank.out_of_memory.as_ref()?;
    Some(format!("{}: {}", clean(&rank.label), clean(&failed.sentence())))
}

/// Formats an event in a line.
pub fn event(event: &Event) -> String {
    format!("{:>10}  {}: {}", duration(event.time_ns), clean(&event.label), clean(&event.text))
}
