//! Sums what each step takes of each allocator and gives back, and finds the steps that differ from
//! the others.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::base::stats::median;
use tprof_rank::{RankTrace, steps_of_one_process};
use tprof_trace::model::DeviceAllocation;

use super::RankDeviceMemory;
use super::pools::{Pool, pool_of};
use super::tables::allocator;

/// A step differs from the others if what it takes, or what remains of it, is this far from the
/// median: by bytes, and by the share of what a step usually takes.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_SHARE: f64 = 0.05;

const NO_STEPS: &str = "no steps were recorded in which device memory was taken or given back";
const NONE_DIFFERS: &str = "no step differs from the median by 1 MiB and 5 %";

/// What a step took and gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepChange {
    pub number: u64,
    pub taken_bytes: u64,
    pub given_bytes: u64,
}

impl StepChange {
    fn net_bytes(&self) -> i64 {
        self.taken_bytes.cast_signed().saturating_sub(self.given_bytes.cast_signed())
    }
}

/// The memory that the steps of a rank took from one pool and gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepChanges {
    pub pool: Pool,
    pub steps: Vec<StepChange>,
    /// The middle step of each sum by itself. `number` has no meaning.
    pub median: StepChange,
    pub median_net_bytes: i64,
}

impl StepChanges {
    fn of(pool: Pool, steps: Vec<StepChange>) -> StepChanges {
        let of = |part: fn(&StepChange) -> u64| median(steps.iter().map(part).collect());
        let median = StepChange {
            number: 0,
            taken_bytes: of(|step| step.taken_bytes),
            given_bytes: of(|step| step.given_bytes),
        };
        let mut nets: Vec<i64> = steps.iter().map(StepChange::net_bytes).collect();
        nets.sort_unstable();
        let median_net_bytes = nets.get(nets.len() / 2).copied().unwrap_or(0);
        StepChanges { pool, steps, median, median_net_bytes }
    }

    /// Returns the steps that differ from the median, in order of time.
    pub fn uneven(&self) -> impl Iterator<Item = &StepChange> {
        let of_share = (self.median.taken_bytes as f64 * LEAST_SHARE) as u64;
        let least = LEAST_BYTES.max(of_share);
        self.steps.iter().filter(move |step| {
            step.taken_bytes.abs_diff(self.median.taken_bytes) >= least
                || step.net_bytes().abs_diff(self.median_net_bytes) >= least
        })
    }
}

/// Returns the sums of each device's pools in the steps of the process that has most. `sizes` has
/// the bytes of each row.
pub(super) fn of_rank(
    rank: &RankTrace<'_>,
    rows: &[DeviceAllocation],
    sizes: &[u64],
) -> Vec<StepChanges> {
    let steps = steps_of_one_process(rank);
    let Some(process) = steps.first().map(|step| step.process) else { return Vec::new() };
    let mut pools: BTreeMap<Pool, Vec<StepChange>> = BTreeMap::new();
    let rows = rows.iter().zip(sizes);
    for (row, bytes) in rows.filter(|(row, _)| row.device.is_some() && row.process == process) {
        let next = steps.partition_point(|step| step.interval.start <= row.time_ns);
        let Some(at) = next.checked_sub(1).filter(|at| row.time_ns < steps[*at].interval.end)
        else {
            continue;
        };
        let of_pool = pools.entry(pool_of(row)).or_insert_with(|| {
            steps
                .iter()
                .map(|step| StepChange { number: step.number, ..Default::default() })
                .collect()
        });
        let sum =
            if row.free { &mut of_pool[at].given_bytes } else { &mut of_pool[at].taken_bytes };
        *sum = sum.saturating_add(*bytes);
    }
    pools.into_iter().map(|(pool, steps)| StepChanges::of(pool, steps)).collect()
}

fn columns(own: Vec<Column>) -> Vec<Column> {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("allocator", "allocator", Unit::Text),
    ];
    columns.extend(own);
    columns
}

fn cells(at: &RankContext, of: &StepChanges) -> Vec<Cell> {
    vec![at.label.as_str().into(), Cell::applies(of.pool.device), allocator(of.pool).into()]
}

/// Makes the tables of steps: the median step of each pool, and the steps that differ from it.
pub(super) fn tables(parts: &[(RankContext, RankDeviceMemory)]) -> [Table; 2] {
    let mut medians = Table::new(
        "steps",
        "Memory that each step takes and gives back",
        columns(vec![
            Column::new("steps", "steps", Unit::Count),
            Column::new("taken_bytes", "takes", Unit::Bytes),
            Column::new("given_bytes", "gives back", Unit::Bytes),
            Column::new("net_bytes", "keeps", Unit::Bytes),
            Column::new("uneven_steps", "uneven", Unit::Count),
        ]),
    )
    .about("medians of a rank's steps; uneven: steps that differ by 1 MiB and 5 %")
    .empty(NO_STEPS);
    let mut uneven = Table::new(
        "uneven_steps",
        "Steps that take or keep more or less than the median step",
        columns(vec![
            Column::new("step", "step", Unit::Id),
            Column::new("taken_bytes", "took", Unit::Bytes),
            Column::new("given_bytes", "gave back", Unit::Bytes),
            Column::new("net_bytes", "kept", Unit::Bytes),
        ]),
    );
    let all = || parts.iter().flat_map(|(at, part)| part.steps.iter().map(move |of| (at, of)));
    uneven = uneven.empty(if all().next().is_some() { NONE_DIFFERS } else { NO_STEPS });
    for (at, of) in all() {
        let mut row = cells(at, of);
        row.extend([
            of.steps.len().into(),
            of.median.taken_bytes.into(),
            of.median.given_bytes.into(),
            of.median_net_bytes.into(),
            of.uneven().count().into(),
        ]);
        medians.row(row);
        for step in of.uneven() {
            let mut row = cells(at, of);
            row.extend([
                step.number.into(),
                step.taken_bytes.into(),
                step.given_bytes.into(),
                step.net_bytes().into(),
            ]);
            uneven.row(row);
        }
    }
    [medians, uneven]
}
