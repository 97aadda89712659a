//! What a log says: functions compiled, breaks, recompilations, caches, kernels.

use super::code::GeneratedKernel;
use super::events::EventCount;
use super::graph::{GraphStage, OperatorCounts};
use std::collections::BTreeMap;
use std::fmt;

/// Which compilation: `3/1` is the second one of the process's fourth function, and `3/1#2` the second
/// compilation that PyTorch gave this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompileId {
    /// Of compiled autograd.
    pub autograd: Option<u32>,
    /// The function.
    pub frame: Option<u32>,
    /// Its compilation, from 0.
    pub compile: Option<u32>,
    /// How often the process had given these numbers before: `torch._dynamo.reset()` numbers anew.
    pub given_before: u32,
}

impl CompileId {
    /// As PyTorch writes it, which does not tell apart those that it numbers alike.
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

/// Time by phase, microseconds; what is within another is not in that.
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
    /// Which.
    pub id: CompileId,
    /// Whether it is of a backward graph.
    pub is_backward: bool,
    /// The function's name.
    pub function: Option<String>,
    /// Its file.
    pub file: Option<String>,
    /// Its first line.
    pub line: Option<u32>,
    /// How often it was begun: a graph break or a changed assumption begins it again.
    pub attempts: u32,
    /// When it began, microseconds since 1970.
    pub start_unix_us: Option<u64>,
    /// Whether the log has its end.
    pub is_ended: bool,
    /// How long it took; none of one without an end, or where this PyTorch does not log it.
    pub total_us: Option<u64>,
    /// When it ended, microseconds since 1970, where its length is not known.
    pub end_unix_us: Option<u64>,
    /// Of it.
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
    /// What writing this log took, microseconds, by PyTorch's own clock.
    pub logging_us: Option<u64>,
}

impl CompiledFrame {
    /// Removes what texts it has, and counts them; that it failed, or has no CUDA graph, stays.
    pub(super) fn drop_texts(&mut self) -> u64 {
        let names = [&mut self.function, &mut self.file, &mut self.recompile_reason];
        let names = names.into_iter().filter_map(Option::take).count();
        let states = [&mut self.failure, &mut self.cuda_graphs_skipped].into_iter().flatten();
        let states = states.map(|text| *text = "…".to_owned()).count();
        (names + states + std::mem::take(&mut self.restart_reasons).len()) as u64
    }
}

/// A graph break, as PyTorch states it. One that a recompilation repeats is stated again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphBreak {
    /// The compilation that met it.
    pub compile_id: CompileId,
    /// The user's file; none where the log does not name it.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The reason, one line; none of a PyTorch that does not log it (2.4).
    pub reason: Option<String>,
    /// What PyTorch says of it.
    pub explanation: Option<String>,
    /// What PyTorch advises, a line each.
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

/// What became of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheOutcome {
    /// Found.
    Hit,
    /// Not found: compiled, and stored.
    Miss,
    /// Not asked for, since the graph cannot be stored.
    Bypass,
}

impl CacheOutcome {
    /// As reports name it.
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
    /// `fx_graph`, `aotautograd`.
    pub cache: &'static str,
    /// What became of it.
    pub outcome: CacheOutcome,
    /// For which compilation.
    pub id: CompileId,
    /// Why it was bypassed, where the log has that.
    pub why: Option<String>,
}

/// A file of generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedCode {
    /// Of which compilation.
    pub id: CompileId,
    /// Where the process wrote it.
    pub path: Option<String>,
    /// Its kernels; none where the log lacks the code itself.
    pub kernels: Option<Vec<GeneratedKernel>>,
}

/// What a log has, and its [`CompileLog`] does not, since a bound of the reader was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Compilations (each of its events), breaks, recompilations, look-ups, graphs, files of code.
    pub rows: u64,
    /// Of rows that are there: reasons, hints, kernels, operators of a kernel, names.
    pub parts: u64,
    /// Names of files, which compilations refer to, and graphs' nodes, which kernels refer to.
    pub names: u64,
    /// Payloads of which only the beginning was read.
    pub payloads: u64,
}

impl LeftOut {
    /// All of it, counted.
    pub fn count(&self) -> u64 {
        [self.parts, self.names, self.payloads].into_iter().fold(self.rows, u64::saturating_add)
    }
}

/// A process's log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileLog {
    /// The process, as it counts itself.
    pub pid: Option<u32>,
    /// Its rank, where it was initialised by then.
    pub rank: Option<u32>,
    /// Version of PyTorch, where the log has it.
    pub torch: Option<String>,
    /// The first and the last line, microseconds since 1970; none where no event has the time
    /// since 1970, which the prefixes lack.
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
    /// Whether its text goes on beyond what was read of it.
    pub is_read_in_part: bool,
    /// What is not in the fields below.
    pub left_out: LeftOut,
    /// Bytes of these and of what they refer to.
    pub kept_bytes: usize,
    /// Bytes read.
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
    /// Generated code.
    pub code: Vec<GeneratedCode>,
}

impl CompileLog {
    /// Whether it has all compilations, breaks and look-ups of its process: only then the absence of
    /// one is known.
    pub fn is_whole(&self) -> bool {
        self.bytes_not_kept == 0 && !self.is_read_in_part && self.left_out.rows == 0
    }
}
