//! Makes the notes for the reader of a comparison.

use tprof_facts::steps::StepSource;
use tprof_facts::units::duration;
use tprof_rank::run::step_cost::StepCost;

use super::changes::{change_of, lost_of_step};
use super::figures::find;
use super::side::Side;

/// If the time in which threads wait for a core is at least this share of the time on a core, a
/// note says so. A tenth of that time is visible in wall times.
const CROWDED: f64 = 0.1;

/// Returns a note on the cost of recording per step, if that cost is a visible part of a step on
/// either side. Two recordings of the same program may differ by this cost.
fn recorded(a: &Side, b: &Side) -> Option<String> {
    let [of_a, of_b] = [a, b].map(|side| side.cost.as_ref());
    if !of_a.into_iter().chain(of_b).any(StepCost::is_visible) {
        return None;
    }
    let of = |name: &str, cost: Option<&StepCost>| {
        let known = cost.and_then(|cost| Some((cost.taken()?, cost.step_without()?)));
        match known {
            Some((taken, (least, most))) => {
                format!("in {name} {taken}: without it {} to {}", duration(least), duration(most))
            }
            None => format!("in {name} what recording took of a step is not known"),
        }
    };
    Some(format!("{}; {}", of("A", of_a), of("B", of_b)))
}

/// Maximum number of problems of a side that the notes name.
const MOST_DAMAGE: usize = 3;

/// Returns a note on the sources of steps, if the sources of the two sides differ or if steps are
/// estimates.
fn sources(a: &Side, b: &Side) -> Option<String> {
    let words = |side: &Side| {
        let words: Vec<&str> = side.sources.iter().map(|source| source.described()).collect();
        words.join(" and ")
    };
    if a.sources != b.sources {
        return Some(format!(
            "steps of A are {}, those of B {}: they may be of other lengths; --steps-from chooses one \
             source for both",
            words(a),
            words(b)
        ));
    }
    let is_estimate = |source: &StepSource| *source >= StepSource::Optimizer;
    a.sources.iter().any(is_estimate).then(|| format!("steps are {}", words(a)))
}

/// Returns a note on the steps that the comparison leaves out as warm-up.
fn warm_up(a: &Side, b: &Side) -> Option<String> {
    let [of_a, of_b] = [a, b].map(|side| side.warm_up.len());
    (of_a + of_b > 0).then(|| {
        format!(
            "steps of warm-up are left out ({of_a} of A, {of_b} of B); --steps-a and --steps-b choose \
             others"
        )
    })
}

/// Returns a note that the machine's load differed between the runs, if the load alone decides
/// whether the step time changed.
fn load(a: &Side, b: &Side) -> Option<String> {
    let change = change_of(a, b, "step_time")?;
    change.without_load(find("step_time")?)?;
    let [of_a, of_b] = [lost_of_step(a)?, lost_of_step(b)?].map(|ns| duration(ns.round() as u64));
    Some(format!(
        "the machine's load differed: of a step the driving thread had no core for {of_a} in A and for \
         {of_b} in B; compare the step time without lost cores, or CPU time"
    ))
}

/// Returns notes on the first few parts of a side that could not be read and that the figures lack.
pub(super) fn damage(name: &str, problems: &[String]) -> Vec<String> {
    let mut notes: Vec<String> =
        problems.iter().take(MOST_DAMAGE).map(|what| format!("{name}: {what}")).collect();
    if problems.len() > MOST_DAMAGE {
        notes.push(format!(
            "{name}: and {} more that could not be read",
            problems.len() - MOST_DAMAGE
        ));
    }
    notes
}

pub(super) fn notes(a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let hardware = a.facts.other_hardware(&b.facts);
    if !hardware.is_empty() {
        let differs =
            |key: &&str| format!("{key}: {} in A, {} in B", a.facts.text(key), b.facts.text(key));
        let differs: Vec<String> = hardware.iter().map(differs).collect();
        notes.push(format!(
            "the hardware differs ({}): times and shares get no verdict",
            differs.join("; ")
        ));
    }
    let [host_a, host_b] = [a, b].map(|side| side.facts.text("host"));
    if hardware.is_empty() && host_a != host_b && !host_a.is_empty() && !host_b.is_empty() {
        notes.push(format!(
            "the runs are of different hosts ({host_a} in A, {host_b} in B) with equal hardware, as \
             far as it is recorded: their load and clocks may differ"
        ));
    }
    match (a.stepped, b.stepped) {
        (true, true) => {
            notes.extend(sources(a, b));
            notes.extend(warm_up(a, b));
            let [a, b] = [a, b].map(|side| side.steps.len());
            if a < 2 || b < 2 {
                let steps = match (a, b) {
                    (1, 1) => "1 step each".to_owned(),
                    _ => format!("steps: {a} in A, {b} in B"),
                };
                notes.push(format!("{steps}; without two on each side a change may be chance"));
            }
        }
        (false, false) => notes.push(
            "no side has steps (marks, NVTX ranges `step N`, `ProfilerStep#` annotations, ranges of \
             optimizers or data loaders): whole traces are compared, and a change may be chance"
                .to_owned(),
        ),
        (a_has, _) => notes.push(format!(
            "{} has steps and {} has none: a step is compared with a whole trace. Record steps on \
             both sides, or compare shares",
            if a_has { "A" } else { "B" },
            if a_has { "B" } else { "A" }
        )),
    }
    if a.ranks != b.ranks {
        notes.push(format!(
            "A has {} ranks and B has {}: figures are means over ranks",
            a.ranks, b.ranks
        ));
    }
    let ready = a.host.ready().zip(b.host.ready());
    if let Some((of_a, of_b)) = ready.filter(|(of_a, of_b)| of_a.max(*of_b) >= CROWDED) {
        notes.push(format!(
            "per second of running, threads waited {of_a:.2} s for a core in A and {of_b:.2} s in \
             B: this affects wall times, hardly CPU times"
        ));
    }
    if a.stepped && b.stepped {
        notes.extend(recorded(a, b));
    }
    if hardware.is_empty() {
        notes.extend(load(a, b));
    }
    let ended = match (a.operators_ended, b.operators_ended) {
        (true, true) => Some("both sides"),
        (true, false) => Some("A"),
        (false, true) => Some("B"),
        (false, false) => None,
    };
    notes.extend(ended.map(|of| {
        format!(
            "operators are not compared, only annotations: {of} recorded them for a part of the time, as \
             they took too much of it; --operators names records them all"
        )
    }));
    for (name, side) in [("A", a), ("B", b)] {
        if !side.completeness.is_whole() {
            notes.push(format!("{name} is not complete: `tprof report` lists the gaps"));
        }
        notes.extend(damage(name, &side.problems));
    }
    notes
}
