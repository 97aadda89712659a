//! Sums up the times of collectives by NCCL's choices: algorithm, protocol and channels.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::collectives::Operation;

use super::bandwidth::{bus_factor, per_second};
use super::times::Times;

const NO_SIZE: &str = "unlike operations in one kernel";
const NO_BUS: &str = "the size, or the number of ranks, is not known; or nccl-tests define none";
const NO_CHANNELS: &str = "NCCL gave no number of channels";

/// The key of collectives with the same operation, size and choices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChoiceKey {
    operation: String,
    bytes: Option<u64>,
    group_size: Option<u32>,
    algorithm: String,
    protocol: String,
    channels: Option<u32>,
}

/// Times of collectives by NCCL's choices; empty if none were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices(BTreeMap<ChoiceKey, Times>);

impl Choices {
    /// Sums up these operations by NCCL's choices.
    pub fn of(operations: &[Operation]) -> Choices {
        let mut choices = Choices::default();
        for operation in operations.iter().filter(|operation| !operation.algorithm.is_empty()) {
            let key = ChoiceKey {
                operation: operation.name.clone(),
                bytes: operation.bytes,
                group_size: operation.group_size,
                algorithm: operation.algorithm.clone(),
                protocol: operation.protocol.clone(),
                channels: operation.channels,
            };
            choices.put(key, &Times::one(operation.duration_ns));
        }
        choices
    }

    fn put(&mut self, key: ChoiceKey, times: &Times) {
        self.0.entry(key).and_modify(|so_far| so_far.add(times)).or_insert(*times);
    }

    /// Adds another rank's choices.
    pub fn add(&mut self, other: &Choices) {
        other.0.iter().for_each(|(key, times)| self.put(key.clone(), times));
    }

    /// Makes the table of choices; `None` if none were recorded.
    pub fn table(&self) -> Option<Table> {
        let mut table = Table::new(
            "comm_choices",
            "Collectives by algorithm, protocol and channels",
            vec![
                Column::new("calls", "calls", Unit::Count),
                Column::new("bytes", "size", Unit::Bytes),
                Column::new("group_size", "ranks", Unit::Id),
                Column::new("mean_ns", "mean", Unit::Duration),
                Column::new("bus_bytes_per_s", "bus", Unit::BytesPerSecond),
                Column::new("algorithm", "algorithm", Unit::Text),
                Column::new("protocol", "protocol", Unit::Text),
                Column::new("channels", "channels", Unit::Count),
                Column::new("operation", "operation", Unit::Name),
            ],
        )
        .about("as NCCL reported them to its profiler plugin");
        let mut rows: Vec<(&ChoiceKey, &Times)> = self.0.iter().collect();
        rows.sort_rows_by_key(|(key, times)| (Reverse(times.sum_ns), *key));
        for (key, times) in rows {
            let mean_ns = times.sum_ns as f64 / times.calls.max(1) as f64;
            let bus = key.bytes.and_then(|bytes| {
                Some(per_second(bytes, mean_ns)? * bus_factor(&key.operation, key.group_size?)?)
            });
            table.row(vec![
                times.calls.into(),
                Cell::known(key.bytes, NO_SIZE),
                Cell::applies(key.group_size),
                (mean_ns.round() as u64).into(),
                Cell::known(bus, NO_BUS),
                key.algorithm.as_str().into(),
                key.protocol.as_str().into(),
                Cell::known(key.channels, NO_CHANNELS),
                key.operation.as_str().into(),
            ]);
        }
        (!table.rows.is_empty()).then_some(table)
    }
}
