//! Finds the row of a thread in a file, and adds the row if the thread is new.

use crate::output::files::OpenFile;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::{ProcessIndex, Thread, ThreadIndex};

/// The file that a process's rows are written to, and the threads that have a row in it.
pub struct ThreadRows<'a> {
    /// The file of the process.
    pub file: &'a mut OpenFile,
    /// Rows of the process's threads, by their ids.
    pub threads: &'a mut HashMap<u32, ThreadIndex>,
}

impl ThreadRows<'_> {
    /// Returns the file's writer.
    pub fn writer(&mut self) -> &mut TraceWriter {
        &mut self.file.writer
    }

    /// Returns the row of a thread. Adds the row if the thread is new.
    pub fn thread(&mut self, process: ProcessIndex, tid: u32, start_ns: u64) -> ThreadIndex {
        if let Some(index) = self.threads.get(&tid) {
            return *index;
        }
        let index = self.file.threads;
        self.file.threads += 1;
        self.file.writer.thread(&Thread { thread: index, process, tid, start_ns });
        self.threads.insert(tid, index);
        index
    }
}
