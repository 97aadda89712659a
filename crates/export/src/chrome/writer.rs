//! Writes the list of events, and maps the run's processes and threads to ids of the file.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use tprof_facts::Clock;
use tprof_trace::model::{Process, ProcessIndex, ThreadIndex};

use crate::OpenRank;
use crate::text::Text;

/// Number of bytes to collect before they are compressed.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes events, separated by commas.
pub(super) struct Writer<'a, W: Write> {
    pub part: &'a OpenRank<'a>,
    pub to: W,
    text: Text,
    first: bool,
    /// Converts from the trace's clock to the file's.
    clock: Clock,
    /// `pid` of each process and `"pid":…,"tid":…` of each thread, as JSON.
    processes: FxHashMap<ProcessIndex, Box<str>>,
    threads: FxHashMap<ThreadIndex, Box<str>>,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Begins the file.
    ///
    /// `clock` converts times to the file's clock. `head` writes the members before the events.
    pub fn begin(
        part: &'a OpenRank<'a>,
        clock: Clock,
        head: impl FnOnce(&mut Text),
        to: W,
    ) -> io::Result<Writer<'a, W>> {
        let trace = &part.trace;
        let mut processes = FxHashMap::default();
        for process in trace.processes() {
            let name = trace.name(process.command);
            processes.insert(process.process, id(process.pid, name));
        }
        let mut threads = FxHashMap::default();
        for thread in trace.threads() {
            let pid = processes.get(&thread.process).map_or("0", |pid| pid);
            let name = trace.thread_name(thread.thread).unwrap_or_default();
            let tid = id(thread.tid, name);
            threads.insert(thread.thread, format!("\"pid\":{pid},\"tid\":{tid}").into());
        }
        let mut text = Text::default();
        text.raw("{");
        head(&mut text);
        text.raw("\"traceEvents\":[");
        Ok(Writer { part, to, text, first: true, clock, processes, threads })
    }

    /// Writes one event. `fill` writes the text between its braces.
    pub fn event(&mut self, fill: impl FnOnce(&mut Text)) -> io::Result<()> {
        self.text.raw(if self.first { "\n{" } else { ",\n{" });
        self.first = false;
        fill(&mut self.text);
        self.text.raw("}");
        if self.text.bytes().len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Returns a time on the file's clock, in nanoseconds after its base.
    pub fn at(&self, time_ns: u64) -> u64 {
        self.clock.since_start(time_ns)
    }

    /// Returns `"pid":1,"tid":2` for a thread.
    pub fn thread(&self, thread: ThreadIndex) -> Box<str> {
        self.threads.get(&thread).cloned().unwrap_or_else(|| "\"pid\":0,\"tid\":0".into())
    }

    /// Returns the `pid` of a process.
    pub fn pid(&self, process: ProcessIndex) -> Box<str> {
        self.processes.get(&process).cloned().unwrap_or_else(|| "0".into())
    }

    /// Returns `"pid":1,"tid":1` for a process. Rows without a thread are drawn on its first
    /// thread.
    pub fn main_thread(&self, process: &Process) -> Box<str> {
        let pid = self.pid(process.process);
        format!("\"pid\":{pid},\"tid\":{pid}").into()
    }

    /// Returns the number of bytes that wait to be compressed.
    pub fn buffered(&self) -> u64 {
        self.text.bytes().len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(self.text.bytes())?;
        self.text.clear();
        Ok(())
    }

    /// Ends the file. `fill` writes the members after the events.
    pub fn end(mut self, fill: impl FnOnce(&mut Text)) -> io::Result<W> {
        self.text.raw("\n]");
        fill(&mut self.text);
        self.text.raw("}\n");
        self.flush()?;
        Ok(self.to)
    }
}

/// Returns the number of a process or thread. Without a number, returns the name, as Kineto does.
fn id(number: u32, name: &str) -> Box<str> {
    if number > 0 || name.is_empty() {
        return number.to_string().into();
    }
    let mut text = Text::default();
    text.string(name);
    String::from_utf8_lossy(text.bytes()).into()
}
