//! Collectives of a process: the hooks' record of a call and the report of NCCL's profiler plugin
//! become one row.
//!
//! ```text
//! hook:    [ncclAllReduce ───────] … [ncclGroupEnd ──────]     thread, stream, times, address
//! plugin:     · call (version 5)          · task               number, algorithm, protocol
//! ```
//!
//! A hook's call, the plugin's call within it on the same thread, and the tasks of that call
//! make one row; each of them makes a separate row where the others are missing. Both write into
//! their own rings, so records wait before they are joined. [`joining`] has the rules.

mod channels;
mod communicators;
mod joining;
mod pending;
mod plugin;
mod words;

pub use communicators::JoinCall;

use crate::gpu::Gpu;
use channels::Channels;
use communicators::Communicators;
use pending::Pending;
use plugin::PluginRecords;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};

/// Rows wait this long at most, so that a run that is cut off lacks little.
const LONGEST_WAIT_NS: u64 = 250_000_000;
/// The wait where the plugin is loaded: a communicator that does not block is served by another
/// thread, and its first operation sets up connections.
const LONGEST_WAIT_FOR_TASKS_NS: u64 = 5_000_000_000;
/// Rows that are written at the latest together.
const MAX_ROWS: usize = 16_384;

/// A call that a hook recorded.
#[derive(Clone, Copy, Debug)]
pub struct HookedCall {
    /// Thread that called.
    pub thread: ThreadIndex,
    /// Name of the function.
    pub function: &'static str,
    /// Time when it began.
    pub start_ns: u64,
    /// Time when it returned.
    pub end_ns: u64,
    /// Address of its communicator.
    pub address: u64,
    /// Number of elements.
    pub count: u64,
    /// Element type, an `ncclDataType_t`.
    pub data_type: u32,
    /// Handle of the stream.
    pub stream: u64,
    /// Root or other rank.
    pub peer: Option<u32>,
}

/// Calls that a group may hold. An exchange of all with all of 1,024 ranks is 2,048.
const MAX_GROUP: usize = 1 << 14;

/// A thread's state between calls.
#[derive(Debug, Default)]
struct ThreadGroups {
    /// Depth of `ncclGroupStart`.
    groups: u32,
    /// Rows that the open group holds.
    grouped: Vec<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Collectives {
    process: ProcessIndex,
    rows: BTreeMap<u64, Pending>,
    next: u64,
    threads: HashMap<ThreadIndex, ThreadGroups>,
    communicators: Communicators,
    reported: PluginRecords,
    channels: Channels,
    /// The process's NCCL calls pass through hooks, as far as one did.
    is_hooked: bool,
    /// Threads with tasks that belonged to calls of their own.
    own_tasks: HashSet<ThreadIndex>,
    joined_ns: u64,
    /// Rows that could not be written.
    pub lost: u64,
}

impl Collectives {
    /// Starts for a process that has made no call yet.
    pub fn new(process: ProcessIndex) -> Collectives {
        Collectives {
            process,
            rows: BTreeMap::new(),
            next: 0,
            threads: HashMap::new(),
            communicators: Communicators::new(process),
            reported: PluginRecords::default(),
            channels: Channels::default(),
            is_hooked: false,
            own_tasks: HashSet::new(),
            joined_ns: 0,
            lost: 0,
        }
    }

    /// A hook recorded a call.
    pub fn called(&mut self, call: &HookedCall, writer: &mut TraceWriter) {
        self.is_hooked = true;
        let operation = words::operation(call.function);
        let data_type = words::type_of_number(call.data_type);
        let made = self.communicators.at(call.address);
        let live = made.and_then(|nth| self.communicators.of_hook(nth));
        let (mut communicator, mut sequence, mut size) = (Some(call.address), None, None);
        if let Some(live) = live {
            (communicator, sequence, size) = (Some(live.id), Some(live.operations), live.size);
            live.operations += 1;
        }
        let mut pending = Pending {
            row: Collective {
                start_ns: call.start_ns,
                duration_ns: Some(call.end_ns.saturating_sub(call.start_ns)),
                process: self.process,
                thread: Some(call.thread),
                name: writer.name(&operation),
                element_type: writer.name(data_type.map_or("", |(name, _)| name)),
                communicator,
                sequence,
                peer: call.peer,
                stream: Some(call.stream),
                ..Collective::default()
            },
            operation,
            count: call.count,
            type_bytes: data_type.map(|(_, bytes)| bytes),
            returned_ns: call.end_ns,
            is_open: false,
            is_hooked: true,
            made,
            call: 0,
            context: 0,
            is_joined: false,
        };
        pending.measure(size);
        let state = self.threads.entry(call.thread).or_default();
        if state.groups > 0 && state.grouped.len() < MAX_GROUP {
            pending.is_open = true;
            state.grouped.push(self.next);
        } else if state.groups > 0 {
            // The end of the group was not recorded, as where recording was switched off meanwhile.
            state.groups = 0;
            for at in std::mem::take(&mut state.grouped) {
                if let Some(pending) = self.rows.get_mut(&at) {
                    pending.is_open = false;
                }
            }
        }
        self.add(pending);
    }

    fn add(&mut self, pending: Pending) -> u64 {
        let at = self.next;
        self.rows.insert(at, pending);
        self.next += 1;
        at
    }

    /// A thread began a group.
    pub fn group_begins(&mut self, thread: ThreadIndex) {
        self.is_hooked = true;
        self.threads.entry(thread).or_default().groups += 1;
    }

    /// The thread ended a group: the work of everything in the outermost one is handed to the
    /// device by then.
    pub fn group_ends(&mut self, thread: ThreadIndex, end_ns: u64) {
        let state = self.threads.entry(thread).or_default();
        state.groups = state.groups.saturating_sub(1);
        if state.groups > 0 {
            return;
        }
        for at in std::mem::take(&mut state.grouped) {
            if let Some(pending) = self.rows.get_mut(&at) {
                pending.row.duration_ns = Some(end_ns.saturating_sub(pending.row.start_ns));
                pending.is_open = false;
            }
        }
    }

    /// A hook recorded that communicators are made or end.
    pub fn joined(&mut self, call: JoinCall) {
        self.is_hooked = true;
        self.communicators.joined(call);
    }

    /// Returns the time when the first operation returned whose row waits.
    pub fn first_ns(&self) -> Option<u64> {
        self.rows.values().map(|pending| pending.returned_ns).min()
    }

    /// Whether rows wait.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.reported.is_empty() && self.channels.is_empty()
    }

    /// Writes the rows that have waited long enough, or all of them at the end.
    pub fn write(
        &mut self,
        now_ns: u64,
        last: bool,
        gpu: &Gpu,
        writer: &mut TraceWriter,
    ) -> Result<(), TraceError> {
        let due = now_ns.saturating_sub(self.joined_ns) >= LONGEST_WAIT_NS;
        let much = self.rows.len() + self.reported.len() + self.channels.len() >= MAX_ROWS;
        if !(last || !self.is_empty() && (due || much)) {
            return Ok(());
        }
        self.joined_ns = now_ns;
        self.join(now_ns, last, gpu, writer);
        let wait_ns = match self.communicators.has_plugin() {
            true => LONGEST_WAIT_FOR_TASKS_NS,
            false => LONGEST_WAIT_NS,
        };
        let is_ready = |pending: &Pending| {
            let waited_ns = now_ns.saturating_sub(pending.returned_ns);
            let since = if pending.is_joined { LONGEST_WAIT_NS } else { wait_ns };
            last || !pending.is_open && waited_ns >= since
        };
        let ready: Vec<u64> =
            self.rows.iter().filter(|(_, row)| is_ready(row)).map(|(at, _)| *at).collect();
        let mut rows = Vec::new();
        for at in ready {
            let Some(mut pending) = self.rows.remove(&at) else { continue };
            self.renumber(&mut pending);
            self.name_communicator(&pending, gpu, writer);
            rows.push(pending.row);
        }
        rows.sort_by_key(|row| row.start_ns);
        if last {
            self.communicators.finish(|text| gpu.text(text), writer);
        }
        let count = rows.len() as u64;
        let written = writer.write(&mut rows);
        if written.is_err() {
            self.lost += count;
        }
        written.and(self.channels.write(&mut self.lost, writer))
    }

    /// Gives an operation that the plugin does not report the plugin's number of its communicator.
    fn renumber(&mut self, pending: &mut Pending) {
        let live = pending.made.and_then(|nth| self.communicators.of_hook(nth));
        if let Some((id, context)) = live.and_then(|live| live.plugins)
            && pending.context == 0
        {
            pending.row.communicator = Some(id);
            pending.row.sequence = None;
            pending.context = context;
            pending.measure(self.communicators.of_context(context, 0).1);
        }
    }

    /// Writes the communicator of a row that is written.
    fn name_communicator(&mut self, pending: &Pending, gpu: &Gpu, writer: &mut TraceWriter) {
        let Some(id) = pending.row.communicator else { return };
        if pending.context == 0 {
            // A communicator that was made before recording began has only its address.
            if pending.row.sequence.is_some() {
                self.communicators.use_hooks(id, pending.row.group_size, writer);
            }
            return;
        }
        let name = gpu.text(self.communicators.name_of(pending.context));
        let size = pending.row.group_size;
        self.communicators.use_plugins((id, pending.context), size, 0, name, writer);
    }
}

/// A text that may not be defined yet.
fn operation_of(gpu: &Gpu, text: u32) -> Cow<'static, str> {
    words::operation(gpu.text(text))
}
