//! Sums up the work of collectives by NCCL channel: kernels, and sends and receives of NCCL's proxy
//! thread.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::TraceFile;
use tprof_trace::model::{ChannelWork, ChannelWorkKind};

const OF_ANOTHER: &str = "(of another process)";

/// The sums for one operation, kind of work and channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WorkSums {
    count: u64,
    total_ns: u64,
    bytes: Option<u64>,
    device_wait_ns: Option<u64>,
    peer_wait_ns: Option<u64>,
    network_ns: Option<u64>,
}

fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).reduce(u64::saturating_add)
}

impl WorkSums {
    fn add(&mut self, other: &WorkSums) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.bytes = plus(self.bytes, other.bytes);
        self.device_wait_ns = plus(self.device_wait_ns, other.device_wait_ns);
        self.peer_wait_ns = plus(self.peer_wait_ns, other.peer_wait_ns);
        self.network_ns = plus(self.network_ns, other.network_ns);
    }
}

/// Sums of the work by operation, kind and channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSums(BTreeMap<(String, ChannelWorkKind, u32), WorkSums>);

impl ChannelSums {
    /// Sums up the work in a rank's file that began in the judged time, which is the time of the
    /// rank's steps or, without steps, all of it.
    pub fn of(file: &TraceFile, judged: &Cover) -> ChannelSums {
        let mut sums = ChannelSums::default();
        let is_judged =
            |row: &ChannelWork| judged.touches(Interval::new(row.start_ns, row.start_ns));
        for row in file.blocks::<ChannelWork>().flatten().filter(is_judged) {
            let name = file.name(row.name);
            let name = if name.is_empty() { OF_ANOTHER } else { name };
            let one = WorkSums {
                count: 1,
                total_ns: row.duration_ns,
                bytes: row.bytes,
                device_wait_ns: row.device_wait_ns,
                peer_wait_ns: row.peer_wait_ns,
                network_ns: row.network_ns,
            };
            sums.0.entry((name.to_owned(), row.kind, row.channel)).or_default().add(&one);
        }
        sums
    }

    /// Adds another rank's sums.
    pub fn add(&mut self, other: &ChannelSums) {
        for (key, sums) in &other.0 {
            self.0.entry(key.clone()).or_default().add(sums);
        }
    }

    /// Makes the table of channels; `None` if there is no such work.
    pub fn table(&self) -> Option<Table> {
        let mut table = Table::new(
            "comm_channels",
            "Collectives by channel: kernels and network",
            vec![
                Column::new("works", "count", Unit::Count),
                Column::new("channel", "channel", Unit::Id),
                Column::new("work", "work", Unit::Text),
                Column::new("total_ns", "total", Unit::Duration),
                Column::new("device_wait_ns", "for device", Unit::Duration),
                Column::new("peer_wait_ns", "for peer", Unit::Duration),
                Column::new("network_ns", "network", Unit::Duration),
                Column::new("bytes", "bytes", Unit::Bytes),
                Column::new("operation", "operation", Unit::Name),
            ],
        )
        .about(
            "kernel: time on the device; send, receive: time of NCCL's proxy, and what its steps \
             waited for, which overlap",
        );
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_rows_by_key(|(key, sums)| (Reverse(sums.total_ns), *key));
        for ((operation, kind, channel), sums) in rows {
            table.row(vec![
                sums.count.into(),
                (*channel).into(),
                word(*kind).into(),
                sums.total_ns.into(),
                Cell::applies(sums.device_wait_ns),
                Cell::applies(sums.peer_wait_ns),
                Cell::applies(sums.network_ns),
                Cell::applies(sums.bytes),
                operation.as_str().into(),
            ]);
        }
        (!table.rows.is_empty()).then_some(table)
    }
}

fn word(kind: ChannelWorkKind) -> &'static str {
    match kind {
        ChannelWorkKind::Kernel => "kernel",
        ChannelWorkKind::Send => "send",
        ChannelWorkKind::Receive => "receive",
    }
}
