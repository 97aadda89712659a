//! Numbers the processes of a timeline, which are its groups of lanes, and names their ranks.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tprof_facts::labels::{self, Ids};
use tprof_facts::steps;
use tprof_trace::model::{MarkKind, ProcessIndex};

use crate::{OpenRank, Written};

/// Processes of all files, numbered in order of first appearance.
#[derive(Default)]
pub(crate) struct Processes {
    file: usize,
    rows: Vec<Value>,
    row_of: FxHashMap<(usize, ProcessIndex), usize>,
}

impl Processes {
    /// Must be called before the processes of another file.
    pub fn next_file(&mut self) {
        self.file += 1;
    }

    /// Returns the number of a process in the page.
    pub fn index(&mut self, part: &OpenRank<'_>, process: ProcessIndex) -> usize {
        *self.row_of.entry((self.file, process)).or_insert_with(|| {
            let name = labels::process(&part.trace, process, Ids::Shown);
            self.rows.push(json!({ "rank": labels::rank(part.file), "name": name }));
            self.rows.len() - 1
        })
    }

    pub fn into_rows(self) -> Vec<Value> {
        self.rows
    }
}

/// Returns the steps and marks of a file within the slice.
pub(crate) fn marks(part: &OpenRank<'_>, written: &mut Written, to: &mut Vec<Value>) {
    let rank = labels::rank(part.file);
    let found = steps::of_file(&part.trace, part.steps_from);
    written.steps_inferred |= found.are_inferred();
    for step in found.all {
        if part.window.touches(step.start_ns, step.end_ns) {
            to.push(json!({
                "rank": rank, "step": step.number,
                "at": part.since_start(step.start_ns), "end": part.since_start(step.end_ns),
            }));
        }
    }
    for mark in part.trace.marks() {
        let is_drawn = !matches!(mark.kind, MarkKind::Step | MarkKind::Histogram);
        if is_drawn && part.window.holds(mark.time_ns) {
            let name = part.trace.name(mark.name);
            to.push(json!({ "rank": rank, "name": name, "at": part.since_start(mark.time_ns) }));
        }
    }
}
