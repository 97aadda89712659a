//! Computes the rates of operators for reports other than `flops`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, Options, RankContext, Unit};
use tprof_facts::flops::Work;
use tprof_facts::flops::peaks::Peaks;
use tprof_rank::RankTrace;
use tprof_trace::model::SpanKind;

use super::figures::{NO_BYTES, NO_PEAKS, per_second, sizes_text, tera};
use super::joined::AutogradLinks;
use super::per_rank::{device, key, least_times, peaks, rows};
use super::roof::RoofBound;
use super::sums::{FlopSums, Row, SizesKey};

const NO_COUNT: &str =
    "its operations are not known, or are those of operators within it: see `report flops`";

/// The rate of the runs of one operator, or of its runs with inputs of the same sizes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OperatorRate {
    /// Floating-point operations that the results need.
    needed: u64,
    /// Bytes read and written; `None` if they are unknown for any run.
    bytes: Option<u64>,
    /// Time on devices, ns; if there is no device work, on the host.
    time_ns: u64,
    least_ns: Option<f64>,
    /// Time by the limit that bounds the runs, ns. The key is `None` for runs without a known
    /// bound.
    bounds: BTreeMap<Option<&'static str>, u64>,
    has_peaks: bool,
}

impl OperatorRate {
    fn of(row: &Row, has_peaks: bool) -> OperatorRate {
        let (time_ns, runs) = row.timed();
        let bounds = BTreeMap::from([(row.bound().map(RoofBound::word), time_ns)]);
        OperatorRate {
            needed: row.work.needed.saturating_mul(runs),
            bytes: row.work.bytes().and_then(|bytes| bytes.checked_mul(runs)),
            time_ns,
            least_ns: row.least.both().filter(|_| !row.crosses),
            bounds,
            has_peaks,
        }
    }

    /// Adds the figures of other runs.
    pub fn add(&mut self, other: &OperatorRate) {
        self.needed = self.needed.saturating_add(other.needed);
        self.bytes = self.bytes.zip(other.bytes).and_then(|(a, b)| a.checked_add(b));
        self.time_ns += other.time_ns;
        self.least_ns = self.least_ns.zip(other.least_ns).map(|(a, b)| a + b);
        for (bound, time_ns) in &other.bounds {
            *self.bounds.entry(*bound).or_default() += time_ns;
        }
        self.has_peaks |= other.has_peaks;
    }

    /// Returns the columns of [`rate_cells`]. They are displayed if `any` is true.
    pub fn columns(any: bool) -> Vec<Column> {
        let seen = |key, title, unit| match any {
            true => Column::new(key, title, unit),
            false => Column::data(key, unit),
        };
        vec![
            Column::data("flops_per_s", Unit::Number),
            seen("rate", "TFLOP/s", Unit::Text),
            Column::data("bytes_per_s", Unit::BytesPerSecond),
            Column::data("bound", Unit::Text),
            seen("of_roof", "of roof", Unit::Share),
        ]
    }
}

/// Returns the cells for rate (twice, as number and text), bytes per second, bound, and share of
/// the roof.
pub(crate) fn rate_cells(rate: Option<&OperatorRate>) -> Vec<Cell> {
    let Some(rate) = rate else { return (0..5).map(|_| Cell::missing(NO_COUNT)).collect() };
    let time_ns = rate.time_ns;
    let flops = per_second(rate.needed, time_ns);
    let bytes = rate.bytes.and_then(|bytes| per_second(bytes, time_ns));
    let bound = rate.bounds.iter().max_by_key(|(_, time_ns)| **time_ns).and_then(|(word, _)| *word);
    let least = rate.least_ns.filter(|_| time_ns > 0);
    let why = match (rate.has_peaks, rate.bytes) {
        (true, None) => NO_BYTES,
        (true, Some(_)) => "its bytes cross the bus, or the peak of its type is not known",
        (false, _) => NO_PEAKS,
    };
    const NO_TIME: &str = "no time was recorded for it";
    vec![
        Cell::known(flops, NO_TIME),
        tera(flops, NO_TIME),
        Cell::known(bytes, NO_BYTES),
        Cell::known(bound, why),
        Cell::known(least.map(|least| least / time_ns as f64), why),
    ]
}

/// Returns the rates of a rank's operators, keyed by name, sizes and types (both as JSON). Only
/// runs that count and have a time are included.
pub(crate) fn operator_rates(
    rank: &RankTrace<'_>,
    at: &RankContext,
    given: Option<Peaks>,
) -> BTreeMap<(String, String, String), OperatorRate> {
    let mut rates: BTreeMap<(String, String, String), OperatorRate> = BTreeMap::new();
    let tree = rank.operator_tree();
    let counted = super::count::of(rank, tree);
    if !counted.has_sizes {
        return rates;
    }
    let peaks = peaks(device(rank, &counted).as_ref(), &counted, given);
    let least_times = least_times(rank, &counted, peaks.as_ref());
    // The links only tell which runs recompute. That makes no difference here, so they are left
    // empty.
    let links = AutogradLinks::default();
    for (key, row) in rows(rank, at, tree, &counted, &least_times, &links) {
        if row.launched == 0 && !rank.work.is_empty() {
            continue;
        }
        let rate = OperatorRate::of(&row, peaks.is_some());
        let SizesKey { operator, dims, types, .. } = key;
        rates.entry((operator, dims, types)).and_modify(|known| known.add(&rate)).or_insert(rate);
    }
    rates
}

/// How well the devices were used in a training step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepUse {
    /// Floating-point operations that the results need; 0 if no operator counts.
    pub needed: u64,
    /// Model FLOP utilization, and in `hfu` hardware FLOP utilization: see `docs/metrics.md`.
    pub mfu: Option<f64>,
    pub hfu: Option<f64>,
}

/// Returns the use of the devices in each of a rank's steps, in order; empty if no operator has
/// sizes.
pub(crate) fn use_of_steps(rank: &RankTrace<'_>, options: &Options) -> Vec<StepUse> {
    let tree = rank.operator_tree();
    let counted = super::count::of(rank, tree);
    if !counted.has_sizes {
        return Vec::new();
    }
    let peaks = peaks(device(rank, &counted).as_ref(), &counted, options.peaks);
    let least_times = least_times(rank, &counted, peaks.as_ref());
    let links = AutogradLinks::of(rank, tree);
    let of_run = |run: &super::count::CountedRun| {
        let shape = run.shape as usize;
        (&counted.shapes[shape].work, least_times[shape], links.recomputes(run.at))
    };
    let devices = counted.devices.len() as u64;
    let one = |step: super::sums::StepSums| {
        let FlopSums { needed, .. } = step.sums;
        let [mfu, hfu] = step.sums.utilizations(devices, step.wall_ns);
        let known = peaks.is_some() && step.sums.runs > 0;
        StepUse { needed, mfu: mfu.filter(|_| known), hfu: hfu.filter(|_| known) }
    };
    super::parts::steps(rank, tree, &counted, of_run).into_iter().map(one).collect()
}

/// One run of an operator with sizes, for comparing runs of the same sizes.
pub struct SizedRun {
    /// Index in the list of names that [`sized_runs`] returns.
    pub name: u32,
    pub process: u32,
    /// The beginning of the run on the host, ns.
    pub start_ns: u64,
    /// Time on devices, ns; if there is no device work, on the host.
    pub time_ns: u64,
    pub work: Work,
}

/// Returns the names of operators with their sizes, and the operators' runs that count and have a
/// time.
pub fn sized_runs(rank: &RankTrace<'_>) -> (Vec<String>, Vec<SizedRun>) {
    let tree = rank.operator_tree();
    let counted = super::count::of(rank, tree);
    let text = |shape: &super::count::SizedOperator| {
        let SizesKey { operator, dims, .. } = key(rank, shape);
        sizes_text(&operator, &dims, &shape.work)
    };
    let names = counted.shapes.iter().map(text).collect();
    let processes: FxHashMap<u32, u32> =
        rank.spans(SpanKind::Operator).iter().map(|span| (span.thread, span.process)).collect();
    let has_work = !rank.work.is_empty();
    let one = |run: &super::count::CountedRun| {
        let span = &tree.spans[run.at as usize];
        let time_ns = if has_work { run.device_ns } else { run.host_ns };
        Some(SizedRun {
            name: run.shape,
            process: *processes.get(&span.thread)?,
            start_ns: span.start_ns,
            time_ns,
            work: counted.shapes[run.shape as usize].work,
        })
    };
    let timed = counted.runs.iter().filter(|run| run.launched > 0 || !has_work);
    let runs = timed.filter_map(one).collect();
    (names, runs)
}

#[cfg(test)]
mod tests {
    use tprof_document::Value;

    use super::*;

    fn rate(bound: Option<&'static str>, time_ns: u64) -> OperatorRate {
        OperatorRate {
            needed: 1,
            bytes: None,
            time_ns,
            least_ns: None,
            bounds: BTreeMap::from([(bound, time_ns)]),
            has_peaks: true,
        }
    }

    #[test]
    fn the_bound_is_the_one_with_most_time_or_unknown() {
        let mut sum = rate(Some("memory"), 10);
        sum.add(&rate(None, 90));
        assert!(matches!(&rate_cells(Some(&sum))[3], Cell::Missing(_)), "{sum:?}");
        sum.add(&rate(Some("memory"), 81));
        assert!(
            matches!(&rate_cells(Some(&sum))[3], Cell::Is(Value::Text(word)) if word == "memory")
        );
    }
}
