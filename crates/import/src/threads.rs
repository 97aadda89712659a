//! Maps a trace's `pid` and `tid` to the model's processes and threads. Both may be any number or
//! text.

use crate::losses::LossReason;
use crate::number;
use crate::output::Output;
use crate::text;
use rustc_hash::FxHashMap;
use tprof_trace::model::{MemoryRecording, NameId, Process, ProcessIndex, Thread, ThreadIndex};
use tprof_trace::run::ProcessInfo;

/// Largest number of threads of a file. All further threads count as the last one.
const MAX_THREADS: usize = 1 << 20;

/// A `pid` or `tid`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Number(i64),
    Text(Box<[u8]>),
}

impl Id {
    /// Parses an id.
    pub fn of(text: &[u8]) -> Id {
        match number::integer(number::unquoted(text)) {
            Some(number) => Id::Number(number),
            None => Id::Text(number::unquoted(text).into()),
        }
    }

    /// Converts an id to the model's 32 bits. Of a number, these are the low bits, because Kineto
    /// writes pthread handles as negative numbers. A text becomes 0.
    fn bits(&self) -> u32 {
        match self {
            Id::Number(number) => *number as u32,
            Id::Text(_) => 0,
        }
    }
}

#[derive(Debug)]
struct ProcessEntry {
    id: Id,
    first_ns: u64,
    last_ns: u64,
}

#[derive(Debug)]
struct ThreadEntry {
    process: ProcessIndex,
    id: Id,
    name: NameId,
    first_ns: u64,
}

/// The processes and threads of one file.
///
/// Device work belongs to the process with the first host event. A trace doesn't name the process
/// of device work, because it writes the device in place of the pid.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    processes: Vec<ProcessEntry>,
    threads: Vec<ThreadEntry>,
    process_of: FxHashMap<Id, ProcessIndex>,
    thread_of: FxHashMap<(i64, i64), ThreadIndex>,
    odd_thread_of: FxHashMap<(Id, Id), ThreadIndex>,
    /// Names from metadata. Whether a name belongs to a process or to a device is known only later.
    process_names: FxHashMap<Id, String>,
    thread_names: FxHashMap<(Id, Id), NameId>,
    /// First and last moment of device work that the trace lists before any host event.
    device_span: Option<(u64, u64)>,
}

/// The process that device work belongs to.
pub(crate) const MAIN: ProcessIndex = 0;

impl Threads {
    /// Returns the thread of a host event.
    #[inline]
    pub fn thread(
        &mut self,
        pid: &[u8],
        tid: &[u8],
        start_ns: u64,
        end_ns: u64,
        output: &mut Output,
    ) -> (ProcessIndex, ThreadIndex) {
        // Some writers quote numbers, and some only in some events. A quoted and an unquoted number
        // are the same thread.
        let number = |text| number::integer(number::unquoted(text));
        let known = match (number(pid), number(tid)) {
            (Some(pid), Some(tid)) => self.thread_of.get(&(pid, tid)).copied(),
            _ => None,
        };
        let index = known.unwrap_or_else(|| self.find(pid, tid, output));
        (self.touch(index, start_ns, end_ns), index)
    }

    /// Returns the process that an event names by its `pid`. `time_ns` is the event's time.
    pub fn process(&mut self, pid: &[u8], time_ns: u64) -> ProcessIndex {
        let index = self.process_index(Id::of(pid));
        let process = &mut self.processes[index as usize];
        process.first_ns = process.first_ns.min(time_ns);
        process.last_ns = process.last_ns.max(time_ns);
        index
    }

    /// Records when device work ran.
    #[inline]
    pub fn on_device(&mut self, start_ns: u64, end_ns: u64) {
        let (first, last) = self.device_span.unwrap_or((start_ns, end_ns));
        self.device_span = Some((first.min(start_ns), last.max(end_ns)));
    }

    fn process_index(&mut self, id: Id) -> ProcessIndex {
        if let Some(index) = self.process_of.get(&id) {
            return *index;
        }
        let last = self.processes.len() as u32;
        if self.processes.len() == MAX_THREADS {
            return last - 1;
        }
        self.process_of.insert(id.clone(), last);
        self.processes.push(ProcessEntry { id, first_ns: u64::MAX, last_ns: 0 });
        last
    }

    #[cold]
    fn find(&mut self, pid: &[u8], tid: &[u8], output: &mut Output) -> ThreadIndex {
        self.of_ids((Id::of(pid), Id::of(tid)), output)
    }

    fn of_ids(&mut self, ids: (Id, Id), output: &mut Output) -> ThreadIndex {
        let known = match &ids {
            (Id::Number(pid), Id::Number(tid)) => self.thread_of.get(&(*pid, *tid)),
            _ => self.odd_thread_of.get(&ids),
        };
        if let Some(index) = known {
            return *index;
        }
        let last = self.threads.len() as u32;
        if self.threads.len() == MAX_THREADS {
            output.tally.count_loss(LossReason::ThreadsFull);
            return last - 1;
        }
        let process = self.process_index(ids.0.clone());
        let name = match &ids.1 {
            Id::Text(text) => output.name(text),
            Id::Number(_) => NameId(0),
        };
        self.threads.push(ThreadEntry { process, id: ids.1.clone(), name, first_ns: u64::MAX });
        match ids {
            (Id::Number(pid), Id::Number(tid)) => {
                self.thread_of.insert((pid, tid), last);
            }
            ids => {
                self.odd_thread_of.insert(ids, last);
            }
        }
        last
    }

    /// Returns, for each thread id, the first thread with this id in any process.
    pub fn by_id(&self) -> FxHashMap<Id, ThreadIndex> {
        let mut by_id = FxHashMap::default();
        for (thread, index) in self.threads.iter().zip(0..) {
            by_id.entry(thread.id.clone()).or_insert(index);
        }
        by_id
    }

    /// Records that a thread was active in an interval, and returns its process.
    #[inline]
    pub fn touch(&mut self, index: ThreadIndex, start_ns: u64, end_ns: u64) -> ProcessIndex {
        let thread = &mut self.threads[index as usize];
        thread.first_ns = thread.first_ns.min(start_ns);
        let process = &mut self.processes[thread.process as usize];
        process.first_ns = process.first_ns.min(start_ns);
        process.last_ns = process.last_ns.max(end_ns);
        thread.process
    }

    /// Creates a thread of the main process for the profiler's own spans.
    pub fn profiler_thread(
        &mut self,
        name: &[u8],
        start_ns: u64,
        end_ns: u64,
        output: &mut Output,
    ) -> ThreadIndex {
        let index = self.main_process_thread(Id::Text(name.into()), output);
        self.touch(index, start_ns, end_ns);
        index
    }

    /// Returns the thread of the main process with this id, and creates it if no event has named
    /// it.
    pub fn main_process_thread(&mut self, id: Id, output: &mut Output) -> ThreadIndex {
        if self.processes.is_empty() {
            self.process_index(Id::Number(0));
        }
        let main = self.processes[MAIN as usize].id.clone();
        self.of_ids((main, id), output)
    }

    /// Records the name of a process from metadata.
    pub fn name_process(&mut self, pid: &[u8], name: &[u8]) {
        if self.process_names.len() < MAX_THREADS {
            let mut text = String::new();
            text::unescape(name, &mut text);
            self.process_names.insert(Id::of(pid), text);
        }
    }

    /// Records the name of a thread from metadata.
    pub fn name_thread(&mut self, pid: &[u8], tid: &[u8], name: NameId) {
        if self.thread_names.len() < MAX_THREADS {
            self.thread_names.insert((Id::of(pid), Id::of(tid)), name);
        }
    }

    /// Returns the first and last moment of any activity.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let host = self.processes.iter().filter(|process| process.first_ns != u64::MAX);
        let spans = host.map(|process| (process.first_ns, process.last_ns)).chain(self.device_span);
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Writes the tables of processes and threads, and returns the description of each process for
    /// `run.json`.
    pub fn write(mut self, rank: Option<u32>, output: &mut Output) -> Vec<ProcessInfo> {
        if self.processes.is_empty() && self.extent().is_some() {
            self.process_index(Id::Number(0));
        }
        if let (Some(main), Some((first, last))) = (self.processes.first_mut(), self.device_span) {
            main.first_ns = main.first_ns.min(first);
            main.last_ns = main.last_ns.max(last);
        }
        let mut infos = Vec::new();
        for (entry, index) in self.processes.iter().zip(0..) {
            let name = match (self.process_names.remove(&entry.id), &entry.id) {
                (Some(name), _) => name,
                (None, Id::Text(text)) => String::from_utf8_lossy(text).into_owned(),
                (None, Id::Number(_)) => String::new(),
            };
            let (pid, start_ns) = (entry.id.bits(), entry.first_ns);
            let command = output.plain_name(&name);
            output.writer.process(&Process {
                process: index,
                pid,
                parent: 0,
                rank,
                command,
                exe: NameId(0),
                start_ns,
                memory: MemoryRecording::Off,
            });
            infos.push(ProcessInfo {
                pid,
                rank,
                command: name,
                ended_by: "unknown".to_owned(),
                start_ns,
                end_ns: None,
                ..ProcessInfo::default()
            });
        }
        for (entry, index) in self.threads.iter().zip(0..) {
            output.writer.thread(&Thread {
                thread: index,
                process: entry.process,
                tid: entry.id.bits(),
                start_ns: entry.first_ns,
            });
            let process = &self.processes[entry.process as usize].id;
            let named = self.thread_names.get(&(process.clone(), entry.id.clone()));
            let name = named.copied().unwrap_or(entry.name);
            if name != NameId(0) {
                output.writer.thread_name(index, entry.first_ns, name);
            }
        }
        infos
    }
}
