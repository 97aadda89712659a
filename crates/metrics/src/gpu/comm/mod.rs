//! `comm`: the time of collectives by size, and the resulting bandwidth.
//!
//! Bandwidths are defined as in NVIDIA's nccl-tests. The algorithm bandwidth is bytes over time.
//! The bus bandwidth counts only the part of the message that each link has to carry, so it can be
//! compared with a link's speed. If NCCL's profiler plugin was loaded, there are also times by
//! algorithm, protocol and channel.

mod bandwidth;
mod channels;
mod choices;
mod connections;
mod links;
mod network;
mod tables;
mod times;
mod transports;

use std::collections::BTreeMap;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::collectives::{Operation, operations};
use tprof_rank::roles::Role;
use tprof_rank::{Needs, RankTrace, WINDOW_NEEDS};

use channels::ChannelSums;
use choices::Choices;
pub use connections::Connections;
use connections::connections_table;
pub use links::Links;
use network::{CommNetwork, network_table};
pub use times::Times;
pub use transports::Transports;
use transports::transports_table;

use crate::gpu::outside::{LeftOutRows, add_left_out};

/// The report `comm`.
pub const KIND: DocumentKind = DocumentKind {
    name: "comm",
    about: "collectives by message size and algorithm: time and bandwidth",
    analysis: || boxed(Comm),
};

/// Reports the times of collectives, by operation and size.
pub struct Comm;

/// The key by which operations are grouped into rows of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationKey {
    /// Name of the operation.
    pub name: String,
    /// Type of an element; empty if unknown.
    pub element_type: String,
    /// Size of the message in bytes; `None` if unknown.
    pub bytes: Option<u64>,
    /// Number of ranks that take part.
    pub group_size: Option<u32>,
    /// What the ranks that take part divide among themselves.
    pub role: Role,
}

/// Times of operations by key, and the number of operations without a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectiveTimes {
    /// Times of operations, by key.
    pub times: BTreeMap<OperationKey, Times>,
    /// Number of operations without a recorded kernel.
    pub without_kernel: u64,
    choices: Choices,
    channels: ChannelSums,
    left_out: LeftOutRows,
}

impl CollectiveTimes {
    /// Sums up these operations. `without_kernel` is the number of operations without a recorded
    /// kernel.
    pub fn of(operations: &[Operation], without_kernel: u64) -> CollectiveTimes {
        let choices = Choices::of(operations);
        let mut sums = CollectiveTimes { without_kernel, choices, ..CollectiveTimes::default() };
        for operation in operations {
            let key = OperationKey {
                name: operation.name.clone(),
                element_type: operation.element_type.clone(),
                bytes: operation.bytes,
                group_size: operation.group_size,
                role: operation.role,
            };
            sums.put(key, &Times::one(operation.duration_ns));
        }
        sums
    }

    fn put(&mut self, key: OperationKey, times: &Times) {
        self.times.entry(key).and_modify(|so_far| so_far.add(times)).or_insert(*times);
    }

    fn add(&mut self, other: &CollectiveTimes) {
        other.times.iter().for_each(|(key, times)| self.put(key.clone(), times));
        self.without_kernel += other.without_kernel;
        self.choices.add(&other.choices);
        self.channels.add(&other.channels);
    }
}

impl Analysis for Comm {
    const KIND: &'static str = KIND.name;
    type Part = (CollectiveTimes, CommNetwork, (Connections, Transports));

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS | Needs::COLLECTIVES
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, _: &Options) -> Self::Part {
        let (mut operations, without_kernel) = operations(rank);
        let judged = rank.judged();
        let mut left_out = LeftOutRows::of(rank);
        operations.retain(|operation| {
            let is_judged = judged.holds(operation.work, operation.start_ns);
            left_out.count(is_judged, operation.duration_ns, || operation.name.clone());
            is_judged
        });
        let channels = ChannelSums::of(rank.file, &judged.time(rank));
        let times = CollectiveTimes::of(&operations, without_kernel);
        let network = CommNetwork::of(rank, &operations);
        let transports = (Connections::of(rank), Transports::of(rank));
        (CollectiveTimes { channels, left_out, ..times }, network, transports)
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _options: &Options) -> Body {
        let network = parts.iter().map(|(at, (_, network, _))| (at.label.as_str(), network));
        let network = network_table(network);
        let connections = connections_table(parts.iter().map(|(_, (_, _, (of, _)))| of));
        let transports = parts.iter().map(|(at, (_, _, (_, of)))| (at.label.as_str(), of));
        let transports = transports_table(transports);
        let parts: Vec<(RankContext, CollectiveTimes)> =
            parts.into_iter().map(|(at, (times, _, _))| (at, times)).collect();
        let mut body = tables::body(&parts);
        body.tables.extend(connections);
        body.tables.extend(transports);
        body.tables.extend(network);
        let left_out = parts.iter().map(|(at, part)| (at, &part.left_out));
        add_left_out(&mut body, "collectives", &["comm", "comm_by_rank"], left_out);
        body
    }
}
