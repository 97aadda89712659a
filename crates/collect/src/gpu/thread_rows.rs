//! Writes rows of a process into its file, and defines its threads there.

use crate::out::files::OpenFile;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::{ProcessIndex, Thread, ThreadIndex};

/// The file that rows go to, and the threads that are known there.
pub struct ThreadRows<'a> {
    /// The file of the process.
    pub file: &'a mut OpenFile,
    /// Rows of the process's threads, by their ids.
    pub threads: &'a mut HashMap<u32, ThreadIndex>,
}

impl ThreadRows<'_> {
    /// The file's writer.
    pub fn writer(&mut self) -> &mut TraceWriter {
        &mut self.file.writer
    }

    /// Returns the row of a thread, which is created if there is none.
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
