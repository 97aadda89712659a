//! Makes the tables of the report `machine`.

use std::collections::BTreeMap;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::counters::{place, quantity, title};
use tprof_facts::machine_errors::Weight;
use tprof_trace::model::counter;

use super::errors::MachineErrors;
use super::network_table::{network_rows, network_table};
use super::traffic::{FileTraffic, HostTraffic};

const NOT_WATCHED: &str =
    "nobody watched the machine for errors: imported traces and older recordings don't have them";

const NOTHING: &str = "nothing was reported or counted in this run";

/// A host's errors, with the context of one of its files. All of them have the same clock.
type Hosts<'a> = BTreeMap<&'a str, (&'a RankContext, MachineErrors)>;

pub(super) fn body(parts: &[(RankContext, (MachineErrors, FileTraffic))]) -> Body {
    let mut hosts = Hosts::new();
    let mut traffic: BTreeMap<&str, HostTraffic> = BTreeMap::new();
    for (at, (part, of_file)) in parts {
        traffic.entry(&part.host).or_default().join(&at.label, of_file);
        match hosts.get_mut(part.host.as_str()) {
            Some((_, host)) => host.join(part),
            None => _ = hosts.insert(&part.host, (at, part.clone())),
        }
    }
    let why = empty(&hosts);
    let mut tables =
        [errors_table(&why), counters_table(&why), network_table(&traffic), watched_table()];
    for (name, (at, host)) in &hosts {
        for one in &host.errors {
            tables[0].row(vec![
                at.clock.since_start(one.time_ns).into(),
                (*name).into(),
                Cell::applies(host.gpu_of(&one.error)),
                if one.error.is_of_kernel { "kernel" } else { "driver" }.into(),
                weight(one.error.weight()).into(),
                one.error.kind.to_string().into(),
                one.error.to_string().into(),
            ]);
        }
        counters(at, host, &mut tables[1]);
        network_rows(name, &traffic[name], host, &mut tables[2]);
        watched(host, &mut tables[3]);
    }
    let watch = hosts.iter().map(|(name, (_, host))| format!("on host {name}, {}", host.watch()));
    let mut notes: Vec<String> = if why == NOT_WATCHED { Vec::new() } else { watch.collect() };
    for (name, host) in &traffic {
        notes.extend(host.missing().into_iter().map(|why| format!("network of {name}: {why}")));
    }
    Body { tables: tables.into(), notes }
}

fn weight(weight: Weight) -> &'static str {
    match weight {
        Weight::Minor => "minor",
        Weight::Serious => "serious",
        Weight::Fatal => "fatal",
    }
}

/// Returns why there are no rows, if there are none.
fn empty(hosts: &Hosts<'_>) -> String {
    let is_watched = hosts.values().any(|(_, host)| host.were_watched());
    if is_watched { NOTHING.to_owned() } else { NOT_WATCHED.to_owned() }
}

fn counters(at: &RankContext, host: &MachineErrors, table: &mut Table) {
    for ((device, name), totals) in &host.counters {
        let rises = MachineErrors::rises(totals);
        let (Some(first), Some(last)) = (rises.first(), rises.last()) else { continue };
        if name == counter::TCP_SENT {
            continue;
        }
        let sent = (name == counter::TCP_RETRANSMITTED).then(|| host.total(counter::TCP_SENT));
        let total = totals.values().last().copied().unwrap_or(0.0);
        table.row(vec![
            host.host.as_str().into(),
            Cell::applies(*device),
            Cell::applies(place(name)),
            (total as u64).into(),
            Cell::applies(sent.flatten().map(|sent| sent as u64)),
            at.clock.since_start(first.to_ns).into(),
            at.clock.since_start(last.to_ns).into(),
            quantity(name).into(),
            title(quantity(name)).into(),
        ]);
    }
}

fn watched(host: &MachineErrors, table: &mut Table) {
    let mut row = |gpu: Option<u64>, source: &str, why: Option<&str>| {
        table.row(vec![
            host.host.as_str().into(),
            Cell::applies(gpu),
            why.is_none().into(),
            Cell::applies(why),
            source.into(),
        ]);
    };
    if let Some(facts) = &host.machine {
        for source in ["kernel_log", "network"] {
            row(None, source, facts[source].as_str());
        }
    }
    for facts in host.device_facts() {
        let (gpu, errors) = (facts["index"].as_u64(), &facts["errors"]);
        if !errors.is_object() {
            continue;
        }
        row(gpu, "xid", errors["no_events"].as_str());
        for name in errors["watched"].as_array().into_iter().flatten() {
            row(gpu, name.as_str().unwrap_or_default(), None);
        }
        for (name, why) in errors["missing"].as_object().into_iter().flatten() {
            row(gpu, name, why.as_str());
        }
    }
}

fn errors_table(why: &str) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Time),
        Column::data("host", Unit::Text),
        Column::data("gpu", Unit::Id),
        Column::data("source", Unit::Text),
        Column::new("weight", "weight", Unit::Text),
        Column::data("kind", Unit::Text),
        Column::new("error", "error", Unit::Name),
    ];
    Table::new("errors", "Errors of the machine", columns)
        .about(
            "fatal: ends the work on a device, or a part of the machine is lost; minor: corrected, \
             or noted for later",
        )
        .empty(why)
}

fn counters_table(why: &str) -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("place", "interface or port", Unit::Text),
        Column::new("count", "count", Unit::Count),
        Column::data("sent", Unit::Count),
        Column::new("first_ns", "first", Unit::Time),
        Column::new("last_ns", "last", Unit::Time),
        Column::data("counter", Unit::Text),
        Column::new("name", "errors", Unit::Name),
    ];
    Table::new("counters", "Counted errors since the run began", columns)
        .about(
            "of the whole machine, not of the job only; those of TCP are of the host's network, or of \
             the container's that tprof ran in",
        )
        .empty(why)
}

fn watched_table() -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::data("gpu", Unit::Id),
        Column::data("watched", Unit::Flag),
        Column::data("why_not", Unit::Text),
        Column::data("source", Unit::Name),
    ];
    Table::new("watched", "What was watched", columns).view(View::Data).empty(NOT_WATCHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_facts::machine_errors::MachineError;

    use crate::machine::errors::TimedError;
    use crate::machine::network_table::NOT_READ;

    fn context() -> RankContext {
        RankContext {
            rank: Some(0),
            label: "rank 0".to_owned(),
            file: String::new(),
            clock: Default::default(),
            machine: Default::default(),
        }
    }

    fn of(errors: MachineErrors) -> (RankContext, (MachineErrors, FileTraffic)) {
        (context(), (errors, FileTraffic::default()))
    }

    fn host(errors: &[(u64, MachineError)]) -> MachineErrors {
        let timed = |(time_ns, error): &(u64, MachineError)| TimedError {
            time_ns: *time_ns,
            error: error.clone(),
        };
        MachineErrors {
            host: "node".to_owned(),
            machine: Some(serde_json::json!({ "kernel_log": "denied", "network": null })),
            devices: Some(serde_json::json!({ "devices": [{
                "index": 3, "pci": "00000000:3B:00.0", "uuid": "GPU-3",
                "errors": { "watched": ["gpu_pcie_replays"], "no_events": null,
                            "missing": { "gpu_retired_pages": "Not Supported" } },
            }] })),
            errors: errors.iter().map(timed).collect(),
            ..MachineErrors::default()
        }
    }

    #[test]
    fn errors_of_a_host_are_listed_once_although_each_file_has_them() {
        let line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
        let xid = MachineError::of_kernel_line(line).unwrap();
        let mut first = host(&[(5, xid.clone())]);
        let name = "gpu_nvlink_replays/2".to_owned();
        first.counters.insert((Some(3), name), [(10, 0.0), (20, 4.0), (30, 6.0)].into());
        let second = host(&[(5, xid), (9, MachineError::uncorrected_ecc(3))]);
        let body = body(&[of(first), of(second)]);
        let [errors, counters, _, watched] = &body.tables[..] else { panic!("{body:?}") };
        let texts = |table: &Table, key: &str| -> Vec<Cell> {
            let at = table.place(key).unwrap();
            table.rows.iter().map(|row| row[at].clone()).collect()
        };
        assert_eq!(texts(errors, "kind"), ["XID 79".into(), "uncorrected ECC error".into()]);
        assert_eq!(texts(errors, "gpu"), [3_u32.into(), 3_u32.into()]);
        assert_eq!(texts(counters, "count"), [6_u64.into()]);
        assert_eq!(texts(counters, "place"), ["2".into()]);
        assert_eq!(texts(counters, "first_ns"), [20_u64.into()]);
        assert_eq!(watched.rows.len(), 5);
        assert_eq!(
            body.notes,
            [
                "on host node, tprof watched the network and 1 GPU; the kernel's log was not readable: denied"
            ]
        );
    }

    #[test]
    fn without_a_watch_nothing_is_said_to_be_without_errors() {
        let body = body(&[of(MachineErrors::default())]);
        let why = |table: &Table| if table.key == "network" { NOT_READ } else { NOT_WATCHED };
        assert!(body.tables.iter().all(|table| table.empty == why(table)));
        assert!(body.notes.is_empty());
    }
}
