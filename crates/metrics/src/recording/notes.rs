//! Writes the notes that warn if recording itself takes a visible part of a step. A note has the
//! report's main figure as it would be without recording.

use tprof_document::{Cell, Table, Value};
use tprof_facts::units::{duration, percent};
use tprof_rank::run::step_cost::StepCost;

/// Kinds of reports that judge steps, rates or idle time.
const JUDGING: [&str; 8] =
    ["steps", "flops", "roofline", "gpu-time", "idle", "breakdown", "findings", "diff"];

/// Whether a kind of report needs the cost of recording per step.
pub fn is_judged_by(kind: &str) -> bool {
    JUDGING.contains(&kind)
}

/// Returns the costs of the rank that recording slowed most; `None` if there are no costs.
pub fn worst<'a>(costs: impl IntoIterator<Item = &'a StepCost>) -> Option<&'a StepCost> {
    let share = |of: &StepCost| of.share().unwrap_or(0.0);
    costs.into_iter().max_by(|a, b| share(a).total_cmp(&share(b)))
}

/// Returns a sentence without a full stop for a report of this kind, with these tables; `None` if
/// the cost of recording is not visible.
pub fn note(kind: &str, tables: &[Table], costs: &[StepCost]) -> Option<String> {
    let of = worst(costs.iter().filter(|of| of.is_visible()))?;
    let without = match kind {
        "steps" => {
            let (least, most) = of.step_without()?;
            format!("a step would take {} to {}", duration(least), duration(most))
        }
        "flops" | "roofline" => {
            let (least, most) = of.rate_without()?;
            let rates = format!("rates would be {least:.2} to {most:.2} times as high");
            match mfu(tables, &of.rank) {
                Some(mfu) => format!(
                    "{rates}, MFU {} to {} in place of {}",
                    percent(mfu * least),
                    percent(mfu * most),
                    percent(mfu)
                ),
                None => rates,
            }
        }
        "gpu-time" | "idle" | "breakdown" => {
            let ((least, most), idle) = of.idle_without().zip(of.device_idle_ns.get())?;
            format!(
                "the devices would be idle for {} to {} of a step in place of {}",
                duration(least),
                duration(most),
                duration(idle)
            )
        }
        _ => return None,
    };
    Some(format!("{}: {}; without it {without}", of.rank, of.taken()?))
}

/// Returns the MFU that a report prints for a rank.
fn mfu(tables: &[Table], rank: &str) -> Option<f64> {
    let table = tables.iter().find(|table| table.key == "ranks")?;
    let (label, mfu) = (table.place("rank")?, table.place("mfu")?);
    let is_rank = |row: &&Vec<Cell>| row[label] == Cell::from(rank);
    table.rows.iter().find(is_rank)?[mfu].value().and_then(Value::number)
}
