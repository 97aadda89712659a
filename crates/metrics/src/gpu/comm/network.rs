//! Sets what the network carried in the steps against the time of collectives.
//!
//! Which transport a library chose is not recorded. But an interface or port that carried the bytes
//! did so at a rate, and one that carried nothing was not used. The bytes are those of all programs,
//! and may have been carried between collectives, too, so the rate is an upper bound.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::collectives::Operation;

use crate::machine::{FOREIGN_RATE, FileTraffic, HostTraffic, MachineErrors, NO_RATE};

const NOTHING: &str = "the network carried nothing in this run";

/// What the network of a rank's host carried, and when the rank's collectives ran.
#[derive(Clone, Debug, Default)]
pub struct CommNetwork {
    host: String,
    traffic: FileTraffic,
    running: Cover,
}

impl CommNetwork {
    /// Reads a rank's file, and takes the time of these operations.
    pub fn of(rank: &RankTrace<'_>, operations: &[Operation]) -> CommNetwork {
        let time = |one: &Operation| {
            Interval::new(one.start_ns, one.start_ns.saturating_add(one.duration_ns))
        };
        CommNetwork {
            host: rank.file.header().host.clone(),
            traffic: FileTraffic::of(rank),
            running: Cover::of(operations.iter().map(time)),
        }
    }
}

/// Makes the table; `None` without collectives in steps, or if no bytes were read.
pub(super) fn network_table<'a>(
    parts: impl Iterator<Item = (&'a str, &'a CommNetwork)>,
) -> Option<Table> {
    let mut hosts: BTreeMap<&str, (HostTraffic, Cover)> = BTreeMap::new();
    for (label, part) in parts {
        let (traffic, running) = hosts.entry(&part.host).or_default();
        traffic.join(label, &part.traffic);
        *running = running.union(&part.running);
    }
    let mut table = Table::new("comm_network", "The network in steps with collectives", columns())
        .about(
            "a mean step; at most: the rate if all of its bytes, of all programs, had been carried \
             while collectives ran; which transport the library chose is not recorded",
        );
    let mut is_known = false;
    for (host, (traffic, running)) in &hosts {
        let Ok((time, steps)) = traffic.steps() else { continue };
        let running_ns = running.shared(&time) as f64 / steps as f64;
        if running_ns > 0.0 && traffic.was_read() {
            is_known = true;
            add(&mut table, host, traffic, running_ns);
        }
    }
    is_known.then(|| table.empty(NOTHING))
}

fn columns() -> Vec<Column> {
    vec![
        Column::data("host", Unit::Text),
        Column::new("step_received_bytes", "in", Unit::Bytes),
        Column::new("step_sent_bytes", "out", Unit::Bytes),
        Column::new("running_ns", "collectives", Unit::Duration),
        Column::new("most_bytes_per_s", "at most", Unit::BytesPerSecond),
        Column::new("line_bytes_per_s", "line rate", Unit::BytesPerSecond),
        Column::new("most_share", "share", Unit::Share),
        Column::data("kind", Unit::Text),
        Column::data("namespace", Unit::Id),
        Column::new("place", "interface or port", Unit::Name),
    ]
}

fn add(table: &mut Table, host: &str, traffic: &HostTraffic, running_ns: f64) {
    for one in traffic.carried(&MachineErrors::default()) {
        let bytes = [&one.received, &one.sent]
            .map(|direction| direction.as_ref().map_err(|why| *why).and_then(|of| of.of_step));
        let most = bytes[0].and_then(|received| Ok(received.max(bytes[1]?)));
        let most = most.map(|bytes| bytes / running_ns * 1e9);
        let no_rate = if one.namespace.is_some() { FOREIGN_RATE } else { NO_RATE };
        let line = one.line_rate.ok_or(no_rate);
        let share = line.and_then(|line| Ok(most? / line));
        let count = |bytes: Result<f64, &str>| {
            bytes.map_or_else(Cell::missing, |bytes| Cell::from(bytes.round() as u64))
        };
        let float = |value: Result<f64, &str>| value.map_or_else(Cell::missing, Cell::from);
        table.row(vec![
            host.into(),
            count(bytes[0]),
            count(bytes[1]),
            (running_ns.round() as u64).into(),
            float(most),
            float(line),
            float(share),
            one.kind().into(),
            Cell::applies(one.namespace),
            one.place.into(),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_document::Value;

    const SECOND: u64 = 1_000_000_000;

    fn part(running: &[(u64, u64)]) -> CommNetwork {
        let interval = |(start, end): &(u64, u64)| Interval::new(*start, *end);
        let mut traffic = FileTraffic::example(18_000.0);
        traffic.steps = (Cover::of([Interval::new(0, SECOND)]), 2);
        let running = Cover::of(running.iter().map(interval));
        CommNetwork { host: "node".to_owned(), traffic, running }
    }

    #[test]
    fn bytes_of_steps_are_set_against_the_time_of_collectives() {
        // 1000 bytes in two steps, in which collectives ran for 0.2 s; the rest lies outside.
        let parts = [part(&[(0, SECOND / 10), (5 * SECOND, 6 * SECOND)]), part(&[(0, SECOND / 5)])];
        let table = network_table(parts.iter().map(|part| ("rank", part))).unwrap();
        let cell = |key| &table.rows[0][table.place(key).unwrap()];
        assert_eq!(cell("step_received_bytes"), &500_u64.into());
        assert_eq!(cell("running_ns"), &(SECOND / 10).into());
        let float = |key| match cell(key) {
            Cell::Is(Value::Float(value)) => *value,
            other => panic!("{other:?}"),
        };
        assert!((float("most_bytes_per_s") - 5000.0).abs() < 1e-6);
        assert!((float("most_share") - 5.0 / 18.0).abs() < 1e-9);
    }

    #[test]
    fn without_collectives_in_steps_there_is_no_table() {
        let parts = [part(&[(5 * SECOND, 6 * SECOND)])];
        assert!(network_table(parts.iter().map(|part| ("rank", part))).is_none());
        assert!(network_table([("rank", &CommNetwork::default())].into_iter()).is_none());
    }
}
