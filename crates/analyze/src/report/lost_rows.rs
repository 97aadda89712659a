//! Explains tables that are empty because their events were lost. Such a table must not say that
//! nothing happened.

use tprof_document::Table;
use tprof_facts::units::count;
use tprof_trace::run::LossInfo;

/// For each kind of loss, words that recognise a table of the lost events. They occur in the text
/// that explains why the table is empty.
const LEFT_OUT: [(&str, &[&str]); 9] = [
    ("CPU samples", &["CPU sample"]),
    ("CUDA and NCCL calls", &["kernel", "device", "call", "collective", "copies", "copy"]),
    ("GPU records", &["kernel", "device", "copies", "copy"]),
    ("kernels", &["kernel"]),
    ("heap events", &["allocat", "heap"]),
    ("operators and ranges", &["operator", "range", "annotation", "module"]),
    ("ends of ranges", &["range"]),
    ("spans, marks and values", &["span", "mark", "program named none", "step"]),
    ("processes, stacks, counters", &["process", "stack", "counter", "reading"]),
];

/// Sets the reason of each empty table whose rows were lost.
pub(super) fn explain(tables: &mut [Table], losses: &[LossInfo]) {
    for table in tables.iter_mut().filter(|table| table.rows.is_empty()) {
        let leaves_out = |loss: &&LossInfo| {
            let words = LEFT_OUT.iter().find(|(what, _)| *what == loss.what);
            words.is_some_and(|(_, words)| words.iter().any(|word| table.empty.contains(word)))
        };
        if let Some(loss) = losses.iter().find(leaves_out) {
            let LossInfo { what, why, count: lost } = loss;
            let lost = if *lost > 0 { format!("{} ", count(*lost)) } else { String::new() };
            table.empty = format!("{lost}{what} were lost ({why}), and no such row was kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_table_of_lost_events_has_the_loss_as_its_reason() {
        let loss = |what: &str, count| LossInfo { what: what.into(), why: "why".into(), count };
        let table = |empty: &str| Table::new("key", "title", Vec::new()).empty(empty);
        let mut tables = [
            table("the run has no CPU samples: record with --activities cpu"),
            table("no kernel, copy or memset was recorded"),
            table("the program named none"),
        ];
        explain(&mut tables, &[loss("CPU samples", 1518), loss("CUDA and NCCL calls", 0)]);
        let reasons = tables.map(|table| table.empty);
        assert_eq!(reasons[0], "1,518 CPU samples were lost (why), and no such row was kept");
        assert_eq!(reasons[1], "CUDA and NCCL calls were lost (why), and no such row was kept");
        assert_eq!(reasons[2], "the program named none");
    }
}
