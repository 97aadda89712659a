//! Stores the records of NCCL's profiler plugin until they are joined.

use super::{Collectives, LONGEST_WAIT_NS};
use crate::shared::clock::Clock;
use tprof_trace::model::ThreadIndex;
use tprof_wire::nccl::{Call, Context, Task, Transfer};
use tprof_wire::record::ExtKind;

/// A record of the plugin, with its thread and its time.
#[derive(Clone, Copy, Debug)]
pub struct Timed<T> {
    /// Thread that wrote the record.
    pub thread: ThreadIndex,
    /// Time of the record.
    pub time_ns: u64,
    /// The record that the thread wrote.
    pub record: T,
}

/// The plugin's records that wait to be joined.
#[derive(Debug, Default)]
pub struct PluginRecords {
    /// Calls of NCCL's functions. Plugins report them from version 5 on.
    pub calls: Vec<Timed<Call>>,
    /// Operations that NCCL has enqueued.
    pub tasks: Vec<Timed<Task>>,
}

impl PluginRecords {
    /// Whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.tasks.is_empty()
    }

    /// Number of records that wait.
    pub fn len(&self) -> usize {
        self.calls.len() + self.tasks.len()
    }
}

impl Collectives {
    /// Adds a record of the plugin; returns `None` if the record is malformed.
    pub fn plugin(
        &mut self,
        kind: ExtKind,
        payload: &[u64],
        thread: ThreadIndex,
        clock_ticks: u64,
        clock: &Clock,
    ) -> Option<()> {
        let time_ns = clock.ns(clock_ticks);
        match kind {
            ExtKind::NcclContext => self.communicators.context(Context::unpack(payload)?),
            ExtKind::NcclCall => {
                let of = Call::unpack(payload)?;
                self.reported.calls.push(Timed { thread, time_ns, record: of });
            }
            ExtKind::NcclTask => {
                let of = Task::unpack(payload)?;
                self.reported.tasks.push(Timed { thread, time_ns, record: of });
            }
            ExtKind::NcclTransfer => {
                let of = Transfer::unpack(payload)?;
                self.channels.take(self.process, thread, time_ns, &of, clock);
            }
            _ => return None,
        }
        Some(())
    }
}

/// Whether a record with this time has waited long enough for its counterparts.
pub fn has_waited(time_ns: u64, now_ns: u64, last: bool) -> bool {
    last || time_ns.saturating_add(LONGEST_WAIT_NS) <= now_ns
}
