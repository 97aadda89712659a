//! Which of the hooks and CUPTI recorded changes of device memory.

use serde_json::Value;
use tprof_facts::units::counted;
use tprof_trace::TraceFile;

use crate::document::{Cell, Column, RankAt, Table, Unit, View};

const ONE_SOURCE: &str =
    "CUPTI recorded no memory beside the hooks, the run is not over, or only a cycle is reported";

/// How many changes which of them recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedBy {
    /// Both.
    pub both: u64,
    /// Only CUPTI: by libraries with a CUDA runtime of their own.
    pub only_cupti: u64,
    /// Only the hooks.
    pub only_hooks: u64,
}

/// Of all processes of a file; none where CUPTI recorded no memory, or a process is not over, and
/// of a part of a file.
pub(super) fn of_file(file: &TraceFile) -> Option<RecordedBy> {
    if file.part().is_some() {
        return None;
    }
    let mut all: Option<RecordedBy> = None;
    for (_, text) in file.properties().filter(|(key, _)| *key == "device-memory") {
        let facts: Value = serde_json::from_str(text).ok()?;
        let count = |key: &str| facts[key].as_u64().unwrap_or(0);
        let sum = all.get_or_insert_default();
        sum.both += count("both");
        sum.only_cupti += count("only_cupti");
        sum.only_hooks += count("only_hooks");
    }
    all
}

/// Blocks that only CUPTI recorded, in a sentence.
pub(super) fn without_stacks(at: &RankAt, by: Option<RecordedBy>) -> Option<String> {
    let changes = by?.only_cupti;
    (changes > 0).then(|| {
        format!(
            "{}: {} only by CUPTI, without a stack: of libraries with a CUDA runtime of their own, \
             such as NCCL and cuBLAS",
            at.label,
            counted(changes, "change was recorded", "changes were recorded")
        )
    })
}

/// The table of them.
pub(super) fn sources<'p>(parts: impl Iterator<Item = (&'p RankAt, Option<RecordedBy>)>) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("both", "both", Unit::Count),
        Column::new("only_cupti", "only CUPTI", Unit::Count),
        Column::new("only_hooks", "only hooks", Unit::Count),
    ];
    let mut table =
        Table::new("sources", "Changes of device memory, by who recorded them", columns)
            .view(View::Data)
            .empty(ONE_SOURCE);
    for (at, by) in parts {
        if let Some(by) = by {
            let counts = [by.both, by.only_cupti, by.only_hooks].map(Cell::from);
            let [both, only_cupti, only_hooks] = counts;
            table.row(vec![at.label.as_str().into(), both, only_cupti, only_hooks]);
        }
    }
    table
}
