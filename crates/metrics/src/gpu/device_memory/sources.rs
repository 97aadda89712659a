//! Compares the changes of device memory that the hooks recorded with those that CUPTI recorded.

use serde_json::Value;
use tprof_document::{Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::units::counted;
use tprof_trace::TraceFile;
use tprof_trace::model::{DeviceAllocation, MemoryKind};

const ONE_SOURCE: &str =
    "CUPTI recorded no memory beside the hooks, the run is not over, or only a cycle is reported";

/// Number of changes by the recorder that saw them: the hooks, CUPTI, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedBy {
    /// Changes that both recorded.
    pub both: u64,
    /// Changes that only CUPTI recorded: those of libraries with their own CUDA runtime, and
    /// variables of modules.
    pub only_cupti: u64,
    /// Changes that only the hooks recorded.
    pub only_hooks: u64,
}

/// Counts the changes in all processes of a file. Returns `None` if CUPTI recorded no memory, if a
/// process hasn't ended, or if `file` contains only a part of the recording.
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

/// Returns the number of allocations that are variables of CUDA modules. CUPTI records each
/// variable as a change of memory.
pub(super) fn variables(allocations: &[DeviceAllocation]) -> u64 {
    let is_variable = |row: &&DeviceAllocation| {
        matches!(row.kind, MemoryKind::DeviceStatic | MemoryKind::ManagedStatic)
    };
    allocations.iter().filter(is_variable).count() as u64
}

/// Returns a sentence about the changes that only CUPTI recorded.
pub(super) fn without_stacks(
    label: &str,
    by: Option<RecordedBy>,
    variables: u64,
) -> Option<String> {
    let variables = variables.min(by?.only_cupti);
    let others = by?.only_cupti - variables;
    let of_libraries = (others > 0).then(|| {
        format!(
            "{} only by CUPTI, without a stack: of libraries with a CUDA runtime of their own, \
             such as NCCL and cuBLAS",
            counted(others, "change was recorded", "changes were recorded")
        )
    });
    let of_modules = (variables > 0).then(|| {
        let what = counted(variables, "variable", "variables");
        format!("{what} of modules came with their code, and count as memory taken")
    });
    let texts: Vec<String> = of_libraries.into_iter().chain(of_modules).collect();
    (!texts.is_empty()).then(|| format!("{label}: {}", texts.join("; ")))
}

/// Makes the table of changes by recorder.
pub(super) fn sources<'p>(
    parts: impl Iterator<Item = (&'p RankContext, Option<RecordedBy>)>,
) -> Table {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_modules_are_not_counted_as_changes_of_libraries() {
        let of_kind = |kind| DeviceAllocation { kind, ..DeviceAllocation::default() };
        let kinds = [MemoryKind::Device, MemoryKind::DeviceStatic, MemoryKind::ManagedStatic];
        assert_eq!(variables(&kinds.map(of_kind)), 2);
        let sentence = |only_cupti, variables| {
            let by = RecordedBy { only_cupti, ..RecordedBy::default() };
            without_stacks("rank 0", Some(by), variables)
        };
        assert_eq!(
            sentence(1_923, 1_911).as_deref(),
            Some(
                "rank 0: 12 changes were recorded only by CUPTI, without a stack: of libraries with \
                 a CUDA runtime of their own, such as NCCL and cuBLAS; 1,911 variables of modules \
                 came with their code, and count as memory taken"
            )
        );
        assert_eq!(
            sentence(1, 1).as_deref(),
            Some("rank 0: 1 variable of modules came with their code, and count as memory taken")
        );
        assert_eq!(sentence(0, 0), None);
    }
}
