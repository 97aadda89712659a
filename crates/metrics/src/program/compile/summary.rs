//! Makes the table with the sums of each rank's compilations.

use std::collections::BTreeSet;

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_facts::compile::NO_LOG;
use tprof_trace::compile_log::{CacheOutcome, KernelLanguage};

use super::per_rank::RankCompiled;
use super::words::{NO_CODE, NO_FIGURE, NOT_WHOLE, functions, rank_column};

/// Makes the table of sums with one row for each rank that has a log.
pub(super) fn table(parts: &[(RankContext, RankCompiled)]) -> Table {
    let columns = vec![
        rank_column(parts),
        Column::new("functions", "functions", Unit::Count),
        Column::new("compilations", "compiled", Unit::Count),
        Column::new("total_ns", "time", Unit::Duration),
        Column::new("dynamo_ns", "dynamo", Unit::Duration),
        Column::new("aot_ns", "aot", Unit::Duration),
        Column::new("inductor_ns", "inductor", Unit::Duration),
        Column::new("kernels_ns", "kernels", Unit::Duration),
        Column::new("cuda_graphs_ns", "CUDA graphs", Unit::Duration),
        Column::new("graph_breaks", "breaks", Unit::Count),
        Column::new("recompiles", "again", Unit::Count),
        Column::new("failures", "failed", Unit::Count),
        Column::data("cache_hits", Unit::Count),
        Column::data("cache_misses", Unit::Count),
        Column::data("cache_bypasses", Unit::Count),
        Column::data("generated_kernels", Unit::Count),
        Column::data("external_kernels", Unit::Count),
        Column::data("logging_ns", Unit::Duration),
        Column::data("logs", Unit::Count),
        Column::data("log_bytes", Unit::Bytes),
        Column::data("bytes_not_kept", Unit::Bytes),
        Column::data("damaged_lines", Unit::Count),
        Column::data("left_out", Unit::Count),
        Column::data("logs_read_in_part", Unit::Count),
        Column::data("torch", Unit::Text),
    ];
    let mut table = Table::new("compile_ranks", "torch.compile by rank", columns)
        .about(
            "time: sum over compilations, which may run beside each other; kernels: waiting for \
             Triton or C++ compilers; again: recompilations",
        )
        .empty(NO_LOG);
    for (at, part) in parts.iter().filter(|(_, part)| !part.logs.is_empty()) {
        table.row(row(at, part));
    }
    table
}

fn row(at: &RankContext, part: &RankCompiled) -> Vec<Cell> {
    let frames = || part.frames.iter().map(|row| &row.frame);
    let forward = frames().filter(|frame| !frame.is_backward).count();
    let sum = |us: &dyn Fn(&tprof_trace::compile_log::CompiledFrame) -> Option<u64>| {
        let known: Vec<u64> = frames().filter_map(us).collect();
        let sum = (!known.is_empty()).then(|| known.iter().sum::<u64>().saturating_mul(1000));
        Cell::known(sum, NO_FIGURE)
    };
    // Count kernels in the code itself, because it isn't always known which compilation the code
    // belongs to.
    let kernels = |is: &dyn Fn(KernelLanguage) -> bool| {
        let count = part.kernels.iter().filter(|one| is(one.language)).count();
        Cell::known(part.has_code.then_some(count), NO_CODE)
    };
    let counted =
        |count: usize| Cell::known((count > 0 || part.is_whole).then_some(count), NOT_WHOLE);
    let looked = |wanted: CacheOutcome| -> u64 {
        part.caches.iter().filter(|((_, outcome, _), _)| *outcome == wanted).map(|one| one.1).sum()
    };
    let has_caches = !part.caches.is_empty();
    let cache = |wanted| Cell::known(has_caches.then(|| looked(wanted)), "the log has no look-up");
    let logs = |of: &dyn Fn(&super::per_rank::LogRow) -> u64| {
        part.logs.iter().map(of).fold(0, u64::saturating_add)
    };
    let torch: BTreeSet<&str> = part.logs.iter().filter_map(|log| log.torch.as_deref()).collect();
    let torch = torch.into_iter().collect::<Vec<_>>().join(", ");
    vec![
        at.label.as_str().into(),
        counted(functions(frames())),
        counted(forward),
        sum(&|frame| frame.total_us),
        sum(&|frame| frame.phases.dynamo_us),
        sum(&|frame| frame.phases.aot_us),
        sum(&|frame| frame.phases.inductor_us),
        sum(&|frame| frame.phases.kernels_us),
        Cell::applies(
            frames()
                .filter_map(|frame| frame.phases.cuda_graphs_us)
                .reduce(|a, b| a + b)
                .map(|us| us.saturating_mul(1000)),
        ),
        counted(part.breaks.len()),
        counted(part.recompiles.len()),
        counted(frames().filter(|frame| frame.failure.is_some()).count()),
        cache(CacheOutcome::Hit),
        cache(CacheOutcome::Miss),
        cache(CacheOutcome::Bypass),
        kernels(&|language| language != KernelLanguage::Extern),
        kernels(&|language| language == KernelLanguage::Extern),
        sum(&|frame| frame.logging_us),
        part.logs.len().into(),
        logs(&|log| log.bytes).into(),
        logs(&|log| log.bytes_not_kept).into(),
        logs(&|log| log.damaged).into(),
        logs(&|log| log.left_out).into(),
        logs(&|log| u64::from(log.is_read_in_part)).into(),
        Cell::known((!torch.is_empty()).then_some(torch), "this PyTorch's log does not name it"),
    ]
}
