//! Makes the tables of `steps`.

use std::collections::{BTreeMap, BTreeSet};

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::steps::{Batches, Bounds, Estimate, Repeated, StepSource};
use tprof_facts::units::{count, counted, percent};
use tprof_rank::base::stats::Spread;

use super::judge::{JudgedSteps, StepOrigin};

const NO_STEPS: &str = "no steps were recorded, and no sequence of launches or collectives clearly repeats \
                        (PyTorch's optimizers and data loaders show steps with `tprof run --operators \
                        names`; else NVTX ranges named step N)";
const NO_WORK: &str = "no kernel, copy or memset was recorded";
const NO_FLOPS: &str = "no operator with known operations began in it (tprof run --operators shapes; \
                        torch.profiler: record_shapes=True)";
const NO_UTILIZATION: &str =
    "the peak of a product's type is not known (--peaks bf16=989T,memory=3.35T)";
const NO_PHASES: &str = "no range names a phase (NVTX or `record_function`: epoch N, train, validation, \
                         checkpoint), and fetches of data loaders show no end of an epoch";
const NO_STEPS_OF_SOURCE: &str =
    "the source of --steps-from has no steps; without it the first source that has any gives them";

const NO_COMPILE_LOG: &str =
    "the run has no whole log of torch.compile on its clock (tprof run --compile)";

fn no_steps(parts: &[(RankContext, JudgedSteps)]) -> &'static str {
    match parts.iter().any(|(_, judged)| judged.found.source.is_some()) {
        true => NO_STEPS_OF_SOURCE,
        false => NO_STEPS,
    }
}

/// Makes the tables of each rank, of each step, and of steps over ranks.
pub(super) fn body(parts: &[(RankContext, JudgedSteps)], data: bool) -> Body {
    let mut tables = vec![by_rank(parts), phases(parts), each(parts)];
    tables.extend(data.then(|| device_time(parts)));
    if parts.iter().filter(|(_, judged)| !judged.steps.is_empty()).count() > 1 {
        tables.insert(1, over_ranks(parts));
    }
    Body { tables, notes: notes(parts) }
}

/// Makes the notes on the source of steps, on other sources, and on batches in no step. Ranks with
/// the same text share a note.
fn notes(parts: &[(RankContext, JudgedSteps)]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    for (at, judged) in parts {
        for note in of_rank(judged) {
            match notes.iter_mut().find(|(known, _)| *known == note) {
                Some((_, ranks)) => ranks.push(&at.label),
                None => notes.push((note, vec![&at.label])),
            }
        }
    }
    let of = |(note, ranks): (String, Vec<&str>)| match (ranks.len(), parts.len()) {
        (some, all) if some == all => note,
        (1, _) => format!("{}: {note}", ranks[0]),
        (some, all) => format!("{some} of {all} ranks: {note}"),
    };
    notes.into_iter().map(of).collect()
}

fn of_rank(judged: &JudgedSteps) -> Vec<String> {
    let StepOrigin { source, others, bounds, batches, skipped, estimate } = &judged.found;
    let Some(source) = source else { return Vec::new() };
    let other =
        |(source, steps): &(StepSource, usize)| format!("{source}: {}", count(*steps as u64));
    let others: Vec<String> = others.iter().map(other).collect();
    let would_give =
        (!others.is_empty()).then(|| format!("--steps-from would give {}", others.join(", ")));
    let mut notes: Vec<String> = match (source, would_give) {
        // Every report that uses inferred steps already notes that they are an estimate.
        (StepSource::Inferred, would_give) => would_give.into_iter().collect(),
        (_, Some(would_give)) => vec![format!("steps are {}; {would_give}", source.described())],
        (_, None) => vec![format!("steps are {}", source.described())],
    };
    if let Some(Estimate { what, length, share }) = *estimate {
        let sequence = |what| {
            format!(
                "a step is a sequence of {} {what} that repeats exactly; {} of all are in one. Where a \
                 step begins is not known: after the longest usual pause",
                count(length as u64),
                percent(share)
            )
        };
        notes.push(match what {
            Repeated::Launches => sequence("launches of kernels, copies and memsets"),
            Repeated::Operations => sequence("operations between ranks"),
            Repeated::Graph => format!(
                "a step is a launch of the CUDA graph with most of the device's time; {} of that time is in \
                 one",
                percent(share)
            ),
        });
    }
    notes.extend(bounds.and_then(|bounds| between(*source, bounds)));
    if let Some(Batches { a_step, updates, outside }) = *batches {
        if a_step > 1 {
            notes.push(format!("a step has {a_step} batches: gradients are accumulated"));
        }
        if updates > 1 {
            notes.push(format!(
                "a step has {updates} updates: several optimizers, or several updates by one batch"
            ));
        }
        if outside > 0 {
            let of = match skipped {
                Some(_) => "validation, or the end of an epoch, where a fetch finds no batch",
                None => {
                    "validation, the end of an epoch, or an update that a gradient scaler skipped"
                }
            };
            let outside = counted(outside as u64, "batch was", "batches were");
            notes.push(format!("{outside} fetched outside of the steps: {of}"));
        }
    }
    if let Some(skipped) = skipped.filter(|skipped| *skipped > 0) {
        let skipped = counted(skipped as u64, "update was", "updates were");
        notes.push(format!(
            "{skipped} skipped by a gradient scaler (infinite gradients), and no step"
        ));
    }
    if let Some(left_out) = judged.left_out {
        let what = match judged.compiled_ns {
            Some(_) => "of warm-up, or with compilations",
            None => "of warm-up (which ones compiled is not known: no log of torch.compile)",
        };
        notes.push(format!(
            "--steady leaves out {} {what}",
            counted(left_out as u64, "step", "steps")
        ));
    }
    notes
}

/// Explains why there are fewer steps than updates or marks.
fn between(source: StepSource, Bounds { recorded, open }: Bounds) -> Option<String> {
    let (what, unknown) = match source {
        StepSource::Optimizer => ("update", "when the step of the first one began is not known"),
        _ => ("mark", "when the step of the last one ended is not known"),
    };
    (open > 0).then(|| {
        format!(
            "{} lie between {}: {unknown}",
            counted((recorded - open) as u64, "step", "steps"),
            counted(recorded as u64, what, &format!("{what}s")),
        )
    })
}

fn by_rank(parts: &[(RankContext, JudgedSteps)]) -> Table {
    let by_device = parts.iter().any(|(_, judged)| judged.is_by_device());
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("steps", "steps", Unit::Count),
        Column::new("warm_up_steps", "warm-up", Unit::Count),
        Column::new("median_ns", "median", Unit::Duration),
        Column::data("mean_ns", Unit::Duration),
        Column::new("deviation_ns", "std dev", Unit::Duration),
        Column::data("robust_deviation_ns", Unit::Duration),
        Column::new("min_ns", "min", Unit::Duration),
        Column::new("max_ns", "max", Unit::Duration),
        Column::new("outliers", "outliers", Unit::Count),
        Column::new("host_median_ns", if by_device { "host median" } else { "" }, Unit::Duration),
        Column::data("timed_on", Unit::Text),
        Column::data("source", Unit::Text),
    ];
    let about = match by_device {
        true => {
            "times without the steps of warm-up, as devices did them; host median: on the host, which \
             may be far ahead of its device"
        }
        false => "times without the steps of warm-up",
    };
    let mut table =
        Table::new("step_times", "Step times", columns).about(about).empty(no_steps(parts));
    for (at, judged) in parts {
        let Some(steady) = &judged.steady else { continue };
        let Spread { min, median, mean, max, deviation, robust_deviation, .. } = steady;
        table.row(vec![
            at.label.as_str().into(),
            judged.steps.len().into(),
            judged.warm_up().into(),
            whole(*median).into(),
            whole(*mean).into(),
            Cell::known(deviation.map(whole), "one step has no spread"),
            Cell::known(deviation.map(|_| whole(*robust_deviation)), "one step has no spread"),
            (*min).into(),
            (*max).into(),
            judged.outlier_count().into(),
            Cell::applies(judged.host_median_ns().map(whole)),
            if judged.is_by_device() { "device" } else { "host" }.into(),
            judged.found.source.map_or("", StepSource::word).into(),
        ]);
    }
    table
}

fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}

/// Makes the table with each phase of each rank.
fn phases(parts: &[(RankContext, JudgedSteps)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("phase", "phase", Unit::Text),
        Column::new("number", "number", Unit::Id),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::new("steps", "steps", Unit::Count),
        Column::new("fetches", "fetches", Unit::Count),
        Column::new("source", "source", Unit::Text),
        Column::new("name", "name", Unit::Text),
    ];
    let mut table = Table::new("phases", "Phases", columns).empty(NO_PHASES);
    for (at, judged) in parts {
        for row in &judged.phases {
            table.row(vec![
                at.label.as_str().into(),
                row.kind.word().into(),
                Cell::known(row.number, "its range has none; of an estimate, recording was paused"),
                at.clock.since_start(row.interval.start).into(),
                row.interval.length().into(),
                row.steps.into(),
                row.fetches.into(),
                if row.name.is_some() { "named" } else { "estimate" }.into(),
                row.name.as_deref().unwrap_or("").into(),
            ]);
        }
    }
    table
}

fn each(parts: &[(RankContext, JudgedSteps)]) -> Table {
    let by_device = parts.iter().any(|(_, judged)| judged.is_by_device());
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("step", "step", Unit::Id),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::new("of_median", "of median", Unit::Share),
        Column::data("host_start_ns", Unit::Time),
        Column::new("host_ns", if by_device { "on host" } else { "" }, Unit::Duration),
        Column::data("compiled_ns", Unit::Duration),
        Column::new("remark", "remark", Unit::Text),
    ];
    let mut table = Table::new("steps", "Steps", columns).empty(no_steps(parts));
    for (at, judged) in parts {
        let median = judged.steady.as_ref().map(|steady| steady.median);
        for (index, step) in judged.steps.iter().enumerate() {
            let is_outlier = judged.outliers.as_ref().is_some_and(|all| all.contains(&index));
            let compiled = judged.compiled_ns.as_ref().and_then(|all| all.get(index)).copied();
            let remark = match (judged.warm_up.is_some_and(|end| index < end), is_outlier) {
                (true, _) => "warm-up",
                (_, true) => "outlier",
                _ => "",
            };
            let remark = match (compiled.is_some_and(|ns| ns > 0), remark) {
                (false, remark) => remark.to_owned(),
                (true, "") => "compiles".to_owned(),
                (true, remark) => format!("{remark}, compiles"),
            };
            let time = step.time().length();
            let share = median.filter(|median| *median > 0.0).map(|median| time as f64 / median);
            table.row(vec![
                at.label.as_str().into(),
                step.number.into(),
                at.clock.since_start(step.time().start).into(),
                time.into(),
                Cell::known(share, "the median step took no time"),
                at.clock.since_start(step.interval.start).into(),
                step.interval.length().into(),
                Cell::known(compiled, NO_COMPILE_LOG),
                remark.into(),
            ]);
        }
    }
    table
}

/// Makes the table of each step's device time, for programs.
fn device_time(parts: &[(RankContext, JudgedSteps)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("step", "step", Unit::Id),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::new("compute_ns", "compute", Unit::Duration),
        Column::new("exposed_communication_ns", "exposed comm", Unit::Duration),
        Column::new("exposed_copies_ns", "exposed copies", Unit::Duration),
        Column::new("idle_ns", "GPU idle", Unit::Duration),
        Column::new("gpu_busy", "GPU busy", Unit::Share),
        Column::new("launches", "kernels and copies", Unit::Count),
        Column::data("needed_flops", Unit::Count),
        Column::data("flops_per_s", Unit::Number),
        Column::new("mfu", "MFU", Unit::Share),
        Column::new("hfu", "HFU", Unit::Share),
    ];
    let mut table = Table::new("device_time_by_step", "Device time by step", columns)
        .view(View::Data)
        .empty(no_steps(parts));
    for (at, judged) in parts {
        for (index, (step, time)) in judged.steps.iter().zip(&judged.times).enumerate() {
            let of_use = judged.uses.get(index).filter(|one| one.needed > 0);
            let rate = of_use.and_then(|one| {
                (time.duration_ns > 0).then(|| one.needed as f64 / time.duration_ns as f64 * 1e9)
            });
            let why = if of_use.is_none() { NO_FLOPS } else { NO_UTILIZATION };
            let part =
                |which: usize| Cell::known(time.device_ns.map(|parts| parts[which]), NO_WORK);
            table.row(vec![
                at.label.as_str().into(),
                step.number.into(),
                at.clock.since_start(step.time().start).into(),
                time.duration_ns.into(),
                part(0),
                part(1),
                part(2),
                Cell::known(time.idle_ns(), NO_WORK),
                Cell::known(time.busy_share(), NO_WORK),
                Cell::known(time.launches, NO_WORK),
                Cell::known(of_use.map(|one| one.needed), NO_FLOPS),
                Cell::known(rate, NO_FLOPS),
                Cell::known(of_use.and_then(|one| one.mfu), why),
                Cell::known(of_use.and_then(|one| one.hfu), why),
            ]);
        }
    }
    table
}

/// Makes the table of steps that have the same number on several ranks, side by side.
fn over_ranks(parts: &[(RankContext, JudgedSteps)]) -> Table {
    let columns = vec![
        Column::new("step", "step", Unit::Id),
        Column::new("ranks", "ranks", Unit::Count),
        Column::new("median_ns", "median", Unit::Duration),
        Column::new("min_ns", "min", Unit::Duration),
        Column::new("max_ns", "max", Unit::Duration),
        Column::new("slowest", "slowest", Unit::Text),
        Column::new("fastest", "fastest", Unit::Text),
    ];
    let mut steps: BTreeMap<u64, Vec<(u64, &str)>> = BTreeMap::new();
    for (at, judged) in parts {
        for step in &judged.steps {
            steps.entry(step.number).or_default().push((step.time().length(), &at.label));
        }
    }
    let mut table = Table::new("steps_over_ranks", "Steps over ranks", columns);
    for (number, times) in steps {
        let Some(spread) = Spread::of(&times.iter().map(|row| row.0).collect::<Vec<u64>>()) else {
            continue;
        };
        let named = |time: u64| times.iter().find(|row| row.0 == time).map_or("", |row| row.1);
        table.row(vec![
            number.into(),
            times.iter().map(|row| row.1).collect::<BTreeSet<_>>().len().into(),
            whole(spread.median).into(),
            spread.min.into(),
            spread.max.into(),
            named(spread.max).into(),
            named(spread.min).into(),
        ]);
    }
    table
}
