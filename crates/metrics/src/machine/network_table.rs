//! Makes the table of what went over the network.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};

use super::errors::MachineErrors;
use super::traffic::{Carried, Direction, HostTraffic};

pub(super) const NOT_READ: &str = "the bytes of the network were not read: imported traces and older \
                                   recordings don't have them";
const NOTHING: &str = "the network carried nothing in this run";
pub(crate) const NO_RATE: &str = "the kernel reports no line rate";
pub(crate) const FOREIGN_RATE: &str = "line rates of another network namespace are not read";
const TOO_SHORT: &str = "the readings are too close together for a rate";
const PORT_COUNTERS: &str = "which error counters the port has was not recorded";

/// Makes the table without its rows.
pub(super) fn network_table(hosts: &BTreeMap<&str, HostTraffic>) -> Table {
    let was_read = hosts.values().any(HostTraffic::was_read);
    let missing: Vec<String> = hosts.values().flat_map(HostTraffic::missing).collect();
    let why = match (was_read, missing.is_empty()) {
        (true, _) => NOTHING.to_owned(),
        (false, true) => NOT_READ.to_owned(),
        (false, false) => missing.join("; "),
    };
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("received_bytes", "in", Unit::Bytes),
        Column::new("sent_bytes", "out", Unit::Bytes),
        Column::new("step_received_bytes", "in/step", Unit::Bytes),
        Column::new("step_sent_bytes", "out/step", Unit::Bytes),
        Column::new("peak_received_bytes_per_s", "peak in", Unit::BytesPerSecond),
        Column::new("peak_sent_bytes_per_s", "peak out", Unit::BytesPerSecond),
        Column::new("line_bytes_per_s", "line rate", Unit::BytesPerSecond),
        Column::new("peak_share", "peak use", Unit::Share),
        Column::new("errors", "errors", Unit::Count),
        Column::new("drops", "drops", Unit::Count),
        Column::data("kind", Unit::Text),
        Column::data("namespace", Unit::Id),
        Column::new("ranks", "ranks", Unit::Text),
        Column::new("place", "interface or port", Unit::Name),
    ];
    Table::new("network", "What went over the network", columns)
        .about(
            "bytes of all programs, not of the job only, with headers; peak: the highest rate between \
             two readings; peak use: its share of the line rate; ranks: those that have a network of \
             their own, as in a container, with this interface",
        )
        .empty(why)
}

/// Adds the rows of a host.
pub(super) fn network_rows(
    host: &str,
    traffic: &HostTraffic,
    errors: &MachineErrors,
    table: &mut Table,
) {
    for one in traffic.carried(errors) {
        table.row(cells(host, &one));
    }
}

fn cells(host: &str, one: &Carried<'_>) -> Vec<Cell> {
    let of = |direction: &Result<Direction, &'static str>,
              value: &dyn Fn(&Direction) -> Result<f64, &'static str>| {
        direction.as_ref().map_err(|why| *why).and_then(value)
    };
    let bytes = |direction, value: &dyn Fn(&Direction) -> Result<f64, &'static str>| {
        of(direction, value).map_or_else(Cell::missing, |bytes| Cell::from(bytes.round() as u64))
    };
    let peak = |direction: &Direction| direction.peak.ok_or(TOO_SHORT);
    let peaks = [&one.received, &one.sent].map(|direction| of(direction, &peak));
    let no_rate = if one.namespace.is_some() { FOREIGN_RATE } else { NO_RATE };
    let line = one.line_rate.ok_or(no_rate);
    let highest = peaks[0].and_then(|received| Ok(received.max(peaks[1]?)));
    let share = line.and_then(|line| Ok(highest? / line));
    let rate = |rate: Result<f64, &'static str>| rate.map_or_else(Cell::missing, Cell::from);
    vec![
        host.into(),
        bytes(&one.received, &|direction| Ok(direction.bytes)),
        bytes(&one.sent, &|direction| Ok(direction.bytes)),
        bytes(&one.received, &|direction| direction.of_step),
        bytes(&one.sent, &|direction| direction.of_step),
        rate(peaks[0]),
        rate(peaks[1]),
        rate(line),
        rate(share),
        Cell::known(one.errors, PORT_COUNTERS),
        Cell::known(one.drops, PORT_COUNTERS),
        one.kind().into(),
        Cell::applies(one.namespace),
        Cell::applies((!one.ranks.is_empty()).then(|| one.ranks.join(", "))),
        one.place.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_document::Value;
    use tprof_rank::base::intervals::{Cover, Interval};

    use crate::machine::traffic::{FileTraffic, NO_STEPS, READ_LATE, UNEQUAL};

    const SECOND: u64 = 1_000_000_000;

    /// The example's readings, from this time on, with these steps.
    fn part(first_ns: u64, steps: &[(u64, u64)]) -> FileTraffic {
        let mut part = FileTraffic::example(18_000.0);
        for totals in part.totals.values_mut() {
            *totals = totals.iter().map(|(ns, total)| (first_ns + ns, *total)).collect();
        }
        let time = steps.iter().map(|(start, end)| Interval::new(*start, *end));
        part.steps = (Cover::of(time), steps.len());
        part
    }

    fn rows(parts: &[FileTraffic]) -> Table {
        let mut host = HostTraffic::default();
        parts.iter().for_each(|part| host.join("rank 0", part));
        let mut table = network_table(&[("node", host.clone())].into());
        network_rows("node", &host, &MachineErrors::default(), &mut table);
        table
    }

    fn cell<'t>(table: &'t Table, row: usize, key: &str) -> &'t Cell {
        &table.rows[row][table.place(key).unwrap()]
    }

    #[test]
    fn bytes_between_readings_are_spread_evenly_over_steps() {
        let tenth = SECOND / 10;
        let table = rows(&[part(0, &[(tenth / 2, tenth), (tenth, 2 * tenth)])]);
        assert_eq!(cell(&table, 0, "received_bytes"), &1000_u64.into());
        assert_eq!(cell(&table, 0, "step_received_bytes"), &475_u64.into());
        assert_eq!(cell(&table, 0, "step_sent_bytes"), &0_u64.into());
        assert_eq!(cell(&table, 0, "errors"), &0_u64.into());
        let float = |key| match cell(&table, 0, key) {
            Cell::Is(Value::Float(value)) => *value,
            other => panic!("{other:?}"),
        };
        assert!((float("peak_received_bytes_per_s") - 9000.0).abs() < 1e-6);
        assert!((float("peak_share") - 0.5).abs() < 1e-9);
        assert_eq!(cell(&table, 0, "peak_sent_bytes_per_s"), &Cell::from(0.0));
    }

    #[test]
    fn bytes_of_steps_that_are_not_known_are_missing() {
        let missing = |parts: &[FileTraffic]| cell(&rows(parts), 0, "step_received_bytes").clone();
        assert_eq!(missing(&[part(0, &[])]), Cell::missing(NO_STEPS));
        assert_eq!(missing(&[part(10, &[(5, 20)])]), Cell::missing(READ_LATE));
        let both = [part(0, &[(0, 5)]), part(0, &[(0, 2), (2, 5)])];
        assert_eq!(missing(&both), Cell::missing(UNEQUAL));
    }

    #[test]
    fn interfaces_of_another_namespace_and_ports_are_named() {
        let mut one = FileTraffic { namespaces: [77].into(), ..part(0, &[]) };
        for name in ["network_received_bytes/77/eth0", "infiniband_sent_bytes/mlx5_0:1"] {
            one.totals.insert(name.to_owned(), [(0, 0.0), (SECOND, 5.0)].into());
        }
        one.totals.insert("network_received_bytes/veth1".to_owned(), [(0, 0.0)].into());
        let table = rows(&[one]);
        let of = |row| (cell(&table, row, "place").clone(), cell(&table, row, "namespace").clone());
        assert_eq!(of(0), ("eth0".into(), 77_u64.into()));
        assert_eq!(cell(&table, 0, "ranks"), &"rank 0".into());
        assert_eq!(cell(&table, 0, "line_bytes_per_s"), &Cell::missing(FOREIGN_RATE));
        assert_eq!(of(1), ("eth0".into(), Cell::Empty));
        assert_eq!(of(2), ("mlx5_0:1".into(), Cell::Empty));
        assert_eq!(cell(&table, 2, "errors"), &Cell::missing(PORT_COUNTERS));
        // An idle interface without a line rate is left out.
        assert_eq!(table.rows.len(), 3);
    }
}
