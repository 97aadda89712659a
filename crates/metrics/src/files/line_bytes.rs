//! Sums up what one thread transferred at each line of its program.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::Interval;
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileKind, FileOperation, ThreadIndex};

use super::sums::{FileSums, Summing};
use super::uses::Uses;
use crate::host::CodeLine;

/// The reads and writes of a thread, by line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineBytes(FxHashMap<(CodeLine, bool), FileSums>);

impl LineBytes {
    /// Sums up the calls of a thread that began in a time; `None` if calls on files were not
    /// recorded.
    pub fn of(file: &TraceFile, thread: ThreadIndex, time: Interval) -> Option<LineBytes> {
        if file.row_count::<FileCalls>() == 0 {
            return None;
        }
        let (mut uses, mut summing) = (Uses::new(file), Summing::new(file));
        uses.each(|row, of| {
            if row.thread == thread && (time.start..time.end).contains(&row.start_ns) {
                summing.add(row, of);
            }
        });
        let mut lines: FxHashMap<(CodeLine, bool), FileSums> = FxHashMap::default();
        for (of, sum) in summing.finish(&uses.finish()) {
            let moves = matches!(of.operation, FileOperation::Read | FileOperation::Write);
            if let Some(line) = of.line.filter(|_| moves) {
                lines.entry((line, of.kind == FileKind::Socket)).or_default().join(&sum);
            }
        }
        Some(LineBytes(lines))
    }

    /// Returns the reads and writes at a line: of sockets, or of everything else.
    pub fn at(&self, line: &CodeLine, of_sockets: bool) -> Option<&FileSums> {
        self.0.get(&(line.clone(), of_sockets))
    }
}
