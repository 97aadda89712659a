//! Sums the costs of operators by the sizes of their inputs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_document::{Cell, Column, Table, Unit, View};
use tprof_facts::flops::{self, Count};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{CallTree, RankTrace};
use tprof_trace::model::{NameId, SpanKind};

use crate::program::flops::{OperatorRate, rate_cells};

const NO_SHAPES: &str = "no operator with sizes of its inputs was recorded (tprof run --operators shapes; \
                         torch.profiler: record_shapes=True)";

/// The key of an operator's runs with inputs of the same sizes and types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShapeKey {
    operator: String,
    /// The sizes as JSON; `types` is JSON too.
    dims: String,
    types: String,
}

/// The cost of the runs with one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapeCost {
    runs: u64,
    own_ns: i64,
    total_ns: u64,
    device_ns: u64,
    /// Floating-point operations of one run, if the sizes determine them. If runs have different
    /// numbers, the highest.
    flops: Option<u64>,
    bytes: Option<u64>,
    /// The rate of the runs whose operations are known.
    rate: Option<OperatorRate>,
}

impl ShapeCost {
    fn add(&mut self, other: &ShapeCost) {
        self.runs += other.runs;
        self.own_ns += other.own_ns;
        self.total_ns += other.total_ns;
        self.device_ns += other.device_ns;
        self.flops = self.flops.max(other.flops);
        self.bytes = self.bytes.max(other.bytes);
        match (&mut self.rate, &other.rate) {
            (Some(known), Some(other)) => known.add(other),
            (None, other) => self.rate = other.clone(),
            (Some(_), None) => {}
        }
    }
}

/// Costs by operator and by the sizes and types of its inputs.
pub type CostByShape = BTreeMap<ShapeKey, ShapeCost>;

/// Returns the costs of those operators of a rank that have recorded sizes.
pub(super) fn of_rank(
    rank: &RankTrace<'_>,
    tree: &CallTree,
    mut rates: BTreeMap<(String, String, String), OperatorRate>,
) -> CostByShape {
    let mut by_id: FxHashMap<(NameId, NameId), ShapeCost> = FxHashMap::default();
    let is_operator = |at: u32| tree.spans[at as usize].kind == SpanKind::Operator;
    let key = |at: u32| (tree.spans[at as usize].name, tree.spans[at as usize].args);
    for at in (0..tree.spans.len() as u32).filter(|at| is_operator(*at)) {
        let time_ns = tree.spans[at as usize].duration_ns;
        let cost = by_id.entry(key(at)).or_default();
        cost.runs += 1;
        cost.total_ns += time_ns;
        cost.own_ns += time_ns as i64;
        if let Some(outer) = tree.outwards(at).skip(1).find(|at| is_operator(*at)) {
            by_id.entry(key(outer)).or_default().own_ns -= time_ns as i64;
        }
    }
    for (at, work) in rank.work.iter().enumerate() {
        let place = rank.launches.call_of(at).and_then(|call| tree.of_call(call));
        if let Some(at) = place.and_then(|place| tree.innermost(place, SpanKind::Operator)) {
            by_id.entry(key(at)).or_default().device_ns += work.duration_ns;
        }
    }
    let mut named = CostByShape::new();
    for ((name, args), mut cost) in by_id {
        let (operator, args) = (rank.name(name), rank.name(args));
        let Ok(all) = serde_json::from_str::<Value>(args) else { continue };
        let Some(dims) = all.get("Input Dims").map(Value::to_string) else { continue };
        let types = all.get("Input type").map(Value::to_string).unwrap_or_default();
        if let Count::Work(work) = flops::of(operator, args) {
            (cost.flops, cost.bytes) = (Some(work.flops), work.bytes());
        }
        // Several argument texts may have the same sizes and types, and one rate covers all of
        // them. The first text gets the rate, so that it is not added twice.
        cost.rate = rates.remove(&(operator.to_owned(), dims.clone(), types.clone()));
        named
            .entry(ShapeKey { operator: operator.to_owned(), dims, types })
            .or_default()
            .add(&cost);
    }
    named
}

/// Makes the table of all ranks, most own time first.
pub(super) fn table<'a>(parts: impl Iterator<Item = &'a CostByShape>, has_work: bool) -> Table {
    let mut columns = vec![
        Column::data("operator", Unit::Text),
        Column::data("input_shapes", Unit::Text),
        Column::data("input_types", Unit::Text),
        Column::data("runs", Unit::Count),
        Column::data("own_ns", Unit::Duration),
        Column::data("total_ns", Unit::Duration),
        Column::data("device_ns", Unit::Duration),
        Column::data("flops_per_run", Unit::Count),
        Column::data("bytes_per_run", Unit::Bytes),
    ];
    columns.extend(OperatorRate::columns(false));
    let mut all: BTreeMap<&ShapeKey, ShapeCost> = BTreeMap::new();
    for (key, cost) in parts.flatten() {
        all.entry(key).or_default().add(cost);
    }
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_rows_by_key(|(_, cost)| Reverse(cost.own_ns));
    let mut table = Table::new("shapes", "Operators by sizes of their inputs", columns)
        .view(View::Data)
        .empty(NO_SHAPES);
    const NO_COUNT: &str = "its sizes do not show it: see `report flops`";
    for (key, cost) in rows {
        let mut cells = vec![
            key.operator.as_str().into(),
            key.dims.as_str().into(),
            key.types.as_str().into(),
            cost.runs.into(),
            (cost.own_ns.max(0) as u64).into(),
            cost.total_ns.into(),
            Cell::known(has_work.then_some(cost.device_ns), crate::gpu::breakdown::NO_WORK),
            Cell::known(cost.flops, NO_COUNT),
            Cell::known(cost.bytes, NO_COUNT),
        ];
        cells.extend(rate_cells(cost.rate.as_ref()));
        table.row(cells);
    }
    table
}
