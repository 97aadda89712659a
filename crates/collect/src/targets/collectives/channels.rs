//! Rows for the work of NCCL's channels: sends, receives and kernels. Each row is named after the
//! operation that the work belongs to.

use super::communicators::Communicators;
use crate::shared::clock::{Clock, LATEST_NS};
use std::collections::{HashMap, HashSet, VecDeque};
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};
use tprof_wire::nccl::{Transfer, transfer_kind};

/// Number of operations that are remembered because work may still refer to them.
const MAX_OPERATIONS: usize = 65_536;

/// Name, sequence number and communicator of a collective operation.
type Operation = (NameId, Option<u64>, Option<u64>);

/// Work of channels that waits to be written.
#[derive(Debug, Default)]
pub struct Channels {
    rows: Vec<(u64, u64, ChannelWork)>,
    ready: Vec<ChannelWork>,
    operations: HashMap<u64, Operation>,
    order: VecDeque<u64>,
}

impl Channels {
    /// Adds a record of work that began at `start_ns`.
    pub fn take(
        &mut self,
        process: ProcessIndex,
        thread: ThreadIndex,
        start_ns: u64,
        of: &Transfer,
        clock: &Clock,
    ) {
        let on_device_ns = of.device_end_ns.checked_sub(of.device_start_ns);
        let on_device_ns = on_device_ns.filter(|_| of.device_start_ns > 0 && of.device_end_ns > 0);
        let on_device_ns = on_device_ns.map(|ns| ns.min(LATEST_NS));
        let is_kernel = of.kind == transfer_kind::KERNEL;
        let steps_ns = |ticks: u64| (!is_kernel).then(|| clock.duration_ns(ticks));
        let row = ChannelWork {
            start_ns,
            duration_ns: on_device_ns.unwrap_or_else(|| clock.ns(of.end).saturating_sub(start_ns)),
            process,
            thread,
            kind: match of.kind {
                transfer_kind::SEND => ChannelWorkKind::Send,
                transfer_kind::RECEIVE => ChannelWorkKind::Receive,
                _ => ChannelWorkKind::Kernel,
            },
            channel: of.channel,
            peer: of.peer.checked_sub(1),
            steps: (!is_kernel).then_some(of.steps),
            bytes: (of.bytes > 0).then_some(of.bytes),
            device_wait_ns: steps_ns(of.device_wait),
            peer_wait_ns: steps_ns(of.peer_wait),
            network_ns: steps_ns(of.network),
            ..ChannelWork::default()
        };
        self.rows.push((of.task, of.context, row));
    }

    /// Adds an operation under the id of its task, so that work with this id gets its name.
    pub fn belongs(
        &mut self,
        task: u64,
        name: NameId,
        sequence: Option<u64>,
        communicator: Option<u64>,
    ) {
        if task == 0 {
            return;
        }
        if self.operations.insert(task, (name, sequence, communicator)).is_none() {
            self.order.push_back(task);
        }
        if self.order.len() > MAX_OPERATIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.operations.remove(&oldest);
        }
    }

    /// Copies the name of its operation into each row. Work whose operation is in `waiting` isn't
    /// named yet and stays.
    pub fn name(&mut self, communicators: &Communicators, waiting: &HashSet<u64>) {
        for (task, context, mut row) in std::mem::take(&mut self.rows) {
            if waiting.contains(&task) {
                self.rows.push((task, context, row));
                continue;
            }
            if let Some((name, sequence, communicator)) = self.operations.get(&task) {
                (row.name, row.sequence, row.communicator) = (*name, *sequence, *communicator);
            } else {
                row.communicator = communicators.of_context(context, 0).0;
            }
            self.ready.push(row);
        }
    }

    /// Whether no work waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ready.is_empty()
    }

    /// Number of rows that wait.
    pub fn len(&self) -> usize {
        self.rows.len() + self.ready.len()
    }

    /// Writes the rows that are ready.
    pub fn write(&mut self, lost: &mut u64, writer: &mut TraceWriter) -> Result<(), TraceError> {
        let count = self.ready.len() as u64;
        self.ready.sort_by_key(|row| row.start_ns);
        let written = writer.write(&mut self.ready);
        if written.is_err() {
            *lost += count;
        }
        written
    }
}
