//! How NCCL connected the ranks of each communicator, by its own log (`--nccl log`).

use std::collections::{BTreeMap, BTreeSet};

use tprof_document::{Cell, Column, Table, Unit};
use tprof_facts::units::counted;
use tprof_rank::RankTrace;
use tprof_trace::model::{Communicator, Connection};

const SEVERAL: &str = "several communicators of a process fit";
const NO_SIZE: &str = "NCCL's log names the communicator, but no call that made it was recorded";

/// The connections of a rank's communicators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections(BTreeMap<Link, Sum>);

/// Connections of one communicator by one transport.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    /// Number of the communicator; `None` if several fit.
    communicator: Option<u64>,
    name: String,
    size: Option<u32>,
    /// The transport without the numbers of devices.
    transport: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    /// Ranks, in a sum over ranks.
    ranks: u64,
    connections: u64,
    channels: u64,
}

impl Connections {
    /// Sums up the connections on which a rank's processes send.
    pub fn of(rank: &RankTrace<'_>) -> Connections {
        let mut sums: BTreeMap<Link, Sum> = BTreeMap::new();
        for row in rank.file.blocks::<Connection>().flatten().filter(|row| row.sends) {
            let known = row.communicator.and_then(|of| rank.file.communicator(row.process, of));
            let link = Link {
                communicator: row.communicator,
                name: known.map_or_else(String::new, |of| name(rank, of)),
                size: known.and_then(|of| of.size),
                transport: kind(rank.name(row.transport)),
            };
            let sum = sums.entry(link).or_default();
            sum.connections += 1;
            sum.channels += u64::from(row.channels);
        }
        Connections(sums)
    }

    /// Says over what NCCL connected these communicators; `None` if its log wasn't recorded.
    pub fn text(&self, communicators: &BTreeSet<u64>) -> Option<String> {
        let mut by_kind: BTreeMap<&str, u64> = BTreeMap::new();
        for (link, sum) in &self.0 {
            if link.communicator.is_none_or(|of| communicators.contains(&of)) {
                *by_kind.entry(&link.transport).or_default() += sum.channels;
            }
        }
        let mut kinds: Vec<(&str, u64)> = by_kind.into_iter().collect();
        kinds.sort_by_key(|(_, channels)| std::cmp::Reverse(*channels));
        let text = |(kind, channels): &(&str, u64)| {
            format!("{kind} ({})", counted(*channels, "channel", "channels"))
        };
        let texts: Vec<String> = kinds.iter().map(text).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

/// The name of a communicator: what it is for, or else NCCL's name, or its number.
fn name(rank: &RankTrace<'_>, of: &Communicator) -> String {
    let names = [of.description, of.name].map(|name| rank.name(name));
    match names.into_iter().find(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => format!("{:#x}", of.communicator),
    }
}

/// The transport without the numbers of devices and ranks: `NET/IB/GDRDMA` of `NET/IB/0/GDRDMA`.
fn kind(transport: &str) -> String {
    let is_word = |part: &&str| !part.starts_with(|of: char| of.is_ascii_digit());
    transport.split('/').filter(is_word).collect::<Vec<_>>().join("/")
}

/// Makes the table; `None` if no rank has NCCL's log.
pub(super) fn connections_table<'a>(parts: impl Iterator<Item = &'a Connections>) -> Option<Table> {
    let columns = vec![
        Column::new("communicator", "communicator", Unit::Name),
        Column::new("size", "size", Unit::Count),
        Column::new("transport", "transport", Unit::Text),
        Column::data("ranks", Unit::Count),
        Column::new("connections", "connections", Unit::Count),
        Column::new("channels", "channels", Unit::Count),
    ];
    let mut table =
        Table::new("comm_connections", "How NCCL connected ranks, by its own log", columns).about(
            "P2P is from device to device, by NVLink or PCIe; SHM through memory of the host; NET \
             over the network, with GDRDMA straight from the device. A row counts the ranks that \
             send so",
        );
    let mut sums: BTreeMap<Link, Sum> = BTreeMap::new();
    for (link, sum) in parts.flat_map(|of| &of.0) {
        // Groups of one name are one row, as those of data parallelism.
        let named = Link { communicator: link.communicator.map(|_| 0), ..link.clone() };
        let all = sums.entry(named).or_default();
        all.ranks += 1;
        all.connections += sum.connections;
        all.channels += sum.channels;
    }
    for (Link { communicator, name, size, transport }, sum) in sums {
        let why = if communicator.is_some() { NO_SIZE } else { SEVERAL };
        table.row(vec![
            communicator.map_or_else(|| Cell::missing(SEVERAL), |_| name.into()),
            size.map_or_else(|| Cell::missing(why), |size| u64::from(size).into()),
            transport.into(),
            sum.ranks.into(),
            sum.connections.into(),
            sum.channels.into(),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(communicator: Option<u64>, transport: &str) -> Link {
        let name = communicator.map_or_else(String::new, |_| "dp".to_owned());
        Link { communicator, name, size: communicator.map(|_| 8), transport: transport.to_owned() }
    }

    #[test]
    fn numbers_of_devices_are_no_part_of_a_transport() {
        assert_eq!(kind("NET/IB/8(3)/GDRDMA(PCI)/Shared"), "NET/IB/GDRDMA(PCI)/Shared");
        assert_eq!(kind("P2P/direct pointer/read"), "P2P/direct pointer/read");
        assert_eq!(kind("COLLNET/SHARP/0"), "COLLNET/SHARP");
    }

    #[test]
    fn ranks_of_a_communicator_are_summed_up_and_doubtful_connections_kept_apart() {
        let sum = Sum { connections: 2, channels: 16, ..Sum::default() };
        let one = Connections(BTreeMap::from([
            (link(Some(5), "P2P/CUMEM"), sum),
            (link(Some(7), "SHM"), sum),
            (link(None, "NET/Socket"), Sum { connections: 1, channels: 2, ..Sum::default() }),
        ]));
        let table = connections_table([&one, &one].into_iter()).unwrap();
        let rows: Vec<_> = table.rows.iter().map(|row| (&row[0], &row[2], &row[3])).collect();
        assert_eq!(rows[0], (&Cell::missing(SEVERAL), &"NET/Socket".into(), &2_u64.into()));
        assert_eq!(rows[1], (&"dp".into(), &"P2P/CUMEM".into(), &2_u64.into()));
        assert_eq!(table.rows[1][5], 32_u64.into());
        let text = one.text(&BTreeSet::from([5])).unwrap();
        assert_eq!(text, "P2P/CUMEM (16 channels), NET/Socket (2 channels)");
        assert!(connections_table([].into_iter()).is_none());
    }
}
