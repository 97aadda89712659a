//! Converts the logs that `torch.compile` wrote in a rank's processes to the rows of the report's
//! tables.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_document::RankContext;
use tprof_facts::compile::ReadLog;
use tprof_rank::RankTrace;
use tprof_trace::compile_log::{
    CacheOutcome, CompileId, CompiledFrame, EventUse, GraphBreak, GraphStage, KernelLanguage,
};

use super::graphs::{self, RankGraphs};
use crate::gpu::kernels;

/// The reason for what is unknown of a compilation that has no end.
pub(super) const NO_END: &str = "the log has no end of this compilation";

/// The data that the report shows of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct RankCompiled {
    pub logs: Vec<LogRow>,
    pub frames: Vec<FrameRow>,
    pub breaks: Vec<GraphBreak>,
    pub recompiles: Vec<RecompileRow>,
    /// Number of cache look-ups by cache, outcome and reason.
    pub caches: BTreeMap<(&'static str, CacheOutcome, Option<String>), u64>,
    pub kernels: Vec<KernelRow>,
    /// Number of operators in graphs, by the graph's stage and the operator's name.
    pub operators: BTreeMap<(GraphStage, String), u64>,
    pub uncompiled: Vec<UncompiledRow>,
    /// Runs of the compiled code.
    pub graphs: RankGraphs,
    /// Logs that could not be read, in sentences.
    pub problems: Vec<String>,
    /// Whether the logs contain all generated code, with the kernels of each.
    pub has_code: bool,
    /// Whether the logs contain all rows. Only then does the absence of rows of a kind mean that
    /// nothing of the kind happened.
    pub is_whole: bool,
    /// Whether the rank has device work that kernels can be joined with.
    pub has_work: bool,
}

/// A log, which one process wrote.
#[derive(Clone, Debug)]
pub(super) struct LogRow {
    pub name: String,
    pub pid: Option<u32>,
    pub torch: Option<String>,
    /// Size of the log, bytes.
    pub bytes: u64,
    /// Bytes that the job wrote beyond the limit up to which the log was copied.
    pub bytes_not_kept: u64,
    /// Number of lines that belong to no entry.
    pub damaged: u64,
    /// Whether the log ends within a line.
    pub is_cut: bool,
    /// Whether the log has more text than was read.
    pub is_read_in_part: bool,
    /// Number of rows that the reader's limits left out.
    pub left_out: u64,
    /// Kinds of entries: name, how tprof uses them, their number, and their bytes.
    pub events: Vec<(String, EventUse, u64, u64)>,
}

/// One compilation of a function.
#[derive(Clone, Debug)]
pub(super) struct FrameRow {
    pub frame: CompiledFrame,
    /// The beginning, in ns since the run began; `None` if it isn't on the run's clock.
    pub start_ns: Option<u64>,
    /// Number of operators in the graph as it was traced; `None` if unknown.
    pub operators_before: Option<u64>,
    /// Number of operators in the graph after it was lowered; `None` if unknown.
    pub operators_after: Option<u64>,
    /// Number of generated kernels, and number of calls of kernels of libraries; `None` if unknown.
    pub kernels: Option<(u64, u64)>,
}

/// One recompilation of a function.
#[derive(Clone, Debug)]
pub(super) struct RecompileRow {
    pub id: CompileId,
    /// The function, if the log has it.
    pub frame: Option<CompiledFrame>,
    /// The guards that failed, in Dynamo's words.
    pub reasons: Vec<String>,
}

/// A kernel of compiled code.
#[derive(Clone, Debug)]
pub(super) struct KernelRow {
    pub name: String,
    pub language: KernelLanguage,
    pub id: CompileId,
    /// Source lines that the kernel was made of.
    pub sources: Vec<String>,
    /// Operators that the kernel computes.
    pub operators: Vec<String>,
    /// Path of the file with the generated code.
    pub path: Option<String>,
    /// Number of runs on the device, and the sum of their durations, ns; `None` if unknown.
    pub ran: Option<(u64, u64)>,
}

/// Code that runs uncompiled, or without an optimization that was requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UncompiledRow {
    pub what: &'static str,
    pub why: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
}

/// Converts the logs of a rank.
pub(super) fn read(rank: &RankTrace<'_>, context: &RankContext) -> RankCompiled {
    let mut found = RankCompiled {
        problems: rank.compile.problems.clone(),
        has_work: !rank.work.is_empty(),
        ..RankCompiled::default()
    };
    let logs = &rank.compile.logs;
    if logs.is_empty() {
        return found;
    }
    found.graphs = graphs::of_rank(rank);
    let ran: FxHashMap<String, (u64, u64)> = match found.has_work {
        true => kernels::sums_of_rank(rank, |_| true)
            .into_iter()
            .map(|(name, runs, ns)| (name.into_owned(), (runs, ns)))
            .collect(),
        false => FxHashMap::default(),
    };
    let code = || logs.iter().flat_map(|read| &read.log.code);
    found.is_whole = logs.iter().all(|read| read.log.is_whole());
    let no_rows_left_out = logs.iter().all(|read| read.log.left_out.rows == 0);
    found.has_code =
        no_rows_left_out && code().next().is_some() && code().all(|one| one.kernels.is_some());
    for read in logs {
        found.logs.push(log_row(read));
        frames(read, context, &mut found);
        found.breaks.extend(read.log.graph_breaks.iter().cloned());
        for one in &read.log.caches {
            *found.caches.entry((one.cache, one.outcome, one.why.clone())).or_default() += 1;
        }
        for (_, stage, counts) in &read.log.graphs {
            for (name, count) in counts {
                *found.operators.entry((*stage, name.clone())).or_default() += count;
            }
        }
        kernels_of(read, &ran, &mut found);
        recompiles(read, &mut found);
        uncompiled(read, &mut found);
    }
    found
}

fn log_row(read: &ReadLog) -> LogRow {
    let log = &read.log;
    let event = |(name, row): (&String, &tprof_trace::compile_log::EventCount)| {
        (name.clone(), row.usage, row.count, row.bytes)
    };
    LogRow {
        name: read.name.clone(),
        pid: log.pid,
        torch: log.torch.clone(),
        bytes: log.bytes,
        bytes_not_kept: log.bytes_not_kept,
        damaged: log.damaged,
        is_cut: log.is_cut,
        is_read_in_part: log.is_read_in_part,
        left_out: log.left_out.count(),
        events: log.events.iter().map(event).collect(),
    }
}

/// Adds the log's compilations.
fn frames(read: &ReadLog, context: &RankContext, found: &mut RankCompiled) {
    let log = &read.log;
    // A forward graph and its backward graph share one compilation number. In the log, the entries
    // of the backward graph come second.
    let mut before: FxHashMap<CompileId, u64> = FxHashMap::default();
    let mut after: FxHashMap<CompileId, Vec<u64>> = FxHashMap::default();
    for (id, stage, counts) in &log.graphs {
        let sum = counts.values().sum();
        match stage {
            GraphStage::Traced => *before.entry(*id).or_default() = sum,
            GraphStage::Lowered => after.entry(*id).or_default().push(sum),
        }
    }
    let mut code: FxHashMap<CompileId, Vec<Option<(u64, u64)>>> = FxHashMap::default();
    for one in &log.code {
        let is_external = |language| language == KernelLanguage::Extern;
        let counts = one.kernels.as_ref().map(|kernels| {
            let external = kernels.iter().filter(|one| is_external(one.language)).count() as u64;
            (kernels.len() as u64 - external, external)
        });
        code.entry(one.id).or_default().push(counts);
    }
    let mut directions: FxHashMap<CompileId, [u32; 2]> = FxHashMap::default();
    for frame in &log.frames {
        directions.entry(frame.id).or_default()[usize::from(frame.is_backward)] += 1;
    }
    for frame in &log.frames {
        let place = usize::from(frame.is_backward);
        let directions = directions[&frame.id];
        // If a backward graph was compiled together with its forward graph, both are in one row.
        let is_only = directions.iter().sum::<u32>() == 1;
        let has_both = directions == [1, 1];
        let of_frame = |all: &Vec<Option<(u64, u64)>>| match is_only {
            true => all.iter().copied().reduce(|a, b| {
                let ((a, b), (c, d)) = (a?, b?);
                Some((a + c, b + d))
            })?,
            false => of_direction(all, place).filter(|_| has_both).flatten(),
        };
        found.frames.push(FrameRow {
            start_ns: read.interval_ns(frame).map(|(start, _)| context.clock.since_start(start)),
            operators_before: before.get(&frame.id).copied().filter(|_| !frame.is_backward),
            operators_after: after.get(&frame.id).and_then(|all| match is_only {
                true => Some(all.iter().sum()),
                false => of_direction(all, place).filter(|_| has_both),
            }),
            kernels: code.get(&frame.id).and_then(of_frame),
            frame: frame.clone(),
        });
    }
}

/// Returns the value for one direction if there is exactly one graph in each direction. With more
/// graphs, as after a split, it isn't known which is which.
fn of_direction<T: Copy>(all: &[T], place: usize) -> Option<T> {
    if all.len() == 2 { all.get(place).copied() } else { None }
}

fn kernels_of(read: &ReadLog, ran: &FxHashMap<String, (u64, u64)>, found: &mut RankCompiled) {
    for code in &read.log.code {
        for kernel in code.kernels.iter().flatten() {
            let is_on_device = kernel.language == KernelLanguage::Triton;
            found.kernels.push(KernelRow {
                name: kernel.name.clone(),
                language: kernel.language,
                id: code.id,
                sources: kernel.sources.clone(),
                operators: kernel.operators.clone(),
                path: code.path.clone(),
                ran: ran.get(&kernel.name).copied().filter(|_| is_on_device),
            });
        }
    }
}

fn recompiles(read: &ReadLog, found: &mut RankCompiled) {
    let forwards = read.forwards();
    let row = |one: &tprof_trace::compile_log::Recompiled| RecompileRow {
        id: one.id,
        frame: forwards.get(&one.id).copied().cloned(),
        reasons: one.reasons.clone(),
    };
    found.recompiles.extend(read.log.recompiled.iter().map(row));
}

fn uncompiled(read: &ReadLog, found: &mut RankCompiled) {
    let forwards = read.forwards();
    for one in &read.log.graph_breaks {
        found.uncompiled.push(UncompiledRow {
            what: "graph break",
            why: one.reason.clone(),
            file: one.file.clone(),
            line: one.line,
            function: forwards.get(&one.compile_id).and_then(|frame| frame.function.clone()),
        });
    }
    for frame in &read.log.frames {
        let row = |what, why: &str| UncompiledRow {
            what,
            why: Some(why.to_owned()),
            file: frame.file.clone(),
            line: frame.line,
            function: frame.function.clone(),
        };
        found.uncompiled.extend(frame.failure.iter().map(|why| row("compilation failed", why)));
        let skipped = frame.cuda_graphs_skipped.iter();
        found.uncompiled.extend(skipped.map(|why| row("no CUDA graph", why)));
        if !frame.is_ended && !frame.is_backward {
            found.uncompiled.push(row("compilation without an end", NO_END));
        }
    }
    found.uncompiled.sort();
    found.uncompiled.dedup();
}
