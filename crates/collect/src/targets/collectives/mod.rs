//! Makes rows of the collectives of a process. The row of a collective combines a hook's record of
//! the call with the reports of NCCL's profiler plugin.
//!
//! ```text
//! hook:    [ncclAllReduce ───────] … [ncclGroupEnd ──────]     thread, stream, times, address
//! plugin:     · call (version 5)          · task               number, algorithm, protocol
//! ```
//!
//! A hook's call, the plugin's call within it on the same thread, and the tasks of that call make
//! one row. If the others are missing, each makes a row by itself. Hooks and plugin write to
//! different rings, so their records wait for each other before they are joined. [`joining`] has
//! the rules.

mod channels;
mod communicators;
mod joining;
mod log;
mod pending;
mod plugin;
mod words;

pub use communicators::JoinCall;

use crate::gpu::Gpu;
use crate::targets::attached::NcclLog;
use crate::targets::progress::Operations;
use channels::Channels;
use communicators::{CommunicatorIndex, Communicators};
use log::Log;
use pending::Pending;
use plugin::PluginRecords;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::PathBuf;
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};

/// The longest time that rows wait without the plugin. If the collector is killed, only the rows of
/// this time are lost.
const LONGEST_WAIT_NS: u64 = 250_000_000;
/// The longest time that rows wait for the plugin's tasks, if the plugin is loaded. A task may be
/// late: another thread serves a communicator that does not block, and the first operation of a
/// communicator sets up connections.
const LONGEST_WAIT_FOR_TASKS_NS: u64 = 5_000_000_000;
/// The largest part of NCCL's log that is read, so that a job's own log of everything
/// (`NCCL_DEBUG=TRACE`) doesn't keep the collector from other processes.
const MAX_LOG_BYTES: u64 = 256 << 20;
/// Rows are written when this many of them wait.
const MAX_ROWS: usize = 16_384;

/// The reason for a job that decided itself what NCCL logs.
const NO_LOG: &str =
    "NCCL_DEBUG, NCCL_DEBUG_FILE or a configuration file of NCCL sends it elsewhere";

/// A call that a hook recorded.
#[derive(Clone, Copy, Debug)]
pub struct HookedCall {
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// Name of the function.
    pub function: &'static str,
    /// Time when the call began.
    pub start_ns: u64,
    /// Time when the call returned.
    pub end_ns: u64,
    /// Address of the communicator.
    pub address: u64,
    /// Number of elements.
    pub count: u64,
    /// Element type, an `ncclDataType_t`.
    pub data_type: u32,
    /// Handle of the stream.
    pub stream: u64,
    /// The root, or the other rank of a send or receive.
    pub peer: Option<u32>,
}

/// Largest number of calls in a group. An all-to-all exchange of 1,024 ranks is 2,048 calls.
const MAX_GROUP: usize = 1 << 14;

/// What has to be remembered of a thread between its calls.
#[derive(Debug, Default)]
struct ThreadGroups {
    /// Number of groups that the thread has open, nested in each other.
    groups: u32,
    /// Indexes of the rows of calls in the open group.
    grouped: Vec<u64>,
}

/// The collectives of a process.
#[derive(Debug)]
pub struct Collectives {
    process: ProcessIndex,
    rows: BTreeMap<u64, Pending>,
    next: u64,
    threads: HashMap<ThreadIndex, ThreadGroups>,
    communicators: Communicators,
    reported: PluginRecords,
    channels: Channels,
    /// Whether any NCCL call of the process has passed through a hook so far.
    is_hooked: bool,
    /// Threads that have enqueued the task of their own call, so tasks of other threads aren't
    /// theirs.
    own_tasks: HashSet<ThreadIndex>,
    joined_ns: u64,
    /// The operations of each communicator.
    entered: HashMap<CommunicatorIndex, Operations>,
    /// Number of rows that could not be written.
    pub lost: u64,
}

impl Collectives {
    /// Returns the state of a process that has made no call yet.
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
            entered: HashMap::new(),
            lost: 0,
        }
    }

    /// Adds a call that a hook recorded.
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
        if let Some(made) = made {
            let entered = self.entered.entry(made).or_default();
            entered.add(&pending.operation, pending.row.bytes, call.end_ns);
        }
        let state = self.threads.entry(call.thread).or_default();
        if state.groups > 0 && state.grouped.len() < MAX_GROUP {
            pending.is_open = true;
            state.grouped.push(self.next);
        } else if state.groups > 0 {
            // The group is too large: its end was not recorded, for example because recording was
            // off.
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

    /// Notes that a thread began a group.
    pub fn group_begins(&mut self, thread: ThreadIndex) {
        self.is_hooked = true;
        self.threads.entry(thread).or_default().groups += 1;
    }

    /// Notes that a thread ended a group. When the outermost group ends, NCCL hands the work of all
    /// its calls to the device, so all its rows end now.
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

    /// Applies a hook's record that a communicator was created or destroyed.
    pub fn joined(&mut self, call: JoinCall) {
        self.is_hooked = true;
        self.communicators.joined(call);
    }

    /// Returns the operations of each communicator that has some: its number, the same in all ranks,
    /// and its size.
    pub fn entered(&self) -> impl Iterator<Item = (u64, Option<u32>, &Operations)> {
        self.entered.iter().filter_map(|(nth, operations)| {
            let (id, size) = self.communicators.identity(*nth)?;
            Some((id, size, operations))
        })
    }

    /// Returns when the first of the operations with waiting rows returned.
    pub fn first_ns(&self) -> Option<u64> {
        self.rows.values().map(|pending| pending.returned_ns).min()
    }

    /// Whether no row and no record waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.reported.is_empty() && self.channels.is_empty()
    }

    /// Writes the rows that have waited long enough, or all rows if `last` is set.
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

    /// Whether a hook or the plugin has seen that the process used NCCL. Neither sees an NCCL before
    /// 2.23 that is linked into the program.
    pub fn used_nccl(&self) -> bool {
        self.is_hooked || self.communicators.has_plugin()
    }

    /// Writes the connections that NCCL's log tells, once the process has ended. Returns the reason
    /// why some are missing.
    pub fn write_connections(&mut self, log: &NcclLog, writer: &mut TraceWriter) -> Option<String> {
        let lacks_log = self.used_nccl() && log.is_wanted;
        // A pipe or a terminal, such as `/dev/stderr`, is not to be read, and would make the collector
        // wait.
        let is_other = |path: &&PathBuf| path.metadata().is_ok_and(|about| !about.is_file());
        let Some(path) = log.path.as_ref().filter(|path| !is_other(path)) else {
            return lacks_log.then(|| NO_LOG.to_owned());
        };
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let read = opened.and_then(|(bytes, file)| {
            Ok((bytes, Log::read(BufReader::new(file.take(MAX_LOG_BYTES)))?))
        });
        let (bytes, log) = match read {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return lacks_log.then(|| "NCCL wrote none".to_owned());
            }
            Err(error) => return Some(format!("`{}`: {error}", path.display())),
        };
        let communicators: Vec<Option<u64>> =
            log.communicators.iter().map(|of| self.communicators.of_log(of, writer)).collect();
        let row = |(at, of, channels): (Option<usize>, &log::Connected, u32)| Connection {
            process: self.process,
            communicator: at.and_then(|at| communicators[at]),
            from: of.from,
            to: of.to,
            sends: of.sends,
            transport: writer.name(&of.transport),
            channels,
        };
        let mut rows: Vec<Connection> = log.connections().map(row).collect();
        let written = writer.write(&mut rows);
        match written {
            Err(error) => Some(error.to_string()),
            Ok(()) if bytes > MAX_LOG_BYTES => Some("only the first 256 MiB are read".to_owned()),
            Ok(()) => None,
        }
    }

    /// If the plugin knows the communicator of an operation that it did not report, replaces the
    /// hook's number of the communicator with the plugin's.
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

    /// Writes the communicator of a row that is about to be written.
    fn name_communicator(&mut self, pending: &Pending, gpu: &Gpu, writer: &mut TraceWriter) {
        let Some(id) = pending.row.communicator else { return };
        if pending.context == 0 {
            // If the communicator was created before recording began, only its address is known, so
            // there is nothing to write.
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

/// Returns the operation for the id of a function's name. The text may not have arrived yet.
fn operation_of(gpu: &Gpu, text: u32) -> Cow<'static, str> {
    words::operation(gpu.text(text))
}
