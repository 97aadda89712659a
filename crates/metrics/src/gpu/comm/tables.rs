//! Makes the tables of the report `comm`.

use std::cmp::Reverse;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};

use super::bandwidth::{bus_factor, per_second};
use super::{CollectiveTimes, OperationKey, Times};

const NO_SIZE: &str =
    "the message's size was not recorded (torch.profiler has it since PyTorch 2.3)";
const NO_MESSAGE: &str = "a barrier has no message";
const NO_GROUP: &str = "the trace lacks the number of ranks";
const NO_FACTOR: &str = "nccl-tests define no bus bandwidth for this operation";
const NO_TIME: &str = "it took less than the clock's resolution";
const NOTHING: &str = "no communication kernel and no collective on the host was recorded: one rank, \
                       no NCCL, RCCL, gloo or MPI, or no recorded kernels";
const NO_KERNELS: &str = "collectives were recorded without their kernels, which have the times";

/// Makes the tables over all ranks, and a table by rank that only the JSON report contains.
pub(super) fn body(parts: &[(RankContext, CollectiveTimes)]) -> Body {
    let mut all = CollectiveTimes::default();
    parts.iter().for_each(|(_, sums)| all.add(sums));
    let empty = if all.without_kernel > 0 { NO_KERNELS } else { NOTHING };
    let mut table = columns("comm", &[]).empty(empty);
    add(&mut table, &all, None);
    let mut by_rank = columns("comm_by_rank", &[Column::new("rank", "rank", Unit::Text)])
        .view(View::Data)
        .empty(empty);
    parts.iter().for_each(|(at, sums)| add(&mut by_rank, sums, Some(at)));
    let notes = (all.without_kernel > 0).then(|| {
        format!("{} collectives have no recorded kernel, and no time", all.without_kernel)
    });
    let further = [all.choices.table(), all.channels.table()];
    let tables = [table].into_iter().chain(further.into_iter().flatten()).chain([by_rank]);
    Body { tables: tables.collect(), notes: notes.into_iter().collect() }
}

fn columns(key: &'static str, first: &[Column]) -> Table {
    let mut columns = first.to_vec();
    columns.extend([
        Column::new("calls", "calls", Unit::Count),
        Column::new("bytes", "size", Unit::Bytes),
        Column::new("group_size", "ranks", Unit::Id),
        Column::data("total_ns", Unit::Duration),
        Column::new("mean_ns", "mean", Unit::Duration),
        Column::data("min_ns", Unit::Duration),
        Column::data("max_ns", Unit::Duration),
        Column::data("algorithm_bytes_per_s", Unit::BytesPerSecond),
        Column::new("bus_bytes_per_s", "bus", Unit::BytesPerSecond),
        Column::new("best_bus_bytes_per_s", "best bus", Unit::BytesPerSecond),
        Column::data("element_type", Unit::Text),
        Column::new("role", "role", Unit::Text),
        Column::new("operation", "operation", Unit::Name),
    ]);
    Table::new(key, "Collectives by message size", columns).about(
        "times are of kernels, or of gloo's and MPI's work on the host, waiting for the last rank included; bus: bus bandwidth at the mean \
             time, best bus: at the shortest time, with the least waiting",
    )
}

fn add(table: &mut Table, sums: &CollectiveTimes, at: Option<&RankContext>) {
    let mut rows: Vec<(&OperationKey, &Times)> = sums.times.iter().collect();
    rows.sort_rows_by_key(|(key, times)| (Reverse(times.sum_ns), *key));
    for (key, times) in rows {
        let mean_ns = times.sum_ns as f64 / times.calls.max(1) as f64;
        let no_size = if key.name == "barrier" { NO_MESSAGE } else { NO_SIZE };
        let algorithm = |time_ns| {
            let bytes = key.bytes.ok_or(no_size)?;
            per_second(bytes, time_ns).ok_or(NO_TIME)
        };
        let bus = |time_ns| {
            let ranks = key.group_size.ok_or(NO_GROUP)?;
            let factor = bus_factor(&key.name, ranks).ok_or(NO_FACTOR)?;
            algorithm(time_ns).map(|bytes_per_s| bytes_per_s * factor)
        };
        let cell = |speed: Result<f64, &str>| speed.map_or_else(Cell::missing, Cell::from);
        let mut cells: Vec<Cell> = at.iter().map(|at| at.label.as_str().into()).collect();
        cells.extend([
            times.calls.into(),
            Cell::known(key.bytes, no_size),
            Cell::known(key.group_size, NO_GROUP),
            times.sum_ns.into(),
            (mean_ns.round() as u64).into(),
            times.min_ns.into(),
            times.max_ns.into(),
            cell(algorithm(mean_ns)),
            cell(bus(mean_ns)),
            cell(bus(times.min_ns as f64)),
            key.element_type.as_str().into(),
            key.role.word().into(),
            format!("{} {}", key.name, key.element_type).trim().into(),
        ]);
        table.row(cells);
    }
}

#[cfg(test)]
mod tests {
    use tprof_document::Value;
    use tprof_rank::collectives::Operation;

    use super::*;

    fn operation(bytes: Option<u64>, duration_ns: u64) -> Operation {
        Operation {
            name: "all_reduce".to_owned(),
            element_type: "Float".to_owned(),
            bytes,
            group_size: Some(4),
            communicator: None,
            sequence: None,
            algorithm: "RING".to_owned(),
            protocol: "LL".to_owned(),
            channels: Some(4),
            duration_ns,
            ..Operation::default()
        }
    }

    fn cell<'t>(table: &'t Table, row: usize, key: &str) -> &'t Cell {
        let column = table.columns.iter().position(|column| column.key == key).unwrap();
        &table.rows[row][column]
    }

    #[test]
    fn bandwidths_follow_from_the_mean_and_the_shortest_time() {
        let at = RankContext {
            rank: Some(0),
            label: "rank 0".to_owned(),
            file: String::new(),
            clock: tprof_facts::Clock::default(),
            machine: Default::default(),
        };
        let operations = [
            operation(Some(1 << 20), 100_000),
            operation(Some(1 << 20), 300_000),
            operation(None, 10_000),
        ];
        let Body { tables, .. } = body(&[(at, CollectiveTimes::of(&operations, 0))]);
        let speed = |key| match cell(&tables[0], 0, key) {
            Cell::Is(Value::Float(speed)) => *speed,
            other => panic!("{other:?}"),
        };
        let algorithm = f64::from(1 << 20) / 200e-6;
        assert!((speed("algorithm_bytes_per_s") / algorithm - 1.0).abs() < 1e-12);
        assert!((speed("bus_bytes_per_s") / (algorithm * 1.5) - 1.0).abs() < 1e-12);
        assert!((speed("best_bus_bytes_per_s") / (algorithm * 3.0) - 1.0).abs() < 1e-12);
        assert_eq!(cell(&tables[0], 1, "bus_bytes_per_s"), &Cell::missing(NO_SIZE));
        assert_eq!(cell(&tables[0], 1, "mean_ns"), &Cell::from(10_000_u64));
    }
}
