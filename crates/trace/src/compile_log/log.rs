//! The content of a log: compiled functions, breaks, recompilations, caches, kernels.

use super::code::GeneratedKernel;
use super::events::EventCount;
use super::graph::{GraphStage, OperatorCounts};
use std::collections::BTreeMap;
use std::fmt;

/// Identifies a compilation: `3/1` is the second one of the process's fourth function, and `3/1#2`
/// the second compilation to which PyTorch gave this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompileId {
    /// Number of the compiled autograd graph.
    pub autograd: Option<u32>,
    /// Number of the function.
    pub frame: Option<u32>,
    /// Number of the function's compilation, from 0.
    pub compile: Option<u32>,
    /// Number of times that the process had given these numbers before: `torch._dynamo.reset()`
    /// starts to count again.
    pub given_before: u32,
}

impl CompileId {
    /// Returns the id as PyTorch writes it, which is the same for compilations with the same
    /// numbers.
    pub fn as_numbered(self) -> CompileId {
        CompileId { given_before: 0, ..self }
    }
}

impl fmt::Display for CompileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |f: &mut fmt::Formatter<'_>, number: Option<u32>| match number {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("-"),
        };
        if let Some(autograd) = self.autograd {
            write!(f, "!{autograd}")?;
        }
        if self.autograd.is_none() || self.frame.is_some() {
            f.write_str(if self.autograd.is_some() { "/" } else { "" })?;
            number(f, self.frame)?;
            f.write_str("/")?;
            number(f, self.compile)?;
        }
        match self.given_before {
            0 => Ok(()),
            before => write!(f, "#{}", u64::from(before) + 1),
        }
    }
}

/// Time by phase, microseconds; the time of a phase within another is not part of the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompilePhases {
    /// Tracing of the function, guards: all that is in no other phase.
    pub dynamo_us: Option<u64>,
    /// AOTAutograd: tracing of forward and backward, partitioning.
    pub aot_us: Option<u64>,
    /// Inductor: passes over the graph, scheduling, generation of code.
    pub inductor_us: Option<u64>,
    /// Waiting for compilers of generated kernels: Triton, C++.
    pub kernels_us: Option<u64>,
    /// Recording of CUDA graphs, when the function runs.
    pub cuda_graphs_us: Option<u64>,
}

/// A function's compilation: forward, or the backward graph of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFrame {
    /// Id of the compilation.
    pub id: CompileId,
    /// Whether it is of a backward graph.
    pub is_backward: bool,
    /// The function's name.
    pub function: Option<String>,
    /// File of the function.
    pub file: Option<String>,
    /// First line of the function.
    pub line: Option<u32>,
    /// Number of attempts: a graph break or a changed assumption starts another.
    pub attempts: u32,
    /// Time when it began, microseconds since 1970.
    pub start_unix_us: Option<u64>,
    /// Whether the log has its end.
    pub is_ended: bool,
    /// Duration, microseconds; `None` if it did not end, or if this PyTorch does not log it.
    pub total_us: Option<u64>,
    /// Time when it ended, microseconds since 1970, where its duration is not known.
    pub end_unix_us: Option<u64>,
    /// Durations of its phases.
    pub phases: CompilePhases,
    /// Guards that are checked before the compiled code runs.
    pub guards: Option<u64>,
    /// Why it failed, and the function runs uncompiled.
    pub failure: Option<String>,
    /// Why it was begun again, a line each.
    pub restart_reasons: Vec<String>,
    /// The guards that failed before, as the metrics have them.
    pub recompile_reason: Option<String>,
    /// Why no CUDA graph was recorded.
    pub cuda_graphs_skipped: Option<String>,
    /// Time that PyTorch took to write this log, microseconds, by its own clock.
    pub logging_us: Option<u64>,
}

impl CompiledFrame {
    /// Removes the texts that it has, and counts them; whether it failed, or has no CUDA graph,
    /// stays.
    pub(super) fn drop_texts(&mut self) -> u64 {
        let names = [&mut self.function, &mut self.file, &mut self.recompile_reason];
        let names = names.into_iter().filter_map(Option::take).count();
        let states = [&mut self.failure, &mut self.cuda_graphs_skipped].into_iter().flatten();
        let states = states.map(|text| *text = "…".to_owned()).count();
        (names + states + std::mem::take(&mut self.restart_reasons).len()) as u64
    }
}

/// A graph break, as PyTorch states it. A break that a recompilation repeats is stated again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphBreak {
    /// The compilation in which the break happened.
    pub compile_id: CompileId,
    /// The user's file; `None` where the log does not name it.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The reason, one line; `None` for a PyTorch that does not log it (2.4).
    pub reason: Option<String>,
    /// PyTorch's explanation of the break.
    pub explanation: Option<String>,
    /// PyTorch's advice, one line each.
    pub hints: Vec<String>,
}

/// A compilation of a function that had been compiled, and why its code did not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recompiled {
    /// The new compilation.
    pub id: CompileId,
    /// Guards that failed, the latest code's first.
    pub reasons: Vec<String>,
}

/// The outcome of a cache look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheOutcome {
    /// The graph was found.
    Hit,
    /// The graph was not found: it was compiled and stored.
    Miss,
    /// The cache was not asked, since the graph cannot be stored.
    Bypass,
}

impl CacheOutcome {
    /// Returns the word that reports use.
    pub fn word(self) -> &'static str {
        match self {
            CacheOutcome::Hit => "hit",
            CacheOutcome::Miss => "miss",
            CacheOutcome::Bypass => "bypass",
        }
    }
}

/// A look-up in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// The cache's name: `fx_graph` or `aotautograd`.
    pub cache: &'static str,
    /// Outcome of the look-up.
    pub outcome: CacheOutcome,
    /// Id of the compilation that asked.
    pub id: CompileId,
    /// Why it was bypassed, where the log has that.
    pub why: Option<String>,
}

/// A file of generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedCode {
    /// Id of the compilation.
    pub id: CompileId,
    /// Path to which the process wrote the code.
    pub path: Option<String>,
    /// The code's kernels; `None` where the log lacks the code itself.
    pub kernels: Option<Vec<GeneratedKernel>>,
}

/// The content of a log that its [`CompileLog`] lacks because a bound of the reader was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Compilations (each of its events), breaks, recompilations, look-ups, graphs, files of code.
    pub rows: u64,
    /// Parts of rows that are kept: reasons, hints, kernels, operators of a kernel, names.
    pub parts: u64,
    /// Names of files, which compilations refer to, and graphs' nodes, which kernels refer to.
    pub names: u64,
    /// Payloads of which only the beginning was read.
    pub payloads: u64,
}

impl LeftOut {
    /// Returns the sum of all.
    pub fn count(&self) -> u64 {
        [self.parts, self.names, self.payloads].into_iter().fold(self.rows, u64::saturating_add)
    }
}

/// A process's log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileLog {
    /// The process, as it counts itself.
    pub pid: Option<u32>,
    /// Rank of the process, if it was initialised by then.
    pub rank: Option<u32>,
    /// Version of PyTorch, where the log has it.
    pub torch: Option<String>,
    /// Times of the first and the last line, microseconds since 1970; `None` where no event has the
    /// time since 1970, which the prefixes lack.
    pub extent_unix_us: Option<(u64, u64)>,
    /// Events by name.
    pub events: BTreeMap<String, EventCount>,
    /// Lines that are neither an event nor a payload's.
    pub damaged: u64,
    /// Whether compilations state why no CUDA graph was recorded, where that is so.
    pub states_cuda_graphs: bool,
    /// Bytes that the run does not keep of it.
    pub bytes_not_kept: u64,
    /// The last line has no end.
    pub is_cut: bool,
    /// Whether the text goes on beyond what was read.
    pub is_read_in_part: bool,
    /// Content that is not in the fields below.
    pub left_out: LeftOut,
    /// Bytes of these rows and of what they refer to.
    pub kept_bytes: usize,
    /// Bytes that were read.
    pub bytes: u64,
    /// Compilations in order of their beginning.
    pub frames: Vec<CompiledFrame>,
    /// Breaks, in order.
    pub graph_breaks: Vec<GraphBreak>,
    /// Recompilations, in order.
    pub recompiled: Vec<Recompiled>,
    /// Look-ups, in order.
    pub caches: Vec<CacheUse>,
    /// Operators of graphs.
    pub graphs: Vec<(CompileId, GraphStage, OperatorCounts)>,
    /// Code that Inductor generated.
    pub code: Vec<GeneratedCode>,
}

impl CompileLog {
    /// Whether it has all compilations, breaks and look-ups of its process: only then one that is
    /// absent did not happen.
    pub fn is_whole(&self) -> bool {
        self.bytes_not_kept == 0 && !self.is_read_in_part && self.left_out.rows == 0
    }
}
