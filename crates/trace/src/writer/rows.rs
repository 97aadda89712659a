//! Adds rows to the small tables, with one method for each table. A row waits in memory for the
//! next flush.

use super::TraceWriter;
use crate::model::*;
use crate::tables::{ProcessEndRow, ThreadEndRow, ThreadNameRow};

/// Maximum number of frames in a stack; further frames are cut off.
const MAX_STACK_FRAMES: usize = 1 << 16;

impl TraceWriter {
    /// Adds a process image. It replaces an earlier one with the same index.
    pub fn process(&mut self, row: &Process) {
        self.pending.bytes += size_of::<Process>();
        self.pending.processes.push(row.clone());
    }

    /// Adds the end of a process image.
    pub fn process_end(&mut self, process: ProcessIndex, end_ns: u64, end: ProcessEnd) {
        self.pending.bytes += size_of::<ProcessEndRow>();
        self.pending.process_ends.push(ProcessEndRow { process, end_ns, end });
        if let Some(watcher) = &mut self.watcher {
            watcher.ended(process, end_ns);
        }
    }

    /// Adds a thread. It replaces an earlier one with the same index.
    pub fn thread(&mut self, row: &Thread) {
        self.pending.bytes += size_of::<Thread>();
        self.pending.threads.push(row.clone());
    }

    /// Sets a thread's name from `time_ns` on.
    pub fn thread_name(&mut self, thread: ThreadIndex, time_ns: u64, name: NameId) {
        self.pending.bytes += size_of::<ThreadNameRow>();
        self.pending.thread_names.push(ThreadNameRow { thread, time_ns, name });
    }

    /// Adds the end of a thread.
    pub fn thread_end(&mut self, thread: ThreadIndex, end_ns: u64) {
        self.pending.bytes += size_of::<ThreadEndRow>();
        self.pending.thread_ends.push(ThreadEndRow { thread, end_ns });
    }

    /// Adds the counts of a thread. A later row for the same thread replaces them.
    pub fn thread_counts(&mut self, row: ThreadCounts) {
        self.pending.bytes += size_of::<ThreadCounts>();
        self.pending.thread_counts.push(row);
    }

    /// Adds an executable mapping.
    pub fn module(&mut self, row: &Module) {
        self.pending.bytes += size_of::<Module>();
        self.pending.modules.push(row.clone());
    }

    /// Adds a stack, cut at 65,536 frames. The definition may follow the stack's first use.
    pub fn stack(&mut self, row: &Stack) {
        let frames = row.frames[..row.frames.len().min(MAX_STACK_FRAMES)].to_vec();
        self.pending.bytes += size_of::<Stack>() + 8 * frames.len();
        self.pending.stacks.push(Stack {
            process: row.process,
            stack: row.stack,
            end: row.end,
            frames,
        });
    }

    /// Adds a function at an address.
    pub fn symbol(&mut self, row: &Symbol) {
        self.pending.bytes += size_of::<Symbol>();
        self.pending.symbols.push(row.clone());
    }

    /// Adds a change of a mapping.
    pub fn map(&mut self, row: MapEvent) {
        self.pending.bytes += size_of::<MapEvent>();
        self.pending.maps.push(row);
    }

    /// Adds the heap totals of a process.
    pub fn totals(&mut self, row: HeapTotals) {
        self.note_totals(&row);
        self.pending.bytes += size_of::<HeapTotals>();
        self.pending.totals.push(row);
    }

    /// Adds the totals of the work of recording in a process.
    pub fn recording(&mut self, row: RecordingTotals) {
        self.note_recording(&row);
        self.pending.bytes += size_of::<RecordingTotals>();
        self.pending.recording.push(row);
    }

    /// Adds a measured quantity.
    pub fn counter(&mut self, row: Counter) {
        self.pending.bytes += size_of::<Counter>();
        self.pending.counters.push(row);
        if let Some(watcher) = &mut self.watcher {
            watcher.counted(&row);
        }
    }

    /// Adds a mark with this name. Steps are many, and each has another name: the writer doesn't
    /// remember those.
    pub fn mark_named(
        &mut self,
        (process, time_ns): (Option<ProcessIndex>, u64),
        kind: MarkKind,
        text: &str,
    ) {
        let name = match kind {
            MarkKind::Step => {
                let row = self.new_name(text);
                let id = row.id;
                self.pending.step_names.push(row);
                NameId(id)
            }
            _ => self.name(text),
        };
        let row = Mark { time_ns, process, name, kind };
        if let Some(watcher) = &mut self.watcher {
            watcher.marked(&row, text);
        }
        self.mark(row);
    }

    /// Adds a mark. Its name is one of this writer.
    pub fn mark(&mut self, row: Mark) {
        self.pending.bytes += size_of::<Mark>();
        self.pending.marks.push(row);
    }

    /// Adds a device.
    pub fn device(&mut self, row: &Device) {
        self.pending.bytes += size_of::<Device>();
        self.pending.devices.push(row.clone());
    }

    /// Adds a stream that has a name or a priority.
    pub fn stream(&mut self, row: &Stream) {
        self.pending.bytes += size_of::<Stream>();
        self.pending.streams.push(row.clone());
    }

    /// Adds a communicator. It replaces an earlier one with the same process and number.
    pub fn communicator(&mut self, row: &Communicator) {
        self.pending.bytes += size_of::<Communicator>() + 8 * row.ranks.len();
        self.pending.communicators.push(row.clone());
    }

    /// Adds a moment that was read on two clocks.
    pub fn clock_join(&mut self, row: ClockJoin) {
        self.pending.bytes += size_of::<ClockJoin>();
        self.pending.clock_joins.push(row);
    }

    /// Adds a property of the file. A later one with the same key replaces it.
    pub fn property(&mut self, row: Property) {
        self.pending.bytes += size_of::<Property>();
        self.pending.properties.push(row);
    }

    /// Adds a loss.
    pub fn loss(&mut self, row: Loss) {
        for id in [row.what, row.why] {
            if let Some(name) = self.given_up.remove(&id.0) {
                self.pending.bytes += name.text.len() + size_of_val(&name);
                self.pending.names.push(name);
            }
        }
        self.pending.bytes += size_of::<Loss>();
        self.pending.losses.push(row);
    }
}
