//! Defines the content of a log: compiled functions, graph breaks, recompilations, caches, kernels.

use super::code::GeneratedKernel;
use super::events::EventCount;
use super::graph::{GraphStage, OperatorCounts};
use std::collections::BTreeMap;
use std::fmt;

/// Identifies a compilation. `3/1` is the second compilation of the process's fourth function.
/// `3/1#2` is the second compilation to which PyTorch gave the number `3/1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompileId {
    /// Number of the compiled autograd graph.
    pub autograd: Option<u32>,
    /// Number of the function.
    pub frame: Option<u32>,
    /// Number of the function's compilation, from 0.
    pub compile: Option<u32>,
    /// How many earlier compilations of the process had the same numbers. PyTorch starts its
    /// numbers again after `torch._dynamo.reset()`.
    pub given_before: u32,
}

impl CompileId {
    /// Returns the id as PyTorch writes it. Compilations with the same numbers share it.
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

/// Time by phase, microseconds. The time of a phase excludes the phases nested in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompilePhases {
    /// Tracing of the function, guards, and everything that belongs to no other phase.
    pub dynamo_us: Option<u64>,
    /// AOTAutograd: tracing of forward and backward pass, partitioning.
    pub aot_us: Option<u64>,
    /// Inductor: passes over the graph, scheduling, code generation.
    pub inductor_us: Option<u64>,
    /// Waiting for the compilers of generated kernels: Triton, C++.
    pub kernels_us: Option<u64>,
    /// Recording of CUDA graphs, which happens when the function runs.
    pub cuda_graphs_us: Option<u64>,
}

/// The compilation of a function, or of a function's backward graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFrame {
    /// Id of the compilation.
    pub id: CompileId,
    /// Whether a backward graph was compiled.
    pub is_backward: bool,
    /// The function's name.
    pub function: Option<String>,
    /// File of the function.
    pub file: Option<String>,
    /// First line of the function.
    pub line: Option<u32>,
    /// Number of attempts. A graph break or a changed assumption starts another attempt.
    pub attempts: u32,
    /// Time when the compilation began, microseconds since 1970.
    pub start_unix_us: Option<u64>,
    /// Whether the log contains the end of the compilation.
    pub is_ended: bool,
    /// Duration, microseconds; `None` if the compilation has no end, or if this version of PyTorch
    /// doesn't log the duration.
    pub total_us: Option<u64>,
    /// Time when the compilation ended, microseconds since 1970; only if its duration isn't known.
    pub end_unix_us: Option<u64>,
    /// Durations of the compilation's phases.
    pub phases: CompilePhases,
    /// Number of guards that are checked before the compiled code runs.
    pub guards: Option<u64>,
    /// The reason if the compilation failed. The function then runs uncompiled.
    pub failure: Option<String>,
    /// The reasons for which the compilation was restarted, one line each.
    pub restart_reasons: Vec<String>,
    /// The guards whose failure caused the compilation, as the metrics list them.
    pub recompile_reason: Option<String>,
    /// The reason if no CUDA graph was recorded.
    pub cuda_graphs_skipped: Option<String>,
    /// Time that PyTorch spent writing this log, microseconds, by its own measurement.
    pub logging_us: Option<u64>,
}

impl CompiledFrame {
    /// Removes the texts, and returns how many there were. Whether the compilation failed or lacks
    /// a CUDA graph remains known.
    pub(super) fn drop_texts(&mut self) -> u64 {
        let names = [&mut self.function, &mut self.file, &mut self.recompile_reason];
        let names = names.into_iter().filter_map(Option::take).count();
        let states = [&mut self.failure, &mut self.cuda_graphs_skipped].into_iter().flatten();
        let states = states.map(|text| *text = "…".to_owned()).count();
        (names + states + std::mem::take(&mut self.restart_reasons).len()) as u64
    }
}

/// A graph break as PyTorch reports it. If a recompilation has the same break, PyTorch reports it
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphBreak {
    /// The compilation in which the break happened.
    pub compile_id: CompileId,
    /// The user's file; `None` if the log doesn't name it.
    pub file: Option<String>,
    /// The line in the user's file.
    pub line: Option<u32>,
    /// The reason, one line; `None` if this version of PyTorch doesn't log it (2.4).
    pub reason: Option<String>,
    /// PyTorch's explanation of the break.
    pub explanation: Option<String>,
    /// PyTorch's advice, one line each.
    pub hints: Vec<String>,
}

/// A recompilation of a function, and why the code that existed didn't fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recompiled {
    /// The new compilation.
    pub id: CompileId,
    /// The guards that failed, those of the latest code first.
    pub reasons: Vec<String>,
}

/// The outcome of a cache look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheOutcome {
    /// The graph was found.
    Hit,
    /// The graph was not found, so it was compiled and stored.
    Miss,
    /// The cache wasn't used, because the graph can't be stored.
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
    /// Id of the compilation that used the cache.
    pub id: CompileId,
    /// The reason for a bypass, if the log has it.
    pub why: Option<String>,
}

/// A file of generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedCode {
    /// Id of the compilation.
    pub id: CompileId,
    /// Path to which the process wrote the code.
    pub path: Option<String>,
    /// The code's kernels; `None` if the log lacks the code, or has only a part of it.
    pub kernels: Option<Vec<GeneratedKernel>>,
}

/// Counts the content of a log that its [`CompileLog`] lacks because of the reader's bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of compilations (each of their events), breaks, recompilations, look-ups, graphs and
    /// files of code.
    pub rows: u64,
    /// Number of parts of kept rows: reasons, hints, kernels, operators of a kernel, names.
    pub parts: u64,
    /// Number of names of files, which compilations refer to, and of graphs whose nodes kernels
    /// refer to.
    pub names: u64,
    /// Number of payloads of which only the beginning was read.
    pub payloads: u64,
}

impl LeftOut {
    /// Returns the sum of all counts.
    pub fn count(&self) -> u64 {
        [self.parts, self.names, self.payloads].into_iter().fold(self.rows, u64::saturating_add)
    }
}

/// The log of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileLog {
    /// Pid of the process, as the process itself sees it.
    pub pid: Option<u32>,
    /// Rank of the process, if `torch.distributed` was initialized when the process wrote the log.
    pub rank: Option<u32>,
    /// Version of PyTorch, if the log has it.
    pub torch: Option<String>,
    /// Times of the first and the last line, microseconds since 1970. `None` if no event contains
    /// the time since 1970, because the prefixes have no year.
    pub extent_unix_us: Option<(u64, u64)>,
    /// Events by name.
    pub events: BTreeMap<String, EventCount>,
    /// Number of lines that are neither an event nor part of a payload.
    pub damaged: u64,
    /// Whether this version of PyTorch logs why it recorded no CUDA graph. If not, a missing reason
    /// means nothing.
    pub states_cuda_graphs: bool,
    /// Number of bytes of the original log that tprof left out when it copied the log into the run.
    pub bytes_not_kept: u64,
    /// Whether the last line has no end.
    pub is_cut: bool,
    /// Whether the log has more text than was read.
    pub is_read_in_part: bool,
    /// Counts the content that the fields below lack.
    pub left_out: LeftOut,
    /// Size of these rows and of what they refer to, bytes.
    pub kept_bytes: usize,
    /// Number of bytes that were read.
    pub bytes: u64,
    /// Compilations, in order of their beginning.
    pub frames: Vec<CompiledFrame>,
    /// Breaks, in order.
    pub graph_breaks: Vec<GraphBreak>,
    /// Recompilations, in order.
    pub recompiled: Vec<Recompiled>,
    /// Look-ups, in order.
    pub caches: Vec<CacheUse>,
    /// Operators of graphs, by compilation and stage.
    pub graphs: Vec<(CompileId, GraphStage, OperatorCounts)>,
    /// Code that Inductor generated.
    pub code: Vec<GeneratedCode>,
}

impl CompileLog {
    /// Whether the log contains all compilations, breaks and look-ups of its process. Only then
    /// does the absence of one mean that it didn't happen.
    pub fn is_whole(&self) -> bool {
        self.bytes_not_kept == 0 && !self.is_read_in_part && self.left_out.rows == 0
    }
}
