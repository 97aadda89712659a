//! Makes the tables of `flops`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit};
use tprof_facts::units::{counted, duration};

use super::figures::{NO_BYTES, NO_PEAKS, per_second, shape_text, tera, why_nothing_counts};
use super::sums::{FlopSums, RankFlops, Row, SizesKey, join};

const NO_TIME: &str = "no time was recorded for it";
const NO_STEPS: &str = "no step with operators that count was recorded";
const NO_OPERATORS: &str = "no operators were recorded (torch.profiler: ProfilerActivity.CPU)";
const NO_MODULES: &str =
    "no calls of modules were recorded (tprof run --modules; torch.profiler: with_modules)";
const NO_KERNELS: &str = "no kernel that an operator with a count launched was recorded";

/// Joins the rows of all ranks, longest time first.
pub(super) fn joined(parts: &[(RankContext, RankFlops)]) -> Vec<(SizesKey, Row)> {
    let mut all: BTreeMap<&SizesKey, Vec<Row>> = BTreeMap::new();
    for (key, row) in parts.iter().flat_map(|(_, part)| &part.rows) {
        join(all.entry(key).or_default(), row);
    }
    let each = |(key, rows): (&SizesKey, Vec<Row>)| {
        rows.into_iter().map(|row| (key.clone(), row)).collect::<Vec<_>>()
    };
    let mut rows: Vec<(SizesKey, Row)> = all.into_iter().flat_map(each).collect();
    rows.sort_rows_by_key(|(_, row)| (Reverse(row.launched > 0), Reverse(row.timed().0)));
    rows
}

/// Returns notes on what the figures leave out.
pub(super) fn notes(parts: &[(RankContext, RankFlops)]) -> Vec<String> {
    let mut notes = Vec::new();
    let sum = |of: fn(&RankFlops) -> u64| parts.iter().map(|(_, part)| of(part)).sum::<u64>();
    let (unowned, unowned_ns) = (sum(|part| part.unowned.0), sum(|part| part.unowned.1));
    if unowned > 0 && parts.iter().any(|(_, part)| !part.rows.is_empty()) {
        notes.push(format!(
            "{}, {} in all, were launched by no recorded operator (graphs, libraries): they have \
             no count",
            counted(unowned, "kernel, copy or memset", "kernels, copies and memsets"),
            duration(unowned_ns),
        ));
    }
    let runs: u64 =
        parts.iter().flat_map(|(_, part)| part.uncounted.values()).map(|u| u.runs).sum();
    if runs > 0 && parts.iter().any(|(_, part)| !part.rows.is_empty()) {
        let verb = if runs == 1 { "has" } else { "have" };
        notes.push(format!(
            "{} {verb} no count: table `uncounted` names them",
            counted(runs, "run of an operator", "runs of operators")
        ));
    }
    notes
}

/// Makes all tables of the report.
pub(super) fn body(parts: &[(RankContext, RankFlops)]) -> Body {
    let rows = joined(parts);
    let tables = vec![
        ranks(parts),
        operators(parts, &rows),
        steps(parts),
        modules(parts),
        kernels(parts),
        uncounted(parts),
    ];
    Body { tables, notes: notes(parts) }
}

/// Returns the utilization of the model and of the hardware: without and with recomputed work.
fn utilizations(part: &RankFlops, sums: &FlopSums, wall_ns: u64) -> [Cell; 2] {
    let of_peaks = |share: Option<f64>| Cell::known(part.peaks.and(share), NO_PEAKS);
    sums.utilizations(part.devices, wall_ns).map(of_peaks)
}

fn ranks(parts: &[(RankContext, RankFlops)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::data("flops", Unit::Count),
        Column::data("needed_flops", Unit::Count),
        Column::data("recomputed_flops", Unit::Count),
        Column::new("tflops", "TFLOP", Unit::Text),
        Column::new("runs", "runs", Unit::Count),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::new("host_ns", "on host", Unit::Duration),
        Column::data("window_needed_flops", Unit::Count),
        Column::new("window_ns", "window", Unit::Duration),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("mfu", "MFU", Unit::Share),
        Column::new("hfu", "HFU", Unit::Share),
        Column::new("device", "device", Unit::Text),
    ];
    let mut table = Table::new("ranks", "Operations by rank", columns)
        .about(
            "window: the steps, else from the first to the last operator or device work; rate: needed \
             operations in it over its time; MFU: least time of its products over that, HFU: with recomputed \
             ones",
        )
        .empty(why_nothing_counts(parts));
    for (at, part) in parts.iter().filter(|(_, part)| !part.rows.is_empty()) {
        let rate = per_second(part.in_window.needed, part.window_ns);
        let [mfu, hfu] = utilizations(part, &part.in_window, part.window_ns);
        table.row(vec![
            at.label.as_str().into(),
            part.all.flops.into(),
            part.all.needed.into(),
            part.all.recomputed.into(),
            tera(Some(part.all.flops as f64), ""),
            part.all.runs.into(),
            Cell::known(
                part.has_work.then_some(part.all.device_ns),
                crate::gpu::breakdown::NO_WORK,
            ),
            part.all.host_ns.into(),
            part.in_window.needed.into(),
            part.window_ns.into(),
            Cell::known(rate, NO_TIME),
            tera(rate, NO_TIME),
            mfu,
            hfu,
            Cell::known(
                (!part.device.is_empty()).then_some(part.device.as_str()),
                "no device is named in the trace",
            ),
        ]);
    }
    table
}

/// Makes the table by operator and sizes.
fn operators(parts: &[(RankContext, RankFlops)], rows: &[(SizesKey, Row)]) -> Table {
    let columns = vec![
        Column::new("tflops", "TFLOP", Unit::Text),
        Column::data("flops", Unit::Count),
        Column::data("needed_flops", Unit::Count),
        Column::data("flops_per_run", Unit::Count),
        Column::new("share", "share", Unit::Share),
        Column::new("runs", "runs", Unit::Count),
        Column::data("recomputed_runs", Unit::Count),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::new("host_ns", "on host", Unit::Duration),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("bytes", "bytes", Unit::Bytes),
        Column::data("read_bytes", Unit::Bytes),
        Column::data("written_bytes", Unit::Bytes),
        Column::data("family", Unit::Text),
        Column::data("type", Unit::Text),
        Column::data("operator", Unit::Text),
        Column::data("input_shapes", Unit::Text),
        Column::data("input_types", Unit::Text),
        Column::data("input_values", Unit::Text),
        Column::data("kernel", Unit::Text),
        Column::new("what", "operator and sizes", Unit::Name),
    ];
    let mut table = Table::new("operators", "Operations by operator and sizes", columns)
        .about(
            "over all ranks; each operation belongs to the innermost operator with a formula. \
             bytes: inputs read once, results written once; on host: without operators that \
             count within; rate: over time on GPUs, else on the host",
        )
        .empty(why_nothing_counts(parts));
    let all: f64 = rows.iter().map(|(_, row)| row.work.flops as f64 * row.runs as f64).sum();
    let mut rows: Vec<&(SizesKey, Row)> = rows.iter().collect();
    rows.sort_rows_by_key(|(_, row)| {
        Reverse((row.work.flops.saturating_mul(row.runs), row.timed().0))
    });
    for (key, row) in rows {
        let times = |one: u64| one.checked_mul(row.runs);
        let flops = times(row.work.flops);
        let (time_ns, runs) = row.timed();
        let rate = per_second(row.work.needed.saturating_mul(runs), time_ns);
        let bytes = |one: Option<u64>| Cell::known(one.and_then(times), NO_BYTES);
        table.row(vec![
            tera(flops.map(|all| all as f64), TOO_MANY),
            Cell::known(flops, TOO_MANY),
            Cell::known(times(row.work.needed), TOO_MANY),
            row.work.flops.into(),
            Cell::applies((all > 0.0).then(|| row.work.flops as f64 * row.runs as f64 / all)),
            row.runs.into(),
            row.recomputed.into(),
            Cell::known((row.launched > 0).then_some(row.device_ns), NOT_LAUNCHED),
            row.host_ns.into(),
            Cell::known(rate, NO_TIME),
            tera(rate, NO_TIME),
            bytes(row.work.bytes()),
            bytes(row.work.read),
            bytes(row.work.written),
            row.work.family.name().into(),
            Cell::known(row.work.of.map(|of| of.name()), "the trace has no types"),
            key.operator.as_str().into(),
            key.dims.as_str().into(),
            key.types.as_str().into(),
            key.values.as_str().into(),
            Cell::known(row.longest.as_ref().map(|(_, name)| name.as_str()), NOT_LAUNCHED),
            shape_text(key, row).into(),
        ]);
    }
    table
}

const TOO_MANY: &str = "the number does not fit 64 bits";
const NOT_LAUNCHED: &str = "it launched nothing that was recorded";

fn steps(parts: &[(RankContext, RankFlops)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("step", "step", Unit::Id),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::data("flops", Unit::Count),
        Column::data("needed_flops", Unit::Count),
        Column::data("recomputed_flops", Unit::Count),
        Column::new("tflops", "TFLOP", Unit::Text),
        Column::new("recomputed_share", "recomputed", Unit::Share),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("mfu", "MFU", Unit::Share),
        Column::new("hfu", "HFU", Unit::Share),
    ];
    let mut table = Table::new("steps", "Operations by step", columns)
        .about("of operators that began in the step; rate: needed operations over its time")
        .empty(NO_STEPS);
    for (at, part) in parts {
        for step in part.steps.iter().filter(|step| step.sums.runs > 0) {
            let sums = &step.sums;
            let rate = per_second(sums.needed, step.wall_ns);
            let [mfu, hfu] = utilizations(part, sums, step.wall_ns);
            table.row(vec![
                at.label.as_str().into(),
                step.number.into(),
                step.wall_ns.into(),
                sums.flops.into(),
                sums.needed.into(),
                sums.recomputed.into(),
                tera(Some(sums.flops as f64), ""),
                Cell::applies(
                    (sums.needed > 0).then(|| sums.recomputed as f64 / sums.needed as f64),
                ),
                Cell::known(rate, NO_TIME),
                tera(rate, NO_TIME),
                mfu,
                hfu,
            ]);
        }
    }
    table
}

fn modules(parts: &[(RankContext, RankFlops)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("tflops", "TFLOP", Unit::Text),
        Column::data("flops", Unit::Count),
        Column::data("backward_flops", Unit::Count),
        Column::data("recomputed_flops", Unit::Count),
        Column::data("own_flops", Unit::Count),
        Column::new("share", "share", Unit::Share),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::new("host_ns", "on host", Unit::Duration),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::data("class", Unit::Text),
        Column::new("path", "module", Unit::Name),
    ];
    let mut table = Table::new("modules", "Operations by module", columns)
        .about(
            "with modules within, and backward operators by autograd's numbers; share: of the \
             rank's operations; on host: of operators that count",
        )
        .empty(NO_MODULES);
    for (at, part) in parts {
        let mut rows: Vec<_> = part.modules.iter().collect();
        rows.sort_rows_by_key(|(_, sums)| Reverse(sums.total.flops));
        for ((path, class), sums) in rows {
            let total = &sums.total;
            let time_ns = if total.device_ns > 0 { total.device_ns } else { total.host_ns };
            let rate = per_second(total.needed, time_ns);
            let share = (part.all.flops > 0).then(|| total.flops as f64 / part.all.flops as f64);
            table.row(vec![
                at.label.as_str().into(),
                tera(Some(total.flops as f64), ""),
                total.flops.into(),
                sums.backward.into(),
                total.recomputed.into(),
                sums.own.flops.into(),
                Cell::applies(share),
                Cell::known(
                    part.has_work.then_some(total.device_ns),
                    crate::gpu::breakdown::NO_WORK,
                ),
                total.host_ns.into(),
                Cell::known(rate, NO_TIME),
                tera(rate, NO_TIME),
                class.as_str().into(),
                path.as_str().into(),
            ]);
        }
    }
    table
}

fn kernels(parts: &[(RankContext, RankFlops)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::new("runs", "runs", Unit::Count),
        Column::data("needed_flops", Unit::Count),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("bytes_per_s", "bytes/s", Unit::BytesPerSecond),
        Column::new("of_roof", "of roof", Unit::Share),
        Column::new("kernel", "longest kernel of a run", Unit::Name),
    ];
    let mut table = Table::new("kernels", "Operations by kernel", columns)
        .about("runs of operators by their longest kernel; on GPU: all kernels of these runs")
        .empty(NO_KERNELS);
    for (at, part) in parts {
        let mut rows: Vec<_> = part.kernels.iter().collect();
        rows.sort_rows_by_key(|(_, sums)| Reverse(sums.device_ns));
        for (kernel, sums) in rows {
            let rate = per_second(sums.needed, sums.device_ns);
            let bytes = sums.bytes.and_then(|all| per_second(all, sums.device_ns));
            let least = sums.least_ns.filter(|_| sums.device_ns > 0);
            let why = if part.peaks.is_none() { NO_PEAKS } else { NO_BYTES };
            table.row(vec![
                at.label.as_str().into(),
                sums.device_ns.into(),
                sums.runs.into(),
                sums.needed.into(),
                Cell::known(rate, NO_TIME),
                tera(rate, NO_TIME),
                Cell::known(bytes, NO_BYTES),
                Cell::known(least.map(|least| least / sums.device_ns as f64), why),
                kernel.as_str().into(),
            ]);
        }
    }
    table
}

fn uncounted(parts: &[(RankContext, RankFlops)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::new("host_ns", "on host", Unit::Duration),
        Column::new("runs", "runs", Unit::Count),
        Column::new("why", "why", Unit::Text),
        Column::new("operator", "operator", Unit::Name),
    ];
    let mut table = Table::new("uncounted", "Operators without a count", columns)
        .about("the innermost of several; their operations and bytes are in no figure above. on host: with \
             operators within")
        .empty("all operators have a count");
    for (at, part) in parts {
        let mut rows: Vec<_> = part.uncounted.iter().collect();
        rows.sort_rows_by_key(|(_, sums)| Reverse((sums.device_ns, sums.host_ns)));
        for ((operator, why), sums) in rows {
            let why = match why {
                Some(why) => why.to_string(),
                None => "it launches work beside that of operators within it".to_owned(),
            };
            table.row(vec![
                at.label.as_str().into(),
                Cell::known(
                    part.has_work.then_some(sums.device_ns),
                    crate::gpu::breakdown::NO_WORK,
                ),
                sums.host_ns.into(),
                sums.runs.into(),
                why.into(),
                operator.as_str().into(),
            ]);
        }
    }
    if parts.iter().all(|(_, part)| part.operators == 0) {
        table.empty = NO_OPERATORS.to_owned();
    }
    table
}
