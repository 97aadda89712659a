//! Adds events and payloads to a [`CompileLog`], within its bounds.

use super::bounds::{Bounds, Budget, Kept};
use super::code::{GraphLines, find_kernels};
use super::dates::{PrefixTime, Zone};
use super::events::{self, EventUse};
use super::graph::{GraphStage, count_operators};
use super::graph_break;
use super::head::{Head, StackFrame};
use super::log::{
    CacheOutcome, CacheUse, CompileId, CompileLog, CompiledFrame, GeneratedCode, GraphBreak,
    Recompiled,
};
use super::metrics::Metrics;
use super::nodes::NodeLines;
use super::numbers::{Numbers, Stage};
use super::payload;
use super::stacks;
use super::texts::{one_line, short};
use rustc_hash::{FxHashMap, FxHashSet};

/// Maximum length of an interned text, bytes.
const MAX_TEXT: usize = 4 << 10;
/// Maximum total size of interned texts, bytes.
const MAX_TEXTS: usize = 16 << 20;
/// Maximum total size of the lines of nodes while a log is read, bytes.
const MAX_NODES: usize = 32 << 20;
/// Approximate size of an entry in the tables of frames and texts, bytes, without what it refers
/// to.
const ENTRY_BYTES: usize = 96;

/// The compilation that an event belongs to, and the time when it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventAt {
    pub id: CompileId,
    pub attempt: Option<u32>,
    pub time: PrefixTime,
}

/// The content of a log while it is being read.
#[derive(Debug)]
pub(super) struct LogRows {
    pub log: CompileLog,
    bounds: Bounds,
    budget: Budget,
    strings: FxHashMap<u64, String>,
    strings_bytes: usize,
    /// Lines of the nodes of traced graphs, for the kernels that will be generated from these
    /// graphs.
    nodes: FxHashMap<CompileId, NodeLines>,
    nodes_bytes: usize,
    /// Lines of the nodes of the last graph that Inductor received. The code that Inductor generates
    /// from this graph comes next in the log.
    lowered: Option<(CompileId, NodeLines)>,
    /// Index of the latest frame of each compilation and direction (backward or not).
    frames: FxHashMap<(CompileId, bool), usize>,
    numbers: Numbers,
    zone: Option<Zone>,
    /// Times in the first and the last prefix.
    times: Option<(PrefixTime, PrefixTime)>,
    /// For frames that began before the zone was known: the frame's index, and the prefix at its
    /// beginning. `ended` has the prefixes at the ends of frames without a duration.
    began: Vec<(usize, PrefixTime)>,
    ended: Vec<(usize, PrefixTime)>,
}

impl LogRows {
    pub(super) fn new(bounds: Bounds) -> LogRows {
        LogRows {
            log: CompileLog::default(),
            bounds,
            budget: Budget::new(bounds.kept),
            strings: FxHashMap::default(),
            strings_bytes: 0,
            nodes: FxHashMap::default(),
            nodes_bytes: 0,
            lowered: None,
            frames: FxHashMap::default(),
            numbers: Numbers::default(),
            zone: None,
            times: None,
            began: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Counts an event. Returns the name under which it was counted.
    pub(super) fn count(
        &mut self,
        at: PrefixTime,
        head: &Head,
        artifact: Option<&str>,
        bytes: u64,
    ) -> String {
        let first = self.times.map_or(at, |times| times.0);
        self.times = Some((first, at));
        self.log.rank = self.log.rank.or(head.rank);
        let (name, of) = match artifact {
            Some(name) => events::artifact(name),
            None => (head.event.clone(), events::use_of(&head.event)),
        };
        let name = if of == EventUse::Unknown { name.chars().take(80).collect() } else { name };
        events::count(&mut self.log.events, name, of, bytes)
    }

    /// Whether it is still unknown how the prefixes relate to the time since 1970.
    pub(super) fn lacks_zone(&self) -> bool {
        self.zone.is_none()
    }

    /// Counts the payload as left out in part if `is_cut`.
    pub(super) fn payload_ends(&mut self, is_cut: bool) {
        self.budget.left_out.payloads += u64::from(is_cut);
    }

    pub(super) fn anchor(&mut self, at: PrefixTime, unix_us: u64) {
        self.zone = Some(Zone::of(at, unix_us));
    }

    pub(super) fn intern(&mut self, text: String, number: u64) {
        let bytes = text.len() + ENTRY_BYTES;
        let fits = text.len() <= MAX_TEXT && self.strings_bytes + bytes <= MAX_TEXTS;
        if fits && self.budget.takes(bytes) {
            self.strings_bytes += bytes;
            self.strings.insert(number, text);
        } else {
            self.budget.left_out.names += 1;
        }
    }

    /// Returns which of the compilations with its number an event belongs to.
    pub(super) fn compilation(&mut self, id: CompileId, stage: Stage) -> CompileId {
        self.numbers.compilation(id, stage, &mut self.budget)
    }

    /// Returns the frame of this compilation and direction, and creates it if there is none. If
    /// `is_end` and the known frame has ended, creates another one, because a graph that was split
    /// has a backward graph for each part.
    fn frame(
        &mut self,
        id: CompileId,
        is_backward: bool,
        at: PrefixTime,
        is_end: bool,
    ) -> Option<&mut CompiledFrame> {
        let next = self.log.frames.len();
        let known = self.frames.get(&(id, is_backward)).copied();
        let index = match known.filter(|&index| !(is_end && self.log.frames[index].is_ended)) {
            Some(index) => index,
            None => {
                let frame = CompiledFrame { id, is_backward, ..CompiledFrame::default() };
                if !self.budget.takes(frame.bytes() + ENTRY_BYTES) {
                    self.budget.left_out.rows += 1;
                    return None;
                }
                self.frames.insert((id, is_backward), next);
                self.log.frames.push(frame);
                self.began.push((next, at));
                next
            }
        };
        self.log.frames.get_mut(index)
    }

    /// Handles the beginning of a compilation.
    pub(super) fn start(&mut self, at: EventAt, place: Option<StackFrame>) {
        let file = place.as_ref().and_then(|place| self.strings.get(&place.filename?).cloned());
        let Some(frame) = self.frame(at.id, false, at.time, false) else { return };
        let before = frame.referred();
        frame.attempts = frame.attempts.max(at.attempt.unwrap_or(0).saturating_add(1));
        if let Some(place) = place {
            frame.function = place.name.as_deref().map(short);
            (frame.file, frame.line) = (file, place.line);
        }
        self.frame_grew(at.id, false, before);
    }

    /// Handles the figures of a compilation, or of a run of compiled code.
    pub(super) fn metrics(&mut self, at: EventAt, event: &str, metrics: Metrics) {
        let EventAt { id, attempt, time } = at;
        let is_backward = metrics.is_backward(event);
        self.log.states_cuda_graphs |= metrics.states_cuda_graphs();
        if self.zone.is_none()
            && let Some(began) = metrics.start_unix_us()
        {
            // The prefix was written at the end of the compilation, which may be minutes after its
            // beginning. The zone is rounded to a quarter hour, so compare the prefix with the time
            // of the end.
            let end = began.saturating_add(metrics.total_us(is_backward).unwrap_or(0));
            self.anchor(time, end);
        }
        if metrics.is_of_run(event) {
            // Don't create a frame here. A backward graph that was compiled together with its
            // forward graph has no separate frame, and an invented frame would have no end.
            let is_known = |is_backward: &bool| self.frames.contains_key(&(id, *is_backward));
            if let Some(direction) = [is_backward, false].into_iter().find(is_known)
                && let Some(frame) = self.frame(id, direction, time, false)
            {
                let before = frame.referred();
                metrics.add_run(frame);
                self.frame_grew(id, direction, before);
            }
            return;
        }
        let place =
            |frame: &CompiledFrame| (frame.function.clone(), frame.file.clone(), frame.line);
        let forward = self.frames.get(&(id, false)).and_then(|&at| self.log.frames.get(at));
        let forward = forward.filter(|_| is_backward).map(place);
        self.budget.left_out.parts += metrics.reasons_left_out();
        let Some(frame) = self.frame(id, is_backward, time, true) else { return };
        let before = frame.referred();
        frame.attempts = frame.attempts.max(attempt.unwrap_or(0).saturating_add(1));
        metrics.add_to(frame);
        if let Some(forward) = forward.filter(|_| frame.function.is_none()) {
            (frame.function, frame.file, frame.line) = forward;
        }
        if frame.total_us.is_none()
            && let Some(&index) = self.frames.get(&(id, is_backward))
        {
            self.ended.push((index, time));
        }
        self.frame_grew(id, is_backward, before);
    }

    /// Charges the growth of a frame's texts to the budget. If they exceed it, the texts are
    /// removed.
    fn frame_grew(&mut self, id: CompileId, is_backward: bool, before: usize) {
        let index = self.frames.get(&(id, is_backward)).copied();
        let Some(frame) = index.and_then(|index| self.log.frames.get_mut(index)) else { return };
        if !self.budget.takes(frame.referred().saturating_sub(before)) {
            self.budget.left_out.parts += frame.drop_texts();
        }
    }

    /// Adds a file of generated code. Its payload has the code.
    pub(super) fn code(&mut self, id: CompileId, path: Option<String>) {
        let path = path.map(|path| short(&path));
        let row = GeneratedCode { id, path, kernels: None };
        self.budget.push(&mut self.log.code, row);
    }

    /// Finds the kernels in the generated code.
    pub(super) fn kernels(&mut self, id: CompileId, text: &str) {
        let lowered = self.lowered.take().filter(|(of, _)| *of == id);
        let lowered = lowered.as_ref().map(|(_, lines)| lines);
        let found = find_kernels(text, GraphLines { traced: self.nodes.get(&id), lowered });
        self.budget.left_out.parts += found.parts_left_out;
        let code = self.log.code.last_mut().filter(|code| code.id == id && code.kernels.is_none());
        let bytes = found.kernels.referred();
        match code {
            Some(code) if found.kernels_left_out == 0 && self.budget.takes(bytes) => {
                code.kernels = Some(found.kernels);
            }
            _ => {
                let count = found.kernels.len() as u64;
                self.budget.left_out.parts += count.saturating_add(found.kernels_left_out);
            }
        }
    }

    /// Adds source lines to the kernels of the code that was last generated for this compilation.
    pub(super) fn kernel_stacks(&mut self, id: CompileId, text: &str) {
        let (found, left_out) = stacks::parse(text);
        self.budget.left_out.parts += left_out;
        let code = self.log.code.iter_mut().rev().find(|code| code.id == id);
        let Some(kernels) = code.and_then(|code| code.kernels.as_mut()) else { return };
        let mut by_name: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (at, kernel) in kernels.iter().enumerate() {
            by_name.entry(kernel.name.clone()).or_default().push(at);
        }
        for lines in &found {
            for &at in by_name.get(&lines.kernel).into_iter().flatten() {
                let kernel = &mut kernels[at];
                let before = (kernel.sources.len(), kernel.referred());
                self.budget.left_out.parts += kernel.add_lines(lines);
                if !self.budget.takes(kernel.referred() - before.1) {
                    self.budget.left_out.parts += (kernel.sources.len() - before.0) as u64;
                    kernel.sources.truncate(before.0);
                }
            }
        }
    }

    pub(super) fn graph_break(&mut self, id: CompileId, text: &str) {
        let (found, hints_left_out) = graph_break::parse(text);
        self.budget.left_out.parts += hints_left_out;
        let row = GraphBreak { compile_id: id, ..found };
        self.budget.push(&mut self.log.graph_breaks, row);
    }

    pub(super) fn recompiled(&mut self, id: CompileId, text: &str) {
        let (reasons, more) = payload::reasons(text);
        self.budget.left_out.parts += more;
        self.budget.push(&mut self.log.recompiled, Recompiled { id, reasons });
    }

    pub(super) fn cache(
        &mut self,
        id: CompileId,
        cache: &'static str,
        outcome: CacheOutcome,
        why: Option<String>,
    ) {
        self.budget.push(&mut self.log.caches, CacheUse { cache, outcome, id, why });
    }

    pub(super) fn graph(&mut self, id: CompileId, stage: GraphStage, text: &str) {
        if stage == GraphStage::Traced {
            // A graph that is traced again replaces the graph before.
            let before = self.nodes.remove(&id).map_or(0, |nodes| nodes.bytes);
            self.nodes_bytes -= before;
            match NodeLines::of(text, MAX_NODES - self.nodes_bytes) {
                Some(nodes) => {
                    self.nodes_bytes += nodes.bytes;
                    self.nodes.insert(id, nodes);
                }
                None => self.budget.left_out.names += 1,
            }
        }
        if stage == GraphStage::Lowered {
            let lines = NodeLines::of(text, MAX_NODES);
            self.budget.left_out.names += u64::from(lines.is_none());
            self.lowered = lines.map(|lines| (id, lines));
        }
        self.budget.push(&mut self.log.graphs, (id, stage, count_operators(text)));
    }

    /// Returns everything that was found.
    pub(super) fn finish(mut self) -> CompileLog {
        if let (Some(zone), Some((first, last))) = (self.zone, self.times) {
            self.log.extent_unix_us = Some((zone.unix_us(first), zone.unix_us(last)));
            for (index, at) in std::mem::take(&mut self.began) {
                self.log.frames[index].start_unix_us.get_or_insert(zone.unix_us(at));
            }
            for (index, at) in std::mem::take(&mut self.ended) {
                self.log.frames[index].end_unix_us = Some(zone.unix_us(at));
            }
        }
        self.derive();
        self.log.left_out = self.budget.left_out;
        self.log.kept_bytes = self.bounds.kept - self.budget.left() - self.strings_bytes;
        self.log
    }

    /// Derives facts that some versions of PyTorch don't log but that frames show. The name of a
    /// function that resumes shows that there was a graph break before it. The number of a
    /// compilation shows that the function was recompiled.
    fn derive(&mut self) {
        let CompileLog { frames, graph_breaks, recompiled, .. } = &mut self.log;
        if graph_breaks.is_empty() {
            let behind = frames.iter().filter(|frame| frame.id.compile == Some(0));
            let found = behind.filter_map(graph_break::before);
            found.for_each(|row| self.budget.push(graph_breaks, row));
        }
        let known: FxHashSet<CompileId> = recompiled.iter().map(|one| one.id).collect();
        let again = frames.iter().filter(|frame| {
            let is_again = frame.id.compile.is_some_and(|number| number > 0);
            is_again && !frame.is_backward && !known.contains(&frame.id)
        });
        let found = again.map(|frame| Recompiled {
            id: frame.id,
            reasons: frame.recompile_reason.iter().map(|one| one_line(one)).collect(),
        });
        found.for_each(|row| self.budget.push(recompiled, row));
    }
}
