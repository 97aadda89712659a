//! Decides which reports of NCCL's plugin belong to which hook's row. The plugin reports calls and
//! the tasks that NCCL makes of them.
//!
//! - A call that the plugin reports belongs to the hook's row whose interval contains it, on the
//!   same thread. It becomes a separate row once no hook can report it any more: its thread has
//!   gone on to another call, or no NCCL call passes through hooks in this process.
//! - A task that names its call (from version 5 on) belongs to the row of that call. If the call
//!   has further tasks, they are replays of a graph and add no row.
//! - A task before version 5 belongs to the first hook's row that began before it and has the same
//!   operation, bytes and other rank. Rows of the task's own thread are tried first. Then come rows
//!   of threads that never enqueued tasks themselves, because other threads work for communicators
//!   that do not block. A task without such a row becomes a separate row.

use super::pending::Pending;
use super::plugin::{Timed, has_waited};
use super::words::{has_peer, type_of_text};
use super::{Collectives, LONGEST_WAIT_FOR_TASKS_NS, operation_of};
use crate::gpu::Gpu;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::nccl::{Call, Task, task_kind};

/// Indexes of the hooks' rows without a task, by operation and bytes, in order of their starts.
type UnmatchedRows = HashMap<(Cow<'static, str>, Option<u64>), Vec<u64>>;

impl Collectives {
    /// Joins all records that have arrived, as far as their counterparts have arrived too.
    pub(super) fn join(&mut self, now_ns: u64, last: bool, gpu: &Gpu, writer: &mut TraceWriter) {
        self.join_calls(now_ns, last, gpu, writer);
        self.join_tasks(now_ns, last, gpu, writer);
        let waiting = self.reported.tasks.iter().map(|task| task.record.id).collect();
        self.channels.name(&self.communicators, &waiting);
    }

    fn join_calls(&mut self, now_ns: u64, last: bool, gpu: &Gpu, writer: &mut TraceWriter) {
        let mut calls = std::mem::take(&mut self.reported.calls);
        if calls.is_empty() {
            return;
        }
        calls.sort_by_key(|call| call.time_ns);
        let mut latest: HashMap<ThreadIndex, u64> = HashMap::new();
        for call in calls.iter().filter(|call| has_waited(call.time_ns, now_ns, last)) {
            latest.insert(call.thread, call.time_ns);
        }
        let hooked = self.hooked_by_thread();
        for call in calls {
            let around = hooked.get(&call.thread).and_then(|rows| {
                let before = rows.range(..=call.time_ns).next_back()?;
                (call.time_ns <= before.1.0).then_some(before.1.1)
            });
            if let Some(at) = around.filter(|at| self.rows.get(at).is_some_and(|row| row.call == 0))
            {
                self.merge(at, &call);
                continue;
            }
            let thread_went_on = latest.get(&call.thread).is_some_and(|at| *at > call.time_ns);
            let is_alone = last || !self.is_hooked || thread_went_on;
            if is_alone && has_waited(call.time_ns, now_ns, last) {
                self.add_call(&call, gpu, writer);
            } else {
                self.reported.calls.push(call);
            }
        }
    }

    /// Returns the hooks' rows that have no call of the plugin yet. They are sorted by thread and
    /// start; the value is the time of return and the row's index.
    fn hooked_by_thread(&self) -> HashMap<ThreadIndex, BTreeMap<u64, (u64, u64)>> {
        let mut threads: HashMap<ThreadIndex, BTreeMap<u64, (u64, u64)>> = HashMap::new();
        for (at, pending) in &self.rows {
            if let (Some(thread), true, 0) = (pending.row.thread, pending.is_hooked, pending.call) {
                let rows = threads.entry(thread).or_default();
                rows.insert(pending.row.start_ns, (pending.returned_ns, *at));
            }
        }
        threads
    }

    /// Completes a hook's row with what the plugin reports about the same call.
    fn merge(&mut self, at: u64, call: &Timed<Call>) {
        let (id, size) = self.communicators.of_context(call.record.context, 0);
        let Some(pending) = self.rows.get_mut(&at) else { return };
        pending.call = call.record.id;
        pending.context = call.record.context;
        pending.row.communicator = id.or(pending.row.communicator);
        pending.measure(size);
        // The hook's count of operations isn't NCCL's. The task will report NCCL's sequence number.
        pending.row.sequence = None;
        if let Some(nth) = pending.made {
            self.communicators.is_plugins(nth, id, call.record.context);
        }
    }

    /// Adds a row for a call that only the plugin reported.
    fn add_call(&mut self, call: &Timed<Call>, gpu: &Gpu, writer: &mut TraceWriter) {
        let operation = operation_of(gpu, call.record.function);
        let data_type = type_of_text(gpu.text(call.record.data_type));
        let (communicator, size) = self.communicators.of_context(call.record.context, 0);
        let mut pending = Pending {
            row: Collective {
                start_ns: call.time_ns,
                process: self.process,
                thread: Some(call.thread),
                name: writer.name(&operation),
                element_type: writer.name(data_type.map_or("", |(name, _)| name)),
                communicator,
                stream: Some(call.record.stream),
                ..Collective::default()
            },
            operation,
            count: call.record.count,
            type_bytes: data_type.map(|(_, bytes)| bytes),
            returned_ns: call.time_ns,
            is_open: false,
            is_hooked: false,
            made: None,
            call: call.record.id,
            context: call.record.context,
            is_joined: false,
        };
        pending.measure(size);
        pending.set_peer(call.record.root);
        self.add(pending);
    }

    fn join_tasks(&mut self, now_ns: u64, last: bool, gpu: &Gpu, writer: &mut TraceWriter) {
        let mut tasks = std::mem::take(&mut self.reported.tasks);
        if tasks.is_empty() {
            return;
        }
        tasks.sort_by_key(|task| task.time_ns);
        let by_call: HashMap<u64, u64> = self
            .rows
            .iter()
            .filter(|(_, pending)| pending.call != 0)
            .map(|(at, pending)| (pending.call, *at))
            .collect();
        let mut unjoined = self.unjoined();
        // NCCL receives the operations of one group together, so they begin at the same time.
        let mut groups: HashMap<u64, u64> = HashMap::new();
        for task in tasks {
            let group_ns = match task.record.group {
                0 => task.time_ns,
                group => *groups.entry(group).or_insert(task.time_ns),
            };
            if task.record.call != 0 {
                let waits =
                    || self.reported.calls.iter().any(|call| call.record.id == task.record.call);
                if let Some(at) = by_call.get(&task.record.call) {
                    self.enqueued(*at, &task, group_ns, gpu, writer);
                } else if waits() {
                    self.reported.tasks.push(task);
                }
                continue;
            }
            if let Some(at) = self.row_of(&task, &mut unjoined, gpu) {
                self.enqueued(at, &task, group_ns, gpu, writer);
            } else if !self.is_hooked && has_waited(task.time_ns, now_ns, last)
                || last
                || task.time_ns.saturating_add(LONGEST_WAIT_FOR_TASKS_NS) <= now_ns
            {
                let at = self.add_task(&task, group_ns, gpu, writer);
                self.enqueued(at, &task, group_ns, gpu, writer);
            } else {
                self.reported.tasks.push(task);
            }
        }
    }

    fn unjoined(&self) -> UnmatchedRows {
        let mut unjoined = UnmatchedRows::new();
        let mut rows: Vec<(&u64, &Pending)> = self
            .rows
            .iter()
            .filter(|(_, pending)| pending.is_hooked && pending.call == 0 && !pending.is_joined)
            .collect();
        rows.sort_by_key(|(_, pending)| pending.row.start_ns);
        for (at, pending) in rows {
            let key = (pending.operation.clone(), pending.given_bytes());
            unjoined.entry(key).or_default().push(*at);
        }
        unjoined
    }

    /// Returns the index of the hook's row for a task that doesn't name its call.
    fn row_of(
        &mut self,
        task: &Timed<Task>,
        unjoined: &mut UnmatchedRows,
        gpu: &Gpu,
    ) -> Option<u64> {
        let operation = operation_of(gpu, task.record.function);
        let each = type_of_text(gpu.text(task.record.data_type)).map(|(_, bytes)| bytes);
        let bytes = each.map(|each| task.record.count.saturating_mul(each));
        let peer = has_peer(&operation).then(|| task.record.peer.checked_sub(1)).flatten();
        let rows = unjoined.get_mut(&(operation, bytes))?;
        let fits = |at: &u64, own: bool| {
            self.rows.get(at).is_some_and(|pending| {
                let thread = pending.row.thread;
                let is_own = thread == Some(task.thread);
                let may = match own {
                    true => is_own,
                    false => thread.is_some_and(|thread| !self.own_tasks.contains(&thread)),
                };
                may && pending.row.start_ns <= task.time_ns
                    && (pending.row.peer.is_none() || peer.is_none() || pending.row.peer == peer)
            })
        };
        let own = rows.iter().position(|at| fits(at, true));
        let place = own.or_else(|| rows.iter().position(|at| fits(at, false)))?;
        if own.is_some() {
            self.own_tasks.insert(task.thread);
        }
        Some(rows.remove(place))
    }

    /// Adds a row for a task whose call was not reported, and returns the index of the row.
    fn add_task(
        &mut self,
        task: &Timed<Task>,
        time_ns: u64,
        gpu: &Gpu,
        writer: &mut TraceWriter,
    ) -> u64 {
        let operation = operation_of(gpu, task.record.function);
        let data_type = type_of_text(gpu.text(task.record.data_type));
        self.add(Pending {
            row: Collective {
                start_ns: time_ns,
                process: self.process,
                thread: Some(task.thread),
                name: writer.name(&operation),
                element_type: writer.name(data_type.map_or("", |(name, _)| name)),
                ..Collective::default()
            },
            operation,
            count: task.record.count,
            type_bytes: data_type.map(|(_, bytes)| bytes),
            returned_ns: time_ns,
            is_open: false,
            is_hooked: false,
            made: None,
            call: 0,
            context: 0,
            is_joined: false,
        })
    }

    /// Completes a row with a task: the number that NCCL gave the operation, and what NCCL chose
    /// for it, such as the algorithm.
    fn enqueued(
        &mut self,
        at: u64,
        task: &Timed<Task>,
        group_ns: u64,
        gpu: &Gpu,
        writer: &mut TraceWriter,
    ) {
        let of = &task.record;
        let (id, size) = self.communicators.of_context(of.context, of.hash);
        let Some(pending) = self.rows.get_mut(&at) else { return };
        let mut size = size;
        if let Some(nth) = pending.made
            && let Some(live) = self.communicators.is_plugins(nth, id, of.context)
        {
            size = size.or(live.size);
        }
        let is_first = !pending.is_joined;
        pending.is_joined = true;
        pending.context = of.context;
        pending.row.communicator = id.or(pending.row.communicator);
        pending.measure(size);
        pending.set_peer(of.peer);
        // An operation that NCCL splits into sends and receives has several tasks. The row shows
        // the largest number of channels.
        let channels = (of.channels > 0).then_some(of.channels);
        pending.row.channels = pending.row.channels.max(channels);
        if of.kind != task_kind::POINT_TO_POINT {
            let mut named = |text: u32| {
                Some(gpu.text(text)).filter(|text| !text.is_empty()).map(|text| writer.name(text))
            };
            pending.row.algorithm = named(of.algorithm).or(pending.row.algorithm);
            pending.row.protocol = named(of.protocol).or(pending.row.protocol);
            pending.row.sequence = Some(of.sequence);
        } else if is_first {
            pending.row.sequence = None;
        }
        // Only a hook records when the call returned. Without one, the time is used when the
        // operation was handed to the device.
        if is_first && !pending.is_hooked {
            pending.row.duration_ns = Some(group_ns.saturating_sub(pending.row.start_ns));
            pending.returned_ns = pending.returned_ns.max(group_ns);
        }
        self.channels.belongs(
            of.id,
            pending.row.name,
            pending.row.sequence,
            pending.row.communicator,
        );
        let known = (pending.row.communicator, pending.row.group_size);
        if let (Some(id), size) = known {
            let text = if of.name != 0 { of.name } else { self.communicators.name_of(of.context) };
            self.communicators.use_plugins((id, of.context), size, of.rank, gpu.text(text), writer);
        }
    }
}

#[cfg(test)]
mod tests;
